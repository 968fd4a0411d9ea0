"""The arithmetic floor of each learner: what one step costs if nothing but its multiplications and tanhs took time.

FLOP of one environment step with its share of the updates: of a layer K -> M, 2 K M forward and twice that backward
(the gradient by its weights and that by its input; the input of the first layer needs none). Not counted: Adam, soft
updates, sampling, ReLU, the softmax and noise of a batch, the real tasks. What a FLOP and a tanh cost is measured in
the run, for two floors:
- "library": torch's (MKL's) product of two large matrices, and torch.sigmoid per element. On an AMD processor MKL uses
  half the width of its registers, so that this is what code of library calls can hope for, not what the core can do;
- "core": the faster of that and of this project's kernels for either (agents/kernels/dense/gemm.py, activation.py).

    python -m benchmarks.floors costs          # of this machine
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence

from benchmarks.common.harness import main
from benchmarks.common.settings import SE_HIDDEN, SETTINGS, Setting


@dataclass(frozen=True)
class Count:
    """Work: floating point operations of matrix products, and evaluations of tanh."""

    flop: float = 0.0
    tanh: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(self.flop + other.flop, self.tanh + other.tanh)

    def __mul__(self, times: float) -> Count:
        return Count(self.flop * times, self.tanh * times)

    __rmul__ = __mul__

    def seconds(self, costs: Dict[str, float]) -> float:
        return self.flop / (costs["gflop_per_s"] * 1e9) + self.tanh * costs["ns_per_tanh"] * 1e-9


@dataclass(frozen=True)
class Net:
    """An MLP by the widths of its layers, input first; ``tanh``: its hidden activation is one. Counts per sample."""

    widths: Sequence[int]
    tanh: bool = False

    def _layers(self) -> list[int]:
        return [2 * k * m for k, m in zip(self.widths, self.widths[1:])]

    def forward(self) -> Count:
        return Count(sum(self._layers()), sum(self.widths[1:-1]) if self.tanh else 0)

    def input_gradient(self, columns: Optional[int] = None) -> Count:
        """From the output back to the first ``columns`` inputs (default: all of them), weights held fixed."""
        first = 2 * (self.widths[0] if columns is None else columns) * self.widths[1]
        return Count(sum(self._layers()[1:]) + first)

    def backward(self) -> Count:
        """The gradient by the weights; that by the input of the net is left out."""
        layers = self._layers()
        return Count(sum(layers) + sum(layers[1:]))


def _sizes(s: Setting) -> tuple[int, int, list[int], bool]:
    """Observation features, actions, hidden widths, whether the activation is tanh."""
    hidden = [s.learner["hidden_size"]] * max(1, s.learner["hidden_layer"])
    return (*s.sizes, hidden, s.learner["activation_fn"] == "tanh")


def ddqn(s: Setting) -> Count:
    F, A, hidden, tanh = _sizes(s)
    q = Net([F, *hidden, A], tanh)
    # Q(s), Q(s') and Q_target(s') forward, Q(s) back
    return q.forward() + s.learner["batch_size"] * (3 * q.forward() + q.backward())


def dueling(s: Setting) -> Count:
    F, A, hidden, tanh = _sizes(s)
    wide = s.learner["feature_dim"]
    features, value, advantage = Net([F, *hidden, wide], tanh), Net([wide, wide, 1], tanh), Net([wide, wide, A], tanh)
    forward = features.forward() + value.forward() + advantage.forward()
    backward = features.backward() + value.backward() + advantage.backward()
    backward += Count(2 * 2 * wide * wide)  # the inputs of the two heads are the features
    return forward + s.learner["batch_size"] * (3 * forward + backward)


def td3(s: Setting) -> Count:
    F, A, hidden, tanh = _sizes(s)
    actor, critic = Net([F, *hidden, A], tanh), Net([F + A, *hidden, 1], tanh)
    squash = Count(tanh=A if s.agent == "td3" else 0)  # the action is tanh of the actor's output
    # y: the target actor and both target critics; both critics forward and back
    critics = actor.forward() + squash + 4 * critic.forward() + 2 * critic.backward()
    # -Q_1(s, pi(s)): forward, back through the critic to the action alone, back through the actor
    policy = actor.forward() + squash + critic.forward() + critic.input_gradient(A) + actor.backward()
    return actor.forward() + squash + s.learner["batch_size"] * (critics + (1 / s.learner["policy_delay"]) * policy)


def sac(s: Setting) -> Count:
    F, A, hidden, tanh = _sizes(s)
    actor, critic, squash = Net([F, *hidden, 2 * A], tanh), Net([F + A, *hidden, 1], tanh), Count(tanh=A)
    critics = actor.forward() + squash + 4 * critic.forward() + 2 * critic.backward()
    # min(Q_1, Q_2)(s, a ~ pi(s)): both critics forward and back to the action, back through the actor
    policy = actor.forward() + squash + 2 * (critic.forward() + critic.input_gradient(A)) + actor.backward()
    return actor.forward() + squash + s.learner["batch_size"] * (critics + policy)


def ppo(s: Setting) -> Count:
    F, A, hidden, tanh = _sizes(s)
    actor, critic = Net([F, *hidden, A], tanh), Net([F, *hidden, 1], tanh)
    forward, backward = actor.forward() + critic.forward(), actor.backward() + critic.backward()
    # every step once when it is taken and once per epoch; all steps of a rollout share the value after its last one
    return forward + (1 / s.ppo["num_steps"]) * critic.forward() + s.ppo["update_epochs"] * (forward + backward)


LEARNERS: Dict[str, Callable[[Setting], Count]] = {
    "ddqn": ddqn, "duelingddqn": dueling, "td3": td3, "td3_discrete": td3, "sac": sac, "ppo": ppo,
}  # fmt: skip


def world(s: Setting) -> Count:
    """One step of the world: an SE's three nets; the arithmetic of a real task is nothing beside an update's."""
    if s.kind != "se":
        return Count()
    F, A = s.sizes
    nets = [Net([A + F, SE_HIDDEN, outputs]).forward() for outputs in (F, 1, 1)]
    return nets[0] + nets[1] + nets[2]


def step(case: str) -> Count:
    """The work of one step (a decision, where an action is repeated) of one member, its update included."""
    s = SETTINGS[case]
    return LEARNERS[s.agent](s) + world(s)


def best(run: Callable[[], Any], times: int, quick: bool) -> float:
    """CPU seconds of one call, the least of several tries."""
    run()  # compiles
    seconds = []
    for _ in range(2 if quick else 12):
        began = time.process_time()
        for _ in range(times):
            run()
        seconds.append((time.process_time() - began) / times)
    return min(seconds)


def costs(case: str, members: Optional[int], quick: bool) -> Dict[str, Any]:
    """GFLOP/s of a product of two large matrices and ns per tanh, one thread, by floor."""
    import numpy as np
    import torch
    from numba import njit

    from envolve.agents.kernels import JIT
    from envolve.agents.kernels.dense import activation
    from envolve.agents.kernels.dense.gemm import product

    @njit(**{**JIT, "cache": False})
    def tanh(x: np.ndarray, y: np.ndarray) -> None:
        for i in range(len(x)):
            y[i] = activation.tanh(x[i])

    n, elements = 1024, 100_000  # two vectors of elements fit the second-level cache
    a, b, x = torch.randn(n, n), torch.randn(n, n), torch.randn(elements)
    c, y = torch.empty(n, n), torch.empty(elements)
    library = {
        "gflop_per_s": 2 * n**3 / best(lambda: torch.mm(a, b, out=c), 5, quick) / 1e9,
        "ns_per_tanh": best(lambda: torch.sigmoid(x, out=y), 500, quick) / elements * 1e9,
    }
    m = 256
    A, B, C, X, Y = (t.numpy() for t in (a[:m, :m].contiguous(), b[:m, :m].contiguous(), torch.empty(m, m), x, y))
    own = {
        "gflop_per_s": 2 * m**3 / best(lambda: product(A, 0, m, 1, -1, B, m, C, 0, m, m, m, m), 300, quick) / 1e9,
        "ns_per_tanh": best(lambda: tanh(X, Y), 500, quick) / elements * 1e9,
    }
    core = {
        "gflop_per_s": max(library["gflop_per_s"], own["gflop_per_s"]),
        "ns_per_tanh": min(library["ns_per_tanh"], own["ns_per_tanh"]),
    }
    return {"library": library, "core": core}


if __name__ == "__main__":
    import torch  # noqa: F401  # before main(), which then sets its threads

    main(__doc__, {"costs": costs})
