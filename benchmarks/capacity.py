#!/usr/bin/env python3
"""How many candidates fit, and what they cost: n candidates in one simulator against n processes of one each.

    python3 benchmarks/capacity.py [--task Anymal] [--candidates 1 8 32 128 250] [--num-envs 64] [--json FILE]

Every candidate has a reward and an observation of its own (functions of its own: nothing is shared), trains by PPO and
has 64 environments. For every n: memory and environment-steps/s, learning included, of one process with n candidates
(``shared``), of one process with one candidate that has as many environments as those together (``single``), and of n
processes with a candidate each, all at once (``separate``; measured to ``--most-processes``, beyond that memory is n
times that of one of the largest number measured). Memory is the proportional set size (PSS) while training, so what
processes share is counted once. Wall times mean something only on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
MIB = 2**20


def pss() -> float:
    """Proportional set size of this process, MiB: private pages, and its share of those that others map too."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / MIB
    raise RuntimeError("this kernel does not tell a process's PSS")


def candidate(i: int) -> Any:
    """A reward and an observation that no other candidate has, of about as much arithmetic as the human's."""
    import torch

    from envs.shaping import Candidate, Shaper

    width, weight = 0.25 * (1 + i % 7), 1e-5 * (1 + i % 5)

    def compute_reward(state: Dict[str, Any]) -> Any:
        error = (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(1)
        turn = (state["commands"][:, 2] - state["base_ang_vel"][:, 2]).square()
        track, yaw = torch.exp(-error / width), 0.5 * torch.exp(-turn / width)
        effort = -weight * state["torque"].square().sum(1)
        return track + yaw + effort, {"track": track, "yaw": yaw, "effort": effort}

    def compute_observation(state: Dict[str, Any]) -> Any:
        return torch.cat(
            (state["base_lin_vel"], state["base_ang_vel"], state["projected_gravity"], state["commands"],
             state["dof_pos"], 0.05 * state["dof_vel"], state["previous_action"]), 1,
        )  # fmt: skip

    functions = {
        "compute_reward": Shaper(compute_reward, False),
        "compute_observation": Shaper(compute_observation, False),
    }
    return Candidate(f"candidate_{i}", functions)


def train(args: argparse.Namespace) -> Dict[str, float]:
    """What one process does -> its memory and speed. The first iteration warms up and is not timed."""
    import numpy as np
    import torch

    from agents.shaped import make_envs, make_learner
    from agents.shaped_ppo import defaults

    torch.set_num_threads(1)
    P = args.members
    envs = make_envs(args.task, [candidate(args.first + i) for i in range(P)], args.num_envs, 0, threads=args.threads)
    learner = make_learner("ppo", envs, defaults(), np.arange(P), "auto", args.threads)
    learner.iteration()
    if args.barrier:  # all processes are ready before any is timed
        Path(args.barrier, f"{args.first}").touch()
        while len(os.listdir(args.barrier)) < args.processes:
            time.sleep(0.01)
    before, cpu, began = learner.steps, time.process_time(), time.perf_counter()
    memory = 0.0
    for _ in range(args.iterations):
        learner.iteration()
        memory = max(memory, pss())
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if envs.failures:
        raise RuntimeError(f"candidates failed: {envs.failures}")
    steps = (learner.steps - before) * P
    return {"memory": memory, "per_second": steps / seconds, "per_core": steps / cpu, "steps": steps}


def start(
    args: argparse.Namespace, members: int, num_envs: int, processes: int = 1, barrier: str = ""
) -> Dict[str, float]:
    """``processes`` of ``members`` each, at once -> memory of all, steps/s of all."""
    running: List[subprocess.Popen[str]] = []
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for i in range(processes):
        command = [
            sys.executable, __file__, "--child", "--task", args.task, "--members", str(members), "--num-envs",
            str(num_envs), "--iterations", str(args.iterations), "--first", str(i), "--processes", str(processes),
            "--threads", str(args.threads if processes == 1 else 1), "--barrier", barrier,
        ]  # fmt: skip
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT))
    answers = [child.communicate()[0] for child in running]
    if any(child.returncode for child in running):
        raise RuntimeError("a process failed; what it said is above")
    results = [json.loads(answer.splitlines()[-1]) for answer in answers]
    total: Callable[[str], float] = lambda key: sum(r[key] for r in results)  # noqa: E731
    return {"memory": total("memory"), "per_second": total("per_second"), "per_core": total("per_core") / processes}


def compare(args: argparse.Namespace) -> Dict[str, Any]:
    import tempfile

    out: Dict[str, Any] = {"task": args.task, "num_envs": args.num_envs, "rows": []}
    print(f"{args.task}, {args.num_envs} environments per candidate, {args.threads} threads; memory in MiB")
    titles = ("shared", "per cand.", "steps/s", "single", "ratio", "n processes", "each", "steps/s")
    print("   n", *(f"{title:>11}" for title in titles))
    each, measured = 0.0, {}
    for n in sorted(args.candidates):
        if n <= args.most_processes:
            with tempfile.TemporaryDirectory() as barrier:
                measured = start(args, 1, args.num_envs, n, barrier)
            each = measured["memory"] / n
        shared, single = start(args, n, args.num_envs), start(args, 1, args.num_envs * n)
        row = {
            "candidates": n, "shared": shared, "single": single, "ratio": shared["per_second"] / single["per_second"],
            "separate": {**measured, "measured": n <= args.most_processes, "memory": each * n},
            "memory_ratio": each * n / shared["memory"],
        }  # fmt: skip
        out["rows"].append(row)
        figures = (shared["memory"], shared["memory"] / n, shared["per_second"], single["per_second"], row["ratio"],
                   each * n, each, measured["per_second"] if n <= args.most_processes else float("nan"))  # fmt: skip
        print(f"{n:4d}", *(f"{x:11.2f}" if x < 10 else f"{x:11,.0f}" for x in figures), flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Anymal", help="a task with commands, such as Anymal")
    parser.add_argument("--candidates", type=int, nargs="+", default=[1, 8, 32, 128, 250])
    parser.add_argument("--num-envs", type=int, default=64, help="of each candidate")
    parser.add_argument("--iterations", type=int, default=2, help="PPO iterations that are timed")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--most-processes", type=int, default=8, help="separate processes are really run up to here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    for hidden in ("--members", "--first", "--processes"):
        parser.add_argument(hidden, type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--barrier", default="", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(train(args)))
        return
    result = compare(args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
