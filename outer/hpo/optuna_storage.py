"""Copy of a study in Optuna's own SQLite storage, so that optuna-dashboard opens it while it runs and afterwards.

Trial i of the search is trial i of the copy. Losses at different budgets cannot be compared, so only a trial at the
largest budget is complete; one below it counts as pruned, with its losses as intermediate values, and a failure as
failed. Optuna's plots of histories, slices and importances then show the largest budget alone.

``results.json`` decides what a search does; nothing is ever read back from the copy into a search.
"""

from __future__ import annotations

import logging
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.axes import Axis, axes_of, shown
from envolve.outer.hpo.importance import distribution, silent
from envolve.outer.hpo.report import last_line, loss_name
from envolve.outer.hpo.study import Study
from envolve.outer.hpo.trial import ConfigID, Plain, Record

log = logging.getLogger("envolve")

OPTION = "--storage"
PREFIX = "sqlite:///"
WAIT = 60.0  # seconds for another process that has the file
DIGEST, ID, CONFIG, BUDGET = "envolve:study", "envolve:trial", "envolve:configuration", "envolve:budget"
REASON = 300  # characters of a failure


def storage_file(text: str) -> Path:
    """File that ``--storage`` names: a path, or SQLAlchemy's sqlite:///PATH. Raises ConfigError."""
    path = text[len(PREFIX) :] if text.startswith(PREFIX) else text
    if not path or re.match(r"[A-Za-z][\w+.-]*://", path) or path == ":memory:":
        raise ConfigError([f"{OPTION}: found {text}, expected a file of SQLite such as studies.db"])
    if Path(path).is_dir():
        raise ConfigError(
            [f"{OPTION}: found the folder {path}, expected a file of SQLite such as {Path(path) / 'studies.db'}"]
        )
    return Path(path)


class OptunaStorage:
    """The copy of one search. A failure while it runs costs the copy and not the search: it is logged once, and the
    next process that is given the same file adds what is missing."""

    def __init__(self, text: str, study: Study, name: str) -> None:
        """text: as ``--storage`` has it; name: of the study in the file, that of the run's folder. Raises ConfigError
        if Optuna is missing, if the file is no such storage, or if it has another study of that name."""
        self.file = storage_file(text)
        try:
            import optuna
        except ImportError as e:
            raise ConfigError([f"{OPTION}: found no Optuna ({e}), expected: pip install 'envolve[bohb]'"]) from e
        self.axes = axes_of(study.space.config_space, ())
        self.most = study.budget.most
        self.losses: dict[ConfigID, dict[int, float]] = {}  # of each configuration so far: budget -> loss
        self.broken = False
        try:
            with silent():
                self.file.parent.mkdir(parents=True, exist_ok=True)
                storage = optuna.storages.RDBStorage(
                    f"{PREFIX}{self.file}", engine_kwargs={"connect_args": {"timeout": WAIT}}
                )
                self.study = optuna.create_study(
                    storage=storage, study_name=name, direction="minimize", load_if_exists=True
                )
                there = self.study.user_attrs.get(DIGEST)
                trials = self.study.get_trials(deepcopy=False)
                if there is None and not trials:
                    self.study.set_user_attr(DIGEST, study.digest)
                    self.study.set_metric_names([loss_name(study)])  # the dashboard would say "Objective 0"
        except Exception as e:  # SQLAlchemy's and Optuna's own share no base class
            raise ConfigError([f"{OPTION}: {self.file} cannot be used: {_line(e)}"]) from e
        if (there is None and trials) or there not in (None, study.digest):
            raise ConfigError(
                [f"{OPTION}: {self.file} has another study named {name}, expected this one; choose another file"]
            )
        self.copied = {t.user_attrs.get(ID) for t in trials}

    def tell(self, record: Record) -> None:
        """Adds a trial that is not there yet. Never raises: see the class."""
        step, loss = _step(record.trial.budget), record.result.loss
        losses = self.losses.setdefault(record.trial.config_id, {})
        if math.isfinite(loss):
            losses[step] = loss
        if self.broken or record.trial.id in self.copied:
            return
        try:
            with silent():
                self.study.add_trial(self._trial(record, dict(losses)))
            self.copied.add(record.trial.id)
        except Exception as e:  # the disk is full, or another process keeps the file
            self.broken = True
            log.warning(
                "%s: %s takes no trials any more (%s); the search goes on, and --resume with the same %s adds them",
                OPTION,
                self.file,
                _line(e),
                OPTION,
            )

    def _trial(self, record: Record, losses: dict[int, float]) -> Any:
        from optuna.trial import FrozenTrial, TrialState

        trial, result = record.trial, record.result
        failed = not math.isfinite(result.loss)
        full = trial.budget >= self.most * (1 - 1e-9)
        state = TrialState.FAIL if failed else TrialState.COMPLETE if full else TrialState.PRUNED
        axes = [a for a in self.axes if a.name in trial.values]
        attributes: dict[str, Any] = {ID: trial.id, CONFIG: list(trial.config_id), BUDGET: trial.budget}
        attributes |= {"rung": trial.rung, "model_based": trial.model_based}
        attributes |= {key: value for key, value in result.info.items() if math.isfinite(value)}
        if result.error:
            attributes["error"] = shown(last_line(result.error), REASON)
        return FrozenTrial(
            number=-1,  # the storage counts
            trial_id=-1,
            state=state,
            value=None if failed else result.loss,
            datetime_start=datetime.fromtimestamp(record.started),
            datetime_complete=datetime.fromtimestamp(record.finished),
            params={a.name: _value(a, trial.values[a.name]) for a in axes},
            distributions={a.name: distribution(a, [_value(a, c) for c in a.choices]) for a in axes},
            user_attrs=attributes,
            system_attrs={},
            intermediate_values=losses,
        )


def _value(axis: Axis, value: Plain) -> Plain:
    """Value in the copy: choices are texts where two of them are equal to Python, as 1 and true are."""
    if axis.choices and len(set(axis.choices)) < len(axis.choices):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _step(budget: float) -> int:
    """Optuna counts steps in whole numbers."""
    return max(0, round(budget))


def _line(e: Exception) -> str:
    return shown(str(e).strip().partition("\n")[0] or type(e).__name__, 160)
