"""``envolve.evolve``, ``envolve.load_world`` and ``envolve.register_*``: see docs/library.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from rich.console import Console

from envolve.core import plugins as core_plugins
from envolve.core.files import read_text
from envolve.envs.outside.build import OutsideError, check_configured, is_outside
from envolve.envs.task import Task
from envolve.envs.worlds.file import WorldFile, WorldFileError, read_world
from envolve.outer import plugins
from envolve.outer.config.load import Config, ConfigError, config_of, load_config, store_config
from envolve.outer.evaluate.device import check_device
from envolve.outer.exchange.machine import OWN_SYNC
from envolve.outer.launch import conduct, forget_unused, new_run_dir
from envolve.outer.names import CONFIG_FILE, SCORES, VARY_SUFFIX
from envolve.outer.reporting.scores import read_curve
from envolve.outer.reporting.summary import RunSummary, summary_text
from envolve.outer.search.search import Search
from envolve.outer.search.target import ranks

if TYPE_CHECKING:
    from envolve.agents.common.sections import LearnerSection
    from envolve.agents.off_policy.algorithm import Algorithm
    from envolve.envs.worlds.export import WorldEnv

log = logging.getLogger("envolve")


@dataclass(frozen=True)
class Result:
    """What :func:`evolve` returns."""

    run_dir: Path  # config.yaml, checkpoint.pt, scores.csv, summary.txt, learning_curve.png, ...
    world: Path  # model.pt, for load_world and evaluate; of shapers params.yaml
    solved: bool
    score: float  # of the world that was kept, the mean over its agents
    generations: int
    real_steps: int | None  # of the task, that the evolution cost; None: not known
    scores: list[float] = field(repr=False)  # of the unperturbed world, a mean per generation
    world_returns: list[float] = field(repr=False)  # of fresh agents trained in the world; [] without a comparison
    real_returns: list[float] = field(repr=False)  # and of agents trained on the task
    summary: str = field(repr=False)  # the closing text


def evolve(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    workers: int | None = None,
    results_dir: str | os.PathLike[str] = "results",
    overrides: Mapping[str, Any] | Sequence[str] = (),
    resume: str | os.PathLike[str] | None = None,
    progress: bool = True,
    minutes: float = 30.0,
) -> Result:
    """Evolve a world to the end, with local workers, and compare it with the task.

    config: a YAML file, or its content as a dict, or the id of an environment, ``gymnasium:LunarLander-v3``: its
    configuration is then that of ``envolve evolve --minutes`` (which also makes a report of agents that never saw the
    world). minutes: of that plan; nothing else reads it. seed: instead of the configuration's. workers: processes on
    this machine; None: one per core. The result does not depend on their number. overrides:
    ``{"agents.gtn.max_iterations": 3}`` or ``["agents.gtn.max_iterations=3"]``. progress: draw the table.

    resume: the folder of a run, which goes on from its last finished generation; alone, for the run has its
    configuration. After Ctrl-C (KeyboardInterrupt) or a crash, ``evolve(resume=folder)`` ends in the same bytes as if
    nothing had happened; the folder is in the log and is the newest in ``results_dir``.

    Workers are new processes which do not import the calling script, so it needs no ``if __name__ == "__main__"``.

    Raises ConfigError (all that is wrong with the configuration, a line each), RunError, OSError.
    """
    seed = None if seed is None else whole("seed", seed)
    workers = None if workers is None else whole("workers", workers, 1, 10_000)
    checked = _config(config, seed, overrides, resume, minutes, workers)
    if ranks(checked.data):
        raise ConfigError([f"{checked.path}: its shapers are files without PARAMS, which are ranked: envolve.rank"])
    check_device(checked.data["device"])
    _reachable(checked)
    run_dir = Path(resume) if resume is not None else _begin(checked, Path(results_dir))
    for warning in checked.warnings:
        log.info("%s", warning)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in GTN_master.py: a second thread would only take a core from a worker
    try:
        console = Console() if progress else Console(quiet=True)
        count = workers or len(os.sched_getaffinity(0))
        summary = conduct(
            checked,
            run_dir,
            resume=resume is not None,
            workers=count,
            sync_dir=str(run_dir / OWN_SYNC),
            console=console,
        )
    except KeyboardInterrupt:
        log.warning("stopped; go on with envolve.evolve(resume=%r)", str(run_dir))
        raise
    except BaseException:
        if resume is None:
            forget_unused(run_dir, checked)
        raise
    finally:
        torch.set_num_threads(threads)
    assert isinstance(summary, RunSummary)
    return _result(run_dir, summary)


def _config(
    config: str | os.PathLike[str] | Mapping[str, Any] | None,
    seed: int | None,
    overrides: Mapping[str, Any] | Sequence[str],
    resume: str | os.PathLike[str] | None,
    minutes: float,
    workers: int | None,
) -> Config:
    if resume is not None:
        given = [n for n, v in (("config", config), ("seed", seed), ("overrides", overrides or None)) if v is not None]
        if given:
            raise ConfigError([f"resume goes on with the configuration of its run: found {given[0]}, expected none"])
        path = Path(resume) / CONFIG_FILE
        if not path.is_file():
            raise ConfigError([f"resume: found no {CONFIG_FILE} in {str(resume)!r}, expected the folder of a run"])
        return load_config(path)
    if isinstance(overrides, str):
        overrides = [overrides]
    texts = [f"{k}={_yaml(v)}" for k, v in overrides.items()] if isinstance(overrides, Mapping) else list(overrides)
    if isinstance(config, str) and is_outside(config):
        from envolve.outer.auto.choice import Choice
        from envolve.outer.auto.prepare import check_minutes, prepare

        check_minutes("minutes", minutes)
        count = workers or len(os.sched_getaffinity(0))
        choice = Choice(seconds=60.0 * minutes, seed=0 if seed is None else seed, workers=count)
        return prepare(config, choice, overrides=texts, quick=True).config
    texts += [] if seed is None else [f"seed={seed}"]
    if isinstance(config, Mapping):
        return config_of(config, texts)
    expected = "a YAML file or its content as a dict (or resume=FOLDER)"
    if config is None:
        raise ConfigError([f"config: found nothing, expected {expected}"])
    if not isinstance(config, (str, os.PathLike)):
        raise ConfigError([f"config: found {config!r:.80}, expected {expected}"])
    if isinstance(config, str) and not config.endswith((".yaml", ".yml")) and not os.path.exists(config):
        raise ConfigError([f"config: found no file {config}; an environment is written as gymnasium:{config}"])
    return load_config(os.fspath(config), texts)


def _yaml(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def _begin(config: Config, results: Path) -> Path:
    """The run's folder, with its configuration in it."""
    run_dir = new_run_dir(results, config)
    try:
        store_config(run_dir, config, {"command": "envolve.evolve"})
    except BaseException:
        forget_unused(run_dir, config)
        raise
    return run_dir


