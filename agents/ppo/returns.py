"""Returns of a rollout: generalised advantage estimation and Monte Carlo sums are one recursion."""

from __future__ import annotations

import torch
from torch import Tensor


def lambda_returns(
    reward: Tensor, terminated: Tensor, over: Tensor, next_value: Tensor, gamma: Tensor, lam: Tensor
) -> Tensor:
    """lambda-returns (Schulman et al. 2016, https://arxiv.org/abs/1506.02438), float32 [T, L, N]:

        G_t = r_t + gamma (1 - terminated_t) V_t'                                     the last step of an episode
        G_t = r_t + gamma ((1 - lambda) V_t' + lambda G_{t+1})                        any other

    with G_T = V_{T-1}'. G_t - V(s_t) is the generalised advantage estimate. With lambda 1 it is the Monte Carlo sum.

    reward, next_value: float32 [T, L, N], V_t' the value of the state that step t led to, before any reset;
    terminated, over: bool [T, L, N], over: the episode's last step, whether terminated or cut; gamma, lam: [L, 1].
    """
    ahead = torch.where(over, torch.zeros_like(reward), (gamma * lam).expand_as(reward))  # weight of G_{t+1}
    bootstrap = torch.where(over, gamma.expand_as(reward), (gamma * (1 - lam)).expand_as(reward))
    at_once = reward + torch.where(terminated, torch.zeros_like(reward), bootstrap * next_value)
    returns = torch.empty_like(reward)
    following = next_value[-1]
    for t in range(len(reward) - 1, -1, -1):
        following = torch.addcmul(at_once[t], ahead[t], following, out=returns[t])
    return returns


def normalise(x: Tensor, epsilon: float) -> Tensor:
    """Normalises each row: (x - mean) / (std + epsilon), std with Bessel's correction. x: [L, B]."""
    std, mean = torch.std_mean(x, dim=1, keepdim=True)
    return (x - mean) / (std + epsilon)
