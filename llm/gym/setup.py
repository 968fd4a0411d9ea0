"""Setup of a run on a user's own environment: options, the user's folder, results folder, the benchmark's id."""

from __future__ import annotations

import datetime
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from envolve.core.places import CODE
from envolve.core.registry import nearest
from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym.agree import disagreement
from envolve.llm.gym.config import load_gym_config
from envolve.llm.gym.reward import step_call
from envolve.llm.gym.sections import GymConfig
from envolve.llm.gym.train import Limits, read_if_plain
from envolve.llm.models.chat import Chat, make_chat
from envolve.llm.models.ledger import Budget
from envolve.llm.models.prices import Price
from envolve.llm.vetting.jail import locks as jail
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.folders import new_folder

MAX_USER_TEXT = 1_000_000
CONFIG_FILE = "config.json"  # in the folder of a run
log = logging.getLogger("envolve")


@dataclass(frozen=True)
class GymOptions:
    """Options of the command line that override the YAML. None keeps the YAML's value.

    llm: as make_chat names models ("gpt-4o", "ollama:llama3", "replay:FILE"). results_dir: instead of
    experiment.parent. set: ``section.key=value``. resume: folder of the run to resume. processes: trainings at
    once, 0: one per core. seconds, memory (bytes): of one training. envs: where to look for environments first.
    prices, parallel, timeout (s): of calls, as make_chat takes them.
    """

    llm: str | None = None
    base_url: str | None = None
    results_dir: Path | None = None
    seed: int | None = None
    json: Path | None = None
    wandb: str | None = None
    budget: Budget = Budget()
    resume: Path | None = None
    set: tuple[str, ...] = ()
    processes: int = 0
    seconds: float = Limits.seconds
    memory: int = Limits.memory
    envs: Path | None = None
    max_tokens: int = 4096
    prices: Mapping[str, Price] = field(default_factory=dict)
    parallel: int = 8
    timeout: float = 300.0
    allow_unprotected: bool = False


@dataclass(frozen=True)
class UserEnv:
    """Content of the user's folder."""

    folder: Path
    step: str
    description: str
    initial: str | None


class Prepared(NamedTuple):
    """What a run begins with."""

    config: GymConfig
    env: UserEnv
    folder: Path
    limits: Limits
    chat: Chat
    waits: bool  # between iterations: the model shares this machine's GPU


def prepare(path: Path, options: GymOptions) -> Prepared:
    """Checks everything, then makes the folder. path: the YAML file. Raises ConfigError, ChatError, OSError."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise ConfigError(["--config: found no Stable-Baselines3, expected it: pip install 'envolve[baselines]'"])
    overrides = [*options.set]
    if options.seed is not None:
        overrides.append(f"rl.training.seed={options.seed}")
    config = checked_benchmark(load_gym_config(path, overrides))
    env = find_env(config.environment.name, _places(path, options))
    check_agreement(env, config.environment.class_name)
    unprotected = options.allow_unprotected or jail.opted_out()
    limits = Limits(options.seconds, options.memory, allow_unprotected=unprotected)
    if not unprotected and jail.missing():
        raise ConfigError([f"this machine cannot jail model-written code: no {', no '.join(jail.missing())}"])
    eureka = config.eureka
    name = options.llm or {"ollama": "ollama:", "replay": "replay:", "openai": ""}[eureka.backend] + eureka.model
    _chat(name, config, options, None).close()  # a wrong name, a missing key: before there is a folder
    folder = _folder(config, options)
    chat = _chat(name, config, options, folder / "calls.jsonl")
    if eureka.use_initial_reward_prompt and env.initial is None:
        log.warning("use_initial_reward_prompt: %s has no initial_reward_prompt.txt", env.folder)
    return Prepared(config, env, folder, limits, chat, name.startswith("ollama:"))


def _chat(name: str, config: GymConfig, options: GymOptions, record: Path | None) -> Chat:
    return make_chat(
        [name],
        options.base_url,
        record,
        budget=options.budget,
        prices=options.prices,
        parallel=options.parallel,
        timeout=options.timeout,
        seed=config.rl.training.seed,
    )


def _folder(config: GymConfig, options: GymOptions) -> Path:
    """New run folder, or that of the run to resume, with the same configuration."""
    now = config.model_dump_json(indent=1).encode()
    if options.resume is None:
        folder = run_folder(config, options.results_dir)
        write_atomic(str(folder / CONFIG_FILE), now)
        return folder.resolve()
    folder = options.resume
    before = read_if_plain(folder / CONFIG_FILE, MAX_USER_TEXT)
    if before is None:
        raise ConfigError([f"--resume {folder}: found no config.json, expected the folder of a run"])
    if before != now:
        changed = "found another configuration than the run began with, expected the same file, --set and --seed"
        raise ConfigError([f"--resume {folder}: {changed}"])
    return folder.resolve()


def _places(path: Path, options: GymOptions) -> list[Path]:
    """Where the user's folder may be."""
    beside = [Path("envs"), path.resolve().parent / "envs", path.resolve().parents[1] / "envs", CODE / "envs"]
    return [p.resolve() for p in ([options.envs] if options.envs else []) + beside]


