#!/usr/bin/env python3
"""Makes a tuned baseline of a finished study: its best configuration, and what fresh agents reach with it."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("tuned_baseline.py")  # before all that takes time to import

import copy
import json
import os
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro

from envolve.core import commands
from envolve.core.files import TABLE_BYTES, read_plain, read_text
from envolve.core.statistics import summary
from envolve.envs.task import make_task
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import check_count, parse
from envolve.experiments.paper.common.command import run_command
from envolve.experiments.paper.common.data import plain
from envolve.experiments.paper.common.events import EventArgs, begin_tracking, tell_series
from envolve.outer.config.load import Config, ConfigError, environment_info, load_config
from envolve.outer.config.problem import VARY_SUFFIX, env_section, split_agent_name
from envolve.outer.controls.baseline import FOLDER
from envolve.outer.evaluate.networks import REAL_BUDGET, evaluate
from envolve.outer.hpo.study import read_study
from envolve.outer.reporting.comparison import return_bounds
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Make a baseline for evolved worlds: agents with hyperparameters that were tuned on the task itself. A study tunes the
hyperparameters. This command trains fresh agents with its best configuration, and stores the configuration and the
results in configs/baselines.

  envolve tune configs/spaces/real_cartpole_ddqn.yaml --run-dir results/real_cartpole_ddqn
  envolve paper tuned-baseline results/real_cartpole_ddqn --name cartpole_ddqn

Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""
STUDY = "# study: "  # in the comments of best.yaml


@dataclass
class Args(EventArgs):
    study: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """Folder of a finished hyperparameter search over agents on the task (optimize_params.py)."""
    name: str
    """Name of the two files to write, <name>.yaml and <name>.json."""
    agents: int = 50
    """Number of fresh agents with the best configuration, and again with hyperparameters drawn around it."""
    seed: int = 0
    """Random seed of the agents. The study never uses the seeds derived from it."""
    threads: int = 0
    """CPU threads; 0: all that this process may use."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = FOLDER
    """Folder for the files."""


def varied(config: dict[str, Any]) -> dict[str, Any]:
    """The same with every agent's hyperparameters drawn around the configured ones, as --vary-hp of other commands."""
    data = copy.deepcopy(config)
    gtn = data["agents"]["gtn"]
    learner = split_agent_name(gtn["agent_name"]).learner
    gtn["agent_name"] = learner + VARY_SUFFIX
    data["agents"][learner + VARY_SUFFIX] = {"vary_hp": True, "vary_layers": True}
    return data


def measured(data: dict[str, Any], agents: int, seed: int, threads: int) -> dict[str, Any]:
    """Fresh agents on the task: lists with an entry per agent, and their mean."""
    seeds = torch.from_numpy(member_seeds(seed, RETEST, 90, agents))
    values = evaluate(data, torch.zeros(agents, 1), seeds, REAL_BUDGET, threads)
    returns, steps = values["mean_return"].tolist(), [float(n) for n in values["train_steps"].tolist()]
    fine = [(r, s) for r, s, why in zip(returns, steps, values["reason"]) if not why]
    out = {"returns": returns, "train_steps": steps, "failed": agents - len(fine)}
    if fine:
        section = env_section(data)
        task = make_task(data["env_name"], section.max_steps, section.solved_reward)
        out["solved"] = sum(r >= task.solved_reward for r, _ in fine)
        out["summary_of_return"] = summary([r for r, _ in fine], bounds=return_bounds(task))
        out["summary_of_steps"] = summary([s for _, s in fine])
    return out


def spent(folder: Path) -> tuple[int, int]:
    """Trials, and the training steps of all their agents. Raises ConfigError."""
    found = [json.loads(read_plain(path, TABLE_BYTES))["agents"] for path in sorted(folder.glob("runs/*/agents.json"))]
    if not found:
        raise ConfigError([f"{folder}: found no runs/*/agents.json, expected a finished search over agents"])
    return len(found), int(sum(agent["train_steps"] for agents in found for agent in agents))


def work(args: Args) -> int:
    limits = (("--agents", args.agents, 1), ("--seed", args.seed, 0), ("--threads", args.threads, 0))
    for option, value, least in limits:
        check_count(option, value, least)
    if not (args.study / "best.yaml").is_file():
        raise ConfigError([f"{args.study}: found no best.yaml, expected the folder of a finished search"])
    study, best = read_study(args.study / "study.yaml"), load_config(args.study / "best.yaml")
    if study.evaluate != "agent" or study.worlds:
        raise ConfigError([f"{args.study}: found a search over {study.evaluate} trials, expected agents on the task"])
    trials, steps = spent(args.study)
    begin_tracking(args)
    threads = args.threads or len(os.sched_getaffinity(0))
    record: dict[str, Any] = {
        "study": f"configs/spaces/{name_of(best)}.yaml", "task": best.data["env_name"], "loss": study.loss,
        "trials": trials, "tuning_steps": steps, "agents": args.agents, "seed": args.seed,
        "versions": environment_info(),
    }  # fmt: skip
    for kind, data in (("fixed", best.data), ("varied", varied(best.data))):
        record[kind] = of_kind = measured(data, args.agents, args.seed, threads)
        tell_series(args, kind, {"return": of_kind["returns"], "train_steps": of_kind["train_steps"]})
    header = (
        f"# The tuned baseline of {best.data['env_name']}: the best of {trials} trials of {record['study']},\n"
        f"# {steps:,} training steps on the task in all. What fresh agents reach: {args.name}.json.\n"
    )
    args.out.mkdir(parents=True, exist_ok=True)
    write_atomic(str(args.out / f"{args.name}.yaml"), (header + body(best)).encode())
    write_atomic(str(args.out / f"{args.name}.json"), (json.dumps(plain(record, "record"), indent=1) + "\n").encode())
    for kind in ("fixed", "varied"):
        for name in ("return", "steps"):
            print(f"{kind}: {name} {record[kind].get(f'summary_of_{name}')}")
    return 0


def body(config: Config) -> str:
    """The configuration as the search stored it, without its comments."""
    lines = read_text(config.path).splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")).strip() + "\n"


def name_of(best: Config) -> str:
    """The study's name, which the search noted above its best configuration. Raises ConfigError."""
    for line in read_text(best.path).splitlines():
        if line.startswith(STUDY):
            return line[len(STUDY) :].strip()
    raise ConfigError([f"{best.path}: found no line {STUDY!r}, expected it as optimize_params.py writes it"])


def main(argv: list[str] | None = None) -> int:
    args = parse("tuned_baseline.py", Args, argv, HELP)
    commands.existing("tuned_baseline.py", "DIR", str(args.study))
    return run_command("tuned_baseline.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
