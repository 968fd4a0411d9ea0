"""Tasks in a physics engine. Importing this package registers all of them."""

from envs.physics import ant as ant
from envs.physics import anymal as anymal
from envs.physics import ball_balance as ball_balance
from envs.physics import cartpole as cartpole
from envs.physics import half_cheetah as half_cheetah
from envs.physics import humanoid as humanoid
from envs.physics import pusher as pusher
from envs.physics import quadcopter as quadcopter
from envs.physics import reacher as reacher
