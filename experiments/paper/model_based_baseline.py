#!/usr/bin/env python3
"""The control that an SE is no dynamics model: agents in worlds that were fitted to the task instead of evolved."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("model_based_baseline.py")  # before all that takes time to import

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import numpy as np
import torch
import tyro
from torch import Tensor

from envolve.envs.task import Task
from envolve.envs.worlds.file import read_world, save_world
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.comparison import (
    EVOLVED,
    OF_RNS,
    CompareArgs,
    budget_of,
    check,
    evolves_rns,
    measurement,
    refuse,
)
from envolve.experiments.paper.common.data import Series, load
from envolve.experiments.paper.common.dynamics import BATCH, EPOCHS, LR, NETS, fit, rows, without_done
from envolve.experiments.paper.common.learners import SE_AGENTS, LearnerSettings, se_learner, without_budget
from envolve.experiments.paper.common.proxies import Proxy, proxy, task_of
from envolve.experiments.paper.common.search_steps import SearchSteps, kept_search_steps
from envolve.experiments.paper.common.training import agent_seeds, each, each_path, no_world, train_agents
from envolve.experiments.paper.common.verdicts import summary
from envolve.experiments.paper.common.watched import check_watchable
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Run a model-based baseline for synthetic environments (SEs). SEs are evolved so that agents learn in them, not so that
they resemble the task. This command fits the same networks to the task by supervised learning, and trains agents in the
fitted worlds as compare_proxies.py does.

  envolve paper model-based-baseline default_config_cartpole_syn_env.yaml
  envolve paper model-based-baseline default_config_cartpole_syn_env.yaml --fit-done
  envolve paper figures model_based_baseline                                        draw the figure

The training data come from repeated searches. For each world, the command repeats one search (train_proxy.py CONFIG
--seed S, bit for bit) and records its steps on the task. These are the tests of all agents, 10 episodes each, from
untrained agents in the first generation to agents that solve the task. A random sample of --steps is kept. The steps of
every tenth agent are held out to measure the errors of the fitted worlds.

state_net and reward_net are fitted by mean squared error: Adam, learning rate 1e-4, batches of 1024, 50 epochs.
done_net keeps its initial weights, as published, so few episodes end before the time limit. --fit-done also trains
agents in worlds with a fitted done_net. For the published agents, use --published --stop early-out.

The searches take most of the time. The steps of a finished search are kept in <data file without .json>/ until the
worlds are fitted, so that an interrupted command loses one search at most. With --searches 2, all worlds share two
searches; worlds of the same search differ only in their initial weights and in the order of the steps. --fitted FILE
trains agents in the worlds of an earlier call.

The fitted worlds are stored in <data file without .json>/ as world<I>.pt, or world<I>_done.pt if done_net is fitted;
fit.json there describes the fit. experiments/evaluate_proxy.py and envs/worlds/export.py read the worlds.
"""
FULL, QUICK = (5, 10), (2, 4)  # worlds, agents in each
FULL_STEPS, QUICK_STEPS, QUICK_BATCH = 1_000_000, 20_000, 32
EXPERIMENT, FIT = "model_based_baseline", "fit.json"
HELD_OUT = 10  # every so manyth agent's steps
FITS = 2  # counter of the stream of RETEST that begins the worlds
KINDS = {"model-based": "world", "done fitted": "world_done"}  # of worlds -> where the series of the fit has them


