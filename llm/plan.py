"""Checks of auto_shape.py's arguments, before anything is paid."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Type

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.agents.shaped.halving import Training
from envolve.core import commands
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.core.registry import unknown
from envolve.envs.managers.facts import measured
from envolve.envs.managers.library import NAMES
from envolve.envs.physics.task import PhysicsTask
from envolve.llm.gym import setup as gym
from envolve.llm.gym.setup import GymOptions
from envolve.llm.models.chat import Budget
from envolve.llm.models.prices import Price, find_price, parse_prices
from envolve.llm.models.request import ChatError
from envolve.llm.ranges import WITH_RESUME, changed, given, of_other_types, out_of_range, without_effect
from envolve.llm.settings import Settings
from envolve.llm.tune import TuneSettings
from envolve.outer.config.yaml_lines import ConfigError, parse_yaml
from envolve.outer.names import CONFIG_FILE
from envolve.outer.reporting.wandb_run import check_wandb
from envolve.outer.shapers.plan import (
    check_video,
    hardware,
    learner_section,
    plain,
    run_folder,
    task_and_engine,
    unwritable,
    wrong_types,
)

if TYPE_CHECKING:
    from envolve.llm.arguments import Args


class Plan(NamedTuple):
    """Checked settings of a run."""

    task: Type[PhysicsTask]
    description: str
    types: List[str]
    settings: Settings
    args: Args
    budget: Budget
    prices: Dict[str, Price]
    folder: Path
    resumed: bool


def make_plan(args: Args) -> Plan:
    """Checks across arguments. Raises ConfigError."""
    problems = out_of_range(args)
    problems += wrong_types(args.shaper_types) + unwritable("--json", args.json)
    problems += unwritable("--video", (args.video or (None,))[0])
    if args.halving > 1 and args.learner != "ppo":
        problems.append(
            f"--halving: {args.learner} cannot continue with more environments, expected --learner ppo or 1"
        )
    if args.mode == "gp" and args.llm:
        problems.append(f"--llm: found {args.llm[0]}, expected none with --mode gp, which asks no model")
    if args.mode == "gp" and args.shaper_types != ["compute_reward"]:
        problems.append(f"--shaper-types: found {' '.join(args.shaper_types)}, expected compute_reward with --mode gp")
    problems = problems or _beside_each_other(args)
    if problems:
        raise ConfigError(problems)
    check_video(args.video)
    check_wandb(args.wandb)
    task, engine = task_and_engine(args.task, args.engine)
    if engine in NAMES:
        measured(task.name)
        if args.video is not None:
            raise ConfigError([f"--video: found a task of {engine}, expected one of this project's: see docs/mjlab.md"])
    if "compute_goal" in args.shaper_types and not task.goal_size:
        raise ConfigError([f"--shaper-types: {task.name} has no goals, so nothing for compute_goal to say"])
    prices = read_prices(args.price, args.llm)
    seed = args.seed or 0
    device, threads = hardware(engine, args.device, args.threads)
    training = Training(
        task.name, args.learner, learner_section(args.learner, args.set), args.num_envs_per_shaper, args.iterations,
        args.seeds, args.halving, args.shapers_per_iter, engine, device, threads, args.backend,
    )  # fmt: skip
    tune = None
    if args.tune != "none":
        tune = TuneSettings(
            args.tune, args.tune_generations, args.tune_population, args.tune_sigma, args.tune_step, args.tune_workers
        )
    novelty = args.novelty if args.novelty is not None else 2.0 if args.mode in ("greedy", "gp") else 1.0
    settings = Settings(
        args.num_iters, training, seed, args.temperature, args.max_tokens, novelty, tune, args.tune_top,
        args.finalists, args.retest, args.repairs, args.cascade, args.tune_every,
    )  # fmt: skip
    return Plan(
        task, args.task_description or f"Make the score as high as possible: {task.score_meaning}.",
        args.shaper_types, settings, args, Budget(args.budget_usd, args.budget_tokens), prices,
        args.resume or run_folder(args.results_dir or Path("results"), "auto", task, seed), args.resume is not None,
    )  # fmt: skip


def _beside_each_other(args: Args) -> List[str]:
    """Problems of flags that exclude one another, a line each."""
    problems = []
    if args.tune_every > 0 and args.tune == "none":
        problems.append("--tune-every: found no --tune nes or bohb, expected one that says how")
    if args.tune_every > 0 and args.mode == "steady":
        problems.append("--tune-every: found --mode steady, which has no iterations; expected another mode")
    if args.cascade < 1 and args.halving > 1:
        problems.append("--cascade: found --halving, which drops candidates as well; expected one of the two")
    if args.human_parent and args.shaper_types != ["compute_reward"]:
        problems.append(f"--human-parent: found {' '.join(args.shaper_types)}, expected compute_reward alone")
    if args.mode == "gp":
        given = [name for name in ("edits", "notes") if getattr(args, name)]
        problems += [f"--{name.replace('_', '-')}: found --mode gp, which asks no model" for name in given]
    return problems


def gym_options(args: Args) -> GymOptions:
    """Options of a run on a user's own environment. Raises ConfigError."""
    problems = out_of_range(args) + without_effect(args) + unwritable("--json", args.json)
    if len(args.llm) > 1:
        problems.append(f"--llm: found {len(args.llm)} models, expected one with --config")
    if problems:
        raise ConfigError(problems)
    check_wandb(args.wandb)
    return GymOptions(
        llm=args.llm[0] if args.llm else None, base_url=args.base_url, results_dir=args.results_dir, seed=args.seed,
        json=args.json, wandb=args.wandb, budget=Budget(args.budget_usd, args.budget_tokens), resume=args.resume,
        set=tuple(args.set), max_tokens=args.max_tokens, prices=read_prices(args.price, args.llm),
        parallel=args.parallel, timeout=args.timeout, processes=args.processes,
        memory=round(args.memory * 2**30), seconds=3600 * args.hours, allow_unprotected=args.allow_unprotected,
    )  # fmt: skip


