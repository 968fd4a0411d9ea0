#!/usr/bin/env python3
"""How many candidates fit, and what they cost: n candidates in one simulator against n processes of one each.

    python3 benchmarks/capacity.py [--task Anymal] [--candidates 1 8 32 128 250] [--num-envs 64] [--json FILE]
    python3 benchmarks/capacity.py --device cuda --only-shared --candidates 16 64 250 1000 --num-envs 256

Every candidate has a reward and an observation of its own (functions of its own: nothing is shared), trains by PPO and
has 64 environments. For every n: memory and environment-steps/s, learning included, of one process with n candidates
(``shared``), of one process with one candidate that has as many environments as those together (``single``), and of n
processes with a candidate each, all at once (``separate``; measured to ``--most-processes``, beyond that memory is n
times that of one of the largest number measured). Memory is the proportional set size (PSS) while training, so what
processes share is counted once; on a GPU it is what is taken of the GPU's memory (nothing else may run there), and the
engine is mujoco_warp. Wall times mean something only on a machine that does nothing else.
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


def of_the_gpu() -> float:
    """GPU memory in use by all processes, MiB."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB


def anymal(i: int) -> Dict[str, Any]:
    """A reward and an observation that no other candidate has, of about as much arithmetic as the human's."""
    import torch

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

    return {"compute_reward": compute_reward, "compute_observation": compute_observation}


def ant(i: int) -> Dict[str, Any]:
    """Same as ``anymal``."""
    import torch

    speed, weight = 1.0 + 0.1 * (i % 7), 1e-5 * (1 + i % 5)

    def compute_reward(state: Dict[str, Any]) -> Any:
        forward, height = speed * state["forward_velocity"], state["torso_position"][:, 2]
        upright = ((height > 0.2) & (height < 1.0)).float()
        effort = -weight * state["torque"].square().sum(1)
        return forward + upright + effort, {"forward": forward, "upright": upright, "effort": effort}

    def compute_observation(state: Dict[str, Any]) -> Any:
        return torch.cat(
            (state["torso_position"][:, 2:], state["torso_rotation"], state["torso_velocity"],
             0.25 * state["torso_angular_velocity"], state["joint_position"], 0.1 * state["joint_velocity"]), 1,
        )  # fmt: skip

    return {"compute_reward": compute_reward, "compute_observation": compute_observation}


FUNCTIONS: Dict[str, Callable[[int], Dict[str, Any]]] = {"Anymal": anymal, "Ant": ant}


def candidate(task: str, i: int) -> Any:
    from envolve.envs.shaping.candidate import Candidate, Shaper

    return Candidate(f"candidate_{i}", {kind: Shaper(f, False) for kind, f in FUNCTIONS[task](i).items()})


def train(args: argparse.Namespace) -> Dict[str, float]:
    """What one process does -> its memory and speed. Two iterations warm up and are not timed: the first only measures
    scales, in the second a GPU's step is captured."""
    import numpy as np
    import torch

    from envolve.agents.shaped.ppo import defaults
    from envolve.agents.shaped.training import make_envs, make_learner

    torch.set_num_threads(1)
    P, on_gpu = args.members, args.device != "cpu"
    candidates, engine = [candidate(args.task, args.first + i) for i in range(P)], "mujoco_warp" if on_gpu else "mujoco"
    envs = make_envs(args.task, candidates, args.num_envs, 0, engine, args.threads, args.device)
    learner = make_learner("ppo", envs, defaults(), np.arange(P), "auto", args.threads)
    taken = of_the_gpu if on_gpu else pss
    wait: Callable[[], None] = torch.cuda.synchronize if on_gpu else lambda: None
    for _ in range(2):
        learner.iteration()
    wait()
    if args.barrier:  # all processes are ready before any is timed
        Path(args.barrier, f"{args.first}").touch()
        while len(os.listdir(args.barrier)) < args.processes:
            time.sleep(0.01)
    before, cpu, began = learner.steps, time.process_time(), time.perf_counter()
    memory = 0.0
    for _ in range(args.iterations):
        learner.iteration()
        memory = max(memory, taken())
    wait()
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
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    for i in range(processes):
        command = [
            sys.executable, __file__, "--child", "--task", args.task, "--members", str(members), "--num-envs",
            str(num_envs), "--iterations", str(args.iterations), "--first", str(i), "--processes", str(processes),
            "--threads", str(args.threads if processes == 1 else 1), "--barrier", barrier, "--device", args.device,
        ]  # fmt: skip
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT))
    answers = [child.communicate()[0] for child in running]
    if any(child.returncode for child in running):
        raise RuntimeError("a process failed; what it said is above")
    results = [json.loads(answer.splitlines()[-1]) for answer in answers]
    total: Callable[[str], float] = lambda key: sum(r[key] for r in results)  # noqa: E731
    memory = total("memory") if args.device == "cpu" else max(r["memory"] for r in results)  # a GPU's is of all
    return {"memory": memory, "per_second": total("per_second"), "per_core": total("per_core") / processes}


def compare(args: argparse.Namespace) -> Dict[str, Any]:
    import tempfile

    out: Dict[str, Any] = {"task": args.task, "num_envs": args.num_envs, "rows": []}
    where = f"{args.threads} threads" if args.device == "cpu" else args.device
    print(f"{args.task}, {args.num_envs} environments per candidate, {where}; memory in MiB")
    titles = ("shared", "per cand.", "steps/s", "single", "ratio", "n processes", "each", "steps/s")
    print("   n", *(f"{title:>11}" for title in titles))
    each, measured = 0.0, {}
    for n in sorted(args.candidates):
        if args.only_shared:
            shared = start(args, n, args.num_envs)
            out["rows"].append({"candidates": n, "shared": shared})
            print(
                f"{n:4d}",
                *(f"{x:11,.0f}" for x in (shared["memory"], shared["memory"] / n, shared["per_second"])),
                flush=True,
            )
            continue
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
    parser.add_argument("--task", default="Anymal", choices=FUNCTIONS)
    parser.add_argument("--device", default="cpu", help="cpu: MuJoCo; cuda: mujoco_warp, and learning in PyTorch")
    parser.add_argument("--only-shared", action="store_true", help="one process with n candidates, and nothing else")
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
