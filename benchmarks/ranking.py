#!/usr/bin/env python3
"""Do candidates rank alike when they share a simulator and when each has a process of its own?

    python3 benchmarks/ranking.py [--task Ant] [--candidates NAME ...] [--iterations 300] [--other-seed S] [--json FILE]

Ranks the candidates (default: the eight rewards for Ant) by one run of experiments/eval_shapers.py and by a run for
each, and prints both scores and Spearman's rank correlation. With the same seed both must be the same numbers; with
--other-seed the separate runs have another, and what is left of the correlation is what the rewards are worth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from envolve.core.statistics import spearman  # noqa: E402

REWARDS = [
    "reward_backward", "reward_backward_capped", "reward_gymnasium", "reward_survival", "reward_velocity",
    "reward_velocity_and_survival", "reward_velocity_capped", "reward_velocity_sparse",
]  # fmt: skip


def scores(args: argparse.Namespace, names: List[str], seed: int) -> Dict[str, float]:
    """The scores that one process gives to these candidates."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [
            sys.executable, "experiments/eval_shapers.py", "--task", args.task, "--candidates", *names, "--no-human",
            "--num_envs_per_shaper", str(args.num_envs), "--iterations", str(args.iterations), "--seed", str(seed),
            "--threads", str(args.threads), "--json", str(out), "--run-dir", str(Path(folder) / "run"),
        ]  # fmt: skip
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)
        return {c["name"]: c["score"] for c in json.loads(out.read_text())["candidates"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Ant")
    parser.add_argument("--candidates", nargs="+", default=REWARDS)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--other-seed", type=int, help="of the separate runs; default: the same")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    shared = scores(args, args.candidates, args.seed)
    seed = args.seed if args.other_seed is None else args.other_seed
    alone = {name: scores(args, [name], seed)[name] for name in args.candidates}
    print(f"{args.task}, {args.iterations} iterations, {args.num_envs} environments each")
    print(f"{'candidate':<32} {'shared':>10} {'alone':>10}")
    for name in sorted(shared, key=lambda n: -shared[n]):
        print(f"{name:<32} {shared[name]:>10.4f} {alone[name]:>10.4f}")
    names = list(shared)
    agreement = spearman([shared[n] for n in names], [alone[n] for n in names])
    print(f"Spearman {agreement:.3f}; the same numbers: {shared == alone}")
    if args.json:
        args.json.write_text(json.dumps({"shared": shared, "alone": alone, "spearman": agreement}, indent=1) + "\n")


if __name__ == "__main__":
    main()
