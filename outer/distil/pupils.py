"""Which of several worlds teaches best: agents train in each and are tested on the task. Python 3.8."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

import numpy as np
from torch import Tensor

from envolve.outer.search.nes import CHOOSING, fresh_seeds

OF_EACH = 8
COSTS = ("train_steps", "episodes", "updates", "real_steps")


def judged(config: Mapping[str, Any], worlds: Tensor, threads: int) -> Tuple[np.ndarray, Dict[str, int]]:
    """Mean return on the task of OF_EACH agents that trained in each of the worlds [k, D], float64 [k], and what all of
    them cost. A failed agent counts as the worst of all."""
    from envolve.outer.evaluate.networks import BUDGET, evaluate  # which imports this room only if needed

    seeds = fresh_seeds(config["seed"], CHOOSING, OF_EACH).repeat(len(worlds))
    values = evaluate(config, worlds.repeat_interleave(OF_EACH, 0), seeds, BUDGET, threads)
    scores = values["score"].numpy()
    worst = float(np.nanmin(scores)) if np.isfinite(scores).any() else -np.inf
    means: np.ndarray = np.nan_to_num(scores, nan=worst).reshape(len(worlds), OF_EACH).mean(1)
    return means, {name: int(values[name].sum()) for name in COSTS}
