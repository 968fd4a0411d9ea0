"""From scores to weights: the eight score transforms of the published update, and centred ranks."""

from __future__ import annotations

import numpy as np


def score_transform(scores: np.ndarray, kind: int, mean_orig: float) -> np.ndarray:
    """scores K: [n], one per perturbation, higher is better -> weights F: [n].

    kind: 0 linear, 1 rank, 2 NES, 3 NES unnormalised, 4 single best, 5 single better, 6 all better (max 1),
    7 all better (sum 1). 5 to 7 weigh only what beats ``mean_orig``, the mean score of the unperturbed world, and may
    be all zero.
    """
    k = np.asarray(scores, dtype=np.float64)
    n = len(k)
    if kind == 0:
        return (k - k.min()) / (k.max() - k.min() + 1e-9)
    if kind == 1:
        ascending = np.empty(n)
        ascending[np.argsort(k, kind="stable")] = np.arange(n)
        return ascending / max(1, n - 1)
    if kind in (2, 3):
        rank = np.empty(n)  # 1 is best
        rank[np.argsort(-k, kind="stable")] = np.arange(1, n + 1)
        u = np.maximum(0.0, np.log(n / 2 + 1) - np.log(rank))
        if u.sum() == 0:  # a population of one
            return np.ones(n)
        u = u / u.sum()
        if kind == 2:
            u = u - 1 / n
        return u / u.max() if u.max() > 0 else np.ones(n)
    if kind in (4, 5):
        best = np.zeros(n)
        if kind == 4 or k.max() > mean_orig + 1e-6:
            best[int(np.argmax(k))] = 1.0
        return best
    if kind in (6, 7):
        better = np.where(k > mean_orig + 1e-6, (k - mean_orig) / (k.max() - mean_orig + 1e-9), 0.0)
        scale = better.max() if kind == 6 else better.sum()
        return better / scale if scale > 0 else better
    raise ValueError(f"score_transform_type: found {kind}, expected 0 to 7")


def centred_ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks scaled to [-0.5, 0.5]; equal scores share their mean rank, so a flat population gives no direction."""
    k = np.asarray(scores, dtype=np.float64)
    _, inverse, count = np.unique(k, return_inverse=True, return_counts=True)
    first = np.cumsum(count) - count
    rank = (first + (count - 1) / 2)[inverse]
    return rank / max(1, len(k) - 1) - 0.5
