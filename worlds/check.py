"""Is a learner implemented right? What its agents earn in a world, beside what Stable-Baselines3's agents earn there.

>>> from envolve.worlds import check_learner
>>> result = check_learner(train, like="ppo")  # train(env_id, steps, seed) -> act; act(observation) -> action
>>> assert result.ok, result

A bandit of the zoo is learned within seconds, and the best policy in it is known. So an agent has a *share* of the
world's reward: 0 is what random actions earn, 1 what the policy earns that the world holds. Shares of agents of one
learner differ little, so a few agents show whether two learners are the same. Neither the task nor its simulator is
needed. Episodes of a bandit are one step: what a learner does about later steps (discount, targets, time limits) is
not seen. Axes: n agents of the learner, m agents to compare them with.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envolve.core.registry import nearest
from envolve.worlds.policy import policy
from envolve.worlds.shelf import NAMESPACE, TENSORS, make_vec, open_world

if TYPE_CHECKING:
    from concurrent.futures import Future

Act = Callable[[np.ndarray], Any]
"""Observation of the world -> action, without exploration."""
Train = Callable[[str, int, int], Act]
"""Id for ``gymnasium.make`` or ``make_vec``, steps, random seed -> the trained agent."""
Told = Callable[[str, int, float], None]
"""World, random seed, share of an agent that is finished."""

CONTEXTS, SEED = 1000, 0  # in which rewards are compared
LEVEL = 0.01  # of a test: the share of right learners that are called worse


@dataclass(frozen=True)
class Reference:
    """Agents of Stable-Baselines3 with its default hyperparameters, seeds 0, 1, ..., in some worlds."""

    steps: int
    shares: Mapping[str, tuple[float, ...]]  # by world


# fmt: off
REFERENCES: dict[str, Reference] = {  # from benchmarks/worlds/learner_check.py --references
    "ppo": Reference(10_240, {
        "CartPole-v1-bandit": (
            0.9780, 0.9746, 0.9799, 0.9738, 0.9801, 0.9640, 0.9771, 0.9535, 0.9516, 0.9585, 0.9775, 0.9742,
            0.9718, 0.9838, 0.9689, 0.9783, 0.9655, 0.9573, 0.9648, 0.9470,
        ),
        "CartPole-v1-bandit-2": (
            0.9660, 0.9643, 0.9641, 0.9719, 0.9641, 0.9638, 0.9612, 0.9660, 0.9660, 0.9691, 0.9655, 0.9661,
            0.9681, 0.9698, 0.9673, 0.9697, 0.9630, 0.9657, 0.9668, 0.9664,
        ),
    }),
    "ppo_continuous": Reference(10_240, {
        "Swimmer-v5-bandit": (
            0.9355, 0.9383, 0.9354, 0.9405, 0.9321, 0.9352, 0.9289, 0.9480, 0.9239, 0.9360, 0.9325, 0.9380,
            0.9367, 0.9179, 0.9352, 0.9254, 0.9267, 0.9343, 0.9364, 0.9260,
        ),
    }),
    "a2c": Reference(10_240, {
        "CartPole-v1-bandit": (
            0.8914, 0.8981, 0.8910, 0.9005, 0.8917, 0.9044, 0.8959, 0.8998, 0.9008, 0.8994, 0.8991, 0.8870,
            0.8972, 0.9020, 0.8982, 0.8969, 0.8989, 0.9015, 0.8940, 0.8975,
        ),
        "CartPole-v1-bandit-2": (
            0.9608, 0.9603, 0.9638, 0.9504, 0.9401, 0.9661, 0.9639, 0.9580, 0.9635, 0.9495, 0.9410, 0.9494,
            0.9561, 0.9386, 0.9549, 0.9635, 0.9500, 0.9633, 0.9641, 0.9472,
        ),
    }),
    "dqn": Reference(10_240, {
        "CartPole-v1-bandit": (
            0.9192, 0.9499, 0.9564, 0.9328, 0.9651, 0.9445, 0.9519, 0.9473, 0.9429, 0.9318, 0.9364, 0.9547,
            0.9467, 0.9353, 0.9351, 0.9233, 0.9531, 0.9282, 0.9232, 0.9453,
        ),
        "CartPole-v1-bandit-2": (
            0.9490, 0.9579, 0.9443, 0.9608, 0.9451, 0.9514, 0.9584, 0.9359, 0.9450, 0.9570, 0.9393, 0.9599,
            0.9377, 0.9341, 0.9396, 0.9329, 0.9590, 0.9487, 0.9541, 0.9496,
        ),
    }),
    "td3": Reference(2_560, {
        "Pendulum-v1-bandit": (
            0.9862, 0.9795, 0.9703, 0.9790, 0.9760, 0.7152, 0.9840, 0.9835, 0.9828, 0.9857,
        ),
    }),
    "sac": Reference(2_560, {
        "Pendulum-v1-bandit": (
            0.6666, 0.6615, 0.6675, 0.6734, 0.6686, 0.6793, 0.6799, 0.6697, 0.6715, 0.6676,
        ),
    }),
    "ddpg": Reference(2_560, {
        "Pendulum-v1-bandit": (
            0.9896, 0.9912, 0.9806, 0.9768, 0.9796, 0.9850, 0.9890, 0.9897, 0.9901, 0.9782,
        ),
    }),
}
# fmt: on


@dataclass(frozen=True)
class WorldCheck:
    """Shares of a learner's agents [n] in one world, and of those that they are compared with [m]."""

    world: str
    shares: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def worse(self) -> float:
        """The probability of shares as low as these or lower, if both learners are the same."""
        return rank_sum(self.shares, self.reference)[0]

    @property
    def different(self) -> float:
        """The probability of shares that differ as much as these or more, in either direction."""
        return min(1.0, 2 * min(rank_sum(self.shares, self.reference)))

    def __str__(self) -> str:
        mine, theirs = (f"{np.mean(s):.3f} ({min(s):.3f} to {max(s):.3f})" for s in (self.shares, self.reference))
        return f"{self.world}: {mine}, there {theirs}"