def find_env(name: str, places: Sequence[Path]) -> UserEnv:
    """Reads the folder ``name`` in the first of the places that has it. Raises ConfigError with what is missing."""
    there = [p / name for p in places if (p / name / "env_code" / "env.py").is_file()]
    if not there:
        known = sorted({f.parents[1].name for p in places if p.is_dir() for f in p.glob("*/env_code/env.py")})
        near = nearest(name, known, cutoff=0.4)
        looked = " and ".join(dict.fromkeys(f"{p}/{name}/env_code/env.py" for p in places))
        mean = f", did you mean {near}" if near else ""
        raise ConfigError([f"environment.name: found {name!r}, expected {looked}{mean} (there are {', '.join(known)})"])
    folder = there[0].resolve()
    texts = {}
    for file in ("step.py", "task_description.txt"):
        data = read_if_plain((folder / file).resolve(), MAX_USER_TEXT)
        if data is None or not data.strip():
            raise ConfigError([f"{folder / file}: found no text, expected {_ASKED[file]}"])
        texts[file] = data.decode("utf-8", "replace")
    initial = read_if_plain((folder / "initial_reward_prompt.txt").resolve(), MAX_USER_TEXT)
    if step_call(texts["step.py"]) is None and "compute_reward" not in texts["step.py"]:
        raise ConfigError([f"{folder / 'step.py'}: found no self.compute_reward(...), expected step to call it"])
    return UserEnv(
        folder, texts["step.py"], texts["task_description.txt"], initial.decode("utf-8", "replace") if initial else None
    )


def check_agreement(env: UserEnv, class_name: str) -> None:
    """Warns where step.py is not the step of env.py. Raises ConfigError where rewards for one fail in the other."""
    text = read_if_plain(env.folder / "env_code" / "env.py", MAX_USER_TEXT) or b""
    error, warning = disagreement(text.decode("utf-8", "replace"), class_name, env.step)
    if error:
        raise ConfigError([f"{env.folder / 'step.py'}: {error}"])
    if warning:
        log.warning("%s: %s", env.folder, warning)


_ASKED = {"step.py": "the text of the environment's step, which the model is shown", "task_description.txt": "the task"}


def run_folder(config: GymConfig, results_dir: Path | None) -> Path:
    """New folder parent/name, with use_datetime parent/name/date; numbered if it exists. Raises OSError."""
    folder = Path(results_dir or config.experiment.parent) / config.experiment.name
    return new_folder(folder / datetime.date.today().isoformat() if config.experiment.use_datetime else folder)


def checked_benchmark(config: GymConfig) -> GymConfig:
    """Registered id for an outdated one: LunarLander-v2 became LunarLander-v3. Raises ConfigError."""
    import gymnasium

    asked = config.environment.benchmark
    if asked is None or asked in gymnasium.registry or ":" in asked:
        return config
    base = asked.rpartition("-v")[0] or asked
    newer = sorted(i for i in gymnasium.registry if i.rpartition("-v")[0] == base)
    if not newer:
        near = nearest(asked, list(gymnasium.registry))
        mean = f", did you mean {near}" if near else ""
        found = f"environment.benchmark: found {asked!r}, expected the id of a Gymnasium environment or null{mean}"
        raise ConfigError([found])
    log.warning("environment.benchmark: Gymnasium no longer has %s; using %s", asked, newer[-1])
    environment = config.environment.model_copy(update={"benchmark": newer[-1]})
    return config.model_copy(update={"environment": environment})
