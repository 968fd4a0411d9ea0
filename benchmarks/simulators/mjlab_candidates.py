"""Memory and speed of many candidates in one process of mjlab, beside one process of mjlab for each candidate.

    .venv-mjlab/bin/python benchmarks/simulators/mjlab_candidates.py --task Mjlab-Cartpole-Balance --candidates 16 64

Every case is a process of its own: mjlab's own environment with the environments of one candidate, or all candidates
in one. Actions are random, nothing learns. Speed is counted in environment steps per second of CPU time, so that what
else runs on the machine does not count; as many processes as candidates make as many steps per CPU second as one of
them. One thread. Memory is the resident set at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
WARM = 10  # steps before the clock starts


def resident() -> float:
    """MiB of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def child(task: str, P: int, N: int, steps: int) -> dict[str, Any]:
    """One case; P = 0: mjlab's own environment."""
    import torch

    torch.set_num_threads(1)
    if P == 0:
        from envolve.envs.managers.environment import quiet
        from envolve.envs.managers.mjlab import Mjlab

        cfg = Mjlab().load().load_env_cfg(task)
        cfg.scene.num_envs, cfg.seed = N, 0
        from mjlab.envs import ManagerBasedRlEnv

        with quiet():
            env = ManagerBasedRlEnv(cfg=cfg, device="cpu")
        env.reset()
        shape: tuple[int, ...] = (N, env.action_manager.total_action_dim)
        step: Any = env.step
    else:
        from envolve.envs.managers.envs import make_managed_envs
        from envolve.envs.shaping.candidate import Candidate, Shaper

        def reward(state: Any, params: Any) -> Any:
            return state["own_reward"] * params[:, 0]

        shaper = {"compute_reward": Shaper(reward, True)}
        many = [Candidate(f"c{i}", shaper, params=torch.tensor([1.0 + i])) for i in range(P)]
        envs = make_managed_envs(task, many, N, list(range(P)))
        envs.begin(staggered=True)
        shape, step = (P, N, envs.action_sizes[0]), envs.step
    for k in range(WARM + steps):
        if k == WARM:
            began = time.process_time()
        step(torch.rand(shape) * 2 - 1)
    seconds = time.process_time() - began
    return {"steps": steps * N * max(P, 1), "cpu_seconds": seconds, "rss": resident()}


def case(task: str, P: int, N: int, steps: int) -> dict[str, Any]:
    words = [sys.executable, __file__, "--task", task, "--child", str(P), "--envs", str(N), "--steps", str(steps)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Mjlab-Cartpole-Balance")
    parser.add_argument("--candidates", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--envs", type=int, default=16, help="of each candidate")
    parser.add_argument("--steps", type=int, default=200, help="control steps")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(child(args.task, args.child, args.envs, args.steps)))
        return
    one = case(args.task, 0, args.envs, args.steps)
    rate = one["steps"] / one["cpu_seconds"]
    print(f"{args.task}, {args.envs} environments each")
    print(f"one process of mjlab: {one['rss']:.0f} MiB, {rate:,.0f} steps per CPU second")
    print("candidates      MiB  MiB each  times less  steps per CPU s  of processes'")
    for P in args.candidates:
        many = case(args.task, P, args.envs, args.steps)
        each, speed = many["rss"] / P, many["steps"] / many["cpu_seconds"]
        less, share = one["rss"] / each, speed / rate
        print(f"{P:>10}  {many['rss']:>7.0f}  {each:>8.1f}  {less:>10.1f}  {speed:>15,.0f}  {share:>13.2f}")


if __name__ == "__main__":
    main()
