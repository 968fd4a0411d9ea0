"""Sections of a study: allowed values of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from envolve.core.option import option

LOSSES = {  # of each kind of evaluation; all are minimised
    "nes": ("generations", "score"),  # until an SE is solved; minus the best score
    "agent": ("steps", "episodes", "return"),  # until the task is solved; minus the mean return of the tests
    "goal": ("success", "near"),  # 1 minus the share of episodes near the goal once, or of decisions near it
}
UNITS = {  # of the budget: what ``least`` and ``most`` count
    "nes": ("generations", "steps", "episodes"),  # of the outer loop; trained by all agents of the run
    "agent": ("steps", "episodes", "agents"),  # trained by each agent; how many agents
    "goal": ("steps",),  # of each agent
}
BUDGET_KEYS = {  # of the configuration, that it takes the place of
    "nes": {"generations": "max_iterations"},
    "agent": {"steps": "train_steps", "episodes": "train_episodes"},
}
READ = {"nes": ("repeats",), "agent": ("agents", "worlds"), "goal": ("agents",)}  # not by every kind of evaluation


@dataclass(frozen=True)
class StudySection:
    """The top level of a study, beside its sections."""

    evaluate: str = option(
        "nes",
        "trial: a whole run of the outer loop (nes), agents on the task (agent), goal-conditioned agents (goal)",
        choices=tuple(LOSSES),
    )
    loss: str = option("", "loss to minimise", choices=tuple(n for names in LOSSES.values() for n in names))
    repeats: int = option(1, "nes: runs averaged per trial, each with its own random seed", ge=1, le=1000)
    agents: int = option(10, "agent, goal: agents averaged per trial", ge=1, le=65536)


@dataclass(frozen=True)
class SearchSection:
    """``search``: the search that proposes configurations."""

    backend: str = option("bohb", "search that proposes configurations", choices=("bohb", "optuna", "random"))
    bracket: str = option(
        "hyperband",
        "hyperband: brackets of all lengths in turn; aggressive: only the longest, as in the original",
        choices=("hyperband", "aggressive"),
    )
    seed: int = option(0, "random seed of the proposals and of every trial", ge=0, le=2**32 - 1)
    parallel: int = option(4, "most trials at the same time, whatever the number of masters", ge=1, le=4096)
    random_fraction: float = option(1 / 3, "share of proposals that are drawn at random", ge=0, le=1)


@dataclass(frozen=True)
class BudgetSection:
    """``budget``: from the cheapest trial to the most expensive one."""

    unit: str = option("", "unit of the budget", choices=("generations", "steps", "episodes", "agents"))
    least: float = option(1.0, "budget of the cheapest trial", ge=1, le=1e15)
    most: float = option(1.0, "budget of the most expensive trial", ge=1, le=1e15)
    eta: float = option(3.0, "ratio of the budgets of neighbouring rungs", gt=1, le=1e6)


@dataclass(frozen=True)
class StopSection:
    """``stop``: when the search ends, whichever comes first."""

    full_evaluations: Optional[float] = option(None, "sum of all budgets, as a multiple of most", gt=0, le=1e12)
    trials: Optional[int] = option(None, "number of finished trials", ge=1, le=10**9)


@dataclass(frozen=True)
class Budget:
    unit: str
    least: float
    most: float
    eta: float


def applied(data: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Data with other values at dotted keys. A section that is not a mapping stays unchanged, to be reported later."""
    out = dict(data)
    for key, value in overrides.items():
        *sections, last = key.split(".")
        at: Any = out
        for section in sections:
            inner = at.get(section, {})
            if not isinstance(inner, dict):
                break
            at[section] = dict(inner)
            at = at[section]
        else:
            at[last] = value
            if last == "shapers":  # other candidates than those whose digest the data remember
                at.pop("shapers_sha256", None)
    return out
