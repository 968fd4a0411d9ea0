"""Counter-based random numbers (SplitMix64, Steele et al. 2014, https://doi.org/10.1145/2714064.2660195).

A draw is a pure function of ``(key, counter)``: no state, no order. That is what makes a member's result
independent of the chunk it travels in, of the number of workers and of the back end: the PyTorch path below and the
numba twin in ``agents/kernels/common/rng.py`` return the same bits.

Keys and counters are int64 tensors whose bits are read as uint64 (PyTorch's int64 arithmetic wraps as uint64's does).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Streams of a member's key: one independent sequence per purpose. All of them are here, so that no two share a number.
# The first are those of learners, shared with agents/kernels/common/rng.py (a test compares them).
INIT, RESET, EXPLORE, REPLAY, TEST, FINAL_TEST, VARY, UPDATE, REWARD = 1, 2, 3, 4, 5, 6, 7, 8, 9
MANAGERS = 21  # what tasks of mjlab and Isaac Lab draw
LABELS = 31  # contexts whose best action a classifier is asked for
FIT, SPREAD, OWN_BANDIT = 41, 45, 48  # a distilled bandit: its first weights, noise on its contexts, without pupils
ARS_DIRECTIONS, ARS_EPISODES, ARS_NOISE = 43, 44, 47  # random search over linear policies
PLAYED, ROUND = 46, 49  # episodes of an expert: of a linear one; from the seed of some to that of the next
DIRECT_NOISE, DIRECT_RESETS = 50, 51  # a policy evolved on the task: its perturbations, its episodes


def _signed(value: int) -> int:
    """The int64 with the same bits as the uint64 ``value``."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


# a tensor: compilers take products of a Python integer and a range for an address, and those do not wrap
_GOLDEN = torch.tensor(_signed(0x9E3779B97F4A7C15))
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)


def _shift(z: Tensor, n: int) -> Tensor:
    """Logical right shift of int64 bits."""
    return (z >> n).bitwise_and_((1 << (64 - n)) - 1)


def bits(key: Tensor, counter: Tensor) -> Tensor:
    """64 random bits per element. key, counter: int64, broadcast against each other."""
    z = key + (counter + 1) * _GOLDEN
    z = _shift(z, 30).bitwise_xor_(z).mul_(_MIX1)
    z = _shift(z, 27).bitwise_xor_(z).mul_(_MIX2)
    return _shift(z, 31).bitwise_xor_(z)


def advance(key: Tensor, counter: Tensor) -> Tensor:
    """The key whose draw 0 is draw ``counter`` of ``key``: saves work where many draws follow it."""
    return key + counter * _GOLDEN


def fold(key: Tensor, stream: int) -> Tensor:
    """The key of ``stream`` under ``key``. Same shape as key."""
    return bits(key, torch.full_like(key, -1 - stream))


def uniform(key: Tensor, counter: Tensor) -> Tensor:
    """float32 in [0, 1) with 24 random bits; exact in float64 too."""
    return _shift(bits(key, counter), 40).to(torch.float32) * 2.0**-24


def high(key: Tensor, counter: Tensor) -> Tensor:
    """32 random bits, int64 in [0, 2**32)."""
    return _shift(bits(key, counter), 32)


def scaled(high_bits: Tensor, n: Tensor) -> Tensor:
    """int64 in [0, n), n < 2**31, of 32 random bits (Lemire's multiply-shift, bias below n / 2**32)."""
    return (high_bits * n) >> 32


def integer(key: Tensor, counter: Tensor, n: Tensor) -> Tensor:
    """int64 in [0, n), n < 2**31."""
    return scaled(high(key, counter), n)


def normal(key: Tensor, counter: Tensor) -> Tensor:
    """Standard normal, float32: Box-Muller in float64 on the two halves of one draw's bits."""
    z = bits(key, counter)
    u = (_shift(z, 32) + 1).to(torch.float64) * 2.0**-32  # (0, 1], so that the logarithm is finite
    v = z.bitwise_and_(0xFFFFFFFF).to(torch.float64) * (2.0**-31 * math.pi)
    return (u.log_().mul_(-2).sqrt_() * v.cos_()).to(torch.float32)


def gumbel(key: Tensor, counter: Tensor) -> Tensor:
    """Standard Gumbel, -log(-log(u)), float32: in float64 on u = (32 bits + 1/2) / 2^32, which is never 0 or 1."""
    u = (_shift(bits(key, counter), 32).to(torch.float64) + 0.5) * 2.0**-32
    return u.log_().neg_().log_().neg_().to(torch.float32)


def generator(key: int) -> torch.Generator:
    """Torch's own generator, seeded by the key of a member."""
    return torch.Generator().manual_seed(key & (2**63 - 1))
