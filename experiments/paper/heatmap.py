#!/usr/bin/env python3
"""Counts the states that agents visit on the task after training in reward networks."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("heatmap.py")  # before all that takes time to import

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from envolve.agents.common.result import REASONS
from envolve.agents.train import Hardware, train
from envolve.envs.classic.finite import FiniteTask
from envolve.envs.task import NEVER_SOLVED
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.learners import rn_learner
from envolve.experiments.paper.common.proxies import MODES, TASK, label, proxy
from envolve.experiments.paper.common.training import each, each_path, no_world
from envolve.experiments.paper.common.world_args import WorldArgs, check_numbers, find
from envolve.experiments.paper.learned_reward import finite_task, rn_modes
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Train SARSA agents in the best reward networks (RNs) of each mode and on the task. Then count how often each agent
visits each state in one greedy test episode on the task.

  envolve paper heatmap                                Cliff, all modes: 10 RNs of each, 10 agents in each
  envolve paper heatmap --episodes 30 --modes 0 2      train each agent for 30 episodes
  envolve paper figures heatmap                        draw the figure
"""
FULL, QUICK = (10, 10), (2, 5)  # RNs of a mode, agents in each


@dataclass
class Args(WorldArgs):
    config: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="CONFIG")]] = Path(
        "default_config_gridworld_reward_env.yaml"
    )
    """Configuration of the RNs; the same as for train_proxy.py."""
    worlds: int | None = None
    """Number of best RNs of each mode. Default: 10; with --quick 2."""
    agents: int | None = None
    """Agents per RN. Default: 10; with --quick 5."""
    agent: str = "sarsa"
    """Tabular learner: sarsa or ql."""
    episodes: int = 100
    """Training episodes per agent."""
    modes: list[int] = field(default_factory=list)
    """RN modes to compare; 0 is the task itself. Default: 0 and all modes that the task supports."""


def visits(q: np.ndarray, task: FiniteTask) -> tuple[np.ndarray, np.ndarray]:
    """One greedy episode of each agent on a finite task: how often it was in each state, the start and the last one
    among them, and its return.

    q: [agents, states, actions] -> visits int64 [agents, states], returns [agents]. Ties go to the first action.
    """
    agents = np.arange(len(q))
    state = np.full(len(q), task.start_state)
    counts = np.zeros(q.shape[:2], np.int64)
    total, live = np.zeros(len(q)), np.ones(len(q), bool)
    counts[agents, state] += 1
    for _ in range(task.max_steps):
        action = q[agents, state].argmax(1)
        total += np.where(live, task.reward[state, action], 0.0)
        over = task.done[state, action]
        state = np.where(live, task.next_state[state, action], state)
        counts[agents[live], state[live]] += 1
        live = live & ~over
    return counts, total


def work(args: Args) -> int:
    threads = check_numbers(args, episodes=args.episodes)
    data = proxy(args.config, args.results_dir, overrides=args.set).config.data
    task = finite_task(data)
    if args.agent not in ("sarsa", "ql"):
        raise ConfigError([f"--agent: found {args.agent!r}, expected sarsa or ql"])
    asked = args.modes or [TASK, *rn_modes([], task)]
    rn_modes([m for m in asked if m != TASK], task)
    what = "" if args.agent == "sarsa" else args.agent
    m = Measurement("heatmap", task.name, what, args, args.out, args.results_dir, args.quick)
    full = QUICK if args.quick else FULL
    n_worlds, n_agents = args.worlds or full[0], args.agents or full[1]
    learner = rn_learner(data, task, args.agent, curious=False, vary=False, settings=[], quick=args.quick)
    section = dataclasses.replace(learner.section, train_episodes=args.episodes)
    endless = type(task)(max_steps=task.max_steps, solved_reward=NEVER_SOLVED)  # nothing ends training early
    seeds = member_seeds(args.seed, RETEST, 0, n_worlds * n_agents)
    series: Series = {}
    for mode in dict.fromkeys(asked):
        worlds = find(args, args.config, n_worlds, mode=mode) if mode != TASK else []
        flat = each(torch.stack([w.flat for w in worlds]), n_agents) if worlds else no_world(len(seeds))
        env = worlds[0].section if worlds else problem.env_section(data)
        kind = "rn" if worlds else "real"
        result = train(learner.name, section, None, endless, kind, env, flat, seeds, hardware=Hardware(threads=threads))
        counts, returns = visits(result.weights.reshape(len(seeds), *task.reward.shape), task)
        fine = result.status == 0
        series[label(mode)] = {
            "return": np.where(fine, returns, np.nan).tolist(),
            "visits": counts.tolist(),
            "train_steps": result.train_steps.tolist(),
            "failed": [REASONS[s] for s in result.status],
            "world": each_path(worlds, n_agents),
        }
        mean = returns[fine].mean() if fine.any() else float("nan")
        print(f"{label(mode)}, {MODES[mode]}: {len(seeds)} agents, mean return {mean:.4g}")
    own: dict[str, Any] = {"worlds": n_worlds, "agents": n_agents, "modes": asked}
    m.save(series, hyperparameters=vars(section), **own)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("heatmap.py", Args, argv, HELP + EXIT_CODES)
    return run_command("heatmap.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
