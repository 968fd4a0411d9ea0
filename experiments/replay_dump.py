#!/usr/bin/env python3
"""Shows the last states of a simulation that diverged: a table, and a film where mjlab can draw."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("replay_dump.py")  # before all that takes time to import

from dataclasses import dataclass
from typing import List, Optional

import numpy as np
import tyro
from typing_extensions import Annotated

from envolve.core import commands
from envolve.envs.managers.film import joint_names, pictures
from envolve.envs.managers.guard import Dump, read_dump
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.command_line import parse
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.shapers.plan import check_video
from envolve.outer.shapers.video import HEIGHT, WIDTH, FilmWriter, VideoError, writable_format

HELP = """\
Show the last control steps of a simulation of mjlab or Isaac Lab before it diverged. For each step, the command prints
the largest action, the fastest joint and its speed. `envolve shape --engine mjlab` or `isaaclab` writes the files
diverged_<candidate>.pt (docs/mjlab.md).

  envolve replay results/shapers_.../diverged_my_reward.pt
  envolve replay results/shapers_.../diverged_my_reward.pt --video blown_up.gif

Joint names and films are available only for tasks of mjlab. They require mjlab; films also require a renderer.
Exit codes: 0 shown, 1 no film could be made, 2 wrong arguments or not a dump file, 130 Ctrl-C, 143 SIGTERM."""


@dataclass
class Args:
    """Arguments of replay_dump.py."""

    file: Annotated[Path, tyro.conf.Positional]
    """A file diverged_<candidate>.pt."""
    last: int = 20
    """Number of last control steps to print."""
    video: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Film the states in FILE, .mp4 or .gif."""


def complain(text: object) -> None:
    print(f"{commands.called('replay_dump.py')}: {text}", file=sys.stderr)


def table(dump: Dump, last: int, names: Optional[List[str]]) -> str:
    """One line per control step. names: of the velocities; None: unknown."""
    when = "in its evaluation" if dump.evaluation else "in training"
    lines = [f"{dump.task}, candidate {dump.candidate}, environment {dump.environment}, {when}", ""]
    lines.append(f"  {'step':>8}  {'largest action':>14}  {'greatest speed':>14}  of")
    for k in range(max(0, len(dump.steps) - last), len(dump.steps)):
        speed = np.nan_to_num(np.abs(dump.qvel[k]), nan=np.inf)
        fastest = int(speed.argmax())
        name = names[fastest] if names is not None and len(names) == len(speed) else f"velocity {fastest}"
        shown = "not finite" if np.isinf(speed[fastest]) else f"{speed[fastest]:.4g}"
        lines.append(f"  {dump.steps[k]:>8}  {np.abs(dump.action[k]).max():>14.4g}  {shown:>14}  {name}")
    return "\n".join(lines)


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("replay_dump.py", Args, argv, HELP)
    commands.existing("replay_dump.py", "FILE", str(args.file))
    if args.last < 1:
        complain(f"--last: found {args.last}, expected at least 1")
        return 2
    try:
        if args.video is not None:
            check_video((args.video,))
        dump = read_dump(args.file)
    except (OSError, ValueError, ConfigError) as e:
        complain(f"{e.filename}: {e.strerror}" if isinstance(e, OSError) else e)
        return 2
    names: Optional[List[str]] = None
    try:
        names = joint_names(dump.task)
    except SimulatorError as e:
        print(f"(names of joints are unknown: {e})", file=sys.stderr)
    print(table(dump, args.last, names))
    if args.video is None:
        return 0
    try:
        writable_format(args.video)
        draw, seconds = pictures(dump, WIDTH, HEIGHT)
        with FilmWriter(args.video, seconds) as writer:
            for k in range(len(dump.steps)):
                writer.add(k, lambda k=k: draw(k))  # type: ignore[misc]
    except (SimulatorError, VideoError, OSError) as e:
        complain(f"no film: {e}")
        return 1
    print(f"Film: {args.video}")
    return 0


if __name__ == "__main__":
    interrupt.run(main)
