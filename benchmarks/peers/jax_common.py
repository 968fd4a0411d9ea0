"""What the JAX engines share: XLA on one thread, MLPs, Adam, and how a chunk of compiled steps is timed.

Written here in the style of PureJaxRL (https://github.com/luchris429/purejaxrl): the whole training of a member is one
function of its key, ``lax.scan`` makes its steps and ``vmap`` the population.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):  # XLA sizes its pools by the processors it may use
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import jax
import jax.numpy as jnp

from benchmarks.common.harness import cpu_time, measure

ACTIVATIONS: Dict[str, Callable[..., Any]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "leakyrelu": jax.nn.leaky_relu}
Params = List[Tuple[Any, Any]]


def init_mlp(key: Any, widths: List[int]) -> Params:
    """Weights [outputs, inputs] and biases [outputs, 1], torch's default initialisation."""
    layers = []
    for k, m in zip(widths, widths[1:]):
        key, a, b = jax.random.split(key, 3)
        bound = k**-0.5
        w, bias = jax.random.uniform(a, (m, k), minval=-bound, maxval=bound), jax.random.uniform(b, (m, 1))
        layers.append((w, (2 * bias - 1) * bound))
    return layers


def mlp(params: Params, x: Any, activation: Callable[..., Any]) -> Any:
    """x: [inputs, batch] -> [outputs, batch]; features first is the faster way round on a CPU."""
    for w, b in params[:-1]:
        x = activation(w @ x + b)
    w, b = params[-1]
    return w @ x + b


def adam(params: Any, grad: Any, moments: Any, step: Any, lr: Any, eps: float = 1e-8) -> Tuple[Any, Any]:
    """step: 1 for the first one."""
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grad)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grad)
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    new = jax.tree.map(lambda p, m, v: p - lr * (m / c1) / (jnp.sqrt(v / c2) + eps), params, m, v)
    return new, (m, v)


def zeros_like(params: Any) -> Tuple[Any, Any]:
    return jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)


def lerp(target: Any, params: Any, tau: float) -> Any:
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, params)


def measure_population(
    init: Callable[[Any], Any],
    step: Callable[[Any, Any], Any],
    members: int,
    chunk: int,
    steps_of_one: int,
    quick: bool,
) -> Dict[str, Any]:
    """init(key) -> a member; step(member, i) -> the member after its i-th step; ``chunk`` of them are one call.

    steps_of_one: environment steps that ``step`` makes (a whole rollout of PPO).
    """

    @partial(jax.jit, donate_argnums=0)
    def run(population: Any, first: Any) -> Any:
        def train(member: Any) -> Any:
            return jax.lax.scan(lambda m, i: (step(m, first + i), None), member, jnp.arange(chunk))[0]

        return jax.vmap(train)(population)

    population = jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(0), members))
    made = 0

    def chunks(n: int) -> None:
        nonlocal population, made
        for _ in range(n):
            population = run(population, jnp.int32(made))
            made += chunk
        jax.block_until_ready(population)

    timed = cpu_time(chunks)
    return measure(lambda n: (n * chunk * steps_of_one * members, timed(n)[1]), 1, members, quick)
