"""Speed of one DDQN training step in a synthetic environment: act, SE step, replay, sample, one update of 199.

    python -m benchmarks.ddqn_in_se [--json FILE]

Three implementations of the same work, one thread each: the compiled kernel, the PyTorch path for several population
sizes, and the script one would write for a single agent (modules, a tensor for the replay buffer, torch.optim.Adam).
Figures are member-steps per CPU-second of one core (process time), the median of five runs after one to warm up.
Of the first two, two training lengths are timed and subtracted, so that set-up does not count. Neither does the final
test: of the PyTorch path it is cut short, and the kernel trains 100 times as long as it tests.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numba
import numpy as np
import torch
from torch import Tensor, nn

from agents import off_policy
from agents.ddqn import DDQN
from agents.hyper import draw
from agents.kernels import off_policy_population as compiled
from agents.sections import DDQNSection
from envs.cartpole import CartPole
from envs.section import EnvSection
from envs.world import init_world

HIDDEN, BATCH, WORLD_HIDDEN, EPISODE = 57, 199, 83, 200
LR, GAMMA, TAU, EPS = 1e-3, 0.98, 0.01, 0.2


class TestedAtOnce(CartPole):
    """Its episodes end after a step, so that the final test takes no time; the SE uses its resets alone."""

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        next_state, reward, terminated = super().step(state, action)
        return next_state, reward, torch.ones_like(terminated)


def population_seconds(train: Callable, members: int, steps: int) -> float:
    """CPU seconds of ``steps`` training steps of ``members`` agents."""
    task, env, keys = TestedAtOnce(max_steps=EPISODE), EnvSection(hidden_size=WORLD_HIDDEN), np.arange(members)
    worlds = init_world("se", task, env, torch.as_tensor(keys)).numpy()

    def seconds(budget: int) -> float:
        section = DDQNSection(
            train_steps=budget, init_episodes=0, early_out_min_steps=10**9, test_episodes=1, hidden_size=HIDDEN,
            hidden_layer=1, activation_fn="tanh", batch_size=BATCH, lr=LR, gamma=GAMMA, tau=TAU, eps_init=EPS,
        )  # fmt: skip
        hyper = draw(section, keys)
        start = time.process_time()
        result = train(task, "se", env, worlds, hyper, keys, False)
        spent = time.process_time() - start
        if not (result.updates == budget).all():
            raise RuntimeError(f"expected {budget} updates of each member, got {result.updates}")
        return spent

    return seconds(steps + 10) - seconds(10)


def plain_seconds(steps: int) -> float:
    """CPU seconds of ``steps`` training steps of one agent, written as such scripts usually are."""
    torch.manual_seed(0)
    q = nn.Sequential(nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=LR)
    nets = [nn.Sequential(nn.Linear(6, WORLD_HIDDEN), nn.LeakyReLU(), nn.Linear(WORLD_HIDDEN, n)) for n in (4, 1, 1)]
    buffer = torch.zeros(steps, 11)
    state, t = torch.rand(4) * 0.1 - 0.05, 0
    start = time.process_time()
    for step in range(steps):
        with torch.no_grad():
            action = int(torch.randint(2, ())) if torch.rand(()) < EPS else int(q(state).argmax())
            x = torch.cat([nn.functional.one_hot(torch.tensor(action), 2).float(), state])
            next_state, reward, done = (net(x) for net in nets)
            buffer[step] = torch.cat([state, next_state, torch.tensor([float(action)]), reward, done])
            t += 1
            if done > 0.5 or t >= EPISODE:
                next_state, t = torch.rand(4) * 0.1 - 0.05, 0
            state = next_state
        batch = buffer[torch.randint(step + 1, (BATCH,))]
        s, s_next, a, r, d = batch[:, :4], batch[:, 4:8], batch[:, 8:9].long(), batch[:, 9:10], batch[:, 10:]
        with torch.no_grad():
            y = r + GAMMA * (1 - d) * target(s_next).gather(1, q(s_next).argmax(1, keepdim=True))
        loss = nn.functional.mse_loss(q(s).gather(1, a), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, p_target in zip(q.parameters(), target.parameters()):
                p_target.lerp_(p, TAU)
    return time.process_time() - start


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--scale", type=float, default=1.0, help="length of the runs, 1: half a minute in all")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # name, steps per run, member-steps per run, CPU seconds of a run
    cases: List[Tuple[str, int, int, Callable[[int], float]]] = [("plain", 300, 1, plain_seconds)]
    in_torch = partial(off_policy.train_population, DDQN)
    for p, steps in ((1, 300), (8, 200), (32, 150), (128, 40)):
        cases.append((f"torch_{p}", steps, p, partial(population_seconds, in_torch, p)))
    cases.append(("compiled", 20_000, 2, partial(population_seconds, partial(compiled.train_population, DDQN), 2)))

    versions = (
        f"torch {torch.__version__}, numba {numba.__version__}, numpy {np.__version__}, Python {sys.version.split()[0]}"
    )
    print(f"{cpu_model()}; {versions}; one thread\n")
    print(f"DDQN 4-{HIDDEN}-2 tanh, batch {BATCH}, one update per step, SE of three nets 6-{WORLD_HIDDEN}-k leakyrelu")
    print(f"{'implementation':15s} {'members':>7s} {'member-steps/s/core':>24s} {'range of five':>17s} {'x plain':>8s}")
    figures: Dict[str, Dict[str, object]] = {}
    for name, steps, members, seconds in cases:
        steps = max(1, round(steps * args.scale))
        seconds(steps)  # compiles, and warms the caches
        rates: List[float] = [members * steps / seconds(steps) for _ in range(5)]
        per_core = statistics.median(rates)
        figures[name] = {"per_core": per_core, "members": members, "runs": rates}
        ratio = per_core / float(figures["plain"]["per_core"])  # type: ignore[arg-type]
        spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
        print(f"{name.split('_')[0]:15s} {members:7d} {per_core:24,.0f} {spread:>17s} {ratio:8.1f}", flush=True)
    if args.json:
        report = {"ddqn_in_se": figures, "cpu": cpu_model(), "versions": versions}
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
