"""One agent that no world was evolved with: trained in the world or on the real environment, tested on the latter.

The agents are Stable-Baselines3's, with their default hyperparameters. Where it is not installed, they are this
project's learners of other kinds, with theirs. An agent trains for whole rollouts, never for more than its steps.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from envolve.agents import peers
from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.result import OK, REASONS
from envolve.core import plugins
from envolve.envs.outside.build import class_in_file, file_and_class, is_outside, maker
from envolve.envs.outside.spaces import Action, read_action
from envolve.envs.outside.watch import TooSlow, again, watched
from envolve.envs.task import NEVER_SOLVED, make_task
from envolve.envs.worlds.file import MODEL, read_world
from envolve.outer.config.load import load_config
from envolve.outer.evaluate.networks import BUDGET, REAL_BUDGET, evaluate
from envolve.outer.names import CONFIG_FILE

DISCRETE, CONTINUOUS = ("ppo", "dqn", "a2c"), ("ppo", "sac", "td3", "a2c")
OWN_DISCRETE, OWN_CONTINUOUS = ("ddqn", "duelingddqn", "td3_discrete", "ppo"), ("td3", "sac", "ppo")
RANDOM = "random"
WORLD, REAL, REAL_10X = "world", "real", "real_10x"
TEST_SEED = 2**30  # of the first test episode; training has other seeds
LONG = 10**6  # more episodes than any budget here
FAMILIES = (frozenset({"dqn", "ddqn", "duelingddqn"}),)  # of Stable-Baselines3 and of this project


def related(learner: str, inner: Collection[str]) -> bool:
    """Returns whether a learner is of a family that a world evolved with. inner: the learners of its evolution."""
    name = peers.plain(learner)
    return name in inner or any(name in family and not family.isdisjoint(inner) for family in FAMILIES)


def unseen_learners(continuous: bool, inner: list[str], library: bool) -> list[str]:
    """The kinds that never saw a world. inner: the learners that it evolved with; library: of Stable-Baselines3."""
    names = (CONTINUOUS if continuous else DISCRETE) if library else OWN_CONTINUOUS if continuous else OWN_DISCRETE
    return [name for name in names if name not in inner]


class Environments(NamedTuple):
    """Make the environment that an agent is tested on, and the world."""

    real: Callable[[], Any]
    world: Callable[[], Any]


@dataclass(frozen=True)
class UnseenAgent:
    """One agent. ``key`` names it in the file of finished ones."""

    run_dir: str
    learner: str  # of agents/peers.py or LEARNERS, or RANDOM
    where: str  # WORLD, REAL or REAL_10X
    steps: int
    seed: int
    tests: int
    library: bool  # of Stable-Baselines3
    world: str = MODEL  # its file in run_dir

    @property
    def key(self) -> str:
        place = self.where if self.world == MODEL or self.where != WORLD else f"{self.where} {self.world}"
        return f"{self.learner} {place} {self.steps} {self.seed} {self.tests} {self.library}"

    def environments(self) -> Environments:
        """Raises ConfigError, OutsideError, PluginError."""
        data = configuration(self.run_dir)
        return Environments(lambda: real_env(data), lambda: world_env(self.run_dir, data, self.world))


# ---------------------------------------------------------------------------------------------------- the environment


def configuration(run_dir: str) -> dict[str, Any]:
    """The resolved configuration of a run, whose own files may be executed from here on."""
    plugins.allow(run_dir)
    return load_config(Path(run_dir) / CONFIG_FILE).data


def real_env(data: Mapping[str, Any]) -> Any:
    """The environment itself, with a flat observation and, where actions are discrete, one index as its action. Of a
    task of this project: Gymnasium's, which is the same. data: a resolved configuration; this process may make its
    environment. Raises OutsideError, PluginError."""
    import gymnasium
    from gymnasium.spaces import Box
    from gymnasium.wrappers import FlattenObservation

    name = data["env_name"]
    section = data["envs"][name]
    if not is_outside(name):
        return gymnasium.make(make_task(name).gymnasium, max_episode_steps=section["max_steps"])
    cls = class_in_file(name, str(section.get("sha256"))) if file_and_class(name) is not None else None
    env = maker(name, section, cls)()
    if not isinstance(env.observation_space, Box) or len(env.observation_space.shape) != 1:
        env = FlattenObservation(env)
    return limited(indexed(impatient(env), section), section)


def impatient(env: Any) -> Any:
    """With an end to every call that takes longer than ``watch.STEP_SECONDS``: a RuntimeError, the agent's failure."""
    import gymnasium

    class Impatient(gymnasium.Wrapper):
        def reset(self, **options: Any) -> Any:
            return in_time(lambda: self.env.reset(**options))

        def step(self, action: Any) -> Any:
            return in_time(lambda: self.env.step(action))

    def in_time(call: Any) -> Any:
        try:
            with watched():
                again()
                return call()
        except TooSlow as e:
            raise RuntimeError(str(e)) from None

    return Impatient(env)


def limited(env: Any, section: Mapping[str, Any]) -> Any:
    """With the time limit of the configuration, where the environment sets none itself."""
    from gymnasium.wrappers import TimeLimit

    own = section["measured"]["own_limit"] and section["measured"]["max_steps"] <= section["max_steps"]
    return env if own else TimeLimit(env, section["max_steps"])


