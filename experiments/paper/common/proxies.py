"""Worlds by the dozen: which configuration evolves a kind of world, where its runs lie, and which of them are best.

    <results-dir>/<name>_mode<M>[_<objective>][_quick]/seed<S>/    reward networks (RNs) of one mode
    <results-dir>/<name>_fixed | _varied[_quick]/seed<S>/          synthetic environments (SEs), by the hyperparameters
                                                                   of the agents that they were evolved with

<name> is that of the configuration, without default_config_. A run's folder is one of GTN_master.py's, with result.json
once it is finished. index.json beside the runs lists them all, for people and other programs.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envolve.agents.common.learners import curious_learners
from envolve.agents.common.sections import TabularSection
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.section import INFO_TYPES, RN_TYPES
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.file import WorldFile, WorldFileError, read_world, write_atomic
from envolve.outer.config import problem
from envolve.outer.config.load import Config, ConfigError, load_config
from envolve.outer.config.section import RN, SHAPER
from envolve.outer.evaluate.device import check_device

RESULT, INDEX, MODEL = "result.json", "index.json", "model.pt"
CURIOSITY, TASK = -1, 0  # modes in which nothing is evolved
MODES = {
    -1: "no reward network, curious agent",
    0: "no reward network",
    1: "exclusive potential",
    2: "additive potential",
    3: "augmented exclusive potential",
    4: "augmented additive potential",
    5: "exclusive non-potential",
    6: "additive non-potential",
    7: "augmented exclusive non-potential",
    8: "augmented additive non-potential",
    101: "exclusive weighted info vector",
    102: "additive weighted info vector",
}
OBJECTIVES = ("reward_threshold", "auc", "mean_return")


def label(mode: int) -> str:
    """Name of a mode's series in the data files."""
    return f"mode {mode}"


def modes_of(task: Task) -> list[int]:
    return [CURIOSITY, *(t for t in RN_TYPES if task.info_size or t not in INFO_TYPES)]


def quick_modes(task: Task) -> list[int]:
    """Modes of a quick look: one of each kind if the task has an info vector, and curiosity only for tabular
    learners."""
    if task.info_size:
        return [0, 2, 4, 6, 102]
    return [m for m in modes_of(task) if m != CURIOSITY or task.num_states is not None]


@dataclass(frozen=True)
class Proxy:
    """One kind of world."""

    config: Config  # that evolves it; its seed is the first run's
    mode: int | None  # None: SEs
    folder: Path

    @property
    def evolves(self) -> bool:
        return self.mode not in (CURIOSITY, TASK)

    def run_config(self, seed: int) -> Config:
        return dataclasses.replace(self.config, data={**self.config.data, "seed": seed})


def proxy(
    path: Path,
    results_dir: Path,
    *,
    mode: int | None = None,
    objective: str | None = None,
    vary_hp: bool | None = None,
    overrides: Sequence[str] = (),
    quick: bool = False,
    name: str | None = None,
) -> Proxy:
    """The kind of world that the options of a command describe. Raises ConfigError.

    mode: of RNs, default: the configuration's own; vary_hp: of SEs, whether their agents' hyperparameters vary, default
    likewise; name: instead of the configuration's.
    """
    base = load_config(path, overrides)
    data = base.data
    check_device(data["device"])
    gtn = data["agents"]["gtn"]
    kind, agent = gtn["synthetic_env_type"], gtn["agent_name"]
    if kind == SHAPER:
        raise ConfigError([f"{path}: found synthetic_env_type 2, expected 0 or 1: an SE or a reward network"])
    task = task_of(data)
    extra: list[str] = []
    name = name or path.stem.removeprefix("default_config_")
    if kind != RN:
        for option, value in (("--mode", mode), ("--objective", objective)):
            if value is not None:
                raise ConfigError([f"{option}: found {value}, expected none: {path} evolves SEs, not reward networks"])
        varied = problem.split_agent_name(agent).vary if vary_hp is None else vary_hp
        extra.append(f"agents.gtn.agent_name={with_vary(agent, varied)}")
        name += "_varied" if varied else "_fixed"
    else:
        own = data["envs"][data["env_name"]]["reward_env_type"]
        mode = own if mode is None else mode
        check_mode(mode, task)
        if mode == CURIOSITY:
            extra.append(f"agents.gtn.agent_name={curious(agent)}")
        elif mode != TASK:
            extra.append(f"envs.{data['env_name']}.reward_env_type={mode}")
        name += f"_mode{mode}"
        if objective is not None:
            if objective not in OBJECTIVES:
                raise ConfigError([f"--objective: found {objective!r}, expected one of {', '.join(OBJECTIVES)}"])
            extra.append(f"agents.gtn.rn_objective={objective}")
            name += f"_{objective}" if objective != gtn["rn_objective"] else ""
        if vary_hp is not None:
            extra.append(f"agents.gtn.agent_name={with_vary(curious(agent) if mode == CURIOSITY else agent, vary_hp)}")
            name += "_varied" if vary_hp else "_fixed"
    config = load_config(path, [*(quick_values(data) if quick else []), *overrides, *extra])
    return Proxy(config, mode if kind == RN else None, results_dir / (name + "_quick" * quick))


def task_of(data: dict[str, Any], **changes: Any) -> Task:
    section = problem.env_section(data)
    return make_task(
        data["env_name"],
        **{
            "max_steps": section.max_steps,
            "solved_reward": section.solved_reward,
            **changes,
        },
    )


def check_mode(mode: int, task: Task, option: str = "--mode") -> None:
    """Raises ConfigError."""
    fitting = modes_of(task)
    if mode in fitting:
        return
    found = f"{mode} ({MODES[mode]}; {task.name} has no info vector)" if mode in MODES else str(mode)
    raise ConfigError([f"{option}: found {found}, expected one of {', '.join(map(str, fitting))}"])


