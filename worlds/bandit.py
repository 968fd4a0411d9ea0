"""A contextual bandit in NumPy: what ``envs/worlds/contextual_bandit.py`` computes, without torch.

A context is s = init_net(z), z uniform with mean 0 and variance 1, or a row of a table; an episode is one step, and
reward_net(action, s) pays it. Contexts do not depend on actions, so they are drawn and sent through the first layer in
blocks. Axes: N environments, B contexts of a block, F features, A inputs of an action, H hidden units, K rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

LATENT_SCALE = 2.0 * math.sqrt(3.0)
OUTPUT_BOUND = 1000.0  # outputs are clipped to [-bound, bound]
LEAKY_SLOPE = 0.01
ACTIVATIONS = ("tanh", "relu", "leakyrelu", "prelu", "identity")


class Net(NamedTuple):
    """A multilayer perceptron. weights: float32 [K, M] of each layer, biases: [M]; slope: of a PReLU."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str
    slope: float

    def activate(self, z: np.ndarray) -> np.ndarray:
        """Activation of z, which is overwritten."""
        if self.activation == "tanh":
            return np.tanh(z, out=z)
        if self.activation == "relu":
            return np.maximum(z, 0, out=z)
        if self.activation == "leakyrelu":  # max(z, 0.01 z)
            return np.maximum(z, LEAKY_SLOPE * z, out=z)
        return np.where(z > 0, z, np.float32(self.slope) * z) if self.activation == "prelu" else z

    def slope_at(self, z: np.ndarray) -> np.ndarray:
        """Derivative of the activation at z."""
        if self.activation == "tanh":
            return 1 - np.tanh(z) ** 2
        below = {"relu": 0.0, "leakyrelu": LEAKY_SLOPE, "prelu": self.slope, "identity": 1.0}[self.activation]
        return np.where(z > 0, np.float32(1), np.float32(below))

    def rest(self, z: np.ndarray) -> np.ndarray:
        """Output [..., M] for the sums z [..., H] of the first layer, which are overwritten."""
        for weights, bias in zip(self.weights[1:], self.biases[1:]):
            z = self.activate(z) @ weights
            z += bias
        return z

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """x: [..., K] -> [..., M]."""
        return self.rest(x @ self.weights[0] + self.biases[0])


class Bandit(NamedTuple):
    """Where contexts come from, what pays them, and how many inputs of reward_net are the action's."""

    source: Net | np.ndarray  # init_net, or the table float32 [K, F]
    reward_net: Net
    action_inputs: int  # A: a one-hot code, or as many numbers
    codes: tuple[tuple[int, int], ...] = ()  # features [start, stop) of a context that are one-hot

    @property
    def uniforms(self) -> int:
        """Uniform numbers that draw one context."""
        return int(self.source.weights[0].shape[0]) if isinstance(self.source, Net) else 1

    def contexts(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u: float64 [..., uniforms] -> contexts [..., F], and what they add to reward_net's first layer
        [..., H]. Raises FloatingPointError where a network overflows."""
        if isinstance(self.source, Net):
            z = LATENT_SCALE * (u.astype(np.float32) - np.float32(0.5))
            s = _bounded(self.source(z.astype(np.float32)), "init_net")
        else:
            rows = len(self.source)
            s = _bounded(self.source[np.minimum((u[..., 0] * rows).astype(np.int64), rows - 1)], "table of contexts")
        for start, stop in self.codes:
            s[..., start:stop] = s[..., start:stop].argmax(-1)[..., None] == np.arange(stop - start)
        net = self.reward_net
        return s, s @ net.weights[0][self.action_inputs :] + net.biases[0]

    def pay(self, part: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Rewards float64 [N] for the contexts' share ``part`` [N, H] and actions: indices int64 [N], or numbers
        float32 [N, A]. Raises FloatingPointError where the network overflows."""
        code = self.reward_net.weights[0][: self.action_inputs]
        z = code[action] if action.ndim == 1 else action @ code
        z += part
        return _bounded(self.reward_net.rest(z)[:, 0], "reward_net").astype(np.float64)


def _bounded(output: np.ndarray, net: str) -> np.ndarray:
    """Clips a network's output. Raises FloatingPointError where it overflowed."""
    if not np.isfinite(output).all():
        raise FloatingPointError(f"the world's {net} overflowed: an output is not finite")
    return np.clip(output, -OUTPUT_BOUND, OUTPUT_BOUND)
