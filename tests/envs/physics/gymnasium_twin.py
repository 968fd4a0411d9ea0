"""Our tasks beside Gymnasium's environments: the same initial states, the same controls, step for step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import gymnasium
import mujoco
import numpy as np
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.physics.task import PhysicsTask, Pose, Random, physics_task
from envolve.envs.sim.mujoco_cpu import MuJoCoCPU
from envolve.envs.sim.simulator import MODELS

GYMNASIUM_ASSETS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
PHYSICS = (
    "body_",
    "jnt_",
    "dof_",
    "geom_",
    "actuator_",
    "tendon_",
    "wrap_",
    "eq_",
    "pair_",
    "exclude_",
    "qpos",
)  # fields


def make(name: str, num_envs: int, path: Optional[Path] = None) -> PhysicsTask:
    cls = physics_task(name)
    return cls(MuJoCoCPU(path or MODELS / cls.model, num_envs, cls.outputs, 1, torch.device("cpu")))


def draw(task: PhysicsTask, n: int, seed: int) -> Random:
    """Random numbers for n resets."""
    counter = torch.arange(n * task.random_numbers).view(n, -1)
    key = torch.tensor(seed)
    return Random(rng.uniform(rng.fold(key, 1), counter), rng.normal(rng.fold(key, 2), counter))


def begin(task: PhysicsTask, ids: Tensor, seed: int) -> None:
    """Begin episodes in environments ids, as a driver does."""
    n, random = len(ids), draw(task, len(ids), seed)
    own = {name: value[ids] for name, value in task.state.items()}
    goal = task.compute_goal(own, draw(task, n, seed + 1))
    if goal is not None:
        own["goal"] = task.state["goal"][ids] = goal
    pose = task.compute_initial_state(own, random, Pose(*(part.expand(n, *part.shape) for part in task.rest)))
    task.sim.set_state(ids, *task.place(pose, goal))
    task.state["torque"][ids] = 0
    task.state["progress"][ids] = 0
    task.measure()
    task.after_reset(ids)


def control_step(task: PhysicsTask, torque: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
    """One control step of all environments: reward [N] and its components."""
    task.before_step()
    task.sim.set_effort(torque)
    task.sim.step(task.substeps)
    task.state["torque"].copy_(torque)
    task.state["progress"] += 1
    task.measure()
    task.after_step()
    reward = task.compute_reward(task.state)
    assert isinstance(reward, tuple)
    return reward


def gymnasium_twins(task: PhysicsTask, env_id: str, **kwargs: Any) -> List[Any]:
    """One Gymnasium environment for each of ours, in the state of ours."""
    sim, twins = task.sim, []
    assert isinstance(sim, MuJoCoCPU)
    for i in range(task.num_envs):
        env = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
        env.reset(seed=0)
        mujoco.mj_resetData(env.model, env.data)  # type: ignore[attr-defined]
        env.set_state(sim.qpos[i].numpy(), sim.qvel[i].numpy())  # type: ignore[attr-defined]
        twins.append(env)
    return twins


def assert_step_for_step(
    task: PhysicsTask, env_id: str, steps: int, skip: Sequence[str] = (), columns: slice = slice(None), **kwargs: Any
) -> int:
    """Random controls, the physics equal bit for bit, the rest to float32. skip: components of the reward, and columns:
    of the observation, that are compared. Every environment that ends begins anew in both. Returns how many ended."""
    sim = task.sim
    assert isinstance(sim, MuJoCoCPU)
    begin(task, torch.arange(task.num_envs), seed=3)
    twins = gymnasium_twins(task, env_id, **kwargs)
    generator = np.random.default_rng(5)
    ended = 0
    for i, twin in enumerate(twins):
        close(task.compute_observation(task.state)[i, columns], twin._get_obs()[columns])
    for step in range(steps):
        action = torch.from_numpy(generator.integers(-64, 65, (task.num_envs, task.action_size)) / 64).float()
        torque = task.compute_torque(action, task.state)
        reward, components = control_step(task, torque)
        observation, terminal = task.compute_observation(task.state), task.compute_terminal(task.state)
        controls = sim.ctrl.numpy().copy()  # what ours made of the torque: action x range, exactly
        for i, twin in enumerate(twins):
            theirs, their_reward, their_end, _, info = twin.step(controls[i])
            where = f"step {step}, environment {i}"
            assert np.array_equal(sim.qpos[i], twin.data.qpos) and np.array_equal(sim.qvel[i], twin.data.qvel), where
            close(observation[i, columns], theirs[columns])
            assert bool(terminal[i]) == bool(their_end), where
            for name, value in components.items():
                if name not in skip:
                    close(value[i], info[GYMNASIUM_NAMES[name]])
            if not skip:
                assert {GYMNASIUM_NAMES[name] for name in components} == {n for n in info if n.startswith("reward_")}
                close(reward[i], their_reward)
            if their_end:
                ended += 1
                begin(task, torch.tensor([i]), seed=100 + step)
                mujoco.mj_resetData(twin.model, twin.data)
                twin.set_state(sim.qpos[i].numpy(), sim.qvel[i].numpy())
                close(task.compute_observation(task.state)[i, columns], twin._get_obs()[columns])
    return ended


GYMNASIUM_NAMES = {
    "forward": "reward_forward", "control": "reward_ctrl", "survive": "reward_survive", "contact": "reward_contact",
    "distance": "reward_dist", "near": "reward_near",
}  # fmt: skip


def close(ours: Tensor, theirs: Any) -> None:
    """Equal but for the cast to float32 and a few operations in it."""
    np.testing.assert_allclose(ours.double().numpy(), theirs, rtol=2e-5, atol=2e-5)


def assert_same_model(name: str, gymnasium_file: str, *differing: str) -> None:
    """Our model file is Gymnasium's but for its sensors and the options in ``differing``."""
    ours = mujoco.MjModel.from_xml_path(str(MODELS / physics_task(name).model))
    theirs = mujoco.MjModel.from_xml_path(str(GYMNASIUM_ASSETS / gymnasium_file))
    fields = [(ours, theirs, field) for field in dir(theirs) if field.startswith(PHYSICS)]
    fields += [(ours.opt, theirs.opt, field) for field in dir(theirs.opt) if not field.startswith("_")]
    assert len(fields) > 150
    for mine, other, field in fields:
        same = np.array_equal(getattr(mine, field), getattr(other, field))
        assert same != (field in differing), f"{field}: {getattr(mine, field)}, Gymnasium's {getattr(other, field)}"


def with_option(path: Path, folder: Path, **options: str) -> Path:
    """A copy of a model in ``folder`` with other integrator, solver, ..."""
    import re

    text = path.read_text()
    for option, value in options.items():
        text, changed = re.subn(rf'{option}="\w+"', f'{option}="{value}"', text)
        assert changed == 1, option
    (folder / path.name).write_text(text)
    return folder / path.name
