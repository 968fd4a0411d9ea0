"""Maintained alternative to BOHB: optuna's tree of Parzen estimators (Watanabe 2023, https://arxiv.org/abs/2304.11127)
under optuna's own Hyperband, which stops a trial as soon as others at its budget are better.

A new configuration waits for no rung to fill: an unstopped trial continues at the next budget, before anything new.
The n-th configuration's bracket is a hash of n and the seed, and each bracket has a model of its own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from envolve.outer.hpo.hyperband import POLICIES, ladder
from envolve.outer.hpo.search import check_space, plain, rounded
from envolve.outer.hpo.trial import Plain, Trial

try:
    import ConfigSpace
    import optuna
    from ConfigSpace.types import NotSet
except ImportError as e:
    raise ImportError(f"optuna needs a missing package ({e}): pip install optuna ConfigSpace") from e

log = logging.getLogger("envolve")


class _Forward(logging.Handler):
    """Redirects optuna's log to this project's."""

    def emit(self, record: logging.LogRecord) -> None:
        log.debug("optuna: %s", record.getMessage())


optuna.logging.disable_default_handler()  # it writes a line per trial to stderr
if not any(isinstance(handler, _Forward) for handler in logging.getLogger("optuna").handlers):
    logging.getLogger("optuna").addHandler(_Forward())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences optuna's warnings about experimental groups of parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Sampler(optuna.samplers.TPESampler):
    """Chooses the first among equally good candidates instead of deciding by the last bit of a logarithm, in which
    processors differ: a search may be resumed on another one."""

    def _compute_acquisition_func(self, *args: Any) -> np.ndarray:
        return np.round(super()._compute_acquisition_func(*args), 9)


class OptunaTPE:
    """Search with ask and tell. Everything is in memory: a search is resumed by telling its results again."""

    def __init__(
        self,
        space: ConfigSpace.ConfigurationSpace,
        budgets: tuple[float, float, float],
        seed: int,
        bracket: str,
    ) -> None:
        """budgets: least, most, eta; bracket: as in ``outer/hpo/hyperband.py``, here without sizes. Raises
        ValueError."""
        check_space(space, "optuna")
        if space.forbidden_clauses:
            raise ValueError(f"search space: found {space.forbidden_clauses[0]}; expected none forbidden (optuna)")
        if bracket not in POLICIES:
            raise ValueError(f"bracket: found {bracket!r}; expected {' or '.join(POLICIES)}")
        self.budgets = ladder(*budgets)
        rungs = len(self.budgets) - 1  # above the first
        self.eta = int(budgets[2])
        if self.eta != budgets[2] and rungs:
            raise ValueError(f"eta: found {budgets[2]:g}; expected a whole number of 2 or more (optuna)")
        self.eta = max(2, self.eta)
        pruner: optuna.pruners.BasePruner
        if bracket == "hyperband":
            # steps 1, eta, eta^2... are the rungs. One more than the last, for log(243) / log(3) = 4.999...: optuna
            # would be a bracket short
            pruner = optuna.pruners.HyperbandPruner(1, self.eta**rungs + bool(rungs), self.eta)
        else:
            pruner = optuna.pruners.SuccessiveHalvingPruner(1, self.eta, 0)
        with _quiet():
            # groups: parameters that are active together are modelled together
            sampler = _Sampler(multivariate=True, group=bool(space.conditions), constant_liar=True, seed=seed % 2**32)
            self.study = optuna.create_study(study_name=f"envolve {seed}", sampler=sampler, pruner=pruner)
            # before it is asked the first time, Hyperband says "bracket 0" of everything
            pruner.prune(self.study, optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))
        self.space = space
        self.out: dict[int, tuple[Trial, optuna.Trial]] = {}  # asked for and not told
        self.paused: deque[tuple[Trial, optuna.Trial]] = deque()  # good enough for the next budget
        self.asked, self.model_picks, self.random_picks = 0, 0, 0
        self._in_bracket = [0] * len(self.budgets)  # configurations so far

    def ask(self) -> Trial:
        """Oldest configuration that continues, else a new one."""
        if self.paused:
            before, theirs = self.paused.popleft()
            budget = self.budgets[before.config_id[0] + before.rung + 1]
            trial = replace(before, id=self.asked, values=dict(before.values), budget=budget, rung=before.rung + 1)
        else:
            with _quiet():
                theirs = self.study.ask()
                values, model_based = self._suggest(theirs), bool(theirs.relative_params)
            self.model_picks += model_based
            self.random_picks += not model_based
            bracket = self._bracket(theirs)
            config_id = bracket, 0, self._in_bracket[bracket]
            self._in_bracket[bracket] += 1
            trial = Trial(self.asked, config_id, values, self.budgets[bracket], 0, model_based)
        self.asked += 1
        self.out[trial.id] = trial, theirs
        return trial

    def tell(self, id: int, loss: float) -> None:
        if id not in self.out:
            raise KeyError(f"trial {id} was not asked for, or its loss was told before")
        trial, theirs = self.out.pop(id)
        loss = float(loss)
        rung = trial.config_id[0] + trial.rung  # in the whole ladder
        with _quiet():
            theirs.report(loss if math.isfinite(loss) else math.nan, self.eta**rung)
            if not math.isfinite(loss):  # of optuna's states "failed" is one that its model does not learn from
                self.study.tell(theirs, state=optuna.trial.TrialState.PRUNED)
            elif rung + 1 == len(self.budgets):
                self.study.tell(theirs, loss)
            elif theirs.should_prune():
                self.study.tell(theirs, state=optuna.trial.TrialState.PRUNED)
            else:
                self.paused.append((trial, theirs))

    def _bracket(self, theirs: optuna.Trial) -> int:
        """Bracket that optuna has put a trial into; bracket b begins at the b-th budget, below which nothing is
        stopped."""
        pruner = self.study.pruner
        if not isinstance(pruner, optuna.pruners.HyperbandPruner):
            return 0
        return pruner._get_bracket_id(self.study, theirs)  # its number is all that is read

    def _suggest(self, theirs: optuna.Trial) -> dict[str, Plain]:
        """Values of the active parameters, parents first."""
        values: dict[str, Any] = dict.fromkeys(self.space, NotSet)
        for name, parameter in self.space.items():
            if not all(c.satisfied_by_value(values) for c in self.space.parent_conditions_of[name]):
                continue
            kind = type(parameter).__name__
            if kind == "CategoricalHyperparameter":
                values[name] = theirs.suggest_categorical(name, list(parameter.choices))
            elif kind == "UniformIntegerHyperparameter":
                values[name] = theirs.suggest_int(name, int(parameter.lower), int(parameter.upper), log=parameter.log)
            elif kind == "UniformFloatHyperparameter":
                low, high = float(parameter.lower), float(parameter.upper)
                values[name] = rounded(theirs.suggest_float(name, low, high, log=parameter.log), low, high)
            else:
                values[name] = parameter.value
        return plain({name: value for name, value in values.items() if value is not NotSet})
