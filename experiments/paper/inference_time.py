#!/usr/bin/env python3
"""How long a step takes: on the task, in a synthetic environment (SE), in a reward network (RN); single and batched."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("inference_time.py")  # before all that takes time to import

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
import tyro
from torch import Tensor

from envolve.agents.common.rollout import make_world, reset_uniforms
from envolve.envs.task import Task
from envolve.envs.worlds.world import World, init_world
from envolve.experiments.command_line import check_count, parse
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.events import EventArgs
from envolve.experiments.paper.common.proxies import task_of
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError, load_config
from envolve.outer.evaluate.device import check_device

HELP = """\
Measure milliseconds per step for a single environment and for a batch. The command measures the task of CONFIG, and a
synthetic environment (SE) and a reward network (RN) with the networks of CONFIG. The networks are untrained, because
their weights do not affect the time. The measured worlds are the PyTorch implementations; the compiled worlds inside
the training loop are faster.

  envolve paper inference-time default_config_cartpole_syn_env.yaml
"""


@dataclass
class Args(EventArgs):
    config: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="CONFIG")]]
    """Configuration: a default_config_*.yaml or your own file."""
    batch: int = 1000
    """Environments per batched step."""
    repeats: int = 20
    """Measurements per quantity."""
    steps: int = 200
    """Steps per measurement."""
    device: str = "cpu"
    """Torch device, e.g. cuda."""
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values that override CONFIG."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Quick look: 3 measurements of 20 steps."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Folder for the data, which are written to its folder paper/."""
    out: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None
    """Data file to write. Default: <results-dir>/paper/inference_time/<task>.json."""


def actions(task: Task, count: int) -> Tensor:
    """[1, count] or [1, count, A], of all kinds."""
    if task.num_actions:
        return (torch.arange(count) % task.num_actions)[None]
    return torch.linspace(-1, 1, count * task.action_size).reshape(1, count, task.action_size) * task.max_action


def seconds_per_step(world: World, task: Task, count: int, steps: int, device: str) -> float:
    """Every step begins at the start states: a fresh SE left to itself would run away."""
    R = task.reset_uniforms
    first = torch.arange(count, device=device)[None] * R
    state = world.reset(reset_uniforms(torch.zeros(1, dtype=torch.int64, device=device), first, R))
    action = actions(task, count).to(device)

    def run(number: int) -> None:
        for _ in range(number):
            world.step(state, action)
        if device != "cpu":
            torch.cuda.synchronize(device)

    with torch.no_grad():
        run(3)  # the first calls allocate
        began = time.perf_counter()
        run(steps)
        return (time.perf_counter() - began) / steps


def work(args: Args) -> int:
    for option, value in (("--batch", args.batch), ("--repeats", args.repeats), ("--steps", args.steps)):
        check_count(option, value, 1)
    check_device(args.device, "--device")
    data = load_config(args.config, args.set).data
    if data["agents"]["gtn"]["synthetic_env_type"] == 2:
        raise ConfigError([f"{args.config}: found synthetic_env_type 2, expected 0 or 1: an SE or a reward network"])
    task, section = task_of(data), problem.env_section(data)
    rn_type = section.reward_env_type or 2
    repeats, steps = (min(3, args.repeats), min(20, args.steps)) if args.quick else (args.repeats, args.steps)
    m = Measurement("inference_time", task.name, "", args, args.out, args.results_dir, args.quick)
    series: Series = {}
    gamma = torch.ones(1, device=args.device)
    rn_section = dataclasses.replace(section, reward_env_type=rn_type)
    for kind, own in (("real", section), ("se", section), ("rn", rn_section)):
        flat = torch.zeros(1, 1) if kind == "real" else init_world(kind, task, own, torch.tensor([1]))
        world = make_world(kind, task, own, flat.to(args.device), gamma)
        for what, count in (("single", 1), ("batched", args.batch)):
            ms = [1e3 * seconds_per_step(world, task, count, steps, args.device) for _ in range(repeats)]
            series[f"{kind} {what}"] = {"ms_per_call": ms, "ms_per_step": [x / count for x in ms]}
            low, middle, high = np.quantile([x / count for x in ms], [0.25, 0.5, 0.75])
            print(f"{kind:5} {what:8} {middle:10.5f} ms per step (quartiles {low:.5f} to {high:.5f}), {count} at once")
    m.save(series, threads=torch.get_num_threads(), reward_env_type=rn_type)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("inference_time.py", Args, argv, HELP + EXIT_CODES)
    return run_command("inference_time.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
