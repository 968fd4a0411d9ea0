"""Simulation alone: control steps per second with random actions, N = 1024 environments, no agent, no learning.

    python -m benchmarks.physics HalfCheetah [IMPLEMENTATION] [--json FILE]

Per CPU second: ``task`` (measured, scored and observed), ``shaped`` (all of ShapedEnvs: rewards, ends, resets),
``gymnasiums_options`` (``task`` with integrator, solver and islands as in Gymnasium's model), ``engine`` (MuJoCo and
nothing else), ``gymnasium`` (its SyncVectorEnv of 64). Per second of time: ``wall`` (``shaped`` on two threads) and
``gymnasium_wall``, ``gymnasium_async_wall`` (AsyncVectorEnv of 16): they mean something on two free cores only.
``cuda`` is ``shaped`` by mujoco_warp on a GPU, per second of time; --members sets N.
The case is a task that is taken from Gymnasium.
"""

from __future__ import annotations

import re
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import torch

import envolve.envs.physics  # noqa: F401  # registers the tasks
from benchmarks.common.harness import Timed, cpu_time, main, measure
from envolve.envs.physics.task import PhysicsTask, physics_task
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.mujoco_cpu import MuJoCoCPU
from envolve.envs.sim.simulator import MODELS, make_simulator

N, ACTIONS = 1024, 8  # environments; random actions are drawn before and used in turn
GYMNASIUMS_OPTIONS = {  # pattern -> replacement in our model file; see envs/models/LICENSES.md
    "Ant": {'integrator="implicitfast"': 'integrator="RK4"'},
    "Humanoid": {'integrator="implicitfast"': 'integrator="RK4"', 'solver="Newton"': 'solver="PGS"'},
}


def wall_time(run: Callable[[int], Any]) -> Timed:
    def timed(n: int) -> Tuple[int, float]:
        began = time.perf_counter()
        run(n)
        return n, time.perf_counter() - began

    return timed


def made(name: str, path: Optional[Path] = None, threads: int = 1) -> PhysicsTask:
    cls = physics_task(name)
    return cls(MuJoCoCPU(path or MODELS / cls.model, N, cls.outputs, threads, torch.device("cpu")))


def actions_of(task: PhysicsTask) -> torch.Tensor:
    shape = ACTIONS, task.num_envs, task.action_size
    return (2 * torch.rand(shape, generator=torch.Generator().manual_seed(0)) - 1).to(task.sim.device)


def speed(run: Callable[[int], Any], n: int, quick: bool, timer: Callable[..., Timed] = cpu_time) -> Dict[str, Any]:
    timed = timer(run)
    run(1 if quick else 50)  # until the robots lie as random actions let them
    return measure(lambda steps: (steps * n, timed(steps)[1]), 2, quick=quick)


def begun(task: PhysicsTask) -> ShapedEnvs:
    shaped = ShapedEnvs(task, [Candidate("human")], key=0)
    shaped.begin()
    return shaped


def task_alone(case: str, members: Optional[int], quick: bool, path: Optional[Path] = None) -> Dict[str, Any]:
    task = made(case, path)
    begun(task)
    actions = actions_of(task)

    def run(steps: int) -> None:
        for i in range(steps):
            task.before_step()
            effort = task.compute_torque(actions[i % ACTIONS], task.state)
            task.sim.set_effort(effort)
            task.sim.step(task.substeps)
            task.state["torque"].copy_(effort)
            task.measure()
            task.after_step()
            task.score()
            task.compute_observation(task.state)

    return speed(run, N, quick)


def gymnasiums_options(case: str, members: Optional[int], quick: bool) -> Dict[str, Any]:
    text = (MODELS / physics_task(case).model).read_text()
    for pattern, replacement in {**GYMNASIUMS_OPTIONS.get(case, {}), r'<flag island="disable"/>': ""}.items():
        text = re.sub(pattern, replacement, text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.xml"
        path.write_text(text)
        return task_alone(case, members, quick, path)


def shaped(
    case: str, members: Optional[int], quick: bool, threads: int = 1, timer: Callable[..., Timed] = cpu_time
) -> Dict[str, Any]:
    task = made(case, threads=threads)
    driven, actions = begun(task), actions_of(task)

    def run(steps: int) -> None:
        for i in range(steps):
            driven.step(actions[i % ACTIONS][None])

    return speed(run, N, quick, timer)


def cuda(case: str, members: Optional[int], quick: bool, device: str = "cuda") -> Dict[str, Any]:
    cls, n = physics_task(case), members or N
    task = cls(make_simulator("mujoco_warp", cls.model, n, cls.outputs, device=device))
    driven, actions = begun(task), actions_of(task)

    def run(steps: int) -> None:
        for i in range(steps):
            driven.step(actions[i % ACTIONS][None])
        driven.reward.sum().item()  # waits for the GPU

    return {**speed(run, n, quick, wall_time), "members": n, "clock": "wall"}


def engine(case: str, members: Optional[int], quick: bool) -> Dict[str, Any]:
    task = made(case)
    sim, actions = task.sim, actions_of(task)
    assert isinstance(sim, MuJoCoCPU)
    controls = [task.compute_torque(a, task.state).double() / sim.layout.gear for a in actions]

    def run(steps: int) -> None:
        for i in range(steps):
            sim.ctrl.copy_(controls[i % ACTIONS])
            sim.batch.step(nstep=task.substeps)

    return speed(run, N, quick)


def gymnasium(
    case: str, members: Optional[int], quick: bool, mode: str = "sync", n: int = 64, timer: Any = cpu_time
) -> Dict[str, Any]:
    import gymnasium as gym

    made_by_gymnasium = gym.make_vec(f"{case}-v5", num_envs=n, vectorization_mode=mode)
    space, generator = made_by_gymnasium.single_action_space, np.random.default_rng(0)
    actions = generator.uniform(space.low, space.high, (ACTIONS, n, *space.shape)).astype(np.float32)  # type: ignore
    made_by_gymnasium.reset(seed=0)

    def run(steps: int) -> None:
        for i in range(steps):
            made_by_gymnasium.step(actions[i % ACTIONS])

    try:
        return speed(run, n, quick, timer)
    finally:
        made_by_gymnasium.close()


if __name__ == "__main__":
    main(
        __doc__,
        {
            "task": task_alone,
            "shaped": shaped,
            "gymnasiums_options": gymnasiums_options,
            "engine": engine,
            "cuda": cuda,
            "gymnasium": gymnasium,
            "wall": partial(shaped, threads=2, timer=wall_time),
            "gymnasium_wall": partial(gymnasium, timer=wall_time),
            "gymnasium_async_wall": partial(gymnasium, mode="async", n=16, timer=wall_time),
        },
    )
