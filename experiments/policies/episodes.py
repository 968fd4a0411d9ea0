"""Interface of evaluate_policy.py to a run of any kind: its stored policies, their episodes, a video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from envolve.core.files import TORCH_BYTES, read_plain
from envolve.core.registry import nearest
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.outer.config.yaml_lines import ConfigError, show

SECONDS = 20.0  # of a film, in the robot's time


class PolicyError(Exception):
    """A policy cannot be evaluated; the text names the file and says why."""


@dataclass
class Episodes:
    """Axes: P members of a population, E episodes, the same beginnings for every member."""

    returns: np.ndarray  # float64 [P, E]; NaN where a member's weights are not finite
    meaning: str  # of a return
    lengths: np.ndarray  # float64 [P, E], decisions
    more: dict[str, np.ndarray] = field(default_factory=dict)  # other measures, float64 [P, E]

    @property
    def best(self) -> int:
        """The member with the highest mean return."""
        means = self.returns.mean(1)
        return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))

    def score_of(self, member: int) -> str:
        """In words: score 1.05, mean of 20 episodes."""
        n, what = self.returns.shape[1], self.meaning.partition(":")[0].partition(",")[0]
        return f"{what} {self.returns[member].mean():.4g}, mean of {n} episode{'s' * (n != 1)}"


class Policies(Protocol):
    """The policies that a run has kept."""

    kind: str  # of run
    task: str

    @property
    def names(self) -> Sequence[str]:
        """Oldest first, at least one."""

    def play(self, name: str, episodes: int, seed: int) -> Episodes:
        """Greedy episodes with the policy of this name. Raises PolicyError, ConfigError."""

    def film(self, name: str, member: int, seed: int, path: Path, score: str) -> None:
        """One member's, from the same seed. score: of its episodes, for the line below the picture. Raises VideoError,
        PolicyError."""


def chosen(name: str | None, names: Sequence[str], where: Path) -> str:
    """The newest without a name. Raises ConfigError, which says what is nearest."""
    wanted = names[-1] if name is None else name[:-3] if name.endswith(".pt") else name
    if wanted not in names:
        known = ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]} ({len(names)})"
        near = nearest(wanted, names, cutoff=0.0)
        raise ConfigError([f"--checkpoint: found no {show(wanted)} in {where}, expected {known}; nearest: {near}"])
    return wanted


def read_policy_file(path: Path, kinds: dict[str, type]) -> dict[str, Any]:
    """A file of ``torch.save``: a dictionary that has these keys, of these types. Raises PolicyError."""
    try:
        content = read_torch(read_plain(path, TORCH_BYTES))
    except OSError as e:
        raise PolicyError(f"{path}: {e.strerror}") from None
    except TorchFileError as e:
        raise PolicyError(f"{path}: found no policy ({e})") from None
    for key, kind in kinds.items():
        found = content.get(key) if type(content) is dict else None
        if type(found) is not kind:
            raise PolicyError(f"{path}: {key}: found {type(found).__name__}, expected {kind.__name__}")
    return dict(content)
