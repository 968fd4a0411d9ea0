"""The world of the best expert, which a run with ``init: distilled`` begins with: the master's part.

Workers train the experts and fit their worlds (``begin.py``); here they are asked to, their answers are checked, and
one of the worlds is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem
from envolve.outer.config.load import Config
from envolve.outer.distil.begin import PUPILS, TAUGHT, WORLD
from envolve.outer.distil.kept import Kept
from envolve.outer.evaluate.members import Values, evaluate_members
from envolve.outer.evaluate.networks import DISTIL


@dataclass(frozen=True)
class FirstWorld:
    world: Tensor  # float32 [D]
    score: float  # its expert's mean return on the task
    values: Values  # [E, ...], of all experts, as of ``evaluate``


def first_world(config: Config, kept: Kept, seeds: Tensor, size: torch.Size, say: Callable[[str], None]) -> FirstWorld:
    """Has one expert per seed, int64 [E], trained on the task, and takes the best one's world. size: of a world; say:
    is told what happens. Raises RunError."""
    experts = problem.experts(config.data)
    names = [problem.expert(own)[0] for own in experts]
    steps = {name: problem.learner_of(config.data, name).train_steps for name in names}
    each = " and ".join(f"{n} {name} experts, {steps[name]:,} steps each" for name, n in Counter(names).items())
    had = f"; {kept.ended} have ended before" if kept.ended else ""
    say(f"training {each}, on {config.data['env_name']}{had}")
    count = len(experts)
    values, reasons = evaluate_members(kept, config, 0, torch.zeros(count, 1), seeds, DISTIL, experts, np.arange(count))
    fine = np.flatnonzero(np.isfinite(values["score"]))
    if not len(fine):
        raise RunError(f"agents.gtn.init: distilled: all experts failed, the first because {reasons[0]}")
    worlds = _worlds(values, fine, size)
    taught = _taught(values) if problem.expert_section(config.data).chosen_by == PUPILS else None
    best = best_expert(values["score"][fine], None if taught is None else taught[fine])
    score, name = float(values["score"][fine][best]), names[fine[best]]
    if taught is None:
        teaches = "the best of them"
    else:
        returns = ", ".join(f"{names[i]} {taught[i]:.4g}" for i in fine)
        teaches = f"the expert with the best pupils ({returns})"
    say(f"the first world teaches {teaches}: {name}, return {score:.4g} on the task")
    return FirstWorld(worlds[best].clone(), score, values)


def best_expert(returns: np.ndarray, taught: np.ndarray | None) -> int:
    """Index of the expert with the highest return, float64 [E]; or, where it is known, of the one whose pupils have
    the highest mean return, float64 [E]."""
    return int(np.argmax(returns) if taught is None else np.lexsort((returns, np.nan_to_num(taught, nan=-np.inf)))[-1])


def _worlds(values: Values, fine: np.ndarray, size: torch.Size) -> Tensor:
    """Worlds of the experts ``fine``, float32 [n, D]. Raises RunError if workers sent something else."""
    expected = f"finite numbers, float32 {list(size)}, of each of {len(fine)} experts"
    if WORLD not in values:
        raise RunError(f"workers distilled no worlds, expected {expected}")
    worlds = torch.from_numpy(values[WORLD])[fine]
    if worlds.shape[1:] != size or worlds.dtype != torch.float32 or not worlds.isfinite().all():
        raise RunError(f"workers distilled {worlds.dtype} {list(worlds.shape[1:])}, expected {expected}")
    return worlds


def _taught(values: Values) -> np.ndarray:
    """Mean returns of every expert's pupils, float64 [E]. Raises RunError if workers sent something else."""
    taught, expected = values.get(TAUGHT), values["score"].shape
    if taught is None or taught.shape != expected:
        found = "no returns of pupils" if taught is None else f"returns of pupils {list(taught.shape)}"
        raise RunError(f"workers sent {found}, expected one of each of the {expected[0]} experts")
    return taught
