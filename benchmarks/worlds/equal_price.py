#!/usr/bin/env python3
"""What a world is worth: evolved, distilled, or no world at all, at equal real steps.

    python3 benchmarks/worlds/equal_price.py [--out DIR] [--seeds 5] [--budgets 100000] [--only-tasks NAME ...]
                                             [--only-arms ARM ...]
    python3 benchmarks/worlds/equal_price.py --out DIR --table         the table of what is there

Every arm may spend as many steps on the task. A search ends with the generation that exceeds the budget.

  evolved      a contextual bandit from random weights, by the recipe of ``envolve evolve`` with 8 pairs of worlds and
               one test episode per agent, since real steps are what is short
  distilled    a bandit that teaches the better of two experts, each with half of the budget
  both         the same with half of the budget, then evolved with the other half
  learner      two agents trained on the task, each with half of the budget: ``policy`` is the better one by the same
               test episodes, as a distilled world's expert is chosen; ``one`` is the mean of the two
  direct       a policy evolved on the task without a world (``outer/controls/direct.py``)

A world's figure is that of agents that it was not evolved with, trained in it for --steps and tested on the task: the
mean of three of each kind. ``greedy`` is the action that the world pays most for, without an agent. The unit of an
interval is a seed: another search, another expert. Experts are tuned where ``configs/baselines`` has a tuned learner.
Each finished cell is a line of cells.jsonl in --out; the same command goes on.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from envolve.agents.common.learners import LEARNERS  # noqa: E402
from envolve.core.statistics import interval  # noqa: E402
from envolve.envs.task import NEVER_SOLVED, make_task  # noqa: E402
from envolve.envs.worlds.best_paid import greedy  # noqa: E402
from envolve.envs.worlds.file import read_world  # noqa: E402
from envolve.envs.worlds.synthetic import synthetic_world  # noqa: E402
from envolve.outer.auto.choice import Choice  # noqa: E402
from envolve.outer.auto.facts import Facts  # noqa: E402
from envolve.outer.auto.plan import plan  # noqa: E402
from envolve.outer.checkpoint import RunError  # noqa: E402
from envolve.outer.config import problem  # noqa: E402
from envolve.outer.config.load import Config, config_of  # noqa: E402
from envolve.outer.controls.baseline import baseline_of  # noqa: E402
from envolve.outer.controls.direct import evolve_policy  # noqa: E402
from envolve.outer.distil.policy import play  # noqa: E402
from envolve.outer.evaluate.networks import BUDGET, DISTIL, evaluate  # noqa: E402
from envolve.outer.run import Run  # noqa: E402
from envolve.outer.search.nes import RETEST, member_seeds  # noqa: E402

# mean length of an episode with random actions, and whether episodes cut at a fifth have returns that differ
TASKS = {
    "CartPole-v0": (22.0, True),
    "Acrobot-v1": (500.0, False),
    "MountainCar-v0": (200.0, False),
    "Pendulum-v0": (200.0, True),
    "MountainCarContinuous-v0": (999.0, True),
}
ARMS = ("evolved", "distilled", "both", "learner", "direct")
UNSEEN = {True: ("sac", "ppo"), False: ("duelingddqn", "ppo")}  # by whether actions are continuous
AGENTS, EPISODES, EXPERTS = 3, 20, 2
# A generation of 20 agents, and the search around a first world as the published table had it.
SMALL = {
    "num_workers": 8, "num_orig_evals": 4, "confirm_agents": 0, "keep": "best", "noise_std": 0.05, "step_size": 0.02,
}  # fmt: skip
COMMAND = "benchmarks/worlds/equal_price.py"


def configuration(name: str, arm: str, seed: int, budget: int) -> Config:
    """The recipe of ``envolve evolve`` for the arm's world."""
    task, (length, early) = make_task(name), TASKS[name]
    facts = Facts(
        env=name,
        features=task.observation_size,
        num_actions=task.num_actions,
        action_size=task.action_size,
        max_steps=task.max_steps,
        solved_reward=task.solved_reward,
        random_return=None,
        random_length=length,
        measured_steps=0,
        deterministic=True,
        cores=1,
        early_signal=early,
    )
    init = "random" if arm == "evolved" else "distilled"
    made = plan(facts, Choice(1800.0, init=init, seed=seed), ["ppo"], True).config
    gtn = made["agents"]["gtn"]
    gtn.update(SMALL, max_iterations=cells.ENDLESS, quit_when_solved=False)
    made["agents"][problem.split_agent_name(gtn["agent_name"]).learner]["test_episodes"] = 1
    gtn["horizon_generations"] = 10 if gtn.get("horizon_start") else 0
    if init == "distilled":
        expert = made["agents"]["expert"]
        expert.update(agents=EXPERTS, learner=expert["learner"].split()[0], chosen_by="return")
        key = expert["learner"] + problem.EXPERT_SUFFIX
        found = baseline_of(name)
        if found is not None:
            data = found.config.data
            expert["learner"] = problem.learner(data)[0]
            key = expert["learner"] + problem.EXPERT_SUFFIX
            made["agents"][key] = dict(data["agents"][problem.learner_key(data["agents"], expert["learner"])])
        each = budget // EXPERTS // (2 if arm == "both" else 1)
        made["agents"][key].update(train_steps=each, train_episodes=each, test_episodes=EPISODES)
    return config_of(made, (), COMMAND)


def distil(config: Config, seed: int) -> tuple[Tensor, dict[str, float], int]:
    """The world of the better expert, its return and the mean of both, and the real steps of both."""
    seeds = torch.from_numpy(member_seeds(seed, RETEST, 200, EXPERTS))
    values = evaluate(config.data, torch.zeros(EXPERTS, 1), seeds, DISTIL)
    scores = values["score"].numpy()
    if not np.isfinite(scores).any():
        raise RunError(f"no expert of seed {seed} has a world: {values['reason'][0]}")
    best = int(np.nanargmax(scores))
    returns = {"policy": float(scores[best]), "one": float(np.nanmean(scores))}
    return values["world"][best], returns, int(values["real_steps"].sum())


