"""Tuned agents on the task itself, the baseline for evolved worlds: ``configs/baselines/``.

A baseline is a pair of files: ``<name>.yaml``, a complete configuration whose learner was tuned by a study of
``configs/spaces/real_*.yaml``, and ``<name>.json``, what the tuning cost and what fresh agents reach. Both are written
by ``experiments/paper/tuned_baseline.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envolve.core.files import read_text
from envolve.core.places import CODE
from envolve.outer.config.load import Config, ConfigError, load_config

FOLDER = CODE / "configs" / "baselines"
RECORD = {"study": str, "trials": int, "tuning_steps": int, "agents": int}  # what a record must have, and of what type


@dataclass(frozen=True)
class Baseline:
    config: Config
    record: dict[str, Any]

    @property
    def tuning_steps(self) -> int:
        """Real steps that the search for the hyperparameters took."""
        return int(self.record["tuning_steps"])


def read_baseline(path: Path) -> Baseline:
    """Reads a baseline. Raises ConfigError."""
    config, beside = load_config(path), path.with_suffix(".json")
    try:
        record = json.loads(read_text(beside))
    except (OSError, ValueError) as e:
        raise ConfigError([f"{beside}: found {e}, expected the record of the baseline {path.name}"]) from None
    for key, kind in RECORD.items():
        if not isinstance(record, dict) or type(record.get(key)) is not kind:
            found = record.get(key) if isinstance(record, dict) else record
            raise ConfigError([f"{beside}: key {key!r}: found {found!r}, expected a value of type {kind.__name__}"])
    return Baseline(config, record)


def baseline_of(env_name: str, folder: Path = FOLDER) -> Baseline | None:
    """Tuned baseline of a task; None if there is none. Raises ConfigError."""
    for path in sorted(folder.glob("*.yaml")):
        found = read_baseline(path)
        if found.config.data["env_name"] == env_name:
            return found
    return None
