"""Trials for tests: a small space with a conditional parameter, and records whose losses follow a known rule."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from envolve.outer.hpo.trial import Plain, Record, Trial, TrialResult

BUDGETS = (5.0, 15.0, 45.0)
# what outer.hpo.axes reads of ConfigSpace's hyperparameters
SPACE: dict[str, Any] = {
    "agents.gtn.step_size": SimpleNamespace(lower=0.1, upper=1.0, log=True),
    "agents.gtn.mirrored_sampling": SimpleNamespace(choices=(True, False)),
    "agents.gtn.agent_name": SimpleNamespace(choices=("DDQN", "DDQN_icm")),
    "agents.icm.lr": SimpleNamespace(lower=1e-5, upper=1e-3, log=True),
}


def values(random: np.random.Generator) -> dict[str, Plain]:
    out: dict[str, Plain] = {
        "agents.gtn.step_size": float(np.exp(random.uniform(np.log(0.1), 0.0))),
        "agents.gtn.mirrored_sampling": bool(random.random() < 0.5),
        "agents.gtn.agent_name": ("DDQN", "DDQN_icm")[int(random.random() < 0.7)],
    }
    if out["agents.gtn.agent_name"] == "DDQN_icm":
        out["agents.icm.lr"] = float(np.exp(random.uniform(np.log(1e-5), np.log(1e-3))))
    return out


def loss_of(v: dict[str, Plain], budget: float) -> float:
    """The step size decides, and where it is active the learning rate a little."""
    rate = math.log(float(v["agents.icm.lr"]) / 1e-4) if "agents.icm.lr" in v else 0.0
    return 10 + 30 * abs(math.log(float(v["agents.gtn.step_size"]) / 0.4)) + abs(rate) + 20 / budget


def record(
    id: int,
    config_id: tuple[int, int, int],
    v: dict[str, Plain],
    budget: float,
    loss: float | None = None,
    error: str = "",
) -> Record:
    found = loss if loss is not None else loss_of(v, budget)
    result = TrialResult(math.inf if error else found, {} if error else {"generations": 7.0}, error)
    trial = Trial(id, config_id, v, budget, BUDGETS.index(budget), model_based=config_id[2] % 3 == 1)
    return Record(trial, result, 1e9 + 60 * id, 1e9 + 60 * id + 1, 1e9 + 60 * id + 90)


def many(brackets: int = 4, size: int = 9, seed: int = 0) -> list[Record]:
    """Every bracket: ``size`` configurations at 5, the best third at 15, the best of these at 45."""
    random, out = np.random.default_rng(seed), []
    for bracket in range(brackets):
        members = [((bracket, 0, k), values(random)) for k in range(size)]
        for budget in BUDGETS:
            for config_id, v in members:
                out.append(record(len(out), config_id, v, budget))
            members = sorted(members, key=lambda m: loss_of(m[1], budget))[: max(1, len(members) // 3)]
    return out
