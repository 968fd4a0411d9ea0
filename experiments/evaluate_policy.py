#!/usr/bin/env python3
"""Episodes with a policy that a run has kept: envolve evaluate --run-dir results/<run>"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("evaluate_policy.py")  # before all that takes time to import

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from envolve.core import commands
from envolve.core.statistics import interval, or_none
from envolve.distributed.files.params_file import PARAMS_FILE
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import check_count, exit_code, parse
from envolve.experiments.paper.common.events import EventArgs, begin_tracking, check_tracking, tell_series
from envolve.experiments.policies.episodes import Episodes, Policies, PolicyError, chosen
from envolve.outer.config.yaml_lines import ConfigError, show
from envolve.outer.reporting.report import number
from envolve.outer.shapers.video import VideoError, writable_format

HELP = """\
Evaluate a stored policy of train_distributed.py, train_goal.py or eval_shapers.py. The command runs greedy episodes,
prints the mean return with its 95 % interval, and writes all returns to a JSON file. It can also record a video.

  envolve evaluate --run-dir results/quadruped --episodes 5 \\
      --checkpoint policy_checkpoint_0000500000 --seed 108 --video quadruped.mp4
  envolve evaluate --run-dir results/<run of train_goal.py> --episodes 100 [--stochastic]
  envolve evaluate --run-dir results/<run of eval_shapers.py> --shaper my_rewards/best.py

Equal seeds give equal episodes. In a run with a population, every member is evaluated and the best one is filmed.
Warning: params.py in the folder of a distributed run and the --shaper file are executed with all your rights.

Exit codes: 0 evaluated, 1 the policy cannot be evaluated or filmed, 2 wrong arguments,
130 Ctrl-C, 143 SIGTERM."""


@dataclass(kw_only=True)
class Args(EventArgs):
    exp_dir: Annotated[Path, tyro.conf.arg(name="run-dir", metavar="DIR")]
    """Folder of the run."""
    num_episodes: Annotated[int, tyro.conf.arg(name="episodes", aliases=["-n"])] = 5
    """Episodes per member of the population."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Name of the stored policy, e.g. policy_checkpoint_0000500000. Default: the newest."""
    seed: int = 0
    """Random seed of the environment and its episodes."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Film the first 20 s of the episodes in FILE, .mp4 or .gif."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """JSON file for all returns. Default: evaluation_<checkpoint>_seed<seed>.json in --run-dir; with --stochastic
    it ends in _stochastic.json."""
    shaper: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Runs of eval_shapers.py: the shaper file that the policy was trained with. Not needed for the task's own shapers
    (human)."""
    stochastic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Runs of train_goal.py: sample actions as in training, as early versions of JaxGCRL did. Default: greedy actions.
    Videos are always greedy."""


def policies_of(folder: Path, shaper: Path | None, stochastic: bool) -> Policies:
    """Policies of a run, by the files in its folder. Raises ConfigError, PolicyError."""
    if stochastic and not (folder / "policy.pt").exists():
        raise ConfigError([f"--stochastic: found no policy.pt in {folder}, expected a run of train_goal.py"])
    if (folder / PARAMS_FILE).exists():
        from envolve.experiments.policies.distributed import DistributedPolicies

        return DistributedPolicies(folder)
    if (folder / "best.pt").exists():
        from envolve.experiments.policies.shaper import ShaperPolicies

        return ShaperPolicies(folder, shaper)
    if (folder / "policy.pt").exists():
        from envolve.experiments.policies.goal import GoalPolicies

        return GoalPolicies(folder, stochastic)
    there = sorted(p.name for p in folder.glob("*"))[:8] if folder.is_dir() else None
    found = "no folder" if there is None else f"{', '.join(there) or 'nothing'} in {folder}"
    expected = f"{PARAMS_FILE} (train_distributed.py), policy.pt (train_goal.py) or best.pt (eval_shapers.py)"
    raise ConfigError([f"--run-dir: found {found}, expected a folder with {expected}"])


def check(args: Args) -> None:
    """Raises ConfigError, VideoError."""
    for option, value, least in (("--episodes", args.num_episodes, 1), ("--seed", args.seed, 0)):
        check_count(option, value, least)
    if args.video is not None:
        if args.video.suffix.lower() not in (".mp4", ".gif"):
            raise ConfigError([f"--video: found {show(str(args.video))}, expected a name that ends in .mp4 or .gif"])
        writable_format(args.video)
    for option, path in (("--video", args.video), ("--json", args.json)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ConfigError([f"{option}: found {path}, expected a file in a folder that exists"])
    check_tracking(args)


def figures(values: np.ndarray) -> dict[str, Any]:
    """Statistics of one member's episodes, values float64 [E], as plain values for JSON; null for NaN."""
    if not np.isfinite(values).all():
        return {"mean": None, "interval": None, "values": [or_none(v) for v in values.tolist()]}
    ends = interval(values)
    known = None if math.isnan(ends[0]) else list(ends)
    return {"mean": float(values.mean()), "interval": known, "values": values.tolist()}


