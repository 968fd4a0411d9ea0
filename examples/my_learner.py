"""A learner of one's own: expected SARSA with the networks and the memory of DDQN.

In a configuration: ``agent_name: my_learner.py:ExpectedSARSA``, its section ``agents.expectedsarsa``. Every tensor has
the members first; nothing is read back from it, so that it runs on a GPU as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from envolve import option
from envolve.agents.common.sections import DDQNSection
from envolve.agents.off_policy.ddqn import DDQN


@dataclass(frozen=True)
class ExpectedSARSASection(DDQNSection):
    """Hyperparameters: those of DDQN and one more."""

    target_eps: float = option(0.05, "exploration of the policy that the target expects", ge=0, le=1)


class ExpectedSARSA(DDQN):
    """The target is the mean of Q over an epsilon-greedy policy: y = r + gamma (1 - d) E_a' Q_target(s', a')."""

    section_class = ExpectedSARSASection
    section: ExpectedSARSASection

    def gradient(self, batch: Tensor, weight: Tensor) -> Tensor:
        r, eps = self.rows, self.section.target_eps
        s, s_next, action, reward, done = self.split(batch)
        with torch.no_grad():
            q_next = self.q(r.target, s_next, weight)  # [L, A, B]
            expected = (1 - eps) * q_next.max(1).values + eps * q_next.mean(1)
            y = reward + r.gamma * (1 - done) * expected
            taken = action == torch.arange(self.task.num_actions, device=batch.device)[:, None]
        leaf = r.params.detach().requires_grad_()
        q = self.q(leaf, s, weight)
        dq = (q.detach() - y[:, None]) * (2 * weight)[:, None] * taken  # of the squared error
        return torch.autograd.grad(q, leaf, dq)[0]