@dataclass
class Args(CompareArgs):
    worlds: int | None = None
    """Number of worlds to fit. Default: 5; with --quick 2."""
    agents: int | None = None
    """Agents per world. Default: 10; with --quick 4."""
    learners: Annotated[list[str] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Learners. Default: ddqn duelingddqn td3_discrete."""
    searches: int | None = None
    """Number of searches to repeat. Their random seeds count up from the seed in CONFIG. Default: one per world."""
    steps: int | None = None
    """Recorded steps to keep from each search. Default: 1,000,000; with --quick 20,000."""
    epochs: int | None = None
    """Training epochs of the fit. Default: 50."""
    fit_done: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also train agents in worlds with a fitted done_net."""
    real: bool = True
    """Also train agents on the task itself; this is the slowest training (--no-real skips it)."""
    modes: list[int] | None = None
    """Not accepted here: the worlds are fitted SEs."""
    objective: str | None = None
    """Not accepted here: the worlds are fitted SEs."""
    evolved: Annotated[list[str], tyro.conf.arg(metavar="KIND ...")] = field(default_factory=lambda: [*EVOLVED])
    """Not accepted here: the worlds are fitted, not evolved."""
    fitted: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Data file of an earlier call whose worlds are used. For a call that ended early, its fit.json."""


def check_args(args: Args) -> int:
    """-> threads. Raises ConfigError."""
    threads = check(args)
    if evolves_rns(args):
        raise ConfigError([f"{args.config}: found reward networks, expected a configuration of SEs"])
    refuse(args, (*OF_RNS, "evolved"), "worlds are fitted here, not chosen")
    of_fit = {"--worlds": args.worlds, "--searches": args.searches, "--steps": args.steps, "--epochs": args.epochs}
    for name, number in of_fit.items():
        least = 2 if name == "--steps" else 1
        if number is not None and number < least:
            raise ConfigError([f"{name}: found {number}, expected at least {least}"])
        if number is not None and args.fitted is not None:
            raise ConfigError([f"{name}: found it beside --fitted, expected none: the worlds are there already"])
    return threads


def split(found: list[SearchSteps], task: Task) -> tuple[Tensor, Tensor]:
    """Rows to fit to and rows held out, each [P, n, columns]: as many of every search as the poorest one has. Raises
    ValueError."""
    parts: list[list[Tensor]] = [[], []]
    for one in found:
        of_task, out = rows(task, one.steps), torch.from_numpy(one.agent % HELD_OUT == 0)
        parts[0].append(of_task[~out])
        parts[1].append(of_task[out])
    counts = [min(len(p) for p in part) for part in parts]
    if not all(counts):
        raise ValueError(f"found {counts[0]} steps to fit to and {counts[1]} held out, expected some of each; --steps")
    return torch.stack([p[: counts[0]] for p in parts[0]]), torch.stack([p[: counts[1]] for p in parts[1]])


def save_worlds(folder: Path, kind: Proxy, flat: Tensor, suffix: str, searches: int) -> list[str]:
    """Model files world<I><suffix>.pt -> their paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    budget = problem.learner(kind.config.data)[1].train_steps
    paths = [str(folder / f"world{i}{suffix}.pt") for i in range(len(flat))]
    for i, path in enumerate(paths):
        data = kind.run_config(kind.config.data["seed"] + i % searches).data
        save_world(path, "se", data["env_name"], flat[i], data, budget=budget)
    return paths


def fit_worlds(args: Args, kind: Proxy, task: Task, folder: Path, threads: int) -> Series:
    """Searches, fits, saves -> what is told of the steps and of the fit, lists with a row per search or per world.
    Raises RunError, ValueError, OSError."""
    count = args.worlds or (QUICK if args.quick else FULL)[0]
    searches = min(args.searches or count, count)
    most = args.steps or (QUICK_STEPS if args.quick else FULL_STEPS)
    first = kind.config.data["seed"]
    files = [folder / f"search{first + i}.pt" for i in range(searches)]
    found = [kept_search_steps(kind.run_config(first + i), most, threads, files[i]) for i in range(searches)]
    fitted_to, held_out = (part[torch.arange(count) % searches] for part in split(found, task))
    section, keys = problem.env_section(kind.config.data), member_seeds(args.seed, RETEST, FITS, count)
    batch = QUICK_BATCH if args.quick else BATCH
    fitted = fit(task, section, fitted_to, held_out, keys, args.epochs or EPOCHS, batch)
    return {
        "steps": {
            "search": [first + i for i in range(searches)], "seen": [one.seen for one in found],
            "agents": [len(one.returns) for one in found], "generations": [one.generations for one in found],
            "solved": [one.solved for one in found], "agent_return": [one.returns for one in found],
        },
        "fit": {
            "world": save_worlds(folder, kind, without_done(task, section, fitted), "", searches),
            "world_done": save_worlds(folder, kind, fitted.flat, "_done", searches),
            "search": [first + i % searches for i in range(count)], "batch": [batch], "lr": [LR],
            "fitted_to": [fitted_to.shape[1]], "held_out": [held_out.shape[1]],
            **{f"{name} train": list(fitted.train_error[:, :, i]) for i, name in enumerate(NETS)},
            **{f"{name} held out": list(fitted.held_out_error[:, :, i]) for i, name in enumerate(NETS)},
            "output_error": list(fitted.output_error), "output_change": list(fitted.output_change),
        },
    }  # fmt: skip


def fitted_before(path: Path, task: Task, quick: bool) -> Series:
    """Description of an earlier call's fit. Raises ConfigError, DataError."""
    data = load(path)
    if data.quick and not quick:
        raise ConfigError([f"--fitted {path}: found a quick look's worlds, expected others, or --quick"])
    if (data.experiment, data.task) != (EXPERIMENT, task.name):
        found = f"found the data of {data.experiment}, {data.task}"
        raise ConfigError([f"--fitted {path}: {found}, expected those of {EXPERIMENT}, {task.name}"])
    folder = path.parent if path.name == FIT else path.with_suffix("")  # of its worlds, where it was moved with them
    fit = dict(data.series["fit"])
    for kind in KINDS.values():
        fit[kind] = [w if Path(w).exists() else str(folder / Path(w).name) for w in fit[kind]]
    return {"steps": data.series["steps"], "fit": fit}


def work(args: Args) -> int:
    threads = check_args(args)
    kind = proxy(args.config, args.results_dir, overrides=args.set, quick=args.quick)
    data = kind.config.data
    task, section = task_of(data), problem.env_section(data)
    m = measurement(EXPERIMENT, task.name, args)
    names = tuple(args.learners or SE_AGENTS)

    def learner(name: str, budget: int) -> LearnerSettings:
        return se_learner(
            data,
            task,
            name,
            published=args.published,
            vary=True,
            settings=args.agent_set,
            budget=budget,
            quick=args.quick,
        )

    for name in names:  # what does not fit is said before the searches
        learner(name, 0)
    own = problem.learner(data)[0]
    check_watchable(se_learner(data, task, own, published=False, vary=False, settings=[], budget=0, quick=False))

    folder = m.path.with_suffix("")
    if args.fitted:
        series = fitted_before(args.fitted, task, args.quick)
    else:
        series = m.together(("steps", "fit"), lambda: fit_worlds(args, kind, task, folder, threads))
        m.save_part(folder / FIT, series)
        for path in folder.glob("search*.pt"):  # the fitted worlds are kept now
            path.unlink()
    kinds = list(KINDS) if args.fit_done else list(KINDS)[:1]
    files = {name: [read_world(path) for path in series["fit"][KINDS[name]]] for name in kinds}
    n_worlds, n_agents = len(series["fit"]["world"]), args.agents or (QUICK if args.quick else FULL)[1]
    hyperparameters = {}
    for name in names:
        if args.real:
            who, title = without_budget(learner(name, 0)), f"{name} real"
            seeds = agent_seeds(args.seed, [], n_agents, n_worlds * n_agents)
            flat = no_world(len(seeds))
            train = partial(train_agents, who, task, "real", section, flat, seeds, False, threads, title)
            series[title] = m.part(title, (), train)
            hyperparameters[title] = vars(who.section)
        for where, of_kind in files.items():
            who, title = learner(name, budget_of(args, of_kind)), f"{name} {where}"
            seeds = agent_seeds(args.seed, of_kind, n_agents, 0)
            flat = each(torch.stack([w.flat for w in of_kind]), n_agents)
            train = partial(train_agents, who, task, "se", section, flat, seeds, False, threads, title)
            series[title] = m.part(title, each_path(of_kind, n_agents), train)
            hyperparameters[title] = vars(who.section)
    m.save(series, vary_hp=True, worlds=n_worlds, agents=n_agents, learners=names, hyperparameters=hyperparameters)
    summary({k: q for k, q in series.items() if "return" in q}, task, {})
    errors, changes = (np.array(series["fit"][key]) for key in ("output_error", "output_change"))
    print(
        "Error of the next observation over its change in a step, root mean squares on held-out steps: "
        + ", ".join(f"{c:.3g}" for c in np.sqrt(errors[:, :-2].mean(0) / changes.mean(0)))
    )
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("model_based_baseline.py", Args, argv, HELP + EXIT_CODES)
    return run_command("model_based_baseline.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
