#!/usr/bin/env python3
"""How much noise an SE bears: agents that train in it while one of its outputs is disturbed."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("noise_threshold.py")  # before all that takes time to import

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.result import REASONS, TrainResult
from envolve.core import rng
from envolve.envs.task import Task
from envolve.envs.worlds.world import World
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.one_se import OneSEArgs, se_of
from envolve.experiments.paper.common.training import each
from envolve.experiments.paper.common.watched import StepRecorder, Steps, Watched, Wrap, Wrapped, train_watched
from envolve.experiments.paper.common.world_args import check_numbers
from envolve.outer.config.load import ConfigError
from envolve.outer.evaluate.device import check_device
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Train agents in the best synthetic environment (SE) while Gaussian noise disturbs one of its outputs: an entry of the
next state, the reward or done. Test the agents on the task. The noise has 50 levels, from 0.01 to 31.6 times the
standard deviation of the output in undisturbed training. Each level gets 100 agents.

  envolve paper noise-threshold                                     CartPole, every output
  envolve paper noise-threshold --outputs 0 reward --points 10
  envolve paper figures noise_threshold                             draw the figure

The learner runs in PyTorch, because compiled worlds cannot be disturbed. --device cuda makes it faster.
"""
LOW, HIGH = -2.0, 1.5  # exponents of 10: noise over standard deviation
FULL, QUICK = (50, 100), (4, 4)  # values of the noise, agents for each
STREAM = 64  # of the noise, beside those of core/rng.py
CONSTANT = 1e-6  # an output that varies less has no scale of its own


@dataclass
class Args(OneSEArgs):
    outputs: list[str] = field(default_factory=list)
    """Outputs to disturb, one at a time: 0, 1, ... (entries of the next state), reward, done. Default: all."""
    points: int | None = None
    """Number of noise levels. Default: 50; with --quick 4."""
    agents: int | None = None
    """Agents per noise level. Default: 100; with --quick 4."""
    device: str = "cpu"
    """Torch device of the training, e.g. cuda."""
    at_once: int = 400
    """Agents trained side by side; affects only the run time."""


class Noisy(Wrapped):
    """An SE with noise on one output of each member. std: float32 [P]; output: int64 [P], 0 .. F - 1 of the next state,
    F the reward, F + 1 done; key: int64 [P]; count: [how many steps the members have taken], counted on."""

    def __init__(self, inner: World, std: Tensor, output: Tensor, key: Tensor, count: list[int]) -> None:
        super().__init__(inner)
        self.std, self.output, self.count = std[:, None], output[:, None], count
        self.key = rng.fold(key, STREAM)[:, None]
        self.features = torch.arange(inner.task.observation_size, device=std.device)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        next_state, reward, done, failed = self.inner.step(state, action)
        noise = self.std * rng.normal(self.key, torch.full_like(self.output, self.count[0]))  # [P, 1]
        self.count[0] += 1
        F = len(self.features)
        next_state = next_state + (noise * (self.output == self.features))[:, None]
        return next_state, reward + noise * (self.output == F), done + noise * (self.output == F + 1), failed


def noisy(std: np.ndarray, output: np.ndarray, device: str = "cpu") -> Wrap:
    """World wrapper for ``train_watched``, for members with this noise on these outputs, each [P]."""
    stds = torch.as_tensor(std, dtype=torch.float32, device=device)
    outputs, count = torch.as_tensor(output, dtype=torch.int64, device=device), [0]

    def wrap(world: World, run: Watched) -> World:
        return Noisy(world, stds[run.m.row], outputs[run.m.row], run.keys[run.m.row], count)

    return wrap


def names(task: Task) -> list[str]:
    return [*(f"{i}" for i in range(task.observation_size)), "reward", "done"]


def deviations(steps: Steps) -> np.ndarray:
    """Standard deviation of every output, [F + 2]."""
    columns = (*steps.next_observation.T, steps.reward, steps.done)
    return np.array([np.std(np.asarray(c, np.float64)) for c in columns])


def work(args: Args) -> int:
    check_numbers(args, points=args.points, at_once=args.at_once)
    if args.worlds not in (None, 1):
        raise ConfigError([f"--worlds: found {args.worlds}, expected 1: the best SE"])
    check_device(args.device, "--device")
    task, world, learner = se_of(args)
    if task.num_states is not None:
        raise ConfigError([f"{args.config}: found {task.name}, expected a task with observations that are numbers"])
    known = names(task)
    for name in args.outputs:
        if name not in known:
            raise ConfigError([f"--outputs: found {name!r}, expected some of {', '.join(known)}"])
    m = Measurement("noise_threshold", task.name, args.agent or "", args, args.out, args.results_dir, args.quick)
    points, agents = QUICK if args.quick else FULL
    points, agents = args.points or points, args.agents or agents
    seeds, recorder = member_seeds(args.seed, RETEST, 0, agents), StepRecorder()
    plain = train_watched(learner, task, world.section, each(world.flat[None], agents), seeds, recorder.wrap).result
    if not (plain.status == 0).any():
        raise ValueError(f"{world.path}: all agents failed in it without noise, expected some that learn")
    scale = deviations(recorder.steps())
    relative = np.logspace(LOW, HIGH, points)
    chosen = [i for i, name in enumerate(known) if not args.outputs or name in args.outputs]
    for i in [i for i in chosen if scale[i] < CONSTANT]:
        print(f"{task.name}: output {known[i]} is constant in this SE: left out", file=sys.stderr)
        chosen.remove(i)
    series: Series = {"no noise": quantities(plain, np.zeros(agents))}
    # members: outputs x noise x agents
    output = np.repeat(chosen, points * agents)
    x = np.tile(np.repeat(relative, agents), len(chosen))
    keys = np.tile(seeds, len(chosen) * points)
    parts, began = [], time.monotonic()
    for lo in range(0, len(keys), args.at_once):
        rows = slice(lo, lo + args.at_once)
        wrap = noisy(x[rows] * scale[output[rows]], output[rows], args.device)
        flat = each(world.flat[None], len(keys[rows]))
        result = train_watched(learner, task, world.section, flat, keys[rows], wrap, args.device).result
        parts.append(quantities(result, x[rows]))
        done, seconds = min(lo + args.at_once, len(keys)), time.monotonic() - began
        print(f"{done} of {len(keys)} agents, {seconds:.0f} s", file=sys.stderr)
    joined = {name: [v for part in parts for v in part[name]] for name in parts[0]} if parts else {}
    for place, i in enumerate(chosen):
        rows = slice(place * points * agents, (place + 1) * points * agents)
        series[known[i]] = {name: values[rows] for name, values in joined.items()}
        series[known[i]]["std"] = [float(scale[i])]
    m.save(series, agent=learner.name, agents=agents, points=points, world=world.path)
    return 0


def quantities(result: TrainResult, relative: np.ndarray) -> dict[str, list[Any]]:
    fine = result.status == 0
    return {
        "return": np.where(fine, result.test_return.mean(1), np.nan).tolist(),
        "train_steps": result.train_steps.tolist(),
        "failed": [REASONS[s] for s in result.status],
        "noise_over_std": relative.tolist(),
    }


def main(argv: list[str] | None = None) -> int:
    args = parse("noise_threshold.py", Args, argv, HELP + EXIT_CODES)
    return run_command("noise_threshold.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