@dataclass(frozen=True)
class LearnerCheck:
    """A learner's agents in some worlds, beside those of another learner."""

    name: str  # of the other learner
    steps: int
    worlds: tuple[WorldCheck, ...]

    @property
    def shares(self) -> dict[str, tuple[float, ...]]:
        """By world. A later check takes them as ``like``."""
        return {w.world: w.shares for w in self.worlds}

    @property
    def worse(self) -> float:
        """A bound of the probability that the shares of any world are as low as these, if both learners are the same
        (Bonferroni)."""
        return min(1.0, len(self.worlds) * min(w.worse for w in self.worlds))

    @property
    def different(self) -> float:
        """The same of shares that differ as much, in either direction."""
        return min(1.0, len(self.worlds) * min(w.different for w in self.worlds))

    @property
    def ok(self) -> bool:
        """Returns whether the agents are not shown to earn less."""
        return self.worse >= LEVEL

    @property
    def same(self) -> bool:
        """Returns whether no difference is shown, in either direction: for a learner that shall be a twin."""
        return self.different >= LEVEL

    def __str__(self) -> str:
        if not self.ok:
            verdict = f"This learner is worse (p = {self.worse:.2g}): look for a bug, or for other hyperparameters."
        elif not self.same:
            verdict = f"This learner is another one, and not worse (p = {self.different:.2g})."
        else:
            verdict = f"No difference is shown (p = {self.different:.2g})."
        n, m = len(self.worlds[0].shares), len(self.worlds[0].reference)
        head = f"Shares of the reward after {self.steps:,} steps, of {n} agents here and {m} of {self.name}:"
        return "\n".join([head, *(f"  {w}" for w in self.worlds), verdict])


