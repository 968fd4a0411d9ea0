#!/usr/bin/env python3
"""Films agents in an evolved world beside the task (outer/film/)."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("film_world.py")  # before all that takes time to import

import logging
import os
from dataclasses import dataclass
from typing import Annotated

import torch
import tyro

from envolve.core import commands
from envolve.envs.sim.opengl import choose_opengl
from envolve.envs.worlds.file import WorldFileError, read_world
from envolve.experiments.command_line import check_count, exit_code, parse
from envolve.outer.config.problem import learner
from envolve.outer.config.stored import stored_config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.film.drawing import check_drawn
from envolve.outer.film.world_film import film_scenes, scenes_of
from envolve.outer.shapers.video import VideoError, writable_format

PROG = "film_world.py"
HELP = """\
Film agents in an evolved world beside the task. Fresh agents are trained in the world as it was evolved for, then play
in the world and on the task. Of a reward network, the other side is agents trained with the task's own reward for as
many steps. The film loops; in the run's folder, envolve report shows it.

  envolve film results/<run_id>
  envolve film results/<run_id>/model.pt --out film.gif --agents 1 --steps 100

Classic control tasks are drawn by Gymnasium's own renderers (pip install 'envolve[baselines,video]'), robots of MuJoCo
with sky and floor, gridworlds as cells. Other environments from outside, your own among them, have no drawing.
Exit codes: 0 the film is there, 1 the world or the film cannot be made, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""
FAILURES = (WorldFileError, VideoError, ValueError)  # what film() raises beside ConfigError
MODEL = "model.pt"
MOST = {"agents": 4, "steps": 2000}  # rows of the film; steps, which decide its length


@dataclass
class Args:
    world: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="WORLD")]]
    """A model.pt, or the folder of a run with one."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The film, .gif or .mp4. Default: world.gif beside the world."""
    agents: int = 2
    """Agents, a row each, at most 4; each has a random seed of its own."""
    steps: int = 200
    """Most steps of an episode that are shown."""
    seed: int = 0
    """Random seed of agents and episodes."""
    threads: int = 0
    """CPU threads; 0: all."""


def film(args: Args) -> int:
    """-> exit code. Raises ConfigError, OSError, and what FAILURES names."""
    for option, value, least in (("--agents", args.agents, 1), ("--steps", args.steps, 1), ("--seed", args.seed, 0),
                                 ("--threads", args.threads, 0)):  # fmt: skip
        check_count(option, value, least)
        if value > MOST.get(option[2:], value):
            raise ConfigError([f"{option}: found {value}, expected at most {MOST[option[2:]]}"])
    path = args.world / MODEL if args.world.is_dir() else args.world
    out = args.out or path.parent / "world.gif"
    if out.suffix.lower() not in (".gif", ".mp4"):
        raise ConfigError([f"--out: found {out}, expected a name that ends in .gif or .mp4"])
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError([f"--out: found {out}, expected a file in a folder that exists"])
    writable_format(out)
    choose_opengl()  # before MuJoCo is imported, of robots
    if not path.exists():
        raise WorldFileError(f"WORLD: found no {str(path)!r}{commands.near_file(str(path))}")
    world = read_world(str(path))
    task = world.task()
    check_drawn(task)
    config, _ = stored_config(world)  # agents train as long as the world was evolved for
    config["device"] = "cpu"
    scenes = scenes_of(config, world, args.seed, args.agents, args.steps, args.threads or len(os.sched_getaffinity(0)))
    kind = "reward" if world.kind == "rn" else "bandit" if world.section.contextual_bandit else "world"
    heading = f"{task.name.removeprefix('gymnasium:')}, {learner(config)[0].upper()} trained in an evolved {kind}"
    pictures = film_scenes(out, task, scenes, heading)
    for scene in scenes:
        steps = len(scene.episode.rewards)
        print(f"{scene.title}: {steps} steps, return {scene.episode.rewards.sum():.4g}")
    print(f"{out}: {pictures} pictures, {out.stat().st_size / 1e6:.2f} MB")
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(PROG, Args, argv, HELP)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("OpenGL").setLevel(logging.WARNING)  # it says which of its modules are not there
    torch.set_num_threads(1)
    return exit_code(PROG, lambda: film(args), FAILURES)


if __name__ == "__main__":
    interrupt.run(main)
