"""A study that a test can afford: NES over a gridworld's reward network, milliseconds per generation."""

from __future__ import annotations

from pathlib import Path

import yaml

from envolve.outer.hpo.study import Study, read_study
from envolve.outer.hpo.trial import Trial
from tests.outer.small import GRIDWORLD_FILE

SET = {
    "agents.gtn.max_iterations": 9, "agents.gtn.num_workers": 3, "agents.gtn.num_orig_evals": 2,
    "agents.gtn.chunk_size": 4, "agents.ql.train_episodes": 8, "agents.gtn.comparison_agents": 0,
}  # fmt: skip
CLIFF = {
    "config": str(GRIDWORLD_FILE),
    "set": SET,
    "evaluate": "nes",
    "loss": "score",
    "repeats": 1,
    "search": {"backend": "bohb", "bracket": "hyperband", "seed": 0, "parallel": 3},
    "budget": {"unit": "generations", "least": 1, "most": 9, "eta": 3},
    "stop": {"trials": 12},
    "space": {
        "agents.gtn.step_size": {"range": [0.1, 1], "log": True},
        "agents.gtn.noise_std": {"range": [0.01, 1], "log": True},
        "agents.gtn.mirrored_sampling": {"choices": [True, False]},
    },
}
VALUES = {"agents.gtn.step_size": 0.5, "agents.gtn.noise_std": 0.25, "agents.gtn.mirrored_sampling": True}


def write(folder: Path, **changes: object) -> Path:
    path = folder / "cliff.yaml"
    content = {key: value for key, value in {**CLIFF, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(content))
    return path


def study(folder: Path, *overrides: str, **changes: object) -> Study:
    folder.mkdir(parents=True, exist_ok=True)
    return read_study(write(folder, **changes), overrides)


def trial(budget: float, rung: int = 0, id: int = 0, **values: object) -> Trial:
    return Trial(id, (0, 0, 4), {**VALUES, **values}, budget, rung)  # type: ignore[arg-type]
