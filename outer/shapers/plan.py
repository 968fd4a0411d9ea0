"""Checks of eval_shapers.py's arguments, before hours of training."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Type

import torch

from envolve.agents.common.sections import LearnerSection
from envolve.agents.shaped.training import default_section
from envolve.core.files import TABLE_BYTES, TEXT_BYTES, read_plain, read_text
from envolve.core.places import CODE
from envolve.core.registry import nearest
from envolve.envs.managers.library import NAMES, is_managed, library_of
from envolve.envs.managers.task import managed_task
from envolve.envs.physics.task import SHAPER_TYPES, PhysicsTask, physics_task
from envolve.envs.shaping.candidate import Candidate, candidate_files, candidate_name, load_candidate
from envolve.envs.shaping.schedule import Schedule, schedule_from
from envolve.envs.shaping.section import folder_name
from envolve.envs.sim.simulator import SimulatorError
from envolve.outer.config.check import Checker
from envolve.outer.config.yaml_lines import ConfigError, parse_yaml
from envolve.outer.evaluate.device import check_device
from envolve.outer.names import HUMAN
from envolve.outer.ray.address import HERE, check_instead
from envolve.outer.reporting.wandb_run import check_wandb
from envolve.outer.shapers.run import RankingPlan

if TYPE_CHECKING:
    from envolve.outer.shapers.arguments import Args


def wrong_types(names: List[str]) -> List[str]:
    """What is wrong with --shaper-types, a line each."""
    out = []
    for name in names or [""]:
        if name not in SHAPER_TYPES:
            near = f", did you mean {nearest(name, SHAPER_TYPES, 0.0)}" if name else ""
            out.append(f"--shaper-types: found {name!r}, expected some of {', '.join(SHAPER_TYPES)}{near}")
    return out


def unwritable(option: str, path: Optional[Path], run_folder: Optional[Path] = None) -> List[str]:
    """Problems of a file to be written, at most one line. run_folder: is made before it is written."""
    if path is None or (not path.is_dir() and (path.parent.is_dir() or path.parent == run_folder)):
        return []
    return [f"{option}: cannot write {path}, expected a file in a folder that exists"]


def check_args(args: Args) -> None:
    """Checks numbers and files. Raises ConfigError."""
    for option, value, least, most in (
        ("--num-envs-per-shaper", args.num_envs_per_shaper, 1, 10**5),
        ("--iterations", args.iterations, 1, 10**8),
        ("--seeds", args.seeds, 1, 10**4),
        ("--seed", args.seed, 0, 2**63 - 1),
        ("--threads", args.threads, 0, 1024),
    ):
        if not least <= value <= most:
            raise ConfigError([f"{option}: found {value}, expected at least {least} and at most {most}"])
    check_instead(args.workers_on, {"--workers": args.workers is not None}, {"--video": args.video is not None})
    if args.workers is not None and not 1 <= args.workers <= 10_000:
        raise ConfigError([f"--workers: found {args.workers}, expected at least 1 and at most 10000"])
    wrong = wrong_types(args.shaper_types)
    for option, path in (("--json", args.json), ("--video", (args.video or (None,))[0])):
        wrong += unwritable(option, path, args.out)
    if wrong:
        raise ConfigError(wrong[:1])
    check_video(args.video)
    check_wandb(args.wandb)
    if args.out is not None and args.out.exists() and not args.out.is_dir():
        raise ConfigError([f"--run-dir: {args.out} is a file, expected a folder"])
    if args.out is not None and _complete(args.out / "candidates.json"):
        raise ConfigError([f"--run-dir: found a complete ranking in {args.out}, expected a new folder"])


def _complete(path: Path) -> bool:
    """Returns whether a ranking has come to its end there. One that was stopped may begin anew in its folder."""
    try:
        content = json.loads(read_text(path, TABLE_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("complete") is True


def check_video(video: Optional[Tuple[Path, ...]]) -> None:
    """Raises ConfigError."""
    if video and (len(video) > 1 or video[0].suffix.lower() not in (".mp4", ".gif")):
        raise ConfigError([f"--video: found {' '.join(map(str, video))}, expected one file.mp4 or file.gif"])


def files_of(args: Args, task: Type[PhysicsTask]) -> List[Path]:
    """Candidates' files, by name. Raises ConfigError."""
    folder = args.shapers or CODE / "envs" / "user_functions" / folder_name(task.name)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        there = [p.name for p in folder.parent.glob("*") if p.is_dir() and p.name[0] not in "_."]
        near = nearest(folder.name, there)
        mean = f", did you mean {folder.parent / near}" if near else ""
        raise ConfigError(
            [f"--shapers: found no folder {folder}, expected one with a .py file per candidate, or a file{mean}"]
        )
    try:
        files = {candidate_name(path): path for path in candidate_files(folder)}
    except FileNotFoundError as e:
        raise ConfigError([f"--shapers: {e}"]) from None
    wanted = [name[:-3] if name.endswith(".py") else name for name in args.candidates]
    for name in wanted:
        if name not in files:
            near = nearest(name, files, 0.0)
            raise ConfigError([f"--candidates: found no {name}.py in {folder}, did you mean {near}"])
    if args.human and HUMAN in (wanted or files):
        text = f"{folder / HUMAN}.py: this name stands for the task's own shapers; rename it, or give --no-human"
        raise ConfigError([text])
    return [files[name] for name in dict.fromkeys(wanted)] or list(files.values())


