#!/usr/bin/env python3
"""Sets an evolved world beside the simplest things that could explain what it does."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("controls.py")  # before all that takes time to import

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from envolve.core import commands, plugins
from envolve.core.registry import unknown
from envolve.experiments.command_line import check_count, check_folder, parse
from envolve.experiments.paper.common.command import run_command
from envolve.experiments.paper.common.events import EventArgs, begin_tracking, check_tracking, settings_of, tell_series
from envolve.outer.config.load import ConfigError
from envolve.outer.controls.rows import CONTROLS, Bench, Row
from envolve.outer.controls.table import show, write

HELP = """\
Compare an evolved world with simple controls that could explain its effect. The command prints one row per control:
the return on the real task, and the real steps, i.e. the steps on the task that the control needed.

  envolve controls results/<run_id>/model.pt
  envolve controls results/<run_id>/model.pt --only greedy hand_made --json controls.json

  world        agents trained in the world, as evolution trains them
  tuned        agents with tuned hyperparameters, trained on the task itself (configs/baselines)
  greedy       no agent: the action with the highest reward of the world in every state
  classifier   bandits: a supervised classifier, trained on the world's contexts to predict the action with the
               highest reward
  hand_made    SEs: a hand-written policy, and agents trained in a bandit made from it; needs no step on the task
  distilled    SEs: an agent trained on the task, and agents trained in a bandit distilled from it
  potential    RNs of finite tasks: agents trained with the optimal value function as the potential
  direct       a policy evolved on the task itself, with as many real steps as the evolution of the world took

Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""


@dataclass
class Args(EventArgs):
    model: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="WORLD")]]
    """A model.pt that GTN_master.py wrote."""
    agents: int = 20
    """Number of agents in the world, on the task, and in the bandits of each control."""
    repeats: int = 5
    """Repetitions of each control (bandit, expert, search or classifier), each with its own random seed. The --agents
    of a control are divided among its bandits."""
    episodes: int = 20
    """Test episodes of each policy that is not trained as an agent, e.g. greedy and hand_made."""
    real_steps: int | None = None
    """Budget of the control direct, in real steps. Default: the real steps that the evolution of the world took."""
    only: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Controls to run. Default: all that apply to this world."""
    seed: int = 0
    """Random seed of the agents and of the fitted controls. The evolution never uses the seeds derived from it."""
    threads: int = 0
    """CPU threads; 0: all that this process may use."""
    plugins: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run. Needed if its environment, task or learner is a Python file of your own or of another package.
    Allows the command to execute the files there that the world names with their SHA-256."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the summary and the numbers of every agent to this JSON file."""


def check(args: Args) -> list[str]:
    """-> the controls that are asked for. Raises ConfigError."""
    for option, value, least in (
        ("--agents", args.agents, 1), ("--repeats", args.repeats, 1), ("--episodes", args.episodes, 1),
        ("--seed", args.seed, 0), ("--threads", args.threads, 0), ("--real-steps", args.real_steps, 1),
    ):  # fmt: skip
        check_count(option, value, least)
    check_folder("--plugins", args.plugins)
    for name in args.only:
        if name not in CONTROLS:
            raise ConfigError([unknown("--only", name, CONTROLS)])
    if args.json is not None and (args.json.is_dir() or not args.json.parent.is_dir()):
        raise ConfigError([f"--json: cannot write {args.json}, expected a file in a folder that exists"])
    check_tracking(args)
    return [name for name in CONTROLS if name in args.only] if args.only else list(CONTROLS)


def work(args: Args) -> int:
    names = check(args)
    if args.plugins is not None:
        plugins.allow(args.plugins)
    bench = Bench.of(args.model, args.agents, args.repeats, args.episodes, args.real_steps, args.seed, args.threads)
    begin_tracking(args)
    rows: list[Row] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr)
        found = CONTROLS[name](bench)
        rows += found
        for row in found:
            if not row.why_not:
                tell_series(args, row.name, {"return": row.returns, "train_steps": row.train_steps})
    show(bench, rows)
    if args.json is not None:
        write(args.json, bench, rows, settings_of(args))
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("controls.py", Args, argv, HELP)
    commands.existing("controls.py", "WORLD", str(args.model))
    return run_command("controls.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
