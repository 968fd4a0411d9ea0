"""What a new user waits for: seconds from the start of a run, with an empty cache of kernels, to its first generation.

One run per learner, of one generation of two pairs that train briefly, so that the wait is importing, compiling and
starting workers, not training. ``make run`` itself is measured as it is shipped, with its whole first generation.

    python -m benchmarks.first_generation               # all learners, one after the other, on a quiet machine
    python -m benchmarks.first_generation ppo sac
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARTPOLE, PENDULUM = "default_config_cartpole_syn_env.yaml", "default_config_pendulum_reward_env_paper.yaml"
CLIFF, CHEETAH = "default_config_gridworld_reward_env.yaml", "default_config_halfcheetah_reward_env.yaml"
# learner: configuration with its task, and the name that it goes by there
RUNS = {
    "make run": (CARTPOLE, None),
    "ddqn": (CARTPOLE, "DDQN"),
    "duelingddqn": (CARTPOLE, "DuelingDDQN"),
    "td3_discrete": (CARTPOLE, "TD3_discrete"),
    "ql": (CLIFF, "QL"),
    "sarsa": (CLIFF, "SARSA"),
    "td3": (CHEETAH, "TD3"),
    "sac": (PENDULUM, "SAC"),
    "ppo": (PENDULUM, "PPO"),
}
MARK = {"make run": 15.0}
MARK_OTHERS = 20.0
BRIEF = ("agents.gtn.num_workers=2", "agents.gtn.num_orig_evals=2")
TRAINING = ("train_episodes=2", "test_episodes=1", "train_steps=400")
GENERATION = re.compile(r"^generation 1/")


def sets(name: str) -> list[str]:
    """The ``--set`` words of this run."""
    if name == "make run":
        return []
    brief = [*BRIEF, *(f"agents.{name}.{word}" for word in TRAINING)]
    return [f"agents.gtn.agent_name={RUNS[name][1]}", *brief]


def wait(name: str, folder: Path) -> dict[str, float]:
    """Seconds to the first generation, and CPU seconds of all processes until the run's end. folder: empty."""
    words = [sys.executable, "-m", "envolve", "run", RUNS[name][0], "--single", "--results-dir", str(folder / "runs")]
    words += ["--set", "agents.gtn.max_iterations=1", *sets(name)]
    began, before = time.monotonic(), os.times()
    environment = {**os.environ, "ENVOLVE_CACHE": str(folder / "cache")}
    seconds, lines = None, []
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            lines.append(line)
            if GENERATION.match(line) and seconds is None:
                seconds = time.monotonic() - began
    if run.returncode or seconds is None:
        raise SystemExit(f"{name} ended with {run.returncode}:\n{''.join(lines[-15:])}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": round(seconds, 1), "cpu_seconds_of_run": round(cpu, 1), "mark": MARK.get(name, MARK_OTHERS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("learners", nargs="*", help=f"of {', '.join(RUNS)} (default: all)", metavar="LEARNER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args()
    unknown = [name for name in args.learners if name not in RUNS]
    if unknown:
        parser.error(f"unknown learner {unknown[0]!r}; known are {', '.join(RUNS)}")
    rows = {}
    for name in args.learners or RUNS:
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = wait(name, Path(folder))
        print(f"{name:14} {rows[name]['seconds']:5.1f} s (mark {rows[name]['mark']:.0f})", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
