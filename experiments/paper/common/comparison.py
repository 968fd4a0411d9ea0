"""Fresh agents in evolved worlds beside agents on the task: compare_proxies.py and transfer.py differ in the learners.

RNs     learning curves: nothing ends early, every agent is tested on the task after each training episode.
SEs     how many steps agents need, and what they reach on the task: of SEs evolved with fixed hyperparameters, of those
        evolved with varied ones, and of the task itself.

Worlds are chosen by ``proxies.best_worlds``; the agents' seeds were used in no evolution, and each world has its own,
so that no two worlds share draws of hyperparameters.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from envolve.core import commands
from envolve.envs.task import NEVER_SOLVED
from envolve.envs.worlds.file import WorldFile
from envolve.experiments.command_line import check_count
from envolve.experiments.paper import train_proxy
from envolve.experiments.paper.common.command import DataArgs, Measurement
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.learners import (
    NUMBERS,
    QUICK_NUMBERS,
    QUICK_SE_NUMBERS,
    SE_NUMBERS,
    USUAL_NUMBERS,
    rn_learner,
    se_learner,
    without_budget,
)
from envolve.experiments.paper.common.proxies import (
    CURIOSITY,
    MODES,
    TASK,
    Proxy,
    best_worlds,
    check_mode,
    label,
    modes_of,
    proxy,
    quick_modes,
    task_of,
)
from envolve.experiments.paper.common.training import (
    agent_seeds,
    each,
    each_path,
    no_world,
    steps_to_solved,
    train_agents,
)
from envolve.experiments.paper.common.verdicts import prices, summary, verdicts
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.evaluate.networks import exploration, on_task

EVOLVED = ("fixed", "varied")
OF_RNS, OF_SES = ("modes", "objective"), ("published", "evolved", "stop")  # flags for worlds of one kind alone


@dataclass
class CompareArgs(DataArgs):
    config: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="CONFIG")]]
    """Configuration of the worlds; the same as for train_proxy.py."""
    modes: list[int] | None = None
    """RNs: modes to compare (train_proxy.py --help lists them). Default: all that the task supports; with --quick five
    or six of them."""
    objective: str | None = None
    """RNs: objective that they were evolved for: reward_threshold, auc or mean_return. Default: rn_objective in
    CONFIG."""
    worlds: int | None = None
    """Number of best worlds of each kind. Default: 10 RNs (HalfCheetah, Pendulum: 5), 40 SEs."""
    agents: int | None = None
    """Agents per world. Default: 10 (HalfCheetah: 5, Pendulum: 3)."""
    agent_set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters that override the published ones, e.g. lr=1e-4 train_episodes=200."""
    published: tyro.conf.FlagCreatePairsOff[bool] = False
    """SEs: give agents the published hyperparameters instead of those in CONFIG."""
    evolved: Annotated[list[str], tyro.conf.arg(metavar="KIND ...")] = field(default_factory=lambda: [*EVOLVED])
    """SEs: kinds to compare: fixed, varied or both (evolved with fixed or with varied hyperparameters)."""
    stop: Annotated[str | None, tyro.conf.arg(metavar="RULE")] = None
    """End of training in a synthetic environment (SE): budget (after the steps that the SE was evolved for) or
    early-out (when the returns have settled, as published). Default: budget, if the SE has one."""


def evolves_rns(args: CompareArgs) -> bool:
    """Raises ConfigError."""
    return proxy(args.config, args.results_dir, overrides=args.set).mode is not None


def check(args: CompareArgs) -> int:
    """-> threads. Raises ConfigError."""
    for option, value, least in (
        ("--worlds", args.worlds, 1), ("--agents", args.agents, 1), ("--seed", args.seed, 0),
        ("--threads", args.threads, 0),
    ):  # fmt: skip
        check_count(option, value, least)
    if not args.evolved or not set(args.evolved) <= set(EVOLVED):
        raise ConfigError([f"--evolved: found {' '.join(args.evolved) or 'nothing'}, expected fixed, varied or both"])
    if args.stop not in (None, "budget", "early-out"):
        raise ConfigError([f"--stop: found {args.stop!r}, expected budget or early-out"])
    return args.threads or len(os.sched_getaffinity(0))


