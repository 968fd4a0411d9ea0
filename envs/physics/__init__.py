"""Tasks in a physics engine. Importing this package registers all of them."""

from envolve.envs.physics import allegro_hand as allegro_hand
from envolve.envs.physics import ant as ant
from envolve.envs.physics import anymal as anymal
from envolve.envs.physics import ball_balance as ball_balance
from envolve.envs.physics import cartpole as cartpole
from envolve.envs.physics import franka_cube_stack as franka_cube_stack
from envolve.envs.physics import half_cheetah as half_cheetah
from envolve.envs.physics import humanoid as humanoid
from envolve.envs.physics import pusher as pusher
from envolve.envs.physics import quadcopter as quadcopter
from envolve.envs.physics import reacher as reacher
