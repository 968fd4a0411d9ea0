"""DDQN, TD3 and SAC for a population in JAX (vmap of scan): act, step the world, store, sample, update.

Runs in the peers' environment: .venv-peers/bin/python -m benchmarks.peers.jax_off_policy ddqn_in_se [--json FILE]
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from benchmarks.common.harness import main
from benchmarks.common.settings import SE_HIDDEN, SETTINGS, Setting
from benchmarks.peers.jax_common import (
    ACTIVATIONS,
    adam,
    init_mlp,
    jax,
    jnp,
    lerp,
    measure_population,
    mlp,
    zeros_like,
)

CAPACITY = 20_000  # rows of a member's replay buffer

# A world is (init(key) -> its parameters, reset(key) -> state [F], step(parameters, state, action [A]) -> state,
# reward, terminated, observe(state) -> [F]).


def synthetic(s: Setting) -> Tuple[Callable[..., Any], ...]:
    F, A = s.sizes

    def init(key: Any) -> Any:
        return [init_mlp(k, [A + F, SE_HIDDEN, n]) for k, n in zip(jax.random.split(key, 3), (F, 1, 1))]

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (F,), minval=-0.05, maxval=0.05)

    def step(nets: Any, state: Any, action: Any) -> Any:
        x = jnp.concatenate([action, state])[:, None]
        state, reward, done = (mlp(net, x, ACTIVATIONS["leakyrelu"])[:, 0] for net in nets)
        return jnp.clip(state, -1000, 1000), reward[0], done[0] > 0.5

    return init, reset, step, lambda state: state


def pendulum(s: Setting) -> Tuple[Callable[..., Any], ...]:
    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (2,), minval=-1, maxval=1) * jnp.array([jnp.pi, 1.0])

    def step(_: Any, state: Any, action: Any) -> Any:
        angle, speed, u = state[0], state[1], jnp.clip(action[0], -2, 2)
        cost = (((angle + jnp.pi) % (2 * jnp.pi)) - jnp.pi) ** 2 + 0.1 * speed**2 + 0.001 * u**2
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * u) * 0.05, -8, 8)
        return jnp.stack([angle + speed * 0.05, speed]), -cost, False

    def observe(state: Any) -> Any:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    return lambda key: (), reset, step, observe


def mountain_car(s: Setting) -> Tuple[Callable[..., Any], ...]:
    def reset(key: Any) -> Any:
        return jnp.stack([jax.random.uniform(key, minval=-0.6, maxval=-0.4), jnp.float32(0)])

    def once(state: Any, force: Any) -> Any:
        position, velocity = state
        velocity = jnp.clip(velocity + 0.0015 * force - 0.0025 * jnp.cos(3 * position), -0.07, 0.07)
        position = jnp.clip(position + velocity, -1.2, 0.6)
        velocity = jnp.where((position == -1.2) & (velocity < 0), 0.0, velocity)
        there = (position >= 0.45) & (velocity >= 0)
        return jnp.stack([position, velocity]), 100.0 * there - 0.1 * force**2, there

    def step(_: Any, state: Any, action: Any) -> Any:
        force, total, over = jnp.clip(action[0], -1, 1), 0.0, False
        for _ in range(s.learner["same_action_num"]):
            after, reward, there = once(state, force)
            state, total, over = jnp.where(over, state, after), total + jnp.where(over, 0.0, reward), over | there
        return state, total, over

    return lambda key: (), reset, step, lambda state: state


WORLDS = {"CartPole-v0": synthetic, "Pendulum-v0": pendulum, "MountainCarContinuous-v0": mountain_car}

# An agent is (init(key) -> parameters by name, act(parameters, observation [F], key) -> action [A],
# update(parameters, targets, moments, batch, key, step) -> parameters, targets, moments).


def hidden(s: Setting) -> list[int]:
    return [s.learner["hidden_size"]] * s.learner["hidden_layer"]


def ddqn(s: Setting) -> Tuple[Callable[..., Any], ...]:
    (F, A), h, f = s.sizes, s.learner, ACTIVATIONS[s.learner["activation_fn"]]

    def act(p: Any, obs: Any, key: Any) -> Any:
        a, b = jax.random.split(key)
        greedy = mlp(p["q"], obs[:, None], f)[:, 0].argmax()
        action = jnp.where(jax.random.uniform(a) < h["eps_init"], jax.random.randint(b, (), 0, A), greedy)
        return jax.nn.one_hot(action, A)

    def update(p: Any, target: Any, moments: Any, batch: Any, key: Any, step: Any) -> Any:
        s1, a, r, s2, d = batch
        best = jax.nn.one_hot(mlp(p["q"], s2, f).argmax(0), A, axis=0)
        y = r + h["gamma"] * (1 - d) * (mlp(target["q"], s2, f) * best).sum(0)

        def loss(p: Any) -> Any:
            return (((mlp(p["q"], s1, f) * a).sum(0) - y) ** 2).mean()

        p, moments = adam(p, jax.grad(loss)(p), moments, step, h["lr"])
        return p, lerp(target, p, h["tau"]), moments

    return lambda key: {"q": init_mlp(key, [F, *hidden(s), A])}, act, update


def init_actor_critics(s: Setting, outputs: int) -> Callable[..., Any]:
    F, A = s.sizes

    def init(key: Any) -> Any:
        widths = {"actor": [F, *hidden(s), outputs], "q1": [F + A, *hidden(s), 1], "q2": [F + A, *hidden(s), 1]}
        p: Dict[str, Any] = {k: init_mlp(i, w) for i, (k, w) in zip(jax.random.split(key, 3), widths.items())}
        if s.agent == "sac":
            p["log_alpha"] = jnp.log(jnp.float32(s.learner["alpha"]))
        return p

    return init


def critics_of(s: Setting) -> Callable[..., Any]:
    f = ACTIVATIONS[s.learner["activation_fn"]]

    def critics(p: Any, obs: Any, action: Any) -> Any:
        x = jnp.concatenate([obs, action])
        return mlp(p["q1"], x, f)[0], mlp(p["q2"], x, f)[0]

    return critics


def td3(s: Setting) -> Tuple[Callable[..., Any], ...]:
    A, h, f, bound = s.sizes[1], s.learner, ACTIVATIONS[s.learner["activation_fn"]], s.max_action
    critics = critics_of(s)

    def policy(p: Any, obs: Any) -> Any:
        return bound * jnp.tanh(mlp(p["actor"], obs, f))

    def act(p: Any, obs: Any, key: Any) -> Any:
        noise = jax.random.normal(key, (A,)) * h["action_std"] * bound
        return jnp.clip(policy(p, obs[:, None])[:, 0] + noise, -bound, bound)

    def update(p: Any, target: Any, moments: Any, batch: Any, key: Any, step: Any) -> Any:
        s1, a, r, s2, d = batch
        noise = jnp.clip(jax.random.normal(key, a.shape) * h["policy_std"], -h["policy_std_clip"], h["policy_std_clip"])
        next_action = jnp.clip(policy(target, s2) + noise, -bound, bound)
        y = r + h["gamma"] * (1 - d) * jnp.minimum(*critics(target, s2, next_action))

        def critic_loss(q: Any) -> Any:
            q1, q2 = critics(q, s1, a)
            return ((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()

        q = {"q1": p["q1"], "q2": p["q2"]}
        q, critic_moments = adam(q, jax.grad(critic_loss)(q), moments[0], step, h["lr"])

        def delayed(_: Any) -> Any:
            def actor_loss(actor: Any) -> Any:
                return -critics(q, s1, policy({"actor": actor}, s1))[0].mean()

            count = step // h["policy_delay"]
            actor, m = adam(p["actor"], jax.grad(actor_loss)(p["actor"]), moments[1], count, h["lr"])
            new = {"actor": actor, **q}
            return new, lerp(target, new, h["tau"]), m

        def waiting(_: Any) -> Any:
            return {"actor": p["actor"], **q}, target, moments[1]

        # every member is at the same step, so that this stays a branch under vmap
        p, target, actor_moments = jax.lax.cond(step % h["policy_delay"] == 0, delayed, waiting, None)
        return p, target, (critic_moments, actor_moments)

    return init_actor_critics(s, A), act, update


def sac(s: Setting) -> Tuple[Callable[..., Any], ...]:
    A, h, f, bound = s.sizes[1], s.learner, ACTIVATIONS[s.learner["activation_fn"]], s.max_action
    critics = critics_of(s)

    def policy(actor: Any, obs: Any, key: Any) -> Any:
        mean, log_std = jnp.split(mlp(actor, obs, f), 2)
        log_std = jnp.clip(log_std, -20, 2)
        noise = jax.random.normal(key, mean.shape)
        u = mean + jnp.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        log_prob -= 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u)) + jnp.log(bound)
        return bound * jnp.tanh(u), log_prob.sum(0)

    def act(p: Any, obs: Any, key: Any) -> Any:
        return policy(p["actor"], obs[:, None], key)[0][:, 0]

    def update(p: Any, target: Any, moments: Any, batch: Any, key: Any, step: Any) -> Any:
        (s1, a, r, s2, d), (key1, key2) = batch, jax.random.split(key)
        alpha = jnp.exp(p["log_alpha"])
        next_action, log_prob = policy(p["actor"], s2, key1)
        y = r + h["gamma"] * (1 - d) * (jnp.minimum(*critics(target, s2, next_action)) - alpha * log_prob)

        def critic_loss(q: Any) -> Any:
            q1, q2 = critics(q, s1, a)
            return ((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()

        q = {"q1": p["q1"], "q2": p["q2"]}
        q, critic_moments = adam(q, jax.grad(critic_loss)(q), moments[0], step, h["lr"])

        def actor_loss(actor: Any) -> Any:
            action, log_prob = policy(actor, s1, key2)
            return (alpha * log_prob - jnp.minimum(*critics(q, s1, action))).mean(), log_prob

        grad, log_prob = jax.grad(actor_loss, has_aux=True)(p["actor"])
        rest = {"actor": p["actor"], "log_alpha": p["log_alpha"]}
        slope = {"actor": grad, "log_alpha": -(log_prob - A).mean()}  # target entropy: -A
        rest, actor_moments = adam(rest, slope, moments[1], step, h["lr"])
        p = {**rest, **q}
        return p, lerp(target, q, h["tau"]), (critic_moments, actor_moments)

    return init_actor_critics(s, 2 * A), act, update


AGENTS = {"ddqn": ddqn, "td3": td3, "sac": sac}


def population(case: str, members: int | None, quick: bool) -> Dict[str, Any]:
    s = SETTINGS[case]
    (F, A), B = s.sizes, s.learner["batch_size"]
    init_world, reset, world_step, observe = WORLDS[s.task](s)
    init_agent, act, update = AGENTS[s.agent](s)
    limit = s.max_steps // s.learner.get("same_action_num", 1)

    def init(key: Any) -> Any:
        a, b, c, d = jax.random.split(key, 4)
        p = init_agent(a)
        target, moments = jax.tree.map(jnp.copy, p), zeros_like(p)
        if "q1" in p:
            critics = {"q1": p["q1"], "q2": p["q2"]}
            others = {k: v for k, v in p.items() if k not in critics}
            moments = zeros_like(critics), zeros_like(others if s.agent == "sac" else p["actor"])
            target = target if s.agent == "td3" else jax.tree.map(jnp.copy, critics)
        rows = jnp.zeros((CAPACITY, 2 * F + A + 2))
        return p, target, moments, init_world(b), reset(c), jnp.int32(0), rows, d

    def step(member: Any, i: Any) -> Any:
        p, target, moments, world, state, t, rows, key = member
        key, for_action, for_reset, for_batch, for_update = jax.random.split(key, 5)
        obs = observe(state)
        action = act(p, obs, for_action)
        state, reward, terminated = world_step(world, state, action)
        row = jnp.concatenate([obs, observe(state), action, jnp.stack([reward, jnp.float32(terminated)])])
        rows = rows.at[i % CAPACITY].set(row)
        over = terminated | (t + 1 >= limit)
        state, t = jnp.where(over, reset(for_reset), state), jnp.where(over, 0, t + 1)
        index = jax.random.randint(for_batch, (B,), 0, jnp.minimum(i + 1, CAPACITY))
        b = rows[index].T
        batch = b[:F], b[2 * F : 2 * F + A], b[-2], b[F : 2 * F], b[-1]
        p, target, moments = update(p, target, moments, batch, for_update, i + 1)
        return p, target, moments, world, state, t, rows, key

    return measure_population(init, step, members or s.members, 100 if s.kind == "se" else 10, 1, quick)


if __name__ == "__main__":
    main(__doc__, {"jax": population})