def refuse(args: CompareArgs, flags: Sequence[str], why: str) -> None:
    """What was asked for and would not be heard. Raises ConfigError."""
    for option in fields(args):
        value = getattr(args, option.name)
        own = option.default if option.default_factory is MISSING else option.default_factory()
        if option.name in flags and value != own:
            raise ConfigError([f"--{option.name}: found {value}, expected none: {why}"])


def measurement(experiment: str, task: str, args: CompareArgs, *what: str | None) -> Measurement:
    """what: parts of the file's name, with those of --name. Raises ConfigError."""
    name = "_".join(part for part in (*what, args.name) if part)
    return Measurement(experiment, task, name, args, args.out, args.results_dir, args.quick)


def numbers(args: CompareArgs, task: str, rns: bool) -> tuple[int, int]:
    """Worlds of a kind, agents in each."""
    full = NUMBERS.get(task, USUAL_NUMBERS) if rns else SE_NUMBERS
    worlds, agents = (QUICK_NUMBERS if rns else QUICK_SE_NUMBERS) if args.quick else full
    return args.worlds or worlds, args.agents or agents


# ------------------------------------------------------------------------------------------------------------- worlds


def find_worlds(args: CompareArgs, count: int, **kind: Any) -> list[WorldFile]:
    """The best ``count`` of one kind: those of a full train_proxy.py; for a quick look also those of a quick one, which
    is run if there are none. Raises ConfigError, WorldFileError."""
    options = dict(overrides=args.set, name=args.name, objective=args.objective, **kind)
    full = proxy(args.config, args.results_dir, **options)
    try:
        return best_worlds(full.folder, count)
    except ConfigError as e:
        command = train_command(args, kind)
        if not args.quick:
            made = f"; they are made by: {shlex.join([*commands.typed('train_proxy.py'), *command])}"
            raise ConfigError([*e.problems[:-1], e.problems[-1] + made]) from None
    quick: Proxy = proxy(args.config, args.results_dir, quick=True, **options)
    try:
        return best_worlds(quick.folder, count)
    except ConfigError:
        words = [*command, "--quick", "--runs", str(count)]
        print(f"{quick.folder}: too few worlds yet; evolving: {shlex.join(words)}", file=sys.stderr)
        if train_proxy.work(train_proxy.parse_words(words)):
            raise ConfigError([f"{quick.folder}: no worlds could be evolved"]) from None
        return best_worlds(quick.folder, count)


def train_command(args: CompareArgs, kind: dict[str, Any]) -> list[str]:
    """Arguments of train_proxy.py that evolve the worlds of one kind."""
    words = [str(args.config)]
    if "mode" in kind:
        words += ["--mode", str(kind["mode"])]
    if "vary_hp" in kind:
        words += ["--vary-hp", str(kind["vary_hp"])]
    for option, value in (("--objective", args.objective), ("--name", args.name)):
        words += [option, value] if value is not None else []
    words += ["--results-dir", str(args.results_dir)] if args.results_dir != Path("results") else []
    return words + (["--set", *args.set] if args.set else [])


# ----------------------------------------------------------------------------------------------------------- the runs


def compare_rns(args: CompareArgs, experiment: str, what: str, agent: str, vary: bool) -> int:
    """Learning curves in RNs of each mode. agent: a key of agents.common.learners.LEARNERS. Raises ConfigError."""
    threads = check(args)
    refuse(args, OF_SES, f"{args.config} evolves reward networks")
    base = proxy(args.config, args.results_dir, overrides=args.set, objective=args.objective).config.data
    task = task_of(base, solved_reward=NEVER_SOLVED)
    usual = quick_modes(task) if args.quick else modes_of(task)
    modes = list(dict.fromkeys(args.modes if args.modes is not None else usual))
    for mode in modes:
        check_mode(mode, task, "--modes")
    m = measurement(experiment, task.name, args, what, args.objective)
    n_worlds, n_agents = numbers(args, task.name, rns=True)

    learners = {
        mode: rn_learner(
            base, task, agent, curious=mode == CURIOSITY, vary=vary, settings=args.agent_set, quick=args.quick
        )
        for mode in modes
    }
    found = {mode: find_worlds(args, n_worlds, mode=mode) for mode in modes if mode not in (CURIOSITY, TASK)}
    series: Series = {}
    for mode in modes:
        worlds = found.get(mode)
        seeds = agent_seeds(args.seed, worlds or [], n_agents, n_worlds * n_agents)
        flat = each(torch.stack([w.flat for w in worlds]), n_agents) if worlds else no_world(len(seeds))
        section = worlds[0].section if worlds else problem.env_section(base)
        kind = "rn" if worlds else "real"
        title = f"{label(mode)}, {MODES[mode]}"
        train = partial(train_agents, learners[mode], task, kind, section, flat, seeds, True, threads, title)
        series[label(mode)] = m.part(label(mode), each_path(worlds, n_agents), train)
        series[label(mode)] |= steps_to_solved(series[label(mode)], task_of(base).solved_reward)
    hyperparameters = {label(mode): vars(who.section) for mode, who in learners.items()}
    spent = prices({label(mode): worlds for mode, worlds in found.items()})
    m.save(
        series,
        agent=agent,
        vary_hp=vary,
        worlds=n_worlds,
        agents=n_agents,
        modes=modes,
        evolution_steps=spent,
        hyperparameters=hyperparameters,
    )
    summary(series, task_of(base), spent)
    if TASK in modes:
        verdicts(series, task_of(base), {label(mode): label(TASK) for mode in found}, "rn", spent)
    return 0


