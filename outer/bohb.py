"""BOHB (Falkner et al. 2018, https://arxiv.org/abs/1807.01774): Hyperband's brackets, whose points a model proposes.

Cheap trainings sort out many points, the best of a rung go on to ``eta`` times the budget. New points come from two
kernel densities, of good and of bad points of the largest budget that has enough of them, and a third at random.

The densities are hpbandster's (https://github.com/automl/HpBandSter, no longer maintained): its config generator
alone, without name server and workers. The brackets are written here: hpbandster has a rung too few for ladders such as
1 to 243 (its issue 110).

Axes: D numbers of a point.
"""

from __future__ import annotations

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

try:
    import ConfigSpace
    from hpbandster.optimizers.config_generators import bohb as hpbandster_bohb
    from scipy.special import ndtr, ndtri
except ImportError as e:
    raise ImportError(
        f"bohb needs what is not installed ({e}): pip install hpbandster==0.7.4 ConfigSpace (netifaces, which"
        " hpbandster asks for, is built from source: that takes a C compiler and Python's headers)"
    ) from e

log = logging.getLogger("envolve")


class _TruncatedNormal:
    """What hpbandster calls of ``scipy.stats.truncnorm``, by the inverse of the distribution function. scipy's own
    takes two thirds of the time of a whole search."""

    @staticmethod
    def rvs(a: float, b: float, loc: float, scale: float) -> float:
        """A number from N(loc, scale) cut to [0, 1], which is [a, b] in units of scale about loc."""
        u = np.random.uniform(ndtr(a), ndtr(b))  # noqa: NPY002
        return float(np.clip(loc + scale * ndtri(u), 0.0, 1.0))


hpbandster_bohb.sps = SimpleNamespace(truncnorm=_TruncatedNormal)


def ladder(least: float, most: float, eta: float) -> list[float]:
    """The budgets most eta^-k that are not below ``least``, ascending. Raises ValueError."""
    if not (0 < least <= most < math.inf and 1 < eta < math.inf):
        raise ValueError(f"budgets: found {least:g}, {most:g}, eta {eta:g}; expected 0 < least <= most and eta > 1")
    rungs = 0
    while most * eta ** -(rungs + 1) >= least * (1 - 1e-9):  # 1/9 is not quite (1/3)^2 in binary
        rungs += 1
    return [float(most * eta**-k) for k in range(rungs, -1, -1)]


@dataclass
class Trial:
    """One training at one point."""

    id: int
    u: np.ndarray  # float64 [D], in [0, 1]
    budget: float
    config: dict[str, float]  # hpbandster's form of u
    loss: float | None = None  # None: not told yet; inf: failed


@dataclass
class Bracket:
    """Successive halving: ``sizes[k]`` points train for ``budgets[k]``, the best of them go on."""

    budgets: list[float]
    sizes: list[int]
    rung: int = 0
    trials: list[Trial] = field(default_factory=list)  # of this rung, as far as they were asked for
    promoted: list[Trial] = field(default_factory=list)  # of the rung before, best first; not of the first rung

    @property
    def wanted(self) -> int:
        """How many trials this rung still hands out."""
        size = self.sizes[0] if self.rung == 0 else len(self.promoted)
        return size - len(self.trials)

    def climb(self) -> bool:
        """The rung is complete: on to the next one. Returns whether there is one: not at the top, nor where all
        failed."""
        if self.rung + 1 == len(self.budgets):
            return False
        good = sorted((t for t in self.trials if t.loss != math.inf), key=lambda t: (t.loss, t.id))
        self.rung += 1
        self.promoted, self.trials = good[: self.sizes[self.rung]], []
        return bool(self.promoted)