def load(files: List[Path], args: Args) -> Tuple[List[Tuple[Candidate, Optional[str]]], List[str]]:
    """Candidates with their files, and the names of the files in a folder that define none of the requested functions.
    Raises ConfigError if these are all files."""
    loaded: List[Tuple[Candidate, Optional[str]]] = []
    skipped = []
    for path in files:
        candidate = load_candidate(path, args.shaper_types)
        if candidate.failure is not None and not args.candidates and load_candidate(path).failure is None:
            skipped.append(candidate_name(path))
        else:
            loaded.append((candidate, str(path)))
    if not loaded:
        raise ConfigError([f"--shaper-types: no file of {files[0].parent} defines {' or '.join(args.shaper_types)}"])
    return loaded, skipped


def read_schedules(path: Path, task: Type[PhysicsTask]) -> Dict[str, Schedule]:
    """Reads the schedules. Raises ConfigError."""
    try:
        raw, lines = parse_yaml(read_plain(path, TEXT_BYTES), str(path))
    except OSError as e:
        raise ConfigError([f"--schedule: cannot read {path}: {e.strerror}"]) from None
    if not isinstance(raw, dict) or not all(isinstance(spec, dict) for spec in raw.values()):
        raise ConfigError([f"{path}: expected parameter: {{iters: [...], values: [...], mode: step or linear}}"])
    out = {}
    for name, spec in raw.items():
        where = f"{path}:{lines[(name,)]} {name}"
        if name not in task.parameters:
            known, near = ", ".join(task.parameters), nearest(name, task.parameters, 0.0)
            raise ConfigError([f"{where}: {task.name} has no such parameter, did you mean {near} (it has {known})"])
        try:
            out[name] = schedule_from(spec)
        except (ValueError, TypeError) as e:
            raise ConfigError([f"{where}: {e}"]) from None
    return out


def learner_section(name: str, overrides: List[str]) -> LearnerSection:
    """Hyperparameters of the learner for shaped tasks, with ``overrides``. Raises ConfigError."""
    section = default_section(name)
    raw = dataclasses.asdict(section)
    given: Dict[Tuple[str, ...], str] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError([f"--set {text}: found no '=', expected key=value"])
        raw[key], _ = parse_yaml(value.encode(), f"--set {key}")
        given[(name, key)] = "--set"
    checker = Checker("--set", {(): 0}, given)
    values = checker.section(raw, (name,), type(section), "learner")
    problems = checker.problems + [f"--set {', '.join(keys)}: {why}" for why, keys in checker.ignored.items()]
    if problems:
        raise ConfigError(problems)
    return type(section)(**values)


def run_folder(results: Path, kind: str, task: Type[PhysicsTask], seed: int) -> Path:
    """Name of a run's folder, <results>/<kind>_<task>_<date>-<time>_seed<S>, which ``claimed`` makes."""
    return results / f"{kind}_{task.name.lower().replace(':', '_')}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{seed}"


def hardware(engine: str, device: Optional[str], threads: int, look: bool = True) -> Tuple[str, int]:
    """Device and threads as given; default: a GPU if the engine uses one, and all cores. look: whether the device must
    be here. Raises ConfigError."""
    if look:
        check_device(device or "cpu", "--device")
    gpu = "cuda:0" if engine != "mujoco" and torch.cuda.is_available() else "cpu"
    return device or gpu, threads or len(os.sched_getaffinity(0))


def task_and_engine(name: str, engine: str) -> Tuple[Type[PhysicsTask], str]:
    """The task and its engine, from --task and --engine. Raises ConfigError, and SimulatorError if its library is
    missing."""
    if engine in NAMES or is_managed(name):
        library = library_of(name, engine)
        if engine not in ("mujoco", library.name):
            raise ConfigError([f"--engine: found {engine}, expected {library.name} for the task {name}"])
        library.load()
        try:
            return managed_task(library.find_task(name), library.name), library.name
        except SimulatorError as e:
            raise ConfigError([f"--task: {e}"]) from None
    try:
        return physics_task(name), engine
    except KeyError as e:
        raise ConfigError([f"--task: {e.args[0]}"]) from None


def make_plan(args: Args) -> RankingPlan:
    """Checks everything possible before the simulator is made -> the plan. Raises ConfigError, SimulatorError."""
    check_args(args)
    task, engine = task_and_engine(args.task, args.engine)
    if engine in NAMES and (args.schedule is not None or args.video is not None):
        option = "--schedule" if args.schedule is not None else "--video"
        raise ConfigError([f"{option}: found a task of {engine}, expected one of this project's: see docs/mjlab.md"])
    files = files_of(args, task)
    schedules = {} if args.schedule is None else read_schedules(args.schedule, task)
    section = learner_section(args.learner, args.set)
    human: List[Tuple[Candidate, Optional[str]]] = [(Candidate(HUMAN), None)] if args.human else []
    loaded, skipped = load(files, args)
    settings = {k: plain(v) for k, v in vars(args).items()}
    on_ray = args.workers_on != HERE  # where the driver need not have the device
    device, threads = hardware(engine, args.device, args.threads, look=not on_ray)
    return RankingPlan(
        task,
        human + loaded,
        skipped,
        args.seeds,
        args.num_envs_per_shaper,
        args.iterations,
        args.seed,
        args.learner,
        section,
        schedules,
        engine,
        device,
        threads,
        args.backend,
        settings,
        args.out or run_folder(Path("results"), "shapers", task, args.seed),
    )


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value
