#!/usr/bin/env python3
"""Trains fresh agents in an evolved world and on the real task, and prints both side by side."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("evaluate_proxy.py")  # before all that takes time to import

import json
import logging
import math
import os
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from envolve.agents.common.learners import LEARNERS
from envolve.core import commands, plugins
from envolve.core.memory import shortage
from envolve.core.statistics import AgentRuns, or_none, summary, within
from envolve.envs.outside.build import OutsideError, check_configured
from envolve.envs.task import mark_of
from envolve.envs.worlds.file import WorldFile, WorldFileError, read_world
from envolve.experiments.command_line import check_count, check_folder, parse
from envolve.experiments.paper.common.events import EventArgs, begin_tracking, check_tracking, settings_of, tell_series
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError, environment_info
from envolve.outer.config.problem import VARY_SUFFIX, learner_key, split_agent_name
from envolve.outer.config.stored import stored_config, stored_gtn
from envolve.outer.evaluate.device import check_device
from envolve.outer.evaluate.networks import BUDGET, EARLY_OUT, REAL, evaluate, exploration
from envolve.outer.reporting.comparison import (
    POSSIBLE_STEPS,
    break_even,
    failures,
    price_lines,
    random_return,
    ratio_sentence,
    return_bounds,
    side,
    why_not,
)
from envolve.outer.reporting.display import wide_console
from envolve.outer.reporting.report import number
from envolve.outer.search.nes import RETEST, member_seeds

PROG = "evaluate_proxy.py"
EVENTS = {"return": "returns", "train_steps": "train_steps", "first_solved_steps": "first_solved_steps"}
TITLES = {"proxy": "in the evolved world", "real": "on the real task"}
HELP = """\
Train fresh agents in an evolved world and other agents on the real task. Test all of them on the real task, and compare
their returns and training steps.

  envolve evaluate-world results/<run_id>/model.pt --agent ddqn --agents 20 --vary-hp

Exit codes: 0 complete, 1 the world cannot be read or used, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""


@dataclass
class Args(EventArgs):
    model: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="WORLD")]]
    """A model.pt that GTN_master.py wrote."""
    agent: str | None = None
    """Learner, e.g. ddqn, ql, sarsa. Default: the one that the world was evolved with."""
    num_agents: Annotated[int, tyro.conf.arg(name="agents")] = 20
    """Number of agents in the world, and again on the real task."""
    vary_hp: bool = False
    """Draw each agent's hyperparameters around the configured values: learning rate, batch size, hidden size and number
    of layers; for ql and sarsa alpha and gamma."""
    stop: Literal["budget", "early-out"] | None = None
    """End of training in a synthetic environment (SE): budget (after the steps that the SE was evolved for) or
    early-out (when the returns have settled). Default: budget, if the SE has one."""
    real: bool = True
    """Also train agents on the real task (--no-real skips them)."""
    seed: int = 0
    """Random seed of the agents. The evolution never uses the seeds derived from it."""
    threads: int = 0
    """CPU threads; 0: all that this process may use."""
    plugins: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run. Needed if its environment, task or learner is a Python file of your own or of another package.
    Allows the command to execute the files there that the world names with their SHA-256."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the summary and the numbers of every agent to this JSON file."""


