#!/usr/bin/env python3
"""The control that an SE is no dynamics model: agents in worlds that were fitted to the task instead of evolved."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import tyro
from torch import Tensor

from envs.world_file import WorldFile, read_world, save_world
from experiments.paper.command import EXIT_CODES, run_command
from experiments.paper.comparison import CompareArgs, budget_of, check, evolves_rns, measurement, summary
from experiments.paper.data import Series
from experiments.paper.dynamics import BATCH, EPOCHS, LR, NETS, Fitted, fit, rows, without_done
from experiments.paper.learners import SE_AGENTS, se_learner, without_budget
from experiments.paper.proxies import Proxy, proxy, task_of
from experiments.paper.search_steps import SearchSteps, search_steps
from experiments.paper.training import each, no_world, train_agents
from experiments.paper.watched import check_watchable
from outer import problem
from outer.config import ConfigError
from outer.nes import RETEST, member_seeds

HELP = """\
Synthetic environments (SEs) are evolved so that agents learn in them; nothing makes them resemble the task. Here the
same networks are fitted to the task instead, by supervised learning, and agents are trained in them as in
compare_proxies.py.

  python3 experiments/model_based_baseline.py default_config_cartpole_syn_env.yaml
  python3 experiments/model_based_baseline.py default_config_cartpole_syn_env.yaml --fit-done
  python3 experiments/figures.py model_based_baseline                                        its picture

The steps of the task: each world repeats a search of its own (that of train_proxy.py CONFIG --seed S, bit for bit) and
gets what the search sees of the task, the tests of all its agents, 10 episodes each: from agents of the first
generation, which know nothing, to those that solve the task. Of these steps (millions) --steps are kept at random,
1,000,000; every tenth agent's are held out, and the errors of the worlds measured on them. state_net and reward_net
are fitted by mean squared error: Adam, learning rate 1e-4, batches of 1024, 50 epochs. done_net stays as it began, as
published, so hardly an episode ends before the time limit; --fit-done adds worlds in which it is fitted as well.

The worlds are model files beside the data: <data file without .json>/seed<S>.pt, with --fit-done also seed<S>_done.pt.
GTN_master.py's tools read them: experiments/evaluate_proxy.py, envs/gym_export.py.
"""
FULL, QUICK = (5, 10), (2, 4)  # worlds, agents in each
FULL_STEPS, QUICK_STEPS = 1_000_000, 20_000
HELD_OUT = 10  # every so manyth agent's steps
FITS = 2  # counter of the stream of RETEST that begins the worlds


@dataclass
class Args(CompareArgs):
    worlds: int | None = None
    """How many, each fitted to a search of its own, with seeds from that of CONFIG on; default: 5."""
    agents: int | None = None
    """Agents per world; default: 10."""
    learners: Annotated[list[str] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Which agents; default: ddqn duelingddqn td3_discrete."""
    steps: int | None = None
    """Steps of the task per world; default: 1,000,000."""
    epochs: int | None = None
    """Of the fit; default: 50."""
    fit_done: tyro.conf.FlagCreatePairsOff[bool] = False
    """Agents also in worlds whose done_net is fitted."""


def check_args(args: Args) -> int:
    """-> threads. Raises ConfigError."""
    threads = check(args)
    if evolves_rns(args):
        raise ConfigError([f"{args.config}: found reward networks, expected a configuration of SEs"])
    for option, value in (("--modes", args.modes), ("--objective", args.objective)):
        if value is not None:
            raise ConfigError([f"{option}: found {value}, expected none: {args.config} evolves SEs"])
    for name, number, least in (("--steps", args.steps, 2), ("--epochs", args.epochs, 1)):
        if number is not None and number < least:
            raise ConfigError([f"{name}: found {number}, expected at least {least}"])
    return threads


def split(found: list[SearchSteps], task: Any) -> tuple[Tensor, Tensor]:
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


