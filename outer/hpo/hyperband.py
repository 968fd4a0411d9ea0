"""Hyperband (Li et al. 2018, https://arxiv.org/abs/1603.06560): cheap evaluations sort out many configurations, the
best of a rung go on to ``eta`` times the budget. Where the configurations come from is another's matter.

hpbandster's own brackets have a rung too few for ladders such as 1 to 243 (its issue 110).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from envolve.outer.hpo.trial import Plain, Trial

POLICIES = ("hyperband", "aggressive")


def ladder(least: float, most: float, eta: float) -> list[float]:
    """Ladder of budgets most eta^-k that are not below ``least``, ascending. Raises ValueError."""
    if not (0 < least <= most < math.inf and 1 < eta < math.inf):
        raise ValueError(f"budgets: found {least:g}, {most:g}, eta {eta:g}; expected 0 < least <= most and eta > 1")
    rungs = 0
    while most * eta ** -(rungs + 1) >= least * (1 - 1e-9):  # 1/9 is not quite (1/3)^2 in binary
        rungs += 1
    return [float(most * eta**-k) for k in range(rungs, -1, -1)]


def bracket_sizes(policy: str, rungs: int, number: int, eta: float) -> list[int]:
    """Number of configurations that bracket ``number`` (from 0) evaluates at each of the last budgets of a ladder.

    hyperband: brackets begin at each budget in turn, the cheapest first, with n = ceil((S + 1) / (s + 1) eta^s)
    configurations if S + 1 rungs are in all and s above the first. aggressive: always at the cheapest, n = eta^S.
    """
    S = rungs - 1
    s = S - number % rungs if policy == "hyperband" else S
    n = math.ceil((S + 1) / (s + 1) * eta**s - 1e-9)
    if policy == "aggressive":
        n = math.floor(eta**s + 1e-9)
    return [max(1, math.floor(n * eta**-k + 1e-9)) for k in range(s + 1)]


@dataclass
class Bracket:
    """Successive halving: evaluates ``sizes[k]`` configurations at ``budgets[k]`` and promotes the best of them."""

    number: int
    budgets: list[float]
    sizes: list[int]
    rung: int = 0
    trials: list[Trial] = field(default_factory=list)  # of this rung, as far as they were asked for
    losses: dict[int, float] = field(default_factory=dict)  # of these, as far as they were told; inf: failed
    promoted: list[Trial] = field(default_factory=list)  # of the rung before, best first; not of the first rung

    @property
    def wanted(self) -> int:
        """Number of trials that this rung still hands out."""
        size = self.sizes[0] if self.rung == 0 else len(self.promoted)
        return size - len(self.trials)

    @property
    def complete(self) -> bool:
        """True if all trials of this rung were asked for and told."""
        return not self.wanted and len(self.losses) == len(self.trials)

    def climb(self) -> bool:
        """Moves from a complete rung to the next one. Returns False at the top, and if all trials failed."""
        if self.rung + 1 == len(self.budgets):
            return False
        good = sorted((t for t in self.trials if self.losses[t.id] < math.inf), key=lambda t: (self.losses[t.id], t.id))
        self.rung += 1
        self.promoted, self.trials, self.losses = good[: self.sizes[self.rung]], [], {}
        return bool(self.promoted)


class HyperbandSearch:
    """Hyperband with ask and tell. A subclass proposes configurations in ``_propose`` and may learn from results in
    ``_learn``."""

    def __init__(self, budgets: tuple[float, float, float], bracket: str) -> None:
        """budgets: least, most, eta. Raises ValueError."""
        if bracket not in POLICIES:
            raise ValueError(f"bracket: found {bracket!r}; expected {' or '.join(POLICIES)}")
        self.budgets, self.eta, self.policy = ladder(*budgets), budgets[2], bracket
        self.brackets: list[Bracket] = []  # those that are not finished
        self.started = 0  # brackets so far
        self.out: dict[int, tuple[Trial, Bracket]] = {}  # asked for and not told
        self.asked, self.model_picks, self.random_picks = 0, 0, 0

    def ask(self) -> Trial:
        """Next trial that need not wait: of the oldest bracket with work, else of a new one."""
        bracket = next((b for b in self.brackets if b.wanted), None) or self._new_bracket()
        if bracket.rung == 0:
            values, model_based = self._propose(bracket.budgets[0])
            self.model_picks += model_based
            self.random_picks += not model_based
            config_id = bracket.number, 0, len(bracket.trials)
            trial = Trial(self.asked, config_id, values, bracket.budgets[0], 0, model_based)
        else:
            before = bracket.promoted[len(bracket.trials)]
            budget = bracket.budgets[bracket.rung]
            trial = replace(before, id=self.asked, values=dict(before.values), budget=budget, rung=bracket.rung)
        self.asked += 1
        bracket.trials.append(trial)
        self.out[trial.id] = trial, bracket
        return trial

    def tell(self, id: int, loss: float) -> None:
        if id not in self.out:
            raise KeyError(f"trial {id} was not asked for, or its loss was told before")
        trial, bracket = self.out.pop(id)
        loss = float(loss)
        bracket.losses[id] = loss if math.isfinite(loss) else math.inf
        self._learn(trial, bracket.losses[id])
        if bracket.complete and not bracket.climb():
            self.brackets.remove(bracket)

    def _new_bracket(self) -> Bracket:
        sizes = bracket_sizes(self.policy, len(self.budgets), self.started, self.eta)
        bracket = Bracket(self.started, self.budgets[-len(sizes) :], sizes)
        self.started += 1
        self.brackets.append(bracket)
        return bracket

    def _propose(self, budget: float) -> tuple[dict[str, Plain], bool]:
        """Proposes a configuration for ``budget`` first -> the configuration, and whether the model proposed it."""
        raise NotImplementedError

    def _learn(self, trial: Trial, loss: float) -> None:
        """loss: finite, or inf."""