def prepared(world: WorldFile, args: Args) -> tuple[dict[str, Any], str]:
    """The stored configuration, checked as the master checks its own, with the wanted agent in it; the agent's name.

    Raises ConfigError, e.g. for an agent that does not exist or cannot learn this task.
    """
    stored = str(stored_gtn(world).get("agent_name", "")).lower().removesuffix(VARY_SUFFIX)
    asked = (args.agent or stored).lower()
    name = asked.removesuffix(VARY_SUFFIX)
    args = replace(args, vary_hp=args.vary_hp or name != asked)
    learner = split_agent_name(name).learner

    random_episodes = too_many_random_episodes(world, learner) if args.stop != "early-out" else 0

    def change(raw: dict[str, Any]) -> None:
        raw["agents"]["gtn"]["agent_name"] = name + VARY_SUFFIX * args.vary_hp
        if args.vary_hp:
            raw["agents"][learner + VARY_SUFFIX] = {"vary_hp": True, "vary_layers": True}
        if random_episodes:
            raw["agents"][learner] = {"init_episodes": 1}

    named: dict[tuple[str, ...], str] = {("agents", "gtn", "agent_name"): "--agent"} if args.agent else {}
    config, warnings = stored_config(world, change, named)
    for warning in warnings:
        print(f"note: {world.path}: {warning}", file=sys.stderr)
    if random_episodes:
        print(
            f"note: {world.path}: agents.{learner}.init_episodes is 1, not the default {random_episodes}: random "
            f"episodes count towards the world's budget of {world.budget:,} steps",
            file=sys.stderr,
        )
    if args.stop != "early-out" and world.budget:
        # also for another learner than the one it was evolved with: much longer training can undo what a world taught
        config["agents"][learner_key(config["agents"], learner)]["train_steps"] = world.budget
    return config, name


def too_many_random_episodes(world: WorldFile, learner: str) -> int:
    """Episodes of random actions that are a default of the learner, and may be longer than the budget of the SE, so
    that the agent would never learn; 0: the world says how many, or has none."""
    agents = world.config.get("agents", {})
    named = learner in agents or learner + VARY_SUFFIX in agents
    if world.kind != "se" or world.section.contextual_bandit or not world.budget or named or learner not in LEARNERS:
        return 0
    default = getattr(LEARNERS[learner].section(), "init_episodes", 0)
    return default if default > 1 else 0


def check_args(args: Args) -> None:
    """Raises ConfigError. Before hours of training, not after them."""
    for option, value, least in (
        ("--agents", args.num_agents, 1), ("--seed", args.seed, 0), ("--threads", args.threads, 0),
    ):  # fmt: skip
        check_count(option, value, least)
    check_folder("--plugins", args.plugins)
    if args.json is not None and (args.json.is_dir() or not args.json.parent.is_dir()):
        raise ConfigError([f"--json: cannot write {args.json}, expected a file in a folder that exists"])
    check_tracking(args)


