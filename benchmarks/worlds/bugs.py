#!/usr/bin/env python3
"""Which worlds see which bugs: a learner with one planted bug, trained in a world of the zoo and on the task.

    python3 benchmarks/worlds/bugs.py [--out DIR] [--seeds 5] [--clean 15]      all runs that are missing, and the table
    python3 benchmarks/worlds/bugs.py --out DIR --table                         the table of what is there

The learner is PPO (arXiv:1707.06347) with generalised advantages (arXiv:1506.02438), in ``train``. A bug is one
wrong line, marked by the bug's name. An *alarm* is a run whose agent returns less on the task than every one of the
first ten runs without a bug. By chance alone, one run of eleven raises it. The other runs without a bug count false
alarms. In a world there is a second alarm, without the task: by the share of the reward that the agent earns, from 0,
which random actions earn, to 1, which the policy earns that the world holds (envolve.worlds.policy). Each finished run
is a line of cells.jsonl in --out; the same command goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium.spaces.utils import flatdim
from torch import Tensor, nn
from torch.distributions import Categorical

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import envolve.worlds  # noqa: E402  registers the worlds
from benchmarks.common.cells import Row, add_flags, check_counts, finish, results, work  # noqa: E402
from envolve.core.statistics import interval  # noqa: E402
from envolve.outer.checkpoint import locked  # noqa: E402

CLEAN = "none"
BUGS = {
    "next observation stored": "experience", "another action stored": "experience",
    "end of episode ignored": "advantage", "value added": "advantage", "value never learned": "advantage",
    "sign of the loss": "policy loss", "ratio upside down": "policy loss", "larger of the two": "policy loss",
    "advantages of other rows": "policy loss", "sign of the entropy": "policy loss",
    "broadcast": "value loss", "gradients pile up": "optimiser", "learning rate times 100": "optimiser",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an agent trains, for how many steps, and the task that it is tested on."""

    env_id: str
    steps: int
    task: str

    @property
    def title(self) -> str:
        own = self.env_id.removeprefix(f"{envolve.worlds.NAMESPACE}/")
        return f"{own}{' itself' * (own == self.task)}, {self.steps:,} steps"


def is_world(env_id: str) -> bool:
    return env_id.startswith(f"{envolve.worlds.NAMESPACE}/")