def _reachable(config: Config) -> None:
    """A task or a learner must be in a file that workers can load. Raises ConfigError."""
    gtn = config.data["agents"]["gtn"]
    names = [("task", "env_name", config.data["env_name"])]
    names += [("learner", "agents.gtn.agent_name", a) for a in (gtn["agent_name"], *gtn["other_agents"].split())]
    for kind, key, name in names:
        plain = name.lower().removesuffix(VARY_SUFFIX) if kind == "learner" else name
        entry = plugins.own(kind, plain)
        if entry is not None and entry.source is None:
            words = (
                f"{key}: found {name}, which is defined in the running script, where workers cannot load it; put the"
            )
            raise ConfigError([f"{words} class into a file of its own: my_{kind}.py:{entry.cls.__name__}"])


def _result(run_dir: Path, summary: RunSummary) -> Result:
    curve = read_curve(run_dir / SCORES)
    shaper = summary.kind == "shaper"
    world = run_dir / ("params.yaml" if shaper else "model.pt")
    if shaper:
        score = float(yaml.safe_load(read_text(world))["score"])
    else:
        score = read_world(str(world)).score
    return Result(
        run_dir,
        world,
        summary.solved,
        score,
        summary.generations,
        summary.real_steps,
        [p.mean for p in curve],
        summary.proxy.returns if summary.proxy else [],
        summary.real.returns if summary.real else [],
        summary_text(summary),
    )