def measure(
    config: dict[str, Any],
    worlds: torch.Tensor,
    seeds: np.ndarray,
    mode: str,
    threads: int,
    bounds: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Figures and raw lists of one column. Failed agents are counted and left out of the figures.

    bounds: the worst and the best possible return.
    """
    values = evaluate(config, worlds, torch.from_numpy(seeds), mode, threads)
    returns, steps = values["mean_return"].tolist(), values["train_steps"].tolist()
    first = values["first_solved_steps"].tolist()
    fine = [math.isfinite(r) for r in returns]
    out: dict[str, Any] = {"mode": mode, "num_agents": len(returns), "failed": fine.count(False)}
    fires = [math.nan if math.isnan(f) else float(n) for n, f in zip(steps, first)]
    solved = {"first_solved_steps": first, "rule_fires_steps": fires}
    for name, x in (("return", returns), ("train_steps", steps), *solved.items()):
        kept = [v for v, ok in zip(x, fine) if ok and math.isfinite(v)]
        if kept:
            s = summary(kept, bounds=bounds if name == "return" else None)
            if name != "return":
                for key in ("mean_interval", "iqm_interval"):
                    s[key] = s[key] and list(within(s[key][0], s[key][1], POSSIBLE_STEPS))
            out |= {f"mean_{name}": s["mean"], f"mean_{name}_interval": s["mean_interval"]}
            out |= {f"iqm_{name}": s["iqm"], f"iqm_{name}_interval": s["iqm_interval"], f"median_{name}": s["median"]}
            out |= {f"{name}_n": s["n"], f"{name}_unseen_share": s.get("unseen_share")}
    out["returns"] = [r if ok else None for r, ok in zip(returns, fine)]
    out["test_returns"] = [t if ok else None for t, ok in zip(values["test_returns"].tolist(), fine)]
    out["train_steps"], out["updates"] = steps, values["updates"].tolist()
    out |= {name: [or_none(v) for v in x] for name, x in solved.items()}
    out["reasons"] = values["reason"]
    return out


def exploration_of(config: dict[str, Any]) -> str:
    """Differences of agents on the task from those in the world; "": none."""
    learner_name, hyper, _ = problem.learner(config)
    return exploration(learner_name, hyper, problem.env_section(config).contextual_bandit)


def runs_of(column: dict[str, Any]) -> AgentRuns:
    return AgentRuns([math.nan if r is None else r for r in column["returns"]], list(map(float, column["train_steps"])))


def said(world: WorldFile, columns: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The comparison and the prices, for JSON and in words."""
    for name, c in columns.items():
        if c["failed"] == c["num_agents"]:
            reason = next((r for r in c["reasons"] if r), "their weights are not finite")
            return {}, [f"No comparison: every agent {TITLES[name]} failed: {reason}."]
    task = world.task()
    mark = mark_of(task.solved_reward)
    floor = random_return(task)
    sides = {name: side(runs_of(c), floor, mark) for name, c in columns.items()}
    proxy, real = sides["proxy"], sides.get("real")
    out: dict[str, Any] = {
        "evolution_steps": world.evolution_steps,
        "random_return": or_none(floor),
    }
    out |= {f"failures_{name}": s.failures for name, s in sides.items()}
    lines, reason = [], ""
    if real is not None:
        reason = why_not(proxy, real, floor, mark, number)
        lines.append(f"No comparison of steps: {reason}." if reason else ratio_sentence(proxy, real, number))
        out |= {"comparable": not reason, "why_not": reason or None}
        own = 0.0 if world.kind == "se" else proxy.steps
        if not reason and world.evolution_steps is not None:
            agents = break_even(world.evolution_steps, own, real.steps)
            out["break_even_agents"] = or_none(agents)
    lines += price_lines(world.kind, world.evolution_steps, proxy, real, real is not None and not reason, number)
    return out, [line for line in lines if line]


def show(console: Console, world: WorldFile, name: str, columns: dict[str, dict[str, Any]]) -> None:
    mark = mark_of(world.task().solved_reward)
    table = Table(title=f"{world.env_name}: {name} agents, tested on the real task", title_justify="left")
    table.add_column("")
    for title in columns:
        table.add_column(title, justify="right")

    def cell(c: dict[str, Any], key: str) -> str:
        if key not in c:
            return "-"
        low_high, quantity = c.get(f"{key}_interval"), key.partition("_")[2]
        if low_high:
            return f"{number(c[key])} [{number(low_high[0])}, {number(low_high[1])}]"
        share = c.get(f"{quantity}_unseen_share")
        if share is None:
            return number(c[key])
        n, fail = c[f"{quantity}_n"], ""
        if quantity == "return" and not failures(runs_of(c).returns, mark):
            fail = f"; at most {100 * share:.0f} % fail (95 %)"
        return f"{number(c[key])} ({n} of {n}{fail})"

    def row(label: str, key: str) -> None:
        table.add_row(label, *(cell(c, key) for c in columns.values()))

    row("training steps, mean", "mean_train_steps")
    row("training steps, interquartile mean", "iqm_train_steps")
    for words, key in (("first test of the window", "first_solved_steps"), ("when the rule fires", "rule_fires_steps")):
        if any(f"iqm_{key}" in c for c in columns.values()):
            row(f"steps until solved, {words}", f"iqm_{key}")
            solvers = (sum(v is not None for v in c[key]) for c in columns.values())
            table.add_row(
                "  agents that came so far", *(f"{k} of {c['num_agents']}" for k, c in zip(solvers, columns.values()))
            )
    row("test return, mean", "mean_return")
    row("test return, interquartile mean", "iqm_return")
    row("test return, median", "median_return")
    if mark is not None:
        reached = [sum(r is not None and r >= mark for r in c["returns"]) for c in columns.values()]
        counts = [c["num_agents"] for c in columns.values()]
        table.add_row(f"agents with at least {number(mark)}", *(f"{k} of {n}" for k, n in zip(reached, counts)))
        table.add_row("failures, the others", *(f"{n - k} of {n}" for k, n in zip(reached, counts)))
    if any(c["failed"] for c in columns.values()):
        who = "agents that" if mark is None else "of these"
        table.add_row(f"{who} broke, in no figure above", *(str(c["failed"]) for c in columns.values()))
    console.print(table)
    console.print("Brackets: 95 % intervals; where all values are equal, their number.", highlight=False)
    for title, c in columns.items():
        if idle := c["updates"].count(0):
            console.print(
                f"{idle} of {c['num_agents']} agents {title} made no update: their training ended before they began "
                f"to learn (agents.{name}.init_episodes, batch_size).",
                highlight=False,
                soft_wrap=True,
            )


def main(argv: list[str] | None = None) -> int:
    args = parse(PROG, Args, argv, HELP)
    commands.existing(PROG, "WORLD", str(args.model))
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with args.session:
        return work(args)


def work(args: Args) -> int:
    """-> exit code."""
    try:
        check_args(args)
        if args.plugins is not None:
            plugins.allow(args.plugins)
        world = read_world(str(args.model))
        config, name = prepared(world, args)
        check_configured(config)
        check_device(config["device"], f"{args.model}: device")
        if args.stop == "budget" and world.budget == 0:
            raise ConfigError([f"--stop budget: {args.model} was evolved without a training budget"])
        begin_tracking(args)
    except (WorldFileError, OutsideError, ConfigError) as e:
        print(f"{commands.called(PROG)}: {e}", file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 1
    mode = EARLY_OUT if args.stop == "early-out" or world.budget == 0 else BUDGET
    threads = args.threads or len(os.sched_getaffinity(0))
    worlds = world.flat.expand(args.num_agents, -1).contiguous()
    # each world's own: else agents would draw the same hyperparameters in all worlds
    seeds = member_seeds(args.seed, RETEST, 1 + world.digest(), 2 * args.num_agents)

    columns, bounds = {}, return_bounds(world.task())
    for i, column in enumerate(TITLES if args.real else ["proxy"]):
        print(f"training {args.num_agents} {name} agents {TITLES[column]} ...", file=sys.stderr)
        part = seeds[i * args.num_agents : (i + 1) * args.num_agents]
        try:
            columns[column] = measure(config, worlds, part, REAL if column == "real" else mode, threads, bounds)
        except KeyboardInterrupt:
            return interrupt.stopped(commands.called(PROG))
        except (MemoryError, RuntimeError, ValueError) as e:
            if not (short := shortage(e, f"--agents, or the sizes in the configuration of {args.model}")):
                raise
            print(f"{commands.called(PROG)}: {short}", file=sys.stderr)
            return 1
        tell_series(args, column, {k: columns[column][v] for k, v in EVENTS.items()})
    console = wide_console()
    show(console, world, name, {TITLES[k]: c for k, c in columns.items()})
    other, words = exploration_of(config) if args.real else "", []
    if other:
        words.append(f"Agents on the real task: {other}.")
    verdict, lines = said(world, columns)
    for line in (*words, *lines):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if args.json:
        settings = {k: v for k, v in settings_of(args).items() if k != "json"}
        content = {
            "settings": settings,
            "budget": world.budget,
            "agent": name,
            "real_learner": other,
            **verdict,
            "versions": environment_info(),
            **columns,
        }
        try:
            args.json.write_text(json.dumps(content, indent=1) + "\n")
        except OSError as e:
            print(f"{commands.called(PROG)}: cannot write {args.json}: {e.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    interrupt.run(main)