def compare_ses(args: CompareArgs, experiment: str, what: str, agents: tuple[str, ...], vary: bool) -> int:
    """Agents in SEs evolved with fixed and with varied hyperparameters, and on the task; ``vary``: whether theirs do.
    Raises ConfigError."""
    threads = check(args)
    refuse(args, OF_RNS, f"{args.config} evolves SEs")
    base = proxy(args.config, args.results_dir, overrides=args.set).config.data
    task = task_of(base)
    kind = "bandit" if problem.env_section(base).contextual_bandit else "se"
    m = measurement(experiment, task.name, args, kind, what)
    n_worlds, n_agents = numbers(args, task.name, rns=False)
    for agent in agents:  # what does not fit is said before worlds are evolved
        se_learner(
            base, task, agent, published=args.published, vary=vary, settings=args.agent_set, budget=0, quick=args.quick
        )
    found = {name: find_worlds(args, n_worlds, vary_hp=name == "varied") for name in EVOLVED if name in args.evolved}
    series: Series = {}
    hyperparameters: dict[str, Any] = {}
    spent: dict[str, dict[str, int | None]] = {}
    pairs: dict[str, str] = {}
    for agent in agents:
        for where, worlds in (("real", None), *found.items()):
            budget = budget_of(args, worlds) if worlds else 0
            data = worlds[0].config if worlds else base
            who = se_learner(
                data,
                task,
                agent,
                published=args.published,
                vary=vary,
                settings=args.agent_set,
                budget=budget,
                quick=args.quick,
            )
            title = f"{agent} {where}"
            seeds = agent_seeds(args.seed, worlds or [], n_agents, n_worlds * n_agents)
            if worlds:
                spent |= prices({title: worlds})
                pairs[title] = f"{agent} real"
                flat = each(torch.stack([w.flat for w in worlds]), n_agents)
                train = partial(train_agents, who, task, "se", worlds[0].section, flat, seeds, False, threads, title)
            else:
                flat, section = no_world(len(seeds)), problem.env_section(base)
                who = without_budget(who)
                words = exploration(agent, who.section, section.contextual_bandit and not args.published)
                if words:
                    print(f"{title}: {words}", file=sys.stderr)
                    who = replace(who, section=on_task(agent, who.section, True))
                train = partial(train_agents, who, task, "real", section, flat, seeds, False, threads, title)
            series[title] = m.part(title, each_path(worlds, n_agents), train)
            hyperparameters[title] = vars(who.section)
    m.save(
        series,
        vary_hp=vary,
        worlds=n_worlds,
        agents=n_agents,
        learners=agents,
        hyperparameters=hyperparameters,
        evolution_steps=spent,
    )
    summary(series, task, spent)
    verdicts(series, task, pairs, "se", spent)
    return 0


def budget_of(args: CompareArgs, worlds: list[WorldFile]) -> int:
    """Training steps in these SEs, 0: their early-out rule ends it. Raises ConfigError."""
    budgets = {w.budget for w in worlds}
    if args.stop == "early-out" or budgets == {0}:
        if args.stop == "budget":
            raise ConfigError([f"--stop budget: {worlds[0].path} was evolved without a training budget"])
        return 0
    if len(budgets) > 1:
        raise ConfigError([f"{args.config}: found SEs with the budgets {sorted(budgets)}, expected one"])
    return budgets.pop()
