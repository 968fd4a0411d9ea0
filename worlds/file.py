"""A world of the zoo as a file: networks as tensors, the rest as JSON in the file's metadata.

Tensors are named as in ``model.pt`` (``env.init_net.0.weight`` [out, in], ``env.init_net.0.bias`` ...); a
table of contexts is ``env.contexts`` [K, F]. Beside them lie ``observation_mean`` and ``observation_scale`` [F]: an
agent sees mean + scale * context. Whatever is read is checked.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from envolve.core.spaces import integers, read_codes
from envolve.worlds.bandit import ACTIVATIONS, OUTPUT_BOUND, Bandit, Net
from envolve.worlds.tensors import TensorFileError, read_tensors

FORMAT, VERSION = "envolve-zoo", 4
# keys that a file may have, and from which version; others are written as before
SINCE = {"codes": 2, "wrappers": 3, "stored_contexts": 4}
# Of gymnasium.wrappers, those that a file may ask for: they keep no state and write nothing.
WRAPPERS = ("ClipAction", "FilterObservation", "FlattenObservation", "RescaleAction", "RescaleObservation")
KEYS = {"format", "version", "kind", "task", "activation", "observation_shape", "action"}
KINDS = ("bandit",)
ACTION_KINDS = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
MOST = 512  # numbers of an observation or an action; combinations of a discrete one


class WorldError(Exception):
    """An unknown world, or a damaged file. One line with the name or path, what was found and what was expected."""


class Action(NamedTuple):
    """The task's own action space, and how its actions become the network's inputs."""

    space: spaces.Space[Any]
    n: int  # combinations of a discrete space; 0: a Box
    nvec: tuple[int, ...]
    start: tuple[int, ...]
    low: np.ndarray  # float64 [A], of a Box
    high: np.ndarray

    @property
    def inputs(self) -> int:
        """A."""
        return self.n or len(self.low)

    def codes(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] of the space -> indices int64 [N], or float32 [N, A], where the bounds are -1 and 1."""
        flat = actions.reshape(len(actions), -1)
        if not self.n:
            return (2.0 * (flat - self.low) / (self.high - self.low) - 1.0).astype(np.float32)
        if len(self.nvec) == 1:
            return flat[:, 0].astype(np.int64) - self.start[0]
        parts = flat.astype(np.int64) - np.array(self.start)
        return np.ravel_multi_index(tuple(parts.T), self.nvec)

    def actions(self, codes: np.ndarray) -> np.ndarray:
        """The way back: indices [N], or numbers [N, A] -> actions [N, ...] of the space."""
        if self.n:
            flat = np.stack(np.unravel_index(codes, self.nvec), -1) + np.array(self.start)
        else:
            flat = np.clip(self.low + (codes + 1.0) / 2.0 * (self.high - self.low), self.low, self.high)
        return flat.reshape(len(codes), *(self.space.shape or ())).astype(self.space.dtype)


class ZooWorld(NamedTuple):
    """A world that was read and checked."""

    task: str  # id of Gymnasium
    kind: str
    bandit: Bandit
    mean: np.ndarray  # float64 [F]
    scale: np.ndarray
    observation: spaces.Box  # in the task's own units
    action: Action
    wrappers: tuple[tuple[str, dict[str, Any]], ...] = ()  # of the task: of WRAPPERS, each with its arguments
    bound: float = math.inf  # what an agent sees is clipped to [-bound, bound]


def read_world(path: Path) -> ZooWorld:
    """Raises WorldError, whatever the file holds."""
    try:
        tensors, metadata = read_tensors(path)
    except TensorFileError as e:
        raise WorldError(str(e)) from None
    try:
        about = json.loads(metadata.get("envolve", ""))
    except (ValueError, RecursionError):
        raise WorldError(f"{path}: metadata: found no key 'envolve' with JSON, expected a world of the zoo") from None
    try:
        return _world(about, tensors)
    except ValueError as e:
        raise WorldError(f"{path}: {e}") from None


def _world(about: Any, tensors: dict[str, np.ndarray]) -> ZooWorld:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"format: found {str(about):.60}, expected {FORMAT}")
    version = about.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"version: found {version!r:.40}, expected {VERSION}")
    if version > VERSION:
        raise ValueError(f"version: found {version}, expected {VERSION}: the file is newer than this Envolve")
    optional = {key for key, since in SINCE.items() if version >= since}
    for key in sorted((KEYS - set(about)) | (set(about) - KEYS - optional)):
        raise ValueError(f"{key}: {'missing' if key in KEYS else 'an unknown key'}")
    if about["kind"] not in KINDS:
        raise ValueError(f"kind: found {about['kind']!r:.40}, expected {' or '.join(KINDS)}")
    if about["activation"] not in ACTIVATIONS:
        raise ValueError(f"activation: found {about['activation']!r:.40}, expected one of {', '.join(ACTIVATIONS)}")
    if not isinstance(about["task"], str) or not re.fullmatch(r"[\w:./-]{1,200}", about["task"]):
        raise ValueError(f"task: found {about['task']!r:.80}, expected an id of Gymnasium")
    action, shape = action_of(about["action"]), integers(about["observation_shape"], "observation_shape", 1)
    F = math.prod(shape)
    mean, scale = (_taken(tensors, f"observation_{name}", (F,)).astype(np.float64) for name in ("mean", "scale"))
    if not (scale > 0).all():
        raise ValueError("observation_scale: found numbers that are not positive")
    source = _source(tensors, F, about)
    reward = _net(tensors, "reward_net", action.inputs + F, 1, about["activation"])
    if tensors:
        raise ValueError(f"tensor {sorted(tensors)[0]!r:.80} is not expected")
    low, high = ((mean + sign * OUTPUT_BOUND * scale).astype(np.float32).reshape(shape) for sign in (-1, 1))
    observation = spaces.Box(low, high, shape, np.float32)
    bandit = Bandit(source, reward, action.inputs, read_codes(about.get("codes", []), F))
    wrappers = read_wrappers(about.get("wrappers", []))
    return ZooWorld(about["task"], about["kind"], bandit, mean, scale, observation, action, wrappers)