def read_prices(words: List[str], models: List[str]) -> Dict[str, Price]:
    """Prices by model. models: of --llm; none, or a recording, may be asked under any name. Raises ConfigError."""
    try:
        prices = parse_prices(words)
    except ChatError as e:
        raise ConfigError([str(e)]) from None
    if models and not any(model.startswith("replay:") for model in models):
        spare = [name for name in prices if not any(find_price(model, {name: prices[name]}, {}) for model in models)]
        if spare:
            raise ConfigError([unknown("--price", spare[0], models)])
    return prices


def arguments(args: Args) -> Dict[str, Any]:
    """Arguments as stored in config.yaml."""
    own = ("resume", "json", "video", "wandb")  # of a session
    return {name: plain(value) for name, value in vars(args).items() if name not in own}


def stored_args(args: Args) -> Args:
    """Arguments of the run that --resume names; --json, --video, budgets and the servers' options come from this call.
    Raises ConfigError."""
    assert args.resume is not None
    path = args.resume / CONFIG_FILE
    try:
        raw, _ = parse_yaml(read_plain(path, TEXT_BYTES), str(path))
    except OSError as e:
        more = "; add --config FILE, as it was begun with" if (args.resume / gym.CONFIG_FILE).exists() else ""
        text = f"--resume: cannot read {path}: {e.strerror}; expected the folder of a run{more}"
        raise ConfigError([text]) from None
    stored = raw.get("arguments") if isinstance(raw, dict) else None
    known = {f.name: f for f in dataclasses.fields(args)}
    if not isinstance(stored, dict) or not set(stored) <= set(known):
        raise ConfigError([f"{path}: found no arguments of auto_shape.py, expected the config.yaml of such a run"])
    if problems := of_other_types(stored, args):
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    for name in ("results_dir", "config"):
        stored[name] = None if stored.get(name) is None else Path(stored[name])
    if problems := changed(args, stored):
        raise ConfigError(problems)
    own: Dict[str, Any] = {name: value for name, value in given(args).items() if name in WITH_RESUME}
    return dataclasses.replace(args, **{**stored, **own})


def resume_command(folder: Path) -> str:
    return shlex.join([*commands.typed("auto_shape.py"), "--resume", str(folder)])