def indexed(env: Any, section: Mapping[str, Any]) -> Any:
    """With an action that learners know: one index from 0, if the space is discrete but no such index; numbers in
    [-1, 1], if it is a Box of whole numbers."""
    import gymnasium

    action = read_action(section["measured"]["action"])
    whole_numbers = not action.n and not np.issubdtype(env.action_space.dtype, np.floating)
    plain = isinstance(env.action_space, gymnasium.spaces.Discrete) and env.action_space.start == 0
    if plain or not (action.n or whole_numbers):
        return env

    class Indexed(gymnasium.ActionWrapper):
        def __init__(self, env: Any, action: Action) -> None:
            super().__init__(env)
            self.own = action
            self.action_space = (
                gymnasium.spaces.Discrete(action.n)
                if action.n
                else gymnasium.spaces.Box(-1.0, 1.0, (action.size,), np.float32)
            )

        def action(self, chosen: Any) -> Any:
            return self.own.of_index(int(chosen)) if self.own.n else self.own.of_numbers(chosen)

    return Indexed(env, action)


def world_env(run_dir: str, data: Mapping[str, Any], file: str = MODEL) -> Any:
    """The evolved world as agents that expect ``real_env`` meet it: flat observations in the environment's own units,
    its actions. Observations are neither clipped nor rounded: the world's learners saw them as they are."""
    from gymnasium.wrappers import FlattenObservation

    from envolve.envs.worlds.export import WorldEnv

    env = WorldEnv(read_world(str(Path(run_dir) / file)).world())
    name = data["env_name"]
    return indexed(FlattenObservation(env), data["envs"][name]) if is_outside(name) else env


# --------------------------------------------------------------------------------------------------------- the agents


def train_one(job: UnseenAgent) -> dict[str, Any]:
    """Trains and tests one agent -> what is kept of it. NaN as its return, with a reason, where it failed."""
    began = time.monotonic()
    if job.learner == RANDOM:
        row = _random(job, job.environments())
    elif job.library:
        row = _of_library(job, job.environments())
    else:
        row = _own(job, configuration(job.run_dir))
    return {
        "key": job.key,
        "learner": job.learner,
        "where": job.where,
        "seed": job.seed,
        **row,
        "seconds": time.monotonic() - began,
    }


def _random(job: UnseenAgent, envs: Environments) -> dict[str, Any]:
    env = envs.real()
    env.action_space.seed(job.seed)
    returns, steps = _played(env, lambda observation: env.action_space.sample(), job)
    env.close()
    return _row(returns, 0, 0, steps, "")


def _of_library(job: UnseenAgent, envs: Environments) -> dict[str, Any]:
    torch.set_num_threads(1)
    world = job.where == WORLD
    env = envs.world() if world else envs.real()
    kind, seen = peers.algorithm(job.learner), peers.shown(job.learner, env)
    model = kind("MlpPolicy", seen, seed=job.seed % 2**31, device="cpu")
    status = peers.learn(model, job.steps)
    returns: list[float] = []
    tested = 0
    if status == OK:
        test = envs.real()
        pupil = peers.pupil(model)
        returns, tested = _played(test, lambda o: _greedy(pupil, o), job)
        test.close()
    env.close()
    return _row(returns, model.num_timesteps, 0 if world else model.num_timesteps, tested, REASONS[status])


def _greedy(model: Any, observation: np.ndarray) -> Any:
    """An action as environments expect it: an index is an int."""
    action = model.predict(observation, deterministic=True)[0]
    return int(action) if np.ndim(action) == 0 else action


def _played(env: Any, act: Any, job: UnseenAgent) -> tuple[list[float], int]:
    """Returns of test episodes that begin alike for all agents, and their steps."""
    returns, steps = [], 0
    for i in range(job.tests):
        observation, _ = env.reset(seed=TEST_SEED + i)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total, steps, over = total + float(reward), steps + 1, terminated or truncated
        returns.append(total)
    return returns, steps


def _own(job: UnseenAgent, data: Mapping[str, Any]) -> dict[str, Any]:
    """An agent of this project with its default hyperparameters."""
    data = copy.deepcopy(dict(data))
    defaults = dataclasses.asdict(LEARNERS[job.learner].section())
    limits = {"train_steps": job.steps, "train_episodes": job.steps, "early_out_min_steps": LONG * 10**3}
    if job.learner == "ppo":
        limits["rollout_steps"] = min(2048, job.steps)
    data["agents"]["gtn"].update(agent_name=job.learner, other_agents="", backend="auto")
    data["agents"][job.learner] = {**defaults, **limits, "test_episodes": job.tests}
    data["envs"][data["env_name"]].update(solved_reward=NEVER_SOLVED, test_steps=None)  # training never ends early
    if job.where == WORLD:
        worlds, mode = read_world(str(Path(job.run_dir) / job.world)).flat.unsqueeze(0), BUDGET
    else:
        worlds, mode = torch.zeros(1, 1), REAL_BUDGET
    values = evaluate(data, worlds, torch.tensor([job.seed]), mode)
    steps, spent = int(values["train_steps"][0]), int(values["real_steps"][0])
    trained = 0 if job.where == WORLD else min(steps, spent)
    returns = values["test_returns"][0].tolist()
    return _row(returns, steps, trained, spent - trained, values["reason"][0])


def _row(returns: list[float], train_steps: int, real_steps: int, test_steps: int, failed: str) -> dict[str, Any]:
    mean = float(np.mean(returns)) if returns and not failed else math.nan
    return {
        "return": mean, "test_returns": returns, "train_steps": train_steps, "real_steps": real_steps,
        "test_steps": test_steps, "failed": failed,
    }  # fmt: skip