def with_vary(agent: str, vary: bool) -> str:
    base = agent[: -len(problem.VARY_SUFFIX)] if problem.split_agent_name(agent).vary else agent
    return base + problem.VARY_SUFFIX * vary


def curious(agent: str) -> str:
    """The agent of mode -1: with intrinsic curiosity, or where it has a table, with a bonus for rare visits. Raises
    ConfigError."""
    name, is_curious, vary = problem.split_agent_name(agent)
    if is_curious or name.endswith(problem.COUNT_BASED_SUFFIX):
        return agent
    if name in curious_learners():
        return name + problem.CURIOUS_SUFFIX + problem.VARY_SUFFIX * vary
    if name in ("ql", "sarsa"):
        return name + problem.COUNT_BASED_SUFFIX + problem.VARY_SUFFIX * vary
    expected = ", ".join([*curious_learners(), "ql", "sarsa"])
    raise ConfigError([f"--mode: found -1 with the agent {agent}, expected one of {expected}"])


def quick_values(data: dict[str, Any]) -> list[str]:
    """Overrides for a minute's look: few generations of few agents with little training."""
    name, section, _ = problem.learner(data)
    gtn = problem.gtn_section(data)
    key = f"agents.{problem.learner_key(data['agents'], name)}"
    table, continuous = isinstance(section, TabularSection), bool(task_of(data).action_size)
    generations, workers = (10, 8) if table else (2, 2) if continuous else (2, 4)
    out = {
        "max_iterations": min(generations, gtn.max_iterations), "num_workers": min(workers, gtn.num_workers),
        "num_orig_evals": min(workers, 4), "num_grad_evals": 1, "confirm_agents": 0, "comparison_agents": 0,
        "chunk_size": 4,
    }  # fmt: skip
    texts = [f"agents.gtn.{k}={v}" for k, v in out.items()]
    if not table:
        steps = 400 if continuous else 1500
        texts += [f"{key}.train_steps={min(steps, section.train_steps or steps)}", f"{key}.early_out_min_steps=0"]
        texts += [f"{key}.init_episodes={0 if continuous else min(1, section.init_episodes)}"]
    return texts


# ----------------------------------------------------------------------------------------------------- finished runs


@dataclass(frozen=True)
class ProxyRun:
    """Content of a finished run's ``result.json``."""

    seed: int
    score: float  # of the kept world, by the objective; NaN: no agent ever had one
    solved: bool  # SEs: the search's agents confirmed it; RNs: what fresh agents in the kept one do on the task
    mean_return: float  # on the task, of the agents that gave the score; NaN: not known
    generations: int
    best_generation: int
    steps: int  # environment steps of all trainings, in worlds or on the task
    seconds: float
    model: str  # file in the run's folder; "": nothing is evolved
    error: str  # why there is no score
    real_steps: int | None = None  # of the task, spent on the evolution, tests included; None: not recorded


def write_result(run_dir: Path, run: ProxyRun) -> None:
    content = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in dataclasses.asdict(run).items()}
    write_atomic(str(run_dir / RESULT), (json.dumps(content) + "\n").encode())


def read_result(run_dir: Path) -> ProxyRun | None:
    """None: not finished. Raises ConfigError if the file is damaged."""
    path = run_dir / RESULT
    try:
        content = json.loads(read_plain(path, TEXT_BYTES))
        nan = {k: math.nan if content[k] is None else float(content[k]) for k in ("score", "mean_return")}
        return ProxyRun(**{**content, **nan})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as e:
        words = "expected a run's result; remove the file and the run is finished again"
        raise ConfigError([f"{path}: found {type(e).__name__}: {e}, {words}"]) from e


def read_runs(folder: Path) -> list[ProxyRun]:
    """All finished runs, by seed. Raises ConfigError."""
    found = [read_result(path.parent) for path in folder.glob(f"seed*/{RESULT}")]
    return sorted((run for run in found if run is not None), key=lambda run: run.seed)


def write_index(proxy: Proxy) -> None:
    """``index.json`` from what all processes have finished by now."""
    content = {
        "task": proxy.config.data["env_name"],
        "mode": proxy.mode,
        "objective": proxy.config.data["agents"]["gtn"]["rn_objective"] if proxy.mode is not None else None,
        "runs": [
            json.loads(read_plain(proxy.folder / f"seed{r.seed}" / RESULT, TEXT_BYTES)) for r in read_runs(proxy.folder)
        ],
    }
    write_atomic(str(proxy.folder / INDEX), (json.dumps(content, indent=1) + "\n").encode())


def best_worlds(folder: Path, count: int) -> list[WorldFile]:
    """The rule by which worlds are chosen, fixed before they are tested: the score of the run that evolved them, the
    highest first; of equal ones the lower seed. Raises ConfigError if there are not ``count``, WorldFileError."""
    runs = [run for run in read_runs(folder) if run.model and math.isfinite(run.score)]
    if len(runs) < count:
        raise ConfigError([f"{folder}: found {len(runs)} finished runs with a world, expected at least {count}"])
    runs.sort(key=lambda run: (-run.score, run.seed))
    worlds = [read_world(str(folder / f"seed{run.seed}" / run.model)) for run in runs[:count]]
    check_alike(worlds)
    return worlds


def check_alike(worlds: Sequence[WorldFile]) -> None:
    """Raises WorldFileError if they are not of one kind."""
    for world in worlds[1:]:
        if (world.kind, world.env_name, world.section) != (worlds[0].kind, worlds[0].env_name, worlds[0].section):
            raise WorldFileError(f"{world.path}: found another kind of world than {worlds[0].path}, expected the same")