def taught(config: Config, world: Tensor, steps: int, seed: int) -> dict[str, Any]:
    """Mean test returns of unseen agents of each kind, and of the world's own best action."""
    task, out = make_task(config.data["env_name"]), {}
    seeds = torch.from_numpy(member_seeds(seed, RETEST, 201, AGENTS))
    for kind in UNSEEN[not task.num_actions]:
        data = copy.deepcopy(config.data)
        limits = {
            "train_steps": steps,
            "train_episodes": steps,
            "test_episodes": EPISODES,
            "early_out_min_steps": 10**9,
        }
        data["agents"]["gtn"].update(agent_name=kind, other_agents="")
        data["agents"][kind] = {**dataclasses.asdict(LEARNERS[kind].section()), **limits}
        data["envs"][data["env_name"]]["solved_reward"] = NEVER_SOLVED
        values = evaluate(data, world.expand(AGENTS, -1), seeds, BUDGET)
        out[kind] = float(np.nanmean(values["mean_return"].numpy()))
    policy = greedy(synthetic_world(task, problem.env_section(config.data), world[None]))
    out["greedy"] = float(play(task, policy, np.array([seed + 1]), EPISODES).returns.mean())
    return out


def cell(out: Path, name: str, arm: str, budget: int, seed: int, steps: int) -> dict[str, Any]:
    """Figures of one arm. Raises KeyboardInterrupt: a search's checkpoint stays."""
    row: dict[str, Any] = {"task": name, "arm": arm, "budget": budget, "seed": seed, "steps": steps}
    if arm == "direct":
        found = evolve_policy(make_task(name), budget, seed)
        played = play(make_task(name), found.policy, np.array([seed + 1]), EPISODES)
        return {**row, "real_steps": found.steps, "returns": {"policy": float(played.returns.mean())}}
    config = configuration(name, arm, seed, budget)
    if arm in ("distilled", "learner"):
        world, experts, spent = distil(config, seed)
        returns = experts if arm == "learner" else taught(config, world, steps, seed)
    else:
        run_dir = out / "runs" / f"{name}-{arm}-{budget}-{seed}"
        run = cells.search(run_dir, lambda: config, lambda run: exceeded(run, budget), COMMAND)
        world, spent = read_world(str(run_dir / "model.pt")).flat, run.progress.real_steps
        returns = taught(config, world, steps, seed)
    return {**row, "real_steps": spent, "returns": returns}


def exceeded(run: Run, budget: int) -> bool:
    """Returns whether a search has spent its budget, and has a world. Experts alone may cost more than half of it."""
    return run.progress.real_steps >= budget and run.progress.best_generation > 0


def results(out: Path) -> list[dict[str, Any]]:
    """Finished cells. Raises RunError."""
    return cells.results(
        out, {"task": str, "arm": str, "budget": int, "seed": int, "steps": int, "real_steps": int, "returns": dict}
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row per task, budget and arm; means over seeds with 95 % intervals."""
    lines = ["| task | budget | arm | seeds | real steps | return on the task |", "|---|---|---|---|---|---|"]
    for name in TASKS:
        for budget in sorted({r["budget"] for r in rows}):
            for arm in ARMS:
                own = [r for r in rows if (r["task"], r["budget"], r["arm"]) == (name, budget, arm)]
                if own:
                    spent = np.mean([r["real_steps"] for r in own])
                    kinds = "; ".join(f"{k} {figure([r['returns'][k] for r in own])}" for k in own[0]["returns"])
                    lines.append(f"| {name} | {budget:,} | {arm} | {len(own)} | {spent:,.0f} | {kinds} |")
    return "\n".join(lines)


def figure(values: Sequence[float]) -> str:
    """Mean and interval over seeds."""
    fine = [x for x in values if math.isfinite(x)]
    low, high = interval(fine) if len(fine) > 1 else (math.nan, math.nan)
    ends = "" if math.isnan(low) else f" [{low:.1f}, {high:.1f}]"
    failed = f" ({len(values) - len(fine)} failed)" if len(fine) < len(values) else ""
    return (f"{np.mean(fine):.1f}{ends}" if fine else "-") + failed


def work(args: argparse.Namespace, run: Callable[..., dict[str, Any]] = cell) -> None:
    """All cells that are missing, seeds first."""
    tasks, arms = args.only_tasks, args.only_arms
    names = [(t, a, b, s) for s in range(args.seeds) for b in args.budgets for t in tasks for a in arms]

    def shown(row: dict[str, Any]) -> str:
        return ", ".join(f"{k} {v:.1f}" for k, v in row["returns"].items()) + f"; {row['real_steps']:,} real steps"

    cells.demand(args.out, lambda row: {"steps": args.steps})
    cells.work(args.out, names, lambda *parts: run(args.out, *parts, args.steps), shown)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cells.add_flags(parser, "equal_price", 5)
    parser.add_argument("--budgets", type=int, nargs="+", default=[100_000], help="real steps (%(default)s)")
    parser.add_argument("--steps", type=int, default=10_000, help="of an agent in a world (default: %(default)s)")
    parser.add_argument("--only-tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--only-arms", nargs="+", choices=ARMS, default=list(ARMS))
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    cells.check_counts(parser, {"--seeds": [args.seeds], "--budgets": args.budgets, "--steps": [args.steps]}, 10**9)
    return cells.finish("equal_price", args, lambda: work(args), lambda: table(results(args.out)))


if __name__ == "__main__":
    sys.exit(main())
