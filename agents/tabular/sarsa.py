"""SARSA (Rummery & Niranjan 1994; Sutton & Barto 2018, section 6.4): the target of the update.

On-policy means that the a' of the target is the action that is then executed. The original draws another one inside
the update; ``published_sarsa`` brings that back. The loop is ``agents/tabular/loop.py``.
"""

from __future__ import annotations

from torch import Tensor


def target(q_next: Tensor, next_action: Tensor, reward: Tensor, nonterminal: Tensor, gamma: Tensor) -> Tensor:
    """Target r + gamma Q(s', a') 1[not terminal].

    q_next: Q of the next state [P, A]; next_action int64 [P]; reward, gamma float32 [P]; nonterminal bool [P]
    -> float32 [P].
    """
    value = q_next.gather(1, next_action[:, None]).squeeze(1)
    return (reward + gamma * value).where(nonterminal, reward)
