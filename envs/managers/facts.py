"""What is known of a task of managers only once it was made: sizes, the table of its state, its terms."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Type

from envolve.envs.managers.envs import make_managed_envs
from envolve.envs.managers.paths import places
from envolve.envs.managers.quantities import plain
from envolve.envs.managers.task import ManagedTask, managed_task
from envolve.envs.shaping.candidate import Candidate

_measured: Dict[str, Type[ManagedTask]] = {}


def measured(name: str) -> Type[ManagedTask]:
    """The class of a task with its facts filled in, from an environment that is made for this, once per process.
    Raises SimulatorError."""
    cls = managed_task(name)
    if cls.name not in _measured:
        envs = make_managed_envs(cls.name, [Candidate("facts")], 1, 0)
        task: Any = envs.task
        cls.max_steps, cls.action_size, cls.goal_size = task.max_steps, task.action_size, task.goal_size
        cls.goal_meaning = ", ".join(f"command {n!r} [{w}]" for n, w in task.command_widths().items())
        cls.step_seconds, cls.features = task.dt, envs.observation_sizes[0]
        cls.bodies, cls.joints = task.rest.root_state.shape[1], task.rest.joint_position.shape[1]
        cls.columns = dict(task._columns)
        cls.reward_text = _reward_text(envs.world.env)
        envs.world.close()
        _measured[cls.name] = cls
    return _measured[cls.name]


def _reward_text(env: Any) -> str:
    """The task's own reward as a function of its terms, for a language model."""
    manager, lines = env.reward_manager, []
    for name in manager.active_terms:
        cfg = manager.get_term_cfg(name)
        function = getattr(cfg.func, "function", cfg.func)
        about = (inspect.getdoc(function) or "").split("\n")[0]
        if cfg.weight:
            lines.append(f'        {cfg.weight:+g} * state["term_{plain(name)}"]' + (f"  # {about}" if about else ""))
    return "def compute_reward(state):\n    total = (\n" + "\n".join(lines) + "\n    )\n    return total, {}"


def numbers(name: str) -> Dict[str, float]:
    """Numbers of the task's terms that candidates may change, by path, with the task's values. Raises
    SimulatorError."""
    cls = managed_task(name)
    return {path: place.value for path, place in places(cls.library.configuration(cls.name, 1)).items()}


def described(name: str) -> List[str]:
    """A page about the task, Markdown, in lines. Raises SimulatorError."""
    cls = measured(name)
    lines = [
        f"### {cls.name}", "",
        f"Score ({cls.score_unit}): {cls.score_meaning}. A control step is {cls.step_seconds:g} s, an episode at most "
        f"{cls.max_steps} of them. The task's own policy sees {cls.features} numbers and has {cls.action_size} "
        f"actions; "
        f"`compute_torque` returns what the action terms take, {cls.action_size} numbers."
        + (f" `compute_goal` sets {cls.goal_size} numbers: {cls.goal_meaning}." if cls.goal_size else ""), "",
        "| name | shape | unit | meaning |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for quantity, q in cls.columns.items():
        shape = ", ".join(["n", *map(str, q.shape)])
        lines.append(f"| `{quantity}` | [{shape}] | {q.unit} | {q.meaning} |")
    lines += ["", "Numbers of the task's terms:", "", "| path | value |", "| --- | --- |"]
    return [*lines, *(f"| `{path}` | {value:.6g} |" for path, value in numbers(name).items())]
