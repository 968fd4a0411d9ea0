"""Importance of parameters: the share of the variance of the loss that each explains alone (functional ANOVA, Hutter et
al. 2014, http://proceedings.mlr.press/v32/hutter14.html), as implemented by Optuna.

A forest learns the loss from the trials at one budget. Without scikit-learn, which grows it, PED-ANOVA (Watanabe et al.
2023, https://arxiv.org/abs/2304.10255) takes its place: how much each parameter's distribution among the best trials
differs from that among all, which is another question; the report names the method.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envolve.outer.hpo.axes import Axis, shown
from envolve.outer.hpo.standings import succeeded
from envolve.outer.hpo.trial import Plain, Record

LEAST, MOST = 10, 300  # trials: no importance with fewer; with more, an evenly spaced sample, to save minutes
FEW = 5  # trials per parameter, below which a forest finds shares in noise
TREES, SEED = 64, 0
# Intervals by the delete-d jackknife (Shao and Wu 1989, https://doi.org/10.1214/aos/1176347263), which needs no trial
# twice: a forest fits copies, so a bootstrap would take noise for importance
SUBSETS, SUBSET, SUBSET_TREES = 12, 60, 8  # their number, most trials in one, and the trees of its forest
LEAST_INTERVAL = 2 * LEAST  # trials: a subset has half of them
GOOD = 5  # PED-ANOVA: the best trials are a tenth of all, but at least this many


@dataclass(frozen=True)
class Share:
    """Share of one parameter in [0, 1], computed from this many trials, in all of which it was active."""

    share: float
    trials: int
    interval: tuple[float, float] | None = None  # 95 %; None: too few trials


@dataclass(frozen=True)
class Importance:
    """Result. shares: by name, the largest first. Empty: ``reason`` says why. left_out: names with too few trials."""

    method: str = ""
    budget: float = math.nan
    trials: int = 0
    shares: dict[str, Share] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        shares = {
            name: {"share": s.share, "interval": s.interval and list(s.interval), "trials": s.trials}
            for name, s in self.shares.items()
        }
        budget = None if math.isnan(self.budget) else self.budget
        return {
            "method": self.method,
            "budget": budget,
            "trials": self.trials,
            "shares": shares,
            "left_out": list(self.left_out),
            "reason": self.reason,
        }

    def lines(self) -> list[str]:
        if not self.shares:
            return [f"Importance of parameters: not known, {self.reason}."]
        what = "share of the variance of the loss" if self.method == FANOVA else "share of what sets the best apart"
        lines = [f"Importance of parameters, {what} ({self.method}, {self.trials} trials at budget {self.budget:g}):"]
        rest = "(interactions)"  # of parameters, as far as the forest sees them; no single parameter has them
        width = max(len(rest), *(len(shown(name, 80)) for name in self.shares))
        for name, s in self.shares.items():
            among = f"  among the {s.trials} trials that have it" if s.trials < self.trials else ""
            ends = "" if s.interval is None else f"  [{100 * s.interval[0]:.0f}, {100 * s.interval[1]:.0f}]"
            lines.append(f"  {shown(name, 80):<{width}}  {100 * s.share:5.1f} %{ends}{among}")
        if self.method == FANOVA and all(s.trials == self.trials for s in self.shares.values()):
            lines.append(f"  {rest:<{width}}  {100 * (1 - sum(s.share for s in self.shares.values())):5.1f} %")
        if any(s.interval is not None for s in self.shares.values()):
            lines.append(f"  {INTERVAL}")
        if self.trials < FEW * len(self.shares):
            few = f"{self.trials} trials are few for {len(self.shares)} parameters"
            lines.append(f"  {few}: small shares may be chance")
        if self.left_out:
            names = ", ".join(shown(name, 80) for name in self.left_out)
            lines.append(f"  active in fewer than {LEAST} trials: {names}")
        return lines


FANOVA, PED_ANOVA = "fANOVA", "PED-ANOVA"
INTERVAL = f"In brackets: 95 % interval over trials (jackknife, {SUBSETS} subsets)."


def importance_of(records: Sequence[Record], axes: Sequence[Axis]) -> Importance:
    """Importances from the trials at the largest budget with at least ``LEAST`` successes and different losses. A
    conditional parameter is judged among the trials that have it, beside those parameters that all of these have."""
    good = [r for r in records if succeeded(r)]
    counts = {b: sum(r.trial.budget == b for r in good) for b in {r.trial.budget for r in good}}
    enough = [b for b, n in counts.items() if n >= LEAST]
    if not enough:
        most = max(counts.values(), default=0)
        return Importance(reason=f"it takes {LEAST} trials that succeed at one budget, and there are {most}")
    if importlib.util.find_spec("optuna") is None:
        return Importance(reason="Optuna is not installed: pip install optuna scikit-learn")
    differing = [b for b in enough if len({r.result.loss for r in good if r.trial.budget == b}) > 1]
    if not differing:
        others = f", and larger budgets have fewer than {LEAST} that succeeded" if max(counts) > max(enough) else ""
        return Importance(reason=f"all losses at budget {max(enough):g} are the same{others}")
    budget = max(differing)
    here = [r for r in good if r.trial.budget == budget]
    varying = [a.name for a in axes if len({str(r.trial.values[a.name]) for r in here if a.name in r.trial.values}) > 1]
    if len(varying) < 2:  # its share would be 100 %, whatever it does
        what = f"only {shown(varying[0], 80)} varies" if varying else "no parameter varies"
        return Importance(reason=f"{what}: there is nothing that it could be more important than")
    if len(here) > MOST:
        here = [here[k * len(here) // MOST] for k in range(MOST)]
    method = FANOVA if importlib.util.find_spec("sklearn") is not None else PED_ANOVA
    shares: dict[str, Share] = {}
    left_out = []
    groups: dict[frozenset[int], list[str]] = {}  # ids of trials -> parameters that exactly these have
    for axis in axes:
        groups.setdefault(frozenset(r.trial.id for r in here if axis.name in r.trial.values), []).append(axis.name)
    by_name = {a.name: a for a in axes}
    for ids, names in groups.items():
        members = [r for r in here if r.trial.id in ids]
        if len(members) < LEAST:
            left_out += names
            continue
        common = [by_name[n] for n in by_name if all(n in r.trial.values for r in members)]
        found = _measure(members, common, method)
        ends = _intervals(members, common, method, found)
        shares |= {n: Share(found[n], len(members), ends.get(n)) for n in names}
    ordered = dict(sorted(shares.items(), key=lambda pair: (-pair[1].share, pair[0])))
    return Importance(method, budget, len(here), ordered, tuple(left_out))


def _intervals(
    records: Sequence[Record], axes: Sequence[Axis], method: str, shares: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """95 % intervals of the shares by the spread among subsets; empty with too few trials."""
    n = len(records)
    if n < LEAST_INTERVAL:
        return {}
    rng, m = np.random.default_rng(SEED), min(n // 2, SUBSET)
    subsets = [[records[i] for i in sorted(rng.choice(n, m, replace=False))] for _ in range(SUBSETS)]
    found = [_measure(subset, axes, method, SUBSET_TREES) for subset in subsets]
    out = {}
    for name, share in shares.items():
        spread = math.sqrt(m / (n - m)) * float(np.std([f[name] for f in found]))
        out[name] = max(0.0, share - 1.96 * spread), min(1.0, share + 1.96 * spread)
    return out


def _measure(records: Sequence[Record], axes: Sequence[Axis], method: str, trees: int = TREES) -> Mapping[str, float]:
    """Shares of axes that are active in all records; parameters that never vary explain nothing."""
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    values = {a.name: [_internal(a, r) for r in records] for a in axes}
    varying = [a for a in axes if len(set(values[a.name])) > 1]
    shares = dict.fromkeys(values, 0.0)
    if not varying or len({r.result.loss for r in records}) == 1:
        return shares
    distributions = {a.name: distribution(a, range(len(a.choices))) for a in varying}
    trials = [
        optuna.trial.create_trial(params={a.name: values[a.name][k] for a in varying}, distributions=distributions,
                                  value=r.result.loss)
        for k, r in enumerate(records)
    ]  # fmt: skip
    with silent():
        study = optuna.create_study(direction="minimize")
        study.add_trials(trials)
        if method == FANOVA:
            evaluator: Any = FanovaImportanceEvaluator(n_trees=trees, seed=SEED)
        else:
            quantile = max(0.1, min(0.5, GOOD / len(records)))
            evaluator = PedAnovaImportanceEvaluator(target_quantile=quantile)
        found = optuna.importance.get_param_importances(
            study, evaluator=evaluator, params=list(distributions), normalize=method != FANOVA
        )
    return shares | {name: float(x) for name, x in found.items()}


def _internal(axis: Axis, record: Record) -> Any:
    """Value for Optuna: the index of a choice, so that equal ones (1 and true) stay apart."""
    value = record.trial.values[axis.name]
    return axis.position(value) if axis.choices else value


def distribution(axis: Axis, choices: Sequence[Plain]) -> Any:
    """Optuna's distribution of an axis. choices: what stands for the axis's own, which Optuna may hold for equal."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.choices:
        return CategoricalDistribution(tuple(choices))
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keeps Optuna's log and its warnings about experimental parts from the terminal."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
