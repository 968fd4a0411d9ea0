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
Film agents in an evolved world and on the task, side by side. Fresh agents are trained in the world as in its
evolution, then play in the world and on the task. For a reward network, both sides play on the task: one side trained
with the evolved reward, the other for as many steps with the task's own reward. The film loops. envolve report shows a
film that is in the folder of its run.

  envolve film results/<run_id>
  envolve film results/<run_id>/model.pt --out film.gif --agents 1 --steps 100

Classic control tasks, LunarLander and BipedalWalker are drawn by Gymnasium's renderers (pip install
'envolve[baselines,video]'), MuJoCo robots with sky and floor, and gridworlds as cells. Other environments from outside
Envolve, your own among them, have no drawing and cannot be filmed. Neither can environments with wrappers.
Exit codes: 0 the film is written, 1 the world cannot be read or filmed, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""
FAILURES = (WorldFileError, VideoError, ValueError)  # what film() raises beside ConfigError
MODEL = "model.pt"
MOST = {"agents": 4, "steps": 2000}  # rows of the film; steps, which decide its length


@dataclass
class Args:
    world: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="WORLD")]]
    """A model.pt that GTN_master.py wrote, or the folder of its run."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File of the film, .gif or .mp4. Default: world.gif in the folder of the world."""
    agents: int = 2
    """Number of agents, at most 4. Each has its own row in the film and its own random seed."""
    steps: int = 200
    """Steps shown of each episode, at most."""
    seed: int = 0
    """Random seed of agents and episodes."""
    threads: int = 0
    """CPU threads; 0: all that this process may use."""


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
        raise ConfigError([f"WORLD: found no {str(path)!r}{commands.near_file(str(path))}"])
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
