"""What came out, in one honest sentence. A pure function of the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MARK = 0.9  # of the way from random to the best real learner
FEWER = 4  # the world saves steps if the environment takes this many times as many for as much of the way


@dataclass(frozen=True)
class Figure:
    """Agents of one kind at one place. interval: None where all values are equal, or there is only one."""

    mean: float  # NaN: all failed
    interval: tuple[float, float] | None
    steps: int  # training steps of each
    agents: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Findings:
    """Figures by learner."""

    random: Figure
    world: Mapping[str, Figure]
    real: Mapping[str, Figure]
    real_10x: Mapping[str, Figure]
    evolution_steps: int | None  # on the real environment
    kin: frozenset[str] = frozenset()  # learners of a family that the world evolved with

    @property
    def unseen(self) -> dict[str, Figure]:
        """Agents in the world, of families that it never saw. What a world is worth is said of these alone."""
        return {name: f for name, f in self.world.items() if name not in self.kin}


def best(figures: Mapping[str, Figure]) -> tuple[str, Figure] | None:
    """The learner with the highest mean; None: there is no figure."""
    known = {name: f for name, f in figures.items() if math.isfinite(f.mean)}
    return max(known.items(), key=lambda item: item[1].mean) if known else None


def share(found: Findings) -> float:
    """Share of the way from random to the best real learner that the world's best unseen agent has gone. NaN: there is
    none, or no learner on the real environment is better than random."""
    top = best(found.unseen)
    return math.nan if top is None else _way(found, top[1].mean)


def enough(found: Findings) -> tuple[str, int] | None:
    """The learner that comes MARK of the way on the environment with the fewest steps, and these; None: nobody does."""
    figures = [item for of in (found.real, found.real_10x) for item in of.items()]
    able = [(f.steps, name) for name, f in figures if _way(found, f.mean) >= MARK]
    if not able:
        return None
    steps, name = min(able)
    return name, steps


def helper(found: Findings) -> tuple[str, Figure] | None:
    """The world's best unseen learner of those that come MARK of the way in a quarter of the steps that the environment
    takes for it, or are clearly better than all on the environment. Where these are not clearly better than random, the
    best one that is. None: there is no such learner."""
    needed, real, top = enough(found), _best_real(found), best(found.unseen)
    if real is None or top is None:
        return None
    if needed is None or not _apart(real[1], found.random):
        return top if top[1].mean > found.random.mean and _surely(top[1], found.random) else None
    able = {k: f for k, f in found.unseen.items() if _way(found, f.mean) >= MARK}
    return best({k: f for k, f in able.items() if FEWER * f.steps <= needed[1] or _surely(f, real[1])})


def verdict(found: Findings) -> str:
    """One sentence."""
    top, same, real = best(found.unseen), best(found.real), _best_real(found)
    price = "" if found.evolution_steps is None else f"; evolving it took {found.evolution_steps:,} real steps"
    if found.world and not found.unseen:
        kin = " and ".join(sorted(found.kin))
        return f"No verdict: the only agents in the world are {kin}, of a family that it evolved with{price}."
    if top is None and real is None:
        return f"No figure: every agent failed, in the world and on the real environment{price}."
    if top is None:
        return f"The world did not help: every agent that trained in it failed{price}."
    helped = helper(found)
    name, there = helped or top
    if real is None:
        return (
            f"Nothing to compare with: every agent on the real environment failed; {name} trained in the world "
            f"returns {_said(there)}{price}."
        )
    how = f"{name} trained for {there.steps:,} steps in it returns {_said(there)}"
    other, reached = real
    against = f"{other} after {reached.steps:,} real steps returns {_said(reached)}"
    if not any(f.agents for f in found.real_10x.values()):
        against += "; there was no time for ten times the steps"
    chance = f"random actions {_short(found.random.mean)}"
    if not reached.mean > found.random.mean or not _apart(reached, found.random):
        if helped is not None:
            return (
                f"The world helped where the real environment did not: {how}, while no learner there was clearly "
                f"better than random ({against}; {chance}){price}."
            )
        head = "The world did not help" if there.mean <= found.random.mean else "It is not clear that the world helped"
        return (
            f"{head}: {how}, and no learner on the real environment was clearly better than random "
            f"either ({against}; {chance}){price}."
        )
    part = _way(found, there.mean)
    way = f"{100 * part:.0f} % of the way from random ({_short(found.random.mean)}) to the best real learner"
    if helped is not None:
        sure = ""
        if there.agents == 1:
            sure = ", by a single agent"
        elif there.interval is not None and not _way(found, there.interval[0]) >= MARK:
            sure = ", by its mean, not its interval"
        return f"The world helped: {how}, {way} ({against}){sure}{price}."
    needed = enough(found)
    if part >= MARK and needed is not None:
        steps = f"{needed[0]} on the environment takes {needed[1]:,} steps for {100 * MARK:.0f} % of it"
        return f"The world saved no steps: {how}, {way} ({against}), but {steps}{price}."
    better = there.mean > found.random.mean and _surely(there, found.random)
    if better and same is not None and there.mean > same[1].mean and _surely(there, same[1]):
        equal = f"at equal steps the best on the real environment is {same[0]} with {_said(same[1])}"
        return f"The world helped somewhat: {how}, {way} ({against}); {equal}{price}."
    if there.mean > found.random.mean and not better:
        few = f"{there.agents} agents are too few" if there.agents != 1 else "one agent is too few"
        few += f" to tell it from {chance}"
        return f"It is not clear that the world helped: {how}, but {few}, while {against}{price}."
    if not there.mean > found.random.mean:
        return f"The world did not help: {how}, not more than {chance}, while {against}{price}."
    equal = "" if same is None else f"no clear gain over {same[0]} after as many real steps, {_said(same[1])}"
    return f"The world did not help enough: {how}, {way} ({against}); {equal}{price}."


def _best_real(found: Findings) -> tuple[str, Figure] | None:
    ends = [b for b in (best(found.real_10x), best(found.real)) if b is not None]
    return max(ends, key=lambda b: (b[1].mean, -b[1].steps)) if ends else None


def _way(found: Findings, mean: float) -> float:
    """Share of the way from random to the best real learner. NaN: none is better than random."""
    real, random = _best_real(found), found.random.mean
    if real is None or not real[1].mean > random:
        return math.nan
    return (mean - random) / (real[1].mean - random)


def _apart(higher: Figure, lower: Figure) -> bool:
    """Returns whether intervals of the two do not overlap. Equal values have no interval, and stand for themselves."""
    low = higher.mean if higher.interval is None else higher.interval[0]
    high = lower.mean if lower.interval is None else lower.interval[1]
    return low > high


def _surely(higher: Figure, lower: Figure) -> bool:
    """The same, but a single agent shows nothing. What is said for a world needs more."""
    return higher.agents != 1 and _apart(higher, lower)


def _said(f: Figure) -> str:
    ends = "" if f.interval is None else f" [{_short(f.interval[0])}, {_short(f.interval[1])}]"
    failed = f" ({f.failed} of {f.agents} agents failed and count as random)" if f.failed else ""
    return f"{_short(f.mean)}{ends}{failed}"


def _short(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}" if abs(x) < 1 else f"{x:.1f}"
