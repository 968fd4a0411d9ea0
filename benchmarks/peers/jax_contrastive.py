"""A phase of JaxGCRL's updates in JAX: 32 windows of 1,001 decisions are relabelled, and 125 minibatches learned from.
Written from its description (its newer version: https://arxiv.org/abs/2408.11052): goals are drawn from a window's
matrix of weights by Gumbel noise, distances taken of all pairs of representations. Random data; no environment.

    PYTHON benchmarks/peers/jax_contrastive.py reacher|ant      # a Python with jax and optax

Prints processor time of one thread, medians, compilation excluded.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any, Callable

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")

import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZES = {"reacher": (10, 2, (4, 5, 6)), "ant": (29, 8, (0, 1))}  # state, actions, features of a goal
H, R, B, LENGTH, ENVS = 256, 64, 256, 1001, 32
DISCOUNT, PENALTY, UPDATES = 0.99, 0.1, 25  # of the 125 minibatches so many are measured
ADAM = optax.adam(3e-4)


def net(layers: Any, x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jax.nn.swish(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def fresh(key: Any, widths: list[int]) -> Any:
    keys = jax.random.split(key, len(widths))
    return [
        (jax.random.uniform(k, (m, n), minval=-1, maxval=1) * m**-0.5, jnp.zeros(n))
        for k, m, n in zip(keys, widths[:-1], widths[1:])
    ]


def distance(x: Any, y: Any) -> Any:
    return jnp.sqrt(jnp.sum((x - y) ** 2, -1) + 1e-6)


def critic_loss(critic: Any, s: Any, a: Any, g: Any) -> Any:
    x, y = net(critic[0], jnp.concatenate([s, a], 1)), net(critic[1], g)
    logits = -distance(x[:, None], y[None])
    lse, own = jax.nn.logsumexp(logits, axis=1), jnp.diag(logits)
    best = jnp.mean(jnp.argmax(logits, 1) == jnp.arange(B))
    return jnp.mean(lse - own) + PENALTY * jnp.mean(lse**2), (best, own.mean(), logits.mean(), lse.mean())


def actor_loss(actor: Any, log_alpha: Any, critic: Any, s: Any, g: Any, key: Any) -> Any:
    mean, raw = jnp.split(net(actor, jnp.concatenate([s, g], 1)), 2, 1)
    std = jnp.exp(-5 + 3.5 * (jnp.tanh(raw) + 1))
    u = mean + std * jax.random.normal(key, mean.shape)
    a = jnp.tanh(u)
    log_prob = (jax.scipy.stats.norm.logpdf(u, mean, std) - jnp.log(1 - a**2 + 1e-6)).sum(1)
    like = -distance(net(critic[0], jnp.concatenate([s, a], 1)), net(critic[1], g))
    return jnp.mean(jnp.exp(log_alpha) * log_prob - like), log_prob


def alpha_loss(log_alpha: Any, log_prob: Any, actions: int) -> Any:
    return jnp.exp(log_alpha) * jnp.mean(jax.lax.stop_gradient(-log_prob + 0.5 * actions))


def stepped(params: Any, state: Any, grad: Any) -> Any:
    change, state = ADAM.update(grad, state)
    return optax.apply_updates(params, change), state


def update(carry: Any, batch: Any) -> Any:
    (critic, actor, log_alpha), (of_critic, of_actor, of_alpha), key = carry
    s, a, g = batch
    key, noise = jax.random.split(key)
    (loss, log_prob), by_actor = jax.value_and_grad(actor_loss, has_aux=True)(actor, log_alpha, critic, s, g, noise)
    entropy, by_alpha = jax.value_and_grad(alpha_loss)(log_alpha, log_prob, a.shape[1])
    contrast, by_critic = jax.value_and_grad(critic_loss, has_aux=True)(critic, s, a, g)
    actor, of_actor = stepped(actor, of_actor, by_actor)
    log_alpha, of_alpha = stepped(log_alpha, of_alpha, by_alpha)
    critic, of_critic = stepped(critic, of_critic, by_critic)
    return ((critic, actor, log_alpha), (of_critic, of_actor, of_alpha), key), (loss, entropy, contrast)


def relabelled(key: Any, s: Any, a: Any, number: Any, goal: Any) -> Any:
    """One window: for each row a later one of its trajectory -> states, actions, goals."""
    i = jnp.arange(LENGTH)
    later = i[None] - i[:, None]
    weight = (later > 0) * jnp.power(DISCOUNT, later) * (number[None] == number[:, None]) + 1e-5 * jnp.eye(LENGTH)
    j = jax.random.categorical(key, jnp.log(weight))
    return s[:-1], a[:-1], s[j[:-1]][:, goal]


def milliseconds(call: Callable[[], Any], number: int) -> float:
    jax.block_until_ready(call())
    found = []
    for _ in range(number):
        began = time.process_time()
        jax.block_until_ready(call())
        found.append(time.process_time() - began)
    return 1e3 * statistics.median(found)


def main(env: str) -> None:
    S, A, indices = SIZES[env]
    goal, G = jnp.array(indices), len(indices)
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    critic = fresh(keys[0], [S + A, H, H, R]), fresh(keys[1], [G, H, H, R])
    params = critic, fresh(keys[2], [S + G, H, H, 2 * A]), jnp.zeros(())
    states = tuple(ADAM.init(part) for part in params)
    random = np.random.default_rng(0)
    s, a = (jnp.asarray(random.standard_normal((ENVS, LENGTH, n)), jnp.float32) for n in (S, A))

    @jax.jit
    def batches(key: Any) -> Any:
        each = jax.vmap(relabelled, (0, 0, 0, 0, None))
        found = each(jax.random.split(key, ENVS), s, a, jnp.ones((ENVS, LENGTH)), goal)
        order = jax.random.permutation(key, ENVS * (LENGTH - 1))
        return tuple(x.reshape(len(order), -1)[order].reshape(-1, B, x.shape[-1]) for x in found)

    run = jax.jit(lambda part, key: jax.lax.scan(update, (params, states, key), part))
    whole = batches(keys[3])
    part = tuple(x[:UPDATES] for x in whole)
    step = milliseconds(lambda: run(part, keys[3]), 8) / UPDATES
    relabelling = milliseconds(lambda: batches(keys[3]), 5) / len(whole[0])
    print(
        f"JAX {jax.__version__}, {env}: update {step + relabelling:.1f} ms ({step:.1f} of gradients and Adam, "
        f"{relabelling:.1f} of relabelling), per environment step {(step + relabelling) * 125 / (ENVS * 62):.2f} ms, "
        f"without decisions and physics",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1])
