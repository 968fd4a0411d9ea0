"""Q-learning (Watkins & Dayan 1992, https://doi.org/10.1007/BF00992698): the target of the update.

The loop around it, shared with SARSA, is ``agents/tabular/loop.py``; the compiled twin ``agents/kernels/tabular.py``.
"""

from __future__ import annotations

from torch import Tensor


def target(q_next: Tensor, reward: Tensor, nonterminal: Tensor, gamma: Tensor) -> Tensor:
    """Target r + gamma max_a' Q(s', a') 1[not terminal].

    q_next: Q of the next state [P, A]; reward, gamma float32 [P]; nonterminal bool [P] -> float32 [P].
    """
    return (reward + gamma * q_next.amax(1)).where(nonterminal, reward)