def table_of(played: Episodes) -> Table:
    """A line per member."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    measures = {"return": played.returns, "length": played.lengths, **played.more}
    if len(played.returns) > 1:
        table.add_column("member", justify="right")
    for name in measures:
        table.add_column(name, justify="right")
        if name == "return":
            table.add_column("95 % interval", justify="right")
    for member in range(len(played.returns)):
        cells = [str(member)] if len(played.returns) > 1 else []
        for name, values in measures.items():
            cells.append(number(float(values[member].mean())))
            if name == "return":
                ends = figures(values[member])["interval"]
                cells.append("-" if ends is None else " to ".join(map(number, ends)))
        table.add_row(*cells)
    return table


def evaluate(args: Args) -> int:
    torch.set_num_threads(1)
    check(args)
    policies = policies_of(args.exp_dir, args.shaper, args.stochastic)
    name = chosen(args.checkpoint, policies.names, args.exp_dir)
    begin_tracking(args)
    played = policies.play(name, args.num_episodes, args.seed)
    title = f"{policies.task}: {name} of {args.exp_dir}, {args.num_episodes} episodes, seed {args.seed}"
    title += ", actions drawn" * args.stochastic
    console = Console()
    for text in (title, f"return: {played.meaning}"):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    console.print(table_of(played))
    measures = {"return": played.returns, "length": played.lengths, **played.more}
    for member in range(len(played.returns)):
        tell_series(args, f"member {member}", {key: values[member].tolist() for key, values in measures.items()})
    content = {
        "exp_dir": str(args.exp_dir), "kind": policies.kind, "task": policies.task, "checkpoint": name,
        "seed": args.seed, "num_episodes": args.num_episodes, "stochastic": args.stochastic,
        "return_means": played.meaning,
        "members": [{key: figures(values[m]) for key, values in measures.items()} for m in range(len(played.returns))],
    }  # fmt: skip
    how = "_stochastic" * args.stochastic
    path = args.json or args.exp_dir / f"evaluation_{name}_seed{args.seed}{how}.json"
    write_atomic(str(path), (json.dumps(content, indent=2) + "\n").encode())
    console.print(str(path), highlight=False, markup=False, soft_wrap=True)
    if args.video is not None:
        policies.film(name, played.best, args.seed, args.video, played.score_of(played.best))
        console.print(f"{args.video}", highlight=False, markup=False, soft_wrap=True)
    if np.isnan(played.returns).all():
        raise PolicyError(f"{args.exp_dir}: {name}: the weights of every member are not finite")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    args = parse("evaluate_policy.py", Args, argv, HELP)
    commands.existing("evaluate_policy.py", "--run-dir", str(args.exp_dir))

    def session() -> int:
        with args.session:
            return evaluate(args)

    return exit_code("evaluate_policy.py", session, (PolicyError, VideoError, ValueError))


if __name__ == "__main__":
    interrupt.run(main)
