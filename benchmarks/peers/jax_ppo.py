"""PPO on CartPole for a population in JAX (vmap of scan), at the settings of CleanRL's ppo.py.

Runs in the peers' environment: .venv-peers/bin/python -m benchmarks.peers.jax_ppo ppo_cartpole [--json FILE]
"""

from __future__ import annotations

from typing import Any, Dict

from benchmarks.common.harness import main
from benchmarks.common.settings import SETTINGS
from benchmarks.peers.jax_common import adam, init_mlp, jax, jnp, measure_population, mlp, zeros_like


def cartpole(state: Any, action: Any) -> Any:
    """state [4, N], action [N] -> next state, terminated; Gymnasium's constants."""
    x, v, angle, speed = state
    force, sin, cos = 20.0 * action - 10.0, jnp.sin(angle), jnp.cos(angle)
    temp = (force + 0.05 * speed**2 * sin) / 1.1
    angle_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    acc = temp - 0.05 * angle_acc * cos / 1.1
    state = jnp.stack([x + 0.02 * v, v + 0.02 * acc, angle + 0.02 * speed, speed + 0.02 * angle_acc])
    return state, (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)


def population(case: str, members: int | None, quick: bool) -> Dict[str, Any]:
    s = SETTINGS[case]
    (F, A), p, width = s.sizes, s.ppo, s.learner["hidden_size"]
    N, T, clip = p["num_envs"], p["num_steps"], p["clip_coef"]
    batch, minibatches = N * T, p["num_minibatches"]
    updates = p["total_timesteps"] // batch

    def fresh(key: Any) -> Any:
        return jax.random.uniform(key, (F, N), minval=-0.05, maxval=0.05)

    def init(key: Any) -> Any:
        a, b, c, d = jax.random.split(key, 4)
        params = {"actor": init_mlp(a, [F, width, width, A]), "critic": init_mlp(b, [F, width, width, 1])}
        return params, zeros_like(params), jnp.int32(0), fresh(c), jnp.zeros(N, jnp.int32), d

    def value_of(params: Any, obs: Any) -> Any:
        return mlp(params["critic"], obs, jnp.tanh)[0]

    def environment_step(carry: Any, _: Any) -> Any:
        params, state, t, key = carry
        key, for_action, for_reset = jax.random.split(key, 3)
        logits = mlp(params["actor"], state, jnp.tanh)
        action = jax.random.categorical(for_action, logits, axis=0)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits, 0), action[None], 0)[0]
        value = value_of(params, state)
        after, terminated = cartpole(state, action)
        over = terminated | (t + 1 >= s.max_steps)
        out = {"obs": state, "action": action, "log_prob": log_prob, "value": value, "over": over}
        return (params, jnp.where(over, fresh(for_reset), after), jnp.where(over, 0, t + 1), key), out

    def loss(params: Any, b: Any) -> Any:
        logits = jax.nn.log_softmax(mlp(params["actor"], b["obs"], jnp.tanh), 0)
        ratio = jnp.exp(jnp.take_along_axis(logits, b["action"][None], 0)[0] - b["log_prob"])
        advantage = (b["advantage"] - b["advantage"].mean()) / (b["advantage"].std() + 1e-8)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()
        value = value_of(params, b["obs"])
        near = b["value"] + jnp.clip(value - b["value"], -clip, clip)
        value_loss = 0.5 * jnp.maximum((value - b["return"]) ** 2, (near - b["return"]) ** 2).mean()
        entropy = -(jnp.exp(logits) * logits).sum(0).mean()
        return policy + p["vf_coef"] * value_loss - p["ent_coef"] * entropy

    def rollout_and_update(member: Any, i: Any) -> Any:
        params, moments, count, state, t, key = member
        (_, state, t, key), steps = jax.lax.scan(environment_step, (params, state, t, key), None, T)

        def gae(carry: Any, step: Any) -> Any:
            advantage, next_value = carry
            alive = 1.0 - step["over"]
            delta = 1.0 + p["gamma"] * next_value * alive - step["value"]
            advantage = delta + p["gamma"] * p["gae_lambda"] * alive * advantage
            return (advantage, step["value"]), advantage

        last = (jnp.zeros(N), value_of(params, state))
        _, advantage = jax.lax.scan(gae, last, steps, reverse=True)
        rows = {**{k: steps[k] for k in ("action", "log_prob", "value")}, "advantage": advantage}
        rows["return"] = advantage + steps["value"]
        rows = {k: v.reshape(batch) for k, v in rows.items()}
        obs = steps["obs"].transpose(0, 2, 1).reshape(batch, F)
        lr = p["learning_rate"] * (1 - (i % updates) / updates)

        def minibatch(carry: Any, index: Any) -> Any:
            params, moments, count = carry
            grad = jax.grad(loss)(params, {**{k: v[index] for k, v in rows.items()}, "obs": obs[index].T})
            norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grad)))
            grad = jax.tree.map(lambda g: g * jnp.minimum(1.0, p["max_grad_norm"] / (norm + 1e-6)), grad)
            params, moments = adam(params, grad, moments, count + 1, lr, eps=1e-5)
            return (params, moments, count + 1), None

        def epoch(carry: Any, key: Any) -> Any:
            order = jax.random.permutation(key, batch).reshape(minibatches, -1)
            return jax.lax.scan(minibatch, carry, order)[0], None

        key, for_epochs = jax.random.split(key)
        learner = (params, moments, count)
        keys = jax.random.split(for_epochs, p["update_epochs"])
        params, moments, count = jax.lax.scan(epoch, learner, keys)[0]
        return params, moments, count, state, t, key

    return measure_population(init, rollout_and_update, members or s.members, 1, N * T, quick)


if __name__ == "__main__":
    main(__doc__, {"jax": population})