class BOHB:
    """Ask and tell. Several trials may be out at once; told in the same order, the same seed asks the same trials, so a
    search is resumed by telling it again what it was told."""

    def __init__(
        self, lower: Sequence[float] | np.ndarray, upper: Sequence[float] | np.ndarray,
        budgets: tuple[float, float, float], seed: int,
    ) -> None:  # fmt: skip
        """lower, upper: bounds [D]; budgets: least, most, eta. Raises ValueError."""
        self.lower, self.upper = np.array(lower, np.float64), np.array(upper, np.float64)
        D = self.lower.size
        if self.lower.shape != (D,) or self.upper.shape != (D,) or D == 0:
            raise ValueError(f"bounds of shapes {self.lower.shape} and {self.upper.shape}: expected [D] each, D > 0")
        if not (np.isfinite(self.upper - self.lower).all() and (self.lower < self.upper).all()):
            raise ValueError("bounds: every lower one must be finite and below its upper one")
        self.budgets, self.eta = ladder(*budgets), budgets[2]
        self.names = [f"x{i:06d}" for i in range(D)]  # ConfigSpace sorts by name
        self.brackets: list[Bracket] = []  # those that are not finished
        self.started = 0  # brackets so far
        self.out: dict[int, tuple[Trial, Bracket]] = {}  # asked for and not told
        self.asked, self.model_picks, self.random_picks = 0, 0, 0
        self._random = np.random.RandomState(seed).get_state()
        with self._own_random_numbers():
            space = ConfigSpace.ConfigurationSpace(seed=seed % 2**32)
            space.add([ConfigSpace.UniformFloatHyperparameter(name, 0.0, 1.0) for name in self.names])
            self.model = hpbandster_bohb.BOHB(space)

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """hpbandster draws from NumPy's global generator, which is lent the search's state meanwhile; and it calls what
        ConfigSpace has deprecated."""
        others = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._random)  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self._random = np.random.get_state()  # noqa: NPY002
            np.random.set_state(others)  # noqa: NPY002

    def ask(self) -> tuple[int, np.ndarray, float]:
        """The number of a trial, its point float64 [D] and its budget. Who waits for nothing comes first: the oldest
        bracket with work, else a new one."""
        bracket = next((b for b in self.brackets if b.wanted), None) or self._new_bracket()
        if bracket.rung == 0:
            u, config = self._propose(bracket.budgets[0])
        else:
            before = bracket.promoted[len(bracket.trials)]
            u, config = before.u, before.config
        trial = Trial(self.asked, u, bracket.budgets[bracket.rung], config)
        self.asked += 1
        bracket.trials.append(trial)
        self.out[trial.id] = trial, bracket
        return trial.id, self.lower + (self.upper - self.lower) * u, trial.budget

    def tell(self, id: int, loss: float) -> None:
        """loss: of trial ``id``, to be minimised; one that is not finite: it failed. Raises KeyError if that trial is
        not out (never asked for, or told before)."""
        if id not in self.out:
            raise KeyError(f"trial {id} was not asked for, or its loss was told before")
        trial, bracket = self.out.pop(id)
        loss = float(loss)
        trial.loss = loss if math.isfinite(loss) else math.inf
        result = None if trial.loss == math.inf else {"loss": trial.loss}
        job = SimpleNamespace(
            id=(id,), kwargs={"budget": trial.budget, "config": trial.config}, result=result, exception=None
        )
        with self._own_random_numbers():
            self.model.new_result(job)
        if not bracket.wanted and all(t.loss is not None for t in bracket.trials) and not bracket.climb():
            self.brackets.remove(bracket)

    def _new_bracket(self) -> Bracket:
        """Hyperband (Li et al. 2018, https://arxiv.org/abs/1603.06560): brackets begin at each budget in turn, the
        cheapest first, with n = ceil((S + 1) / (s + 1) eta^s) points if S and s rungs lie above."""
        S = len(self.budgets) - 1
        s = S - self.started % (S + 1)
        n = math.ceil((S + 1) / (s + 1) * self.eta**s - 1e-9)
        sizes = [max(1, math.floor(n * self.eta**-k + 1e-9)) for k in range(s + 1)]
        bracket = Bracket(self.budgets[S - s :], sizes)
        self.started += 1
        self.brackets.append(bracket)
        return bracket

    def _propose(self, budget: float) -> tuple[np.ndarray, dict[str, float]]:
        with self._own_random_numbers():
            proposed, info = self.model.get_config(budget)
        config = {name: float(proposed[name]) for name in self.names}
        if info.get("model_based_pick", False):
            self.model_picks += 1
        else:
            self.random_picks += 1
        log.debug("bohb: a point %s", "of the model" if info.get("model_based_pick") else "at random")
        return np.array([config[name] for name in self.names]), config