def read_wrappers(value: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """``[["RescaleObservation", {"min_obs": -1, "max_obs": 1}]]`` -> the same, checked. Raises ValueError."""
    fits = isinstance(value, list) and len(value) <= 8
    if not fits or not all(isinstance(w, list) and len(w) == 2 and isinstance(w[1], dict) for w in value):
        raise ValueError(f"wrappers: found {value!r:.80}, expected a list of names and arguments")
    for name, _ in value:
        if name not in WRAPPERS:
            raise ValueError(f"wrappers: found {name!r:.80}, expected one of {', '.join(WRAPPERS)}")
    return tuple((name, arguments) for name, arguments in value)


def _taken(tensors: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Takes a tensor out of those that are left. Raises ValueError."""
    if name not in tensors:
        raise ValueError(f"tensor {name!r} is missing")
    found = tensors.pop(name)
    if found.shape != shape:
        raise ValueError(f"tensor {name!r}: found the shape {list(found.shape)}, expected {list(shape)}")
    return found


def _source(tensors: dict[str, np.ndarray], F: int, about: Mapping[str, Any]) -> Net | np.ndarray:
    """What contexts are drawn from: init_net, or a table [K, F]. Raises ValueError."""
    if "stored_contexts" not in about:
        return _net(tensors, "init_net", F, F, about["activation"])
    K = about["stored_contexts"]
    if type(K) is not int or K < 1:
        raise ValueError(f"stored_contexts: found {K!r:.40}, expected a number of at least 1")
    return _taken(tensors, "env.contexts", (K, F))


def _net(tensors: dict[str, np.ndarray], name: str, inputs: int, outputs: int, activation: str) -> Net:
    """The linear layers of one network: modules 0, 2, 4, ...; a PReLU's slope is the weight of module 1."""
    layers = 0
    while f"env.{name}.{2 * layers}.weight" in tensors:
        layers += 1
    if not layers:
        raise ValueError(f"tensor 'env.{name}.0.weight' is missing")
    weights, biases, width = [], [], inputs
    for i in range(layers):
        key = f"env.{name}.{2 * i}"
        out = outputs if i == layers - 1 else len(tensors[f"{key}.weight"])
        weights.append(np.ascontiguousarray(_taken(tensors, f"{key}.weight", (out, width)).T))
        biases.append(_taken(tensors, f"{key}.bias", (out,)))
        width = out
    slope = float(_taken(tensors, f"env.{name}.1.weight", (1,))[0]) if activation == "prelu" else 0.0
    return Net(tuple(weights), tuple(biases), activation, slope)


def action_of(data: Any) -> Action:
    """The JSON of ``envs/outside/spaces.py`` -> the space. Raises ValueError."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in ACTION_KINDS:
        raise ValueError(f"action.kind: found {kind!r:.40}, expected {', '.join(ACTION_KINDS)}")
    shape, dtype = integers(data.get("shape"), "action.shape", 1), data.get("dtype")
    if kind == "Box":
        if dtype not in ("float32", "float64"):
            raise ValueError(f"action.dtype: found {dtype!r:.40}, expected float32 or float64")
        low, high = (_numbers(data.get(key), f"action.{key}") for key in ("low", "high"))
        if not 1 <= len(low) == len(high) == math.prod(shape) <= MOST or not (high > low).all():
            raise ValueError("action: found bounds that do not fit each other, expected low < high of every number")
        lowest, highest = low.astype(dtype).reshape(shape), high.astype(dtype).reshape(shape)
        return Action(spaces.Box(lowest, highest, shape, lowest.dtype.type), 0, (), (), low, high)
    nvec, start = integers(data.get("nvec"), "action.nvec", 1), integers(data.get("start"), "action.start", -(2**31))
    fits = 1 <= len(nvec) == len(start) == math.prod(shape) and math.prod(nvec) <= MOST
    if not fits or (kind == "Discrete" and shape) or dtype not in ("int8", "int16", "int32", "int64", "uint8"):
        raise ValueError(f"action: found {str(data):.80}, expected 1 to {MOST} combinations")
    none = np.zeros(0)
    parts = nvec, start, none, none
    if kind == "Discrete":
        return Action(spaces.Discrete(nvec[0], start=start[0]), nvec[0], *parts)
    if kind == "MultiBinary":
        return Action(spaces.MultiBinary(shape), math.prod(nvec), *parts)
    many, begin = (np.array(x, dtype).reshape(shape) for x in (nvec, start))
    return Action(spaces.MultiDiscrete(many, np.dtype(dtype).type, start=begin), math.prod(nvec), *parts)


def _numbers(values: Any, name: str) -> np.ndarray:
    fits = isinstance(values, list) and all(type(x) in (int, float) and math.isfinite(x) for x in values)
    if not fits:
        raise ValueError(f"{name}: found {str(values):.60}, expected a list of finite numbers")
    return np.array(values, np.float64)


def metadata_of(about: Mapping[str, Any]) -> dict[str, str]:
    """Metadata of a new file. about: task, kind, activation, observation_shape, action, and codes, wrappers and
    stored_contexts if there are any."""
    version = max((since for key, since in SINCE.items() if key in about), default=1)
    content = {"format": FORMAT, "version": version, **about}
    assert set(content) - set(SINCE) == KEYS, sorted(KEYS ^ set(content))
    return {"envolve": json.dumps(content, sort_keys=True, separators=(",", ":"))}
