#!/usr/bin/env python3
"""PPO with the human's shapers on the physics tasks: does it learn, and as well as Stable-Baselines3 at equal steps?

    python3 benchmarks/shaped_learning.py [--tasks Cartpole HalfCheetah Ant Anymal] [--steps N] [--seeds 3] [--no-peers]

Ours trains all seeds in one simulator, the peer one after the other; both in the same environments, with the same
settings, the same number of steps, and judged by the same evaluation: the task's true score.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STEPS = {"Cartpole": 200_000, "HalfCheetah": 1_000_000, "Ant": 2_000_000, "Anymal": 2_000_000}  # per agent
NUM_ENVS = 64


def ours(task: str, steps: int, seeds: int, threads: int) -> Dict[str, Any]:
    import numpy as np
    import torch

    from envolve.agents.shaped.ppo import defaults
    from envolve.agents.shaped.training import make_envs, make_learner, train_shaped
    from envolve.envs.shaping.candidate import Candidate

    torch.set_num_threads(1)
    section = defaults()
    humans = [Candidate(f"seed {i}") for i in range(seeds)]
    envs = make_envs(task, humans, NUM_ENVS, list(range(seeds)), threads=threads)
    learner = make_learner("ppo", envs, section, np.arange(seeds), "auto", threads)
    cpu, began = time.process_time(), time.perf_counter()
    result = train_shaped(envs, learner, -(-steps // (NUM_ENVS * section.rollout_steps)))
    return {
        "scores": result.score.tolist(),
        "steps": result.steps,
        "cpu_seconds": (time.process_time() - cpu) / seeds,
        "seconds": time.perf_counter() - began,
        "curve": [p.score.tolist() for p in result.curve],
    }


def peer(task: str, steps: int, seeds: int) -> Dict[str, Any]:
    from benchmarks.peers import environment
    from envolve.agents.shaped.ppo import defaults

    python = environment.ensure()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    settings = json.dumps(dataclasses.asdict(defaults()))
    answers: List[Dict[str, float]] = []
    for seed in range(seeds):
        command = [
            str(python), "-m", "benchmarks.peers.sb3_shaped", task, "--steps", str(steps), "--seed", str(seed),
            "--num-envs", str(NUM_ENVS), "--settings", settings,
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT, check=True)
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    cpu = sum(a["cpu_seconds"] for a in answers) / seeds
    return {"scores": [a["score"] for a in answers], "steps": answers[0]["steps"], "cpu_seconds": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--steps", type=int, help="per agent; default: the task's own")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peer-seeds", type=int, help="of the peer, which is slow; default: as many")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    out = {}
    print(f"{'task':<12} {'who':<10} {'steps':>9} {'mean score':>10}  {'CPU s per agent':>15}  scores")
    for task in args.tasks:
        steps = args.steps or STEPS[task]
        rows = {"envolve": ours(task, steps, args.seeds, args.threads)}
        if not args.no_peers:
            rows["sb3"] = peer(task, steps, args.peer_seeds or args.seeds)
        for who, r in rows.items():
            mean, shown = sum(r["scores"]) / len(r["scores"]), " ".join(f"{s:.3f}" for s in r["scores"])
            print(
                f"{task:<12} {who:<10} {r['steps']:>9,} {mean:>10.3f}  {r['cpu_seconds']:>15.1f}  {shown}", flush=True
            )
        out[task] = rows
    if args.json:
        args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