def whole(name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number, of Python or NumPy, as Python's. Raises ConfigError."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        end = f" and at most {most}" if most < 2**63 - 1 else ""
        raise ConfigError([f"{name}: found {value!r:.80}, expected a whole number of at least {least}{end}"])
    return number


def load_world(
    path: str | os.PathLike[str],
    max_steps: int | None = None,
    gamma: float | None = None,
    *,
    code_from: str | os.PathLike[str] | None = None,
) -> WorldEnv:
    """An evolved world as a Gymnasium environment, for any learner.

    max_steps: of an episode; default: as evolved. gamma: discount of the agent to be trained in a potential reward
    network; default: as evolved. code_from: the folder of a run on a task of your own, or that of the runs, whose file
    there may be executed; a world file alone never executes anything. Raises WorldFileError, ConfigError.
    """
    from envolve.envs.worlds.export import WorldEnv

    if max_steps is not None:
        whole("max_steps", max_steps, 1)
    if gamma is not None and not 0 < gamma <= 1:
        raise ConfigError([f"gamma: found {gamma}, expected above 0 and at most 1"])
    file = read(path, code_from)
    if file.kind == "rn":  # each of its steps is one of the task
        check_task(file)
    return WorldEnv(file.world(gamma), max_steps)


def read(path: str | os.PathLike[str], code_from: str | os.PathLike[str] | None) -> WorldFile:
    """A world file, checked. Raises WorldFileError, ConfigError."""
    if code_from is not None:
        folder = Path(code_from)
        if (folder / CONFIG_FILE).exists() or not folder.is_dir():
            load_config(folder / CONFIG_FILE)  # registers what its ``plugins`` list, if the checksums fit
        else:
            core_plugins.allow(folder)  # the folder of the runs
    try:
        return read_world(os.fspath(path))
    except WorldFileError as e:
        if "task: found" in str(e):
            hint = "a task of your own is loaded with code_from=<folder of the run>, or by register_task"
            raise WorldFileError(f"{e}; {hint}") from None
        raise


def check_task(file: WorldFile) -> None:
    """Raises WorldFileError if the world's task is an environment that this process may not import."""
    try:
        check_configured(file.config)
    except OutsideError as e:
        raise WorldFileError(f"{file.path}: {e}") from None


def register_task(name: str, cls: type[Task]) -> None:
    """Make a task of yours available as ``env_name: <name>`` in this process.

    It is a subclass of :class:`envolve.Task`, in a file that is not the running script if workers are to train on it.
    A configuration can name the file itself instead: ``env_name: my_task.py:PointMass``. Raises PluginError.
    """
    plugins.register_task(name, cls)


def register_search(name: str, cls: type[Search]) -> None:
    """Make a search of yours available as ``search: <name>`` in this process. It is a subclass of
    :class:`envolve.Search`; the master alone runs it, so it may be in the running script. Raises PluginError."""
    plugins.register_search(name, cls)


def register_learner(
    name: str, cls: type[Algorithm], section: type[LearnerSection] | None = None, actions: str | None = None
) -> None:
    """Make an off-policy learner of yours available as ``agent_name: <name>`` in this process.

    It is a subclass of :class:`envolve.Algorithm`, in a file that is not the running script. section: the dataclass of
    its hyperparameters, each declared with :func:`envolve.option`; default: ``cls.section_class``. actions: discrete,
    continuous or both; default: ``cls.actions``. Raises PluginError.
    """
    plugins.register_learner(name, cls, section, actions)
