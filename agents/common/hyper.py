"""Hyperparameters of a population: an array ``[P]`` per number, drawn per member where ``_vary`` says so.

Draws follow the original: lr log-uniform in [lr/3, 3 lr]; batch_size and hidden_size log-uniform integers in [x/3, 3x];
hidden_layer uniform in {L-1, L, L+1}; tabular learners: alpha and gamma uniform in [.1, 1]. They come from the member's
own key, so they do not depend on the rest of the chunk.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.sections import HYPER_FACTOR, LearnerSection, TabularSection, VarySection
from envolve.core import rng

NO_BUDGET = 2**62


class Hyper:
    """Hyperparameters of P members: ``hyper["lr"]`` is an array [P]; ``hyper.section`` holds the shared values."""

    def __init__(self, section: LearnerSection, values: Dict[str, np.ndarray]) -> None:
        self.section = section
        self.values = values

    def __getitem__(self, key: str) -> np.ndarray:
        return self.values[key]

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def take(self, rows: Any) -> Hyper:
        """Hyperparameters of the members that ``rows``, an index into arrays [P], selects."""
        return Hyper(self.section, {name: values[rows] for name, values in self.values.items()})

    def member(self, i: int) -> LearnerSection:
        """Section with the values of member i."""
        kinds = {field.name: float if field.type == "float" else int for field in dataclasses.fields(self.section)}
        own: Dict[str, Any] = {name: kinds[name](values[i]) for name, values in self.values.items()}
        return dataclasses.replace(self.section, **own)


def column(hyper: Hyper, name: str, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
    """Hyperparameter ``name`` of every member, [P]."""
    return torch.as_tensor(np.array(hyper[name]), dtype=dtype, device=device)


def budgets(hyper: Hyper, device: torch.device) -> Tensor:
    """Environment steps that members may take, int64 [P]; NO_BUDGET where train_steps is 0."""
    steps = column(hyper, "train_steps", device, torch.int64)
    return torch.where(steps > 0, steps, NO_BUDGET)


def draw(section: LearnerSection, keys: np.ndarray, vary: Optional[VarySection] = None) -> Hyper:
    """Draws hyperparameters. keys: int64 [P]. Without ``vary`` every member gets the section's own values."""
    members = len(keys)
    values: Dict[str, np.ndarray] = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            values[field.name] = np.full(members, value)
    if vary is None:
        return Hyper(section, values)

    stream = rng.fold(torch.as_tensor(keys), rng.VARY)

    def uniform(counter: int) -> np.ndarray:
        return rng.uniform(stream, torch.full_like(stream, counter)).double().numpy()

    def log_uniform(name: str, counter: int, factor: float) -> np.ndarray:
        # exp(log(x / f) + u log(f^2)) = x f^(2u - 1)
        return values[name] * factor ** (2 * uniform(counter) - 1)

    if vary.vary_hp:
        if "lr" in values:
            values["lr"] = log_uniform("lr", 0, vary.lr_factor)
        for counter, name in ((1, "batch_size"), (2, "hidden_size")):
            if name in values and "lr" in values:
                values[name] = np.maximum(1, log_uniform(name, counter, HYPER_FACTOR).astype(np.int64))
        if vary.vary_layers and "hidden_layer" in values:
            values["hidden_layer"] = np.maximum(0, values["hidden_layer"] - 1 + (uniform(3) * 3).astype(np.int64))
        if isinstance(section, TabularSection):
            values["alpha"], values["gamma"] = 0.1 + 0.9 * uniform(5), 0.1 + 0.9 * uniform(6)
    if vary.train_steps_factor > 1:
        drawn = log_uniform("train_steps", 4, vary.train_steps_factor).astype(np.int64)
        limited = values["train_steps"] > 0  # 0 is no limit, which no draw may turn a limit into
        values["train_steps"] = np.where(limited, np.maximum(1, drawn), 0)
    return Hyper(section, values)
