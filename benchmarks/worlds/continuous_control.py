#!/usr/bin/env python3
"""Bandits of continuous control: what agents learn in evolved worlds, in distilled ones, and on the task.

    python3 benchmarks/worlds/continuous_control.py CONFIG --out DIR [--seeds 5] [--generations N]    evolve, per seed
    python3 benchmarks/worlds/continuous_control.py CONFIG --out DIR --test evolved distilled task     train agents
    python3 benchmarks/worlds/continuous_control.py CONFIG --out DIR --table                           the table so far

Every run counts: no world is chosen. "distilled" is the world that a run began with. Agents are this
project's with Stable-Baselines3's default hyperparameters (own_agents.py); sb3_* are its own. They train for --steps
steps, or for as many whole rollouts as fit into them, and are tested greedily in --tests episodes of full length on the
task. Ctrl-C loses one generation or one cell at most: the same command goes on, and with more --agents it trains those
that are missing.

ppo_fast is PPO with a learning rate of 1e-3, which
is RL Zoo's for Pendulum; ppo_example has the numbers of examples/zoo_ppo.py: smaller rollouts, larger minibatches;
td3_noise is TD3 that explores with a noise of 0.1, as RL Zoo's does (by default with none).
sb3_*_normalised have Stable-Baselines3's VecNormalize around the observations, with its defaults; td3_normalised and
the like are this project's with the same numbers, in worlds (units.py); sb3_ppo_rl_zoo and sb3_a2c_rl_zoo are RL Zoo's
for the task (rl_zoo.yaml). greedy is no agent: it takes the action that the world pays most for.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from benchmarks.worlds import library_agents, units  # noqa: E402
from benchmarks.worlds.own_agents import FIRST, SETTINGS, section_of  # noqa: E402
from envolve.agents.greedy import policies  # noqa: E402
from envolve.agents.peers import NORMALISED, normalises, plain  # noqa: E402
from envolve.agents.train import Hardware, of_one_step_episodes, train  # noqa: E402
from envolve.core.statistics import IQM, interquartile_mean, interval  # noqa: E402
from envolve.envs.task import NEVER_SOLVED, make_task  # noqa: E402
from envolve.envs.worlds.best_paid import greedy  # noqa: E402
from envolve.envs.worlds.export import WorldEnv, load_world  # noqa: E402
from envolve.envs.worlds.file import read_world  # noqa: E402
from envolve.envs.worlds.units import in_units, units_of  # noqa: E402
from envolve.envs.worlds.world import RealTask  # noqa: E402
from envolve.outer.checkpoint import RunError  # noqa: E402
from envolve.outer.config import problem  # noqa: E402
from envolve.outer.config.load import CONFIG_FILE, ConfigError, load_config  # noqa: E402
from envolve.outer.distil.policy import play  # noqa: E402
from envolve.outer.run import Run  # noqa: E402

OWN = [*SETTINGS, *(f"{name}{NORMALISED}" for name in SETTINGS)]
GREEDY = "greedy"  # no agent: the action that the world pays most for
AGENTS = [*OWN, *library_agents.NAMES, GREEDY]
FILES = {"evolved": "model.pt", "distilled": "distilled.pt"}
TASK = "task"
PLACES = (*FILES, TASK)
AGENT_SEEDS = 20_000
READ = {"place": str, "learner": str, "seed": int, "steps": int, "returns": list}  # of a cell, by tables and figures


def evolve(config: Path, out: Path, seed: int, words: Sequence[str], generations: int | None) -> None:
    """Runs the search of one seed to its end, or goes on with it. generations: stop there for now."""

    def enough(run: Run) -> bool:
        return generations is not None and run.strategy.state.generation >= generations

    words = [word.replace("{seed}", str(seed)) for word in words]
    flags = ["--generations", str(generations)] if generations else []
    flags += ["--set", *words] if words else []
    own = f"benchmarks/worlds/continuous_control.py {config} --out DIR --first {seed} --seeds {seed + 1}"
    command = " ".join([own, *flags])
    cells.search(out / f"run-{seed}", lambda: load_config(config, [*words, f"seed={seed}"]), enough, command)


def cell(
    config: Path, out: Path, place: str, learner: str, seed: int, agents: range, steps: int, tests: int, device: str
) -> dict[str, Any]:
    """Trains agents of one kind in one place -> its row. seed: of the world, on the task of the agents; agents: their
    numbers, which seed them; device: where agents of this project learn, "cpu" or "cuda"."""
    data = load_config(config if place == TASK else out / f"run-{seed}" / CONFIG_FILE).data
    section = replace(problem.env_section(data), normalised=False)  # the learner's name says what it sees
    task = make_task(data["env_name"], section.max_steps, NEVER_SOLVED)
    world, share = parts(place)
    path = None if place == TASK else str(out / f"run-{seed}" / FILES[world])
    keys = np.asarray(agents, dtype=np.int64) + AGENT_SEEDS + 100 * seed
    if learner in library_agents.NAMES:

        def make() -> WorldEnv:
            return WorldEnv(RealTask(task, 1)) if path is None else load_world(path)

        known = data["env_name"]
        returns = [library_agents.mean_return(learner, make, task, known, int(key), steps, tests) for key in keys]
    elif learner == GREEDY:
        if path is None:
            raise RunError(f"--learners {GREEDY}: found {TASK}, expected worlds")
        returns = play(task, greedy(read_world(path).world()), keys, tests).returns.mean(1).tolist()
    else:
        normalise = normalises(learner)
        if normalise and path is None:
            raise RunError(f"--learners {learner}: found {TASK}, expected worlds: there sb3_{learner} learns")
        first = FIRST if place != TASK else max(1, FIRST // task.max_steps)
        name, hyper = section_of(plain(learner), steps, first, 1 if normalise else tests)
        kind, flat = ("real", torch.zeros(1)) if path is None else ("se", read_world(path).flat)
        if share:
            flat = units.asking(task, section, flat, float(share))
        seen = units_of(task, section, flat) if normalise else None
        worlds = (in_units(task, section, flat, seen) if seen else flat).repeat(len(agents), 1)
        result = train(name, hyper, None, task, kind, section, worlds, keys, hardware=Hardware(device))
        returns = result.test_return.mean(1).tolist()
        if seen:
            acting = policies(name, of_one_step_episodes(hyper, None), None, task, result.weights, keys)
            returns = [float(np.mean(own)) for own in units.test_returns(task, acting, seen, keys, tests)]
    return {
        "place": place,
        "learner": learner,
        "seed": seed,
        "steps": steps,
        "tests": tests,
        "returns": returns,
    }


def parts(place: str) -> tuple[str, str]:
    """Place of a cell -> one of PLACES, and the --action-share of its worlds, "" for 1. E.g. "distilled_0.9"."""
    world, _, share = place.partition("_")
    return world, share


def test(args: argparse.Namespace) -> None:
    """All cells that are missing, of the worlds that there are. The task alone needs no world."""
    cells.demand(args.out, lambda row: {"tests": args.tests})
    names, seeds = [], range(args.first, args.seeds)
    for place in args.test:
        asked = place if place == TASK or args.action_share == 1.0 else f"{place}_{args.action_share}"
        found = [s for s in seeds if place == TASK or (args.out / f"run-{s}" / FILES[place]).exists()]
        if not found:
            seen = f"{args.out}: found no run-N/{FILES[place]} of the seeds {args.first} to {args.seeds - 1}"
            raise RunError(f"{seen}, expected worlds; the command without --test evolves them")
        learners = [(name, args.steps if name != GREEDY else 0) for name in args.learners or SETTINGS]
        names += [(asked, *learner, seed) for learner, seed in itertools.product(learners, found)]

    def agents(place: str, learner: str, steps: int, seed: int) -> int:
        count = 1 if learner == GREEDY else args.library_agents if learner in library_agents.NAMES else args.agents
        assert isinstance(count, int)
        return count

    def run(place: str, learner: str, steps: int, seed: int, had: Sequence[float] = ()) -> dict[str, Any]:
        numbers = range(len(had), agents(place, learner, steps, seed))
        row = cell(args.config, args.out, place, learner, seed, numbers, steps, args.tests, args.device)
        return {**row, "returns": [*had, *row["returns"]]}

    cells.work(args.out, names, run, lambda row: str(np.round(row["returns"], 1)), agents)


def table(out: Path) -> str:
    """Markdown: a row per learner, number of steps and --action-share, a column per place."""
    rows = cells.results(out, READ)
    found = {(r["learner"], r["steps"], parts(r["place"])[1]) for r in rows}
    kinds = sorted(found, key=lambda k: (AGENTS.index(k[0]), *k[1:]))
    lines = ["| agents | steps | evolved worlds | distilled worlds | on the task |", "|---|---|---|---|---|"]
    for learner, steps, share in kinds:
        shown = []
        for place in PLACES:
            kind = (learner, steps, (place, share))
            own = [r for r in rows if (r["learner"], r["steps"], parts(r["place"])) == kind]
            shown.append(summary([r["returns"] for r in own]) if own else "-")
        asked = f", --action-share {share}" if share else ""
        lines.append(f"| {learner}{asked} | {steps:,} | {' | '.join(shown)} |")
    return "\n".join(lines)


def summary(worlds: Sequence[Sequence[float]]) -> str:
    """Mean over worlds of the agents' mean, its 95 % interval over worlds, the same of their interquartile mean and the
    worst world. worlds: returns [W][n]."""
    failed = sum(not np.isfinite(x) for own in worlds for x in own)
    fine = [np.mean([x for x in own if np.isfinite(x)]) for own in worlds if np.isfinite(own).any()]
    words = f"{np.mean(fine):,.1f}"
    if len(fine) > 1:
        (low, high), (first, last) = interval(fine), interval(fine, IQM)
        words += f" [{low:,.1f}, {high:,.1f}], IQM {interquartile_mean(fine):,.1f} [{first:,.1f}, {last:,.1f}]"
        words += f", worst {min(fine):,.1f}"
    counts = "/".join(map(str, sorted({len(own) for own in worlds})))
    return words + (f", {failed} failed" if failed else "") + f" ({len(worlds)} x {counts})"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5, help="they are --first .. this - 1")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--generations", type=int)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="for every seed; {seed} in a value is the seed"
    )
    parser.add_argument("--test", nargs="+", choices=PLACES, default=[])
    parser.add_argument("--learners", nargs="+", choices=AGENTS)
    parser.add_argument("--agents", type=int, default=2, help="of each of this project's learners in each world")
    parser.add_argument("--library-agents", type=int, default=1, help="the same of Stable-Baselines3's")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=10)
    parser.add_argument(
        "--action-share", type=float, default=1.0, help="train in worlds that ask for this share of their actions"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where this project's agents learn")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args(argv)
    most = {
        "--agents": [args.agents],
        "--library-agents": [args.library_agents],
        "--steps": [args.steps],
        "--tests": [args.tests],
        "--seeds": [args.seeds],
    }
    cells.check_counts(parser, {**most, "--generations": [args.generations]}, 10**7)
    if not 0 < args.action_share <= 1 or (args.action_share < 1 and set(args.learners or []) & {*library_agents.NAMES}):
        parser.error(
            f"--action-share: found {args.action_share}, expected above 0, at most 1, and 1 for sb3_* learners"
        )
    if not 0 <= args.first < args.seeds:
        parser.error(f"--first: found {args.first}, expected at least 0 and less than --seeds")
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    try:
        if args.table:
            print(table(args.out))
        elif args.test:
            test(args)
        else:
            for seed in range(args.first, args.seeds):
                evolve(args.config, args.out, seed, args.set, args.generations)
    except (ConfigError, RunError) as e:
        print(f"continuous_control.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