def save_worlds(folder: Path, kind: Proxy, flat: Tensor, suffix: str) -> list[WorldFile]:
    """Model files seed<S><suffix>.pt. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    budget = problem.learner(kind.config.data)[1].train_steps
    out = []
    for i, one in enumerate(flat):
        config = kind.run_config(kind.config.data["seed"] + i)
        path = str(folder / f"seed{config.data['seed']}{suffix}.pt")
        save_world(path, "se", config.data["env_name"], one, config.data, budget=budget)
        out.append(read_world(path))
    return out


def fit_series(found: list[SearchSteps], fitted: Fitted) -> Series:
    """What is told of the steps and of the fit; lists have a row per world."""
    return {
        "steps": {
            "seen": [one.seen for one in found], "agents": [len(one.returns) for one in found],
            "generations": [one.generations for one in found], "solved": [one.solved for one in found],
            "agent_return": [one.returns for one in found],
        },
        "fit": {
            **{f"{name} train": list(fitted.train_error[:, :, i]) for i, name in enumerate(NETS)},
            **{f"{name} held out": list(fitted.held_out_error[:, :, i]) for i, name in enumerate(NETS)},
            "output_error": list(fitted.output_error), "output_change": list(fitted.output_change),
        },
    }  # fmt: skip


def work(args: Args) -> int:
    threads = check_args(args)
    kind = proxy(args.config, args.results_dir, overrides=args.set, quick=args.quick)
    data = kind.config.data
    task, section = task_of(data), problem.env_section(data)
    m = measurement("model_based_baseline", task.name, args)
    n_worlds, n_agents = QUICK if args.quick else FULL
    n_worlds, n_agents = args.worlds or n_worlds, args.agents or n_agents
    epochs = args.epochs or EPOCHS
    names = tuple(args.learners or SE_AGENTS)

    def learner(name: str, budget: int) -> Any:
        return se_learner(data, task, name, published=args.published, vary=True, settings=args.agent_set,
                          budget=budget, quick=args.quick)  # fmt: skip

    for name in names:  # what does not fit is said before the searches
        learner(name, 0)
    own = problem.learner(data)
    check_watchable(se_learner(data, task, own[0], published=False, vary=False, settings=[], budget=0, quick=False))

    most = args.steps or (QUICK_STEPS if args.quick else FULL_STEPS)
    found = [search_steps(kind.run_config(data["seed"] + i), most, threads) for i in range(n_worlds)]
    fitted_to, held_out = split(found, task)
    fitted = fit(task, section, fitted_to, held_out, member_seeds(args.seed, RETEST, FITS, n_worlds), epochs)
    series = fit_series(found, fitted)
    worlds = {"model-based": (without_done(task, section, fitted), "")}
    if args.fit_done:
        worlds["done fitted"] = (fitted.flat, "_done")
    files = {name: save_worlds(m.path.with_suffix(""), kind, *which) for name, which in worlds.items()}

    seeds = member_seeds(args.seed, RETEST, 0, n_worlds * n_agents)
    hyperparameters = {}
    for name in names:
        who, title = without_budget(learner(name, 0)), f"{name} real"
        flat = no_world(len(seeds))
        series[title] = train_agents(who, task, "real", section, flat, seeds, False, threads, title)
        hyperparameters[title] = vars(who.section)
        for where, of_kind in files.items():
            who, title = learner(name, budget_of(args, of_kind)), f"{name} {where}"
            flat = each(torch.stack([w.flat for w in of_kind]), n_agents)
            series[title] = train_agents(who, task, "se", section, flat, seeds, False, threads, title)
            series[title]["world"] = [w.path for w in of_kind for _ in range(n_agents)]
            hyperparameters[title] = vars(who.section)
    m.save(series, vary_hp=True, worlds=n_worlds, agents=n_agents, learners=names, epochs=epochs, batch=BATCH, lr=LR,
           kept=most, fitted_to=fitted_to.shape[1], held_out=held_out.shape[1],
           hyperparameters=hyperparameters)  # fmt: skip
    summary({k: q for k, q in series.items() if "return" in q}, task.name)
    changes = np.sqrt(fitted.output_error[:, :-2] / np.maximum(fitted.output_change, 1e-30)).mean(0)
    print("Error of the next observation over its change in a step, root mean squares on held-out steps: "
          + ", ".join(f"{c:.3g}" for c in changes))  # fmt: skip
    return 0


def main(argv: list[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv, prog="model_based_baseline.py", description=HELP + EXIT_CODES)
    return run_command("model_based_baseline.py", lambda: work(args))


if __name__ == "__main__":
    sys.exit(main())
