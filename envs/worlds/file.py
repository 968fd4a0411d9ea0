"""``model.pt``: one evolved world with the configuration it was evolved under. Checked on reading, never executed.

A dictionary written by ``torch.save``: format, version, kind, env_name, model (named tensors, ``format.py``),
config, budget, score, solved, sha256, and where it is known evolution_steps. The bytes
depend on the content alone, not on path, time or machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import logging
import math
import operator
import os
from typing import Any, Dict, Mapping, Optional

import torch
from torch import Tensor

from envolve.core.files import TORCH_BYTES, UnfitFileError, read_plain
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.envs.outside.build import is_outside
from envolve.envs.outside.define import OUTSIDE_KEYS, register_outside
from envolve.envs.section import EnvSection
from envolve.envs.task import ARGUMENTS, ARGUMENTS_KEY, Task, make_task
from envolve.envs.worlds.format import flat_from_state_dict, world_state_dict
from envolve.envs.worlds.reward_network import POTENTIAL, RewardNetwork
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.envs.worlds.world import World

FORMAT, VERSION = "envolve-world", 1
MODEL, FIRST = "model.pt", "distilled.pt"  # in a run's folder: the best world; the first, if experts or a file gave it
TYPES = {  # of each entry beside model
    "format": str, "version": int, "kind": str, "env_name": str, "config": dict,
    "budget": int, "score": float, "solved": bool, "sha256": str,
}  # fmt: skip
OPTIONAL = {"evolution_steps": int}  # files of earlier versions have none
OPTION_TYPES: Dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool}

log = logging.getLogger("envolve")


class WorldFileError(Exception):
    """Raised for a file that is not a usable world. The message names the file, the key, what was found and
    expected."""

    def __init__(self, text: str) -> None:  # what was found may be of any length
        super().__init__(text if len(text) <= 2000 else f"{text[:1500]} ... {text[-450:]}")


@dataclasses.dataclass
class WorldFile:
    """World that was read and checked."""

    path: str
    kind: str  # "se" or "rn"
    env_name: str
    section: EnvSection
    config: Dict[str, Any]
    flat: Tensor  # float32 [D]
    budget: int  # training steps of the agents it was evolved for, 0: no limit
    score: float  # of the outer loop, NaN: unknown
    solved: bool
    evolution_steps: Optional[int] = None  # on the task, spent to evolve it, tests included; None: unknown

    def digest(self) -> int:
        """Random seed made from the parameters, in [0, 2^62), unique to this world."""
        data = self.flat.detach().cpu().contiguous().numpy().tobytes()
        return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 2

    def task(self) -> Task:
        return make_task(self.env_name, max_steps=self.section.max_steps, solved_reward=self.section.solved_reward)

    def discount(self) -> float:
        """Discount gamma of the agent that the world was evolved with. Raises WorldFileError if the configuration lacks
        it."""
        agents = self.config.get("agents", {})
        try:
            name = agents["gtn"]["agent_name"].lower()
            name = name[: -len("_vary")] if name.endswith("_vary") else name
            if name not in agents and name.endswith("_cb"):  # configured together with the plain learner
                name = name[: -len("_cb")]
            return float(agents[name]["gamma"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            what = "the discount gamma of the agent that config.agents.gtn.agent_name names"
            raise WorldFileError(f"{self.path}: key 'config.agents': found {error!r}, expected {what}") from None

    def world(self, gamma: Optional[float] = None) -> World:
        """World with P = 1. gamma: discount of the agent to be trained in a potential RN, default: as evolved."""
        params = self.flat.unsqueeze(0)
        if self.kind == "se":
            return synthetic_world(self.task(), self.section, params)
        if gamma is None:
            gamma = self.discount() if self.section.reward_env_type in POTENTIAL else 1.0
        return RewardNetwork(self.task(), self.section, params, torch.tensor([gamma]))


def checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of the tensors (name, dtype, shape, bytes; by name) and the canonical JSON of everything else but
    sha256."""
    digest = hashlib.sha256()
    for name in sorted(content["model"]):
        value = content["model"][name]
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    rest = {key: value for key, value in content.items() if key not in ("model", "sha256")}
    digest.update(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def write_atomic(path: str, data: bytes) -> None:
    """Writes atomically: after a crash at any moment ``path`` holds the old bytes or the new ones. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):  # name the file that people know
            raise OSError(error.errno, error.strerror, path) from error
        raise


def save_world(
    path: str,
    kind: str,
    env_name: str,
    flat: Tensor,
    config: Mapping[str, Any],
    *,
    budget: int = 0,
    score: float = math.nan,
    solved: bool = False,
    evolution_steps: Optional[int] = None,
) -> None:
    """Writes one world. flat: float32 [D]; config: the resolved configuration (plain values); the rest: ``WorldFile``.

    Raises WorldFileError if the parts do not fit each other, OSError if the disk does not take the file.
    """
    rest = {
        "format": FORMAT, "version": VERSION, "kind": kind, "env_name": env_name, "config": config,
        "budget": int(budget), "score": float(score), "solved": bool(solved),
    }  # fmt: skip
    if evolution_steps is not None:
        rest["evolution_steps"] = int(evolution_steps)
    # Through JSON and back: plain values in sorted order and, as pickle notes which strings are one object, no trace
    # of how the caller built them.
    content = json.loads(json.dumps(rest, sort_keys=True))
    section = _section(path, content["config"], env_name, strict=True)
    task = _task(path, env_name, section)
    content["model"] = world_state_dict(kind, task, section, flat.detach().cpu())
    content["sha256"] = checksum(content)
    _check(path, content)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomic(path, buffer.getvalue())


def read_world(path: str) -> WorldFile:
    """Reads and checks a world of this project, or of the original (which has neither format nor checksum).

    Raises WorldFileError, whatever the file holds.
    """
    if path.endswith(".safetensors"):
        words = "envolve worlds test and gymnasium.make take worlds of the zoo"
        raise WorldFileError(f"{path}: found a .safetensors file, expected the model.pt of a run: {words}")
    try:
        content = read_torch(read_plain(path, TORCH_BYTES), legacy=True)
    except (OSError, TorchFileError) as error:
        said = str(error.strerror if isinstance(error, UnfitFileError) else error)
        reason = said.strip().split("\n")[0] or type(error).__name__
        raise WorldFileError(f"{path}: cannot be read as a torch file of plain values and tensors: {reason}") from None
    if not isinstance(content, dict):
        raise WorldFileError(f"{path}: found {type(content).__name__}, expected a dictionary")
    if set(content) == {"model", "config"}:
        return _original(path, content)
    return _check(path, content)


def _check(path: str, content: Dict[str, Any]) -> WorldFile:
    for key, wanted in (("format", FORMAT), ("version", VERSION)):
        found = content.get(key)
        if type(found) is not type(wanted) or found != wanted:
            raise WorldFileError(f"{path}: key {key!r}: found {found!r}, expected {wanted!r}")
    known = {key: kind for key, kind in OPTIONAL.items() if key in content}
    for key, expected in dict(TYPES, model=dict, **known).items():
        if key not in content:
            raise WorldFileError(f"{path}: key {key!r} is missing")
        if type(content[key]) is not expected:
            found = type(content[key]).__name__
            raise WorldFileError(f"{path}: key {key!r}: found a value of type {found}, expected {expected.__name__}")
    for key in content:
        if key not in TYPES and key not in OPTIONAL and key != "model":
            raise WorldFileError(f"{path}: key {key!r} is not expected")
    if content["kind"] not in ("se", "rn"):
        raise WorldFileError(f"{path}: key 'kind': found {content['kind']!r}, expected 'se' or 'rn'")
    for key in ("budget", *known):
        if content[key] < 0:
            raise WorldFileError(f"{path}: key {key!r}: found {content[key]}, expected at least 0")
    section = _section(path, content["config"], content["env_name"], strict=True)
    flat = _flat(path, content["kind"], content["env_name"], section, content["model"])
    try:
        found = checksum(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise WorldFileError(f"{path}: key 'config': holds more than plain values: {error}") from None
    if found != content["sha256"]:
        raise WorldFileError(
            f"{path}: key 'sha256': found {content['sha256']!r}, expected {found!r}: the file was changed or damaged"
        )
    fields = ("kind", "env_name", "config", "budget", "score", "solved")
    return WorldFile(path=path, section=section, flat=flat, **{key: content[key] for key in (*fields, *known)})


def _original(path: str, content: Dict[str, Any]) -> WorldFile:
    """Checks a file of the original project, which has only ``model`` and ``config``."""
    log.warning("%s: a file of the original project, without checksum: only its shapes and values are checked", path)
    model, config = content["model"], content["config"]
    for key in ("model", "config"):
        if not isinstance(content[key], dict):
            raise WorldFileError(f"{path}: key {key!r}: found {type(content[key]).__name__}, expected a dictionary")
    env_name = config.get("env_name")
    if not isinstance(env_name, str):
        raise WorldFileError(f"{path}: key 'config.env_name': found {env_name!r}, expected the name of a task")
    kind = "se" if any(str(name).startswith("env.state_net.") for name in model) else "rn"
    section = _section(path, config, env_name, strict=False)
    flat = _flat(path, kind, env_name, section, model)
    return WorldFile(path, kind, env_name, section, config, flat, budget=0, score=math.nan, solved=False)


def _task(path: str, env_name: str, section: EnvSection) -> Task:
    try:
        return make_task(env_name, max_steps=section.max_steps, solved_reward=section.solved_reward)
    except (KeyError, TypeError) as error:  # TypeError: arguments of a class that is not the one of the file
        raise WorldFileError(f"{path}: key 'env_name': {error.args[0]}") from None


def _flat(path: str, kind: str, env_name: str, section: EnvSection, model: Dict[str, Any]) -> Tensor:
    try:
        flat = flat_from_state_dict(kind, _task(path, env_name, section), section, model)
    except ValueError as error:
        raise WorldFileError(f"{path}: model: {error}") from None
    for name, value in model.items():
        if not torch.isfinite(value).all():
            raise WorldFileError(f"{path}: model: key {name!r}: found values that are not finite, expected finite ones")
    return flat


def _section(path: str, config: Dict[str, Any], env_name: str, strict: bool) -> EnvSection:
    """Section ``config["envs"][env_name]``, each value checked. strict: unknown keys are errors; else a warning names
    them."""
    where = f"config.envs.{env_name}"
    envs = config.get("envs")
    values = envs.get(env_name) if isinstance(envs, dict) else None
    if not isinstance(values, dict):
        raise WorldFileError(f"{path}: key {where!r}: found {type(values).__name__}, expected a dictionary")
    known = {field.name: field for field in dataclasses.fields(EnvSection)}
    outside = OUTSIDE_KEYS if is_outside(env_name) else ()
    unknown = [key for key in values if key not in known and key not in (*outside, ARGUMENTS_KEY)]
    if unknown and strict:
        raise WorldFileError(f"{path}: key {where!r}: {unknown[0]!r} is not expected; known: {', '.join(known)}")
    if unknown:
        log.warning("%s: %s: ignored keys: %s", path, where, ", ".join(map(str, unknown)))
    if not strict:  # the original's range syntax [minimum, default, maximum]: it uses element 1
        values = {k: v[1] if isinstance(v, list) and len(v) == 3 else v for k, v in values.items()}
    for key, field in known.items():
        if key in values:
            _check_option(path, f"{where}.{key}", values[key], field)
    if outside:
        try:
            register_outside(env_name, values)
        except ValueError as error:
            raise WorldFileError(f"{path}: key 'config': {error}") from None
    elif isinstance(values.get(ARGUMENTS_KEY), dict):
        ARGUMENTS[env_name] = dict(values[ARGUMENTS_KEY])
    return EnvSection(**{key: value for key, value in values.items() if key in known})


def _check_option(path: str, where: str, value: Any, field: Any) -> None:
    kind = str(field.type)  # a string: postponed annotations
    if kind.startswith("Optional["):
        if value is None:
            return
        kind = kind[len("Optional[") : -1]
    limits, choices = field.metadata["limits"], field.metadata["choices"]
    fits = isinstance(value, OPTION_TYPES[kind]) and isinstance(value, bool) == (kind == "bool")
    expected = f"a value of type {kind}"
    if fits and choices:
        fits, expected = value in choices, f"one of {', '.join(map(str, choices))}"
    if fits and limits:
        fits = all(getattr(operator, name)(value, limit) for name, limit in limits.items())
        expected = " and ".join(f"{name} {limit}" for name, limit in limits.items())
    if not fits:
        raise WorldFileError(f"{path}: key {where!r}: found {value!r}, expected {expected}")
