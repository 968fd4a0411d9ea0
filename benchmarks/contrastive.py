#!/usr/bin/env python3
"""What contrastive RL costs on the CPU, compiled and in PyTorch: milliseconds of processor time of one thread, medians
of many calls that take turns.

    python3 benchmarks/contrastive.py [--calls 30] [--population 16] [--jax PYTHON]

A member's update (batch 256, 2 x 256 units, 64 outputs); a decision in 32 environments of a member, the environments'
step and the memory included; and an environment step with its share of both, at JaxGCRL's 125 updates per 1,984 steps.
"newer" are the nets and losses of JaxGCRL's newer versions (swish, infonce, a penalty on log-sum-exps). --jax: a Python
with jax and optax, for the same phase of updates in JAX as JaxGCRL does it, newer settings
(benchmarks/peers/jax_contrastive.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

from envolve.agents.goal.crl import CRL  # noqa: E402
from envolve.agents.goal.crl_section import CRLSection  # noqa: E402
from envolve.agents.goal.crl_train import GoalTraining  # noqa: E402
from envolve.envs.goal.task import make_goal_task  # noqa: E402

STEPS_PER_UPDATE = 32 * 62 / 125
NEWER = {"activation": "swish", "contrastive_loss_fn": "infonce", "logsumexp_penalty": 0.1, "policy_std": "bounded"}
CASES: list[tuple[str, str, dict[str, Any]]] = [("reacher", "", {}), ("ant", "", {}), ("reacher", " newer", NEWER)]


def medians(calls: list[Callable[[], Any]], number: int) -> list[float]:
    """Milliseconds of processor time of each, taking turns."""
    for call in calls:
        for _ in range(3):
            call()
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(number):
        for call, seconds in zip(calls, found):
            began = time.process_time()
            call()
            seconds.append(time.process_time() - began)
    return [1e3 * statistics.median(seconds) for seconds in found]


def measure(env: str, own: dict[str, Any], P: int, number: int) -> list[float]:
    """Times of a member: update and decision in PyTorch, then compiled."""
    task, section = make_goal_task(env), CRLSection(num_envs=32, **own)
    runs = [GoalTraining(task, task, section, torch.arange(P), num_eval_envs=1, threads=1) for _ in range(2)]
    old = runs[0]
    old.learner = CRL(section, task.state_size, task.action_size, task.goal_indices, torch.arange(P), backend="torch")
    for run in runs:
        for _ in range(100):
            run.episodes.finish(run._decide(None)[0])
    updates = medians([lambda run=run: run.learner.learn(run.replay) for run in runs], number)  # type: ignore[misc]
    decisions = medians([lambda run=run: run._decide(None) for run in runs], number)  # type: ignore[misc]
    return [ms / P for pair in zip(updates, decisions) for ms in pair]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--population", type=int, default=16)
    parser.add_argument("--jax", metavar="PYTHON", help="measure JAX, too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("                        update               decision              environment step        member of a")
    print("               members  PyTorch  compiled    PyTorch  compiled     PyTorch  compiled       population")
    for env, kind, own in CASES:
        single = 0.0
        for P in (1, args.population):
            update, decision, fast, quick = measure(env, own, P, args.calls)
            steps = [u / STEPS_PER_UPDATE + d / 32 for u, d in ((update, decision), (fast, quick))]
            single = single or steps[1]
            share = f"{steps[1] / single:9.2f}" if P > 1 else ""
            print(
                f"{env + kind:14} {P:7}  {update:7.2f}  {fast:8.2f}    {decision:7.3f}  {quick:8.3f}     "
                f"{steps[0]:7.3f}  {steps[1]:8.3f} {steps[0] / steps[1]:5.2f} x {share}",
                flush=True,
            )
    if args.jax:
        for env in ("reacher", "ant"):
            subprocess.run([args.jax, str(ROOT / "benchmarks" / "peers" / "jax_contrastive.py"), env], check=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