PLACES = {
    "cartpole_bandit": Place("envolve/CartPole-v1-bandit", 20_480, "CartPole-v1"),
    "acrobot_bandit": Place("envolve/Acrobot-v1-bandit", 20_480, "Acrobot-v1"),
    "cartpole": Place("CartPole-v1", 20_480, "CartPole-v1"),
    "cartpole_longer": Place("CartPole-v1", 102_400, "CartPole-v1"),
}
MOST = 10**5  # runs of a kind
CALIBRATION = 10  # runs without a bug that set the mark
NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 32, 32, 10, 4
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, MAX_GRAD, LR = 0.99, 0.95, 0.2, 0.005, 0.5, 0.5, 1e-3
EPISODES = 10
CONTEXTS = 1000  # of a world, in which rewards are compared
RETURN, SHARE = "return", "share"  # what an alarm goes by


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def train(env_id: str, steps: int, seed: int, bug: str) -> nn.Sequential:
    """PPO with at most one bug -> its actor."""
    torch.manual_seed(seed)
    same = gymnasium.vector.AutoresetMode.SAME_STEP
    if is_world(env_id):
        envs = gymnasium.make_vec(env_id, num_envs=NUM_ENVS, autoreset_mode=same)
    else:
        envs = gymnasium.make_vec(env_id, NUM_ENVS, "sync", vector_kwargs={"autoreset_mode": same})
    features = flatdim(envs.single_observation_space)
    actor, critic = mlp(features, flatdim(envs.single_action_space)), mlp(features, 1)
    learned = list(actor.parameters()) if bug == "value never learned" else [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(learned, LR * 100 if bug == "learning rate times 100" else LR, eps=1e-5)
    x = torch.as_tensor(envs.reset(seed=seed)[0], dtype=torch.float32)
    for _ in range(steps // (NUM_ENVS * ROLLOUT)):
        rows = []
        for _ in range(ROLLOUT):
            with torch.no_grad():
                policy = Categorical(logits=actor(x))
                action = policy.sample()
                observation, reward, terminated, truncated, _ = envs.step(action.numpy())
                following = torch.as_tensor(observation, dtype=torch.float32)
                if bug == "another action stored":
                    action = policy.sample()
                seen = following if bug == "next observation stored" else x
                over = torch.as_tensor(terminated | truncated, dtype=torch.float32)
                rows.append((seen, action, policy.log_prob(action), critic(x)[:, 0],
                             torch.as_tensor(reward, dtype=torch.float32), over))  # fmt: skip
                x = following
        columns = [torch.stack(column) for column in zip(*rows)]  # [T, N, ...]
        observations, actions, old, values, rewards, ends = columns
        with torch.no_grad():
            advantages = advantages_of(rewards, values, critic(x)[:, 0], ends, bug)
        flat = [t.flatten(0, 1) for t in (observations, actions, old, advantages, advantages + values)]
        for _ in range(EPOCHS):
            for batch in torch.randperm(NUM_ENVS * ROLLOUT).chunk(MINIBATCHES):
                loss = loss_of(actor, critic, bug, *(t[batch] for t in flat))
                if bug != "gradients pile up":
                    optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(learned, MAX_GRAD)
                optimizer.step()
    envs.close()
    return actor


def advantages_of(rewards: Tensor, values: Tensor, last: Tensor, ends: Tensor, bug: str) -> Tensor:
    """Generalised advantages [T, N]; last: values after the last step [N]."""
    out, carried = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        following = last if t == len(rewards) - 1 else values[t + 1]
        goes_on = torch.ones_like(last) if bug == "end of episode ignored" else 1.0 - ends[t]
        own = -values[t] if bug == "value added" else values[t]
        delta = rewards[t] + GAMMA * following * goes_on - own
        carried = delta + GAMMA * LAMBDA * goes_on * carried
        out[t] = carried
    return out


def loss_of(
    actor: nn.Sequential,
    critic: nn.Sequential,
    bug: str,
    x: Tensor,
    action: Tensor,
    old: Tensor,
    a: Tensor,
    target: Tensor,
) -> Tensor:
    """The clipped loss of a minibatch."""
    policy = Categorical(logits=actor(x))
    if bug == "advantages of other rows":
        a = a[torch.randperm(len(a))]
    a = (a - a.mean()) / (a.std() + 1e-8)
    difference = policy.log_prob(action) - old
    ratio = (-difference if bug == "ratio upside down" else difference).exp()
    smaller = torch.max if bug == "larger of the two" else torch.min
    gain = smaller(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
    found = critic(x) if bug == "broadcast" else critic(x)[:, 0]  # [B, 1] - [B] is [B, B]
    value_loss = 0.5 * (found - target).square().mean()
    bonus = -ENTROPY * 20 if bug == "sign of the entropy" else ENTROPY
    return (gain if bug == "sign of the loss" else -gain) + VALUE * value_loss - bonus * policy.entropy().mean()


def test(actor: nn.Sequential, task: str, episodes: int = EPISODES) -> float:
    """Mean return of the greedy policy on the task."""
    env, returns = gymnasium.make(task), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=2**30 + episode)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(int(greedy(actor, observation)))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def share_of(actor: nn.Sequential, env_id: str) -> float:
    """What the greedy policy earns in a world, as a share: 0 random actions, 1 the action that the world pays most."""
    envs = gymnasium.make_vec(env_id, num_envs=CONTEXTS, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    envs.action_space.seed(0)
    act, earned = envolve.worlds.policy(env_id), []
    for choose in (lambda x: envs.action_space.sample(), act, lambda x: greedy(actor, x)):
        observation, _ = envs.reset(seed=0)
        earned.append(float(envs.step(choose(observation))[1].mean()))
    random, best, found = earned
    return (found - random) / (best - random)


def greedy(actor: nn.Sequential, observation: np.ndarray) -> np.ndarray:
    """Most probable actions, int64 [...], for observations [..., F]."""
    with torch.no_grad():
        return actor(torch.as_tensor(observation, dtype=torch.float32)).argmax(-1).numpy()


def one(name: str, bug: str, seed: int) -> Row:
    """Trains and tests one agent at a place."""
    place, began = PLACES[name], time.process_time()
    try:
        actor = train(place.env_id, place.steps, seed, bug)
        trained = time.process_time() - began
        value: float | None = test(actor, place.task)
        share = share_of(actor, place.env_id) if is_world(place.env_id) else None
    except ValueError:  # a distribution without finite numbers: what the bug did
        trained, value, share = time.process_time() - began, None, None
    return {"place": name, "bug": bug, "seed": seed, "return": value, "share": share, "training_seconds": trained}


def finished(out: Path) -> list[Row]:
    return results(out, {"place": str, "bug": str, "seed": int, "training_seconds": float})


def number(row: Row, key: str = RETURN) -> float:
    """Its return, or its share of a world's reward; a run that failed is below every mark."""
    return -np.inf if row[key] is None else float(row[key])


def table(rows: Sequence[Row]) -> str:
    """Markdown: alarms per bug and place, false alarms, and the seconds of a run."""
    places = [p for p in PLACES if any(r["place"] == p for r in rows)]
    columns = [(p, key) for p in places for key in ((RETURN, SHARE) if is_world(PLACES[p].env_id) else (RETURN,))]
    by = {p: {b: [r for r in rows if (r["place"], r["bug"]) == (p, b)] for b in (CLEAN, *BUGS)} for p in places}
    marks = {
        (p, key): min((number(r, key) for r in by[p][CLEAN] if r["seed"] < CALIBRATION), default=np.nan)
        for p, key in columns
    }

    def line(first: str, runs: Mapping[str, Sequence[Row]]) -> str:
        return f"{first} | " + " | ".join(alarms(runs[p], key, marks[p, key]) for p, key in columns) + " |"

    titles = (PLACES[p].title + ", by its reward" * (key == SHARE) for p, key in columns)
    lines = ["| bug | place in the learner | " + " | ".join(titles) + " |", "|" + "---|" * (2 + len(columns))]
    lines += [line(f"| {bug} | {where}", {p: by[p][bug] for p in places}) for bug, where in BUGS.items()]
    lines.append(line("| all |", {p: [r for bug in BUGS for r in by[p][bug]] for p in places}))
    fresh = {p: [r for r in by[p][CLEAN] if r["seed"] >= CALIBRATION] for p in places}
    lines.append(line("| no bug (false alarms) |", fresh))
    known = (usual([number(r, key) for r in by[p][CLEAN]], marks[p, key]) for p, key in columns)
    lines.append("| return, or share, without a bug | | " + " | ".join(known) + " |")
    spent = (np.median([r["training_seconds"] for r in rows if r["place"] == p]) for p, _ in columns)
    lines.append("| CPU seconds of a run, median | | " + " | ".join(f"{s:.1f}" for s in spent) + " |")
    return "\n".join(lines)


def usual(known: Sequence[float], mark: float) -> str:
    """Mean and interval of runs without a bug, and the mark that they set."""
    if not known:
        return "-"
    ends = interval(known) if len(known) > 1 else (np.nan, np.nan)
    digits = 0 if abs(mark) > 2 else 3
    return "{} [{}, {}], mark {}".format(*(f"{x:.{digits}f}" for x in (np.mean(known), *ends, mark)))


def alarms(rows: Sequence[Row], key: str, mark: float) -> str:
    return f"{sum(number(r, key) < mark for r in rows)} of {len(rows)}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser, "bugs", seeds=5)
    parser.add_argument("--clean", type=int, default=15, help="runs without a bug (default: %(default)s)")
    parser.add_argument("--only-places", nargs="+", choices=PLACES, default=list(PLACES), metavar="PLACE",
                        help="default: all, of which cartpole_longer takes half of the time")  # fmt: skip
    args = parser.parse_args(argv)
    check_counts(parser, {"--seeds": [args.seeds], "--clean": [args.clean]}, MOST)
    if args.clean <= CALIBRATION:
        parser.error(f"--clean: found {args.clean}, expected at least {CALIBRATION + 1}")

    def go() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        runs = {CLEAN: args.clean, **dict.fromkeys(BUGS, args.seeds)}
        seeds = range(max(runs.values()))
        names = {bug.replace(" ", "_"): bug for bug in runs}
        cells = ((p, n, s) for s in seeds for n, bug in names.items() if s < runs[bug] for p in args.only_places)
        with locked(args.out):
            work(args.out, cells, lambda place, name, seed: one(place, names[name], seed), shown)

    return finish("bugs", args, go, lambda: table(finished(args.out)))


def shown(row: Row) -> str:
    return f"{number(row):.1f}"


if __name__ == "__main__":
    sys.exit(main())
