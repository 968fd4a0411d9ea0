"""What a plan depends on: the environment as it was measured, and how fast it and its learners are on this machine."""

from __future__ import annotations

import base64
import json
import math
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envolve.core import plugins
from envolve.core.environ import search_path, words_of
from envolve.envs.outside.build import OutsideError, file_and_class
from envolve.envs.outside.spaces import read_observation
from envolve.envs.task import make_task, mark_of

PROBE_SECONDS = 900.0  # until the process is ended
# Seconds per step of Stable-Baselines3's learners with their defaults, where they were not timed: one core, AMD EPYC.
USUAL_SECONDS = {"ppo": 7e-4, "a2c": 7e-4, "dqn": 5e-4, "sac": 7e-3, "td3": 5e-3}
TINY = 0.2  # the width of a feature that default learners take for a constant
SLOW_STEP = 5e-3  # seconds of a step of an environment that itself decides how long everything takes
LONGER = 50  # times the length with random actions that an episode may come to


@dataclass(frozen=True)
class Facts:
    """Facts about one environment on one machine. Everything that the clock decides is in here."""

    env: str  # gymnasium:ID
    features: int  # F
    num_actions: int  # 0: continuous
    action_size: int  # A; 0: discrete
    max_steps: int
    solved_reward: float | None  # None: the environment names no such mark
    random_return: float | None  # None: no episode ended while it was measured
    random_length: float  # mean steps of an episode with random actions
    measured_steps: int  # real steps that measuring took
    deterministic: bool
    cores: int
    tiny: tuple[int, ...] = ()  # features whose whole range is narrower than TINY
    whole: bool = False  # observations are integers, or nothing but one-hot codes
    combinations: int = 0  # of these codes; 0: not known
    step_seconds: float = 5e-5  # of one step of the environment, of many side by side
    member_seconds: float = 0.05  # of one training of 1,000 steps in a world of the usual size
    expert_seconds: float = 8e-4  # of one training step of an expert on the environment, of several side by side
    early_signal: bool = True  # episodes cut at a fifth of max_steps have returns that differ
    agent_seconds: Mapping[str, float] | None = None  # of one step of each unseen learner; None: as usual

    @property
    def continuous(self) -> bool:
        """Returns whether actions are numbers."""
        return self.num_actions == 0

    @property
    def longest(self) -> float:
        """Steps that episodes of agents that learn may come to. The time limit says nothing of a game of two steps that
        has none of its own."""
        return min(self.max_steps, LONGER * self.random_length)

    @property
    def likely_length(self) -> float:
        """Steps of an episode of agents that learn: it may become longer or shorter than with random actions."""
        return (self.random_length + self.longest) / 2


def facts_of(name: str, measured: Mapping[str, Any], cores: int) -> Facts:
    """What measuring has found, without any timing. The task has been registered."""
    task = make_task(name)
    own = read_observation(measured["observation"])
    episodes, steps = int(measured["random_episodes"]), int(measured["steps"])
    all_coded = sum(stop - start for start, stop in own.codes) == task.observation_size
    return Facts(
        env=name,
        features=task.observation_size,
        num_actions=task.num_actions,
        action_size=task.action_size,
        max_steps=task.max_steps,
        solved_reward=mark_of(task.solved_reward),
        random_return=measured["random_return"],
        random_length=steps / episodes if episodes else float(task.max_steps),
        measured_steps=steps,
        deterministic=bool(measured["deterministic"]),
        cores=cores,
        tiny=tuple(np.flatnonzero(own.high - own.low < TINY).tolist()),
        whole=all_coded or (np.issubdtype(own.dtype, np.integer) and not own.codes),
        combinations=math.prod(stop - start for start, stop in own.codes) if all_coded else 0,
    )


def probed(data: Mapping[str, Any], learners: list[str], quick: bool) -> dict[str, Any]:
    """Times the environment and learners in a child process -> the other fields of ``Facts``, and ``steps``: real steps
    that this took. data: a resolved configuration of the world that shall evolve. Raises OutsideError."""
    files = [base64.b64encode(content).decode() for content in _own_files(data)]
    request = {"data": data, "learners": learners, "quick": quick, "files": files}
    environ = dict(os.environ, PYTHONPATH=search_path(), OMP_NUM_THREADS="1")
    try:
        done = subprocess.run(
            words_of("envolve.outer.auto.probe"),
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=PROBE_SECONDS,
            env=environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OutsideError(f"{data['env_name']}: timing it took longer than {PROBE_SECONDS:.0f} s") from None
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "error" in answer:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        why = answer["error"] if isinstance(answer, dict) else f"its process ended with {ended}: {(said or [''])[-1]}"
        raise OutsideError(f"{data['env_name']}: {why}"[:1000])
    return answer


def _own_files(data: Mapping[str, Any]) -> list[bytes]:
    """Contents of the user's own files that a configuration names with their SHA-256; this process has read them."""
    name = data["env_name"]
    files = list(plugins.copies(data).values())
    if file_and_class(name) is not None:
        files.append(plugins.content_of(data["envs"][name]["sha256"]))
    return files