def check_learner(
    train: Train,
    like: str | Train | Mapping[str, Sequence[float]] = "ppo",
    *,
    seeds: int = 5,
    worlds: Sequence[str] = ("CartPole-v1-bandit", "CartPole-v1-bandit-2"),
    steps: int = 10_240,
    workers: int = 1,
    told: Told | None = None,
) -> LearnerCheck:
    """Trains ``seeds`` agents in each world and compares their shares of its reward.

    like: a name of ``REFERENCES``, which says the worlds and the steps itself and stands for Stable-Baselines3's
    learner with its default hyperparameters; or another function, whose agents are trained here, too; or the ``shares``
    of an earlier check after as many steps, which say the worlds. workers: processes. With more than one, functions are
    those of a module, as ``pickle`` wants them, and a script has ``if __name__ == "__main__":``. told: is called with
    each agent that is finished. Raises ValueError, WorldError, and what ``train`` raises.
    """
    for what, value in (("seeds", seeds), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{what}: found {value}, expected at least 1")
    known: Mapping[str, Sequence[float]]
    if isinstance(like, str):
        if like not in REFERENCES:
            near = nearest(like, REFERENCES, 0.0)
            raise ValueError(f"like: found {like!r:.80}, expected one of {', '.join(REFERENCES)}; did you mean {near}?")
        steps, known, name = REFERENCES[like].steps, REFERENCES[like].shares, f"Stable-Baselines3's {title(like)}"
    elif callable(like):
        enough(seeds, seeds, len(worlds))
        known = shares_of(like, short(worlds), steps, range(seeds, 2 * seeds), workers, told)
        name = "the other learner"
    else:
        known, name = like, "the earlier check"
        if not known or not all(np.isfinite(s).all() for s in known.values()):
            raise ValueError(f"like: found {str(like):.80}, expected a name, a function, or shares of agents by world")
    enough(seeds, min(map(len, known.values())), len(known))
    found = shares_of(train, short(known), steps, range(seeds), workers, told)
    pairs = zip(found.items(), known.values())
    return LearnerCheck(
        name, steps, tuple(WorldCheck(w, mine, tuple(map(float, theirs))) for (w, mine), theirs in pairs)
    )


def enough(n: int, m: int, worlds: int) -> None:
    """Raises ValueError where n agents beside m could show no difference, however large."""
    least = 2 * worlds / math.comb(n + m, n)
    if least >= LEVEL:
        raise ValueError(
            f"seeds: {n} agents beside {m} in each of {worlds} worlds can show no difference, p is never below "
            f"{least:.2g}; expected more agents, or fewer worlds"
        )


def title(name: str) -> str:
    """ppo_continuous -> PPO, continuous."""
    return ", ".join([name.split("_")[0].upper(), *name.split("_")[1:]])


def short(worlds: Iterable[str]) -> list[str]:
    """Names without the namespace, all of worlds that there are: an unknown one costs no training. Raises WorldError,
    ValueError."""
    out = [world.removeprefix(f"{NAMESPACE}/") for world in worlds]
    for world in out:
        if world.endswith(TENSORS):
            raise ValueError(f"worlds: found the file {world:.200}, expected a name, as gymnasium.make takes no file")
        ends_of(world)
    return out


def shares_of(
    train: Train, worlds: Sequence[str], steps: int, seeds: Sequence[int], workers: int = 1, told: Told | None = None
) -> dict[str, tuple[float, ...]]:
    """Shares of agents that are trained in some worlds, one per seed. Raises as ``check_learner`` does."""
    jobs = [(world, seed) for world in worlds for seed in seeds]
    found = dict[tuple[str, int], float]()
    for (world, seed), value in _in_turn(train, steps, jobs) if workers == 1 else _at_once(train, steps, jobs, workers):
        found[world, seed] = value
        if told is not None:
            told(world, seed, value)
    return {world: tuple(found[world, seed] for seed in seeds) for world in worlds}


Job = tuple[str, int]
"""World and random seed of an agent."""


def _agent(train: Train, steps: int, job: Job) -> float:
    world, seed = job
    return share(train(f"{NAMESPACE}/{world}", steps, seed), world)


def _in_turn(train: Train, steps: int, jobs: Iterable[Job]) -> Iterator[tuple[Job, float]]:
    for job in jobs:
        yield job, _agent(train, steps, job)


def _at_once(train: Train, steps: int, jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, float]]:
    """In the order in which they finish."""
    from concurrent.futures import as_completed  # importing worlds must be quick

    from envolve.core.interrupt import deaf_children
    from envolve.core.pool import pool

    with pool(min(workers, len(jobs))) as processes:
        with deaf_children():  # the first ones start the processes
            waiting: dict[Future[float], Job] = {processes.submit(_agent, train, steps, job): job for job in jobs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def share(act: Act, world: str | os.PathLike[str]) -> float:
    """The share of a world's reward that an agent earns: 0 as random actions, 1 as the policy that the world holds.
    Actions of a Box are clipped to its bounds. Raises ValueError, WorldError."""
    name = os.fspath(world).removeprefix(f"{NAMESPACE}/")
    random, best = ends_of(name)
    return (earned(name, lambda x: np.stack([action_of(act(row), name) for row in x])) - random) / (best - random)


@lru_cache(maxsize=64)
def ends_of(world: str) -> tuple[float, float]:
    """The mean reward of random actions in a world, and of the policy that it holds."""
    space = batch_space(open_world(world).action.space, CONTEXTS)
    space.seed(SEED)
    return earned(world, lambda x: space.sample()), earned(world, policy(world))


def earned(world: str, act: Act) -> float:
    """Mean reward of actions in CONTEXTS contexts. act: observations [N, *shape] -> actions [N, ...]."""
    envs = make_vec(world, CONTEXTS, autoreset_mode=AutoresetMode.SAME_STEP)
    observation, _ = envs.reset(seed=SEED)
    return float(envs.step(act(observation))[1].mean())


def action_of(action: Any, world: str) -> np.ndarray:
    """An action in the shape of the world's space: a learner may answer with a batch of one. Raises ValueError."""
    space = open_world(world).action.space
    value = np.asarray(action)
    if value.size != int(np.prod(space.shape or ())):
        raise ValueError(f"act: found an action of shape {value.shape}, expected one of {space}")
    value = value.reshape(space.shape or ())
    if isinstance(space, spaces.Box):
        right = value.dtype.kind in "biuf" and bool(np.isfinite(value).all())
        value = np.clip(value, space.low, space.high) if right else value
    else:
        value = value.astype(np.int64) if value.dtype == bool else value
        right = value.dtype.kind in "iu" and bool(space.contains(value))
    if not right:
        raise ValueError(f"act: found {str(action):.80}, expected one of {space}")
    return value


def rank_sum(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Exact rank-sum test (Wilcoxon 1945), ties with their mean rank -> the probability that the ranks of ``a`` have a
    sum as low as theirs or lower, and as high or higher, if all orders are equally likely."""
    x = np.concatenate([a, b])
    doubled = np.array([2 * (x < v).sum() + (x == v).sum() + 1 for v in x])  # twice the ranks: whole numbers
    n, found = len(a), int(doubled[: len(a)].sum())
    ways = np.zeros((n + 1, int(doubled.sum()) + 1))  # of choosing k rows whose doubled ranks have the sum s
    ways[0, 0] = 1
    for r in doubled:
        ways[1:, r:] += ways[:-1, : ways.shape[1] - r].copy()
    own = ways[n] / ways[n].sum()
    return float(own[: found + 1].sum()), float(own[found:].sum())
