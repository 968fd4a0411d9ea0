"""Spaces of an environment from outside as plain data, and values between them and the learners' vectors.

Learners see an observation as F numbers and an action as one index or A numbers in [-1, 1]. What a space is like is
written down once, as JSON in the configuration, so that a world can be opened where the environment is not installed.
Shapes: F observation features, A action numbers. Neither torch nor Gymnasium is imported before it is needed.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from envolve.core.spaces import integers, read_codes

MAX_FEATURES = 512
MAX_ACTIONS = 64
HUGE = 1e6  # a bound from here on says nothing about the values
IMAGE_SIDE = 16  # pixels; a Box [height, width, channels] of bytes at least this large is an image

Json = Dict[str, Any]


class SpaceError(Exception):
    """A space that no learner here can use. One sentence with what to do."""


class Observation(NamedTuple):
    """What observations are like. A Box keeps its shape and type for users of the exported world; every other space is
    flattened as Gymnasium flattens it."""

    kind: str  # "Box", or "flattened"
    shape: Tuple[int, ...]
    dtype: str
    low: np.ndarray  # float64 [F]
    high: np.ndarray
    text: str  # the space as its environment prints it
    codes: Tuple[Tuple[int, int], ...] = ()  # features [start, stop) are one-hot: of each such part exactly one is 1

    @property
    def size(self) -> int:
        """F."""
        return len(self.low)


class Action(NamedTuple):
    """What actions are like. ``n`` combinations of a discrete space, or A = ``size`` numbers of a Box."""

    kind: str  # "Discrete", "MultiDiscrete", "MultiBinary" or "Box"
    shape: Tuple[int, ...]
    dtype: str
    n: int  # 0: continuous
    nvec: Tuple[int, ...]  # of the discrete kinds, the choices of each part
    start: Tuple[int, ...]
    low: np.ndarray  # float64 [A], of a Box
    high: np.ndarray

    @property
    def size(self) -> int:
        """A; 0: discrete."""
        return len(self.low)

    def of_index(self, index: int) -> Any:
        """The environment's own action for a learner's index, 0 <= index < n."""
        if self.kind == "Discrete":
            return self.start[0] + index
        parts = np.unravel_index(index, self.nvec)
        return (np.array(parts) + self.start).astype(self.dtype).reshape(self.shape)

    def of_indices(self, indices: np.ndarray) -> List[Any]:
        """``of_index`` of each, int64 [n]."""
        if self.kind == "Discrete":
            whole: List[Any] = (indices + self.start[0]).tolist()
            return whole
        return [self.of_index(index) for index in indices.tolist()]

    def of_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """The environment's own actions [..., *shape] for numbers [..., A], which are clipped to [-1, 1] and scaled to
        the bounds. Of integers, every one has an equal share of [-1, 1]."""
        numbers, half = np.asarray(numbers, np.float64), self._half
        share = (_clip(numbers, -1.0, 1.0) + 1.0) / 2.0
        value = self.low - half + share * (self.high - self.low + 2 * half)
        return typed(_clip(value, self.low, self.high), self.dtype).reshape(numbers.shape[:-1] + self.shape)

    def to_index(self, action: Any) -> int:
        """The inverse of ``of_index``."""
        parts = np.asarray(action).reshape(-1).astype(np.int64) - np.array(self.start)
        return int(parts[0]) if self.kind == "Discrete" else int(np.ravel_multi_index(tuple(parts), self.nvec))

    def to_numbers(self, action: Any) -> np.ndarray:
        """The inverse of ``of_numbers``, float32 [A]: for an integer the middle of its share, which is exact for
        ranges below 2^23."""
        value = np.asarray(action, np.float64).reshape(-1)
        width = self.high - self.low + 2 * self._half
        return (2.0 * (value - self.low + self._half) / width - 1.0).astype(np.float32)

    @property
    def _half(self) -> float:
        """How far the shares of the first and the last integer reach beyond the bounds; 0 for real numbers."""
        return 0.5 if np.dtype(self.dtype).kind in _WHOLE else 0.0


def _clip(x: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """``np.clip``, which takes longer for few numbers."""
    out: np.ndarray = np.minimum(np.maximum(x, low), high)
    return out


def typed(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers float64 in the type of a space: to integers they are rounded, and what is beyond a type's limits becomes
    its limit. 2^63 - 1 is 2^63 as a float, which would turn negative as an integer."""
    kind = np.dtype(dtype)
    if kind.kind not in _WHOLE:
        return values.astype(kind)
    rounded = np.rint(values)
    if kind.kind == "b":
        return rounded != 0
    limits = np.iinfo(kind)
    below, above = rounded <= float(limits.min), rounded >= float(limits.max)
    out = np.where(below | above, 0.0, rounded).astype(kind)
    out[below], out[above] = limits.min, limits.max
    return out


_WHOLE = "iub"  # kinds of NumPy's types that hold no fractions

# ---------------------------------------------------------------------------------------------- from Gymnasium's spaces


def observation_of(space: Any) -> Json:
    """An observation space as JSON. Raises SpaceError."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        _refuse_image(space)
        size = math.prod(space.shape)
        _check_size(size, space)
        low, high = (np.asarray(x, np.float64).reshape(-1).tolist() for x in (space.low, space.high))
        return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype), "text": str(space)[:200],
                "low": [_bound(x) for x in low], "high": [_bound(x) for x in high]}  # fmt: skip
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if not _leaves(space):
        raise SpaceError(f"found observations {_short(space)} without any part, expected at least one number")
    flat = spaces.flatten_space(space) if all(isinstance(part, known) for part in _leaves(space)) else None
    if not isinstance(flat, spaces.Box):
        kinds = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
        raise SpaceError(f"found observations {_short(space)}, expected {kinds}: wrap it in a wrapper that makes one")
    for part in _leaves(space):
        _refuse_image(part)
    _check_size(math.prod(flat.shape), space)
    low, high = (np.asarray(x, np.float64).reshape(-1).tolist() for x in (flat.low, flat.high))
    return {"kind": "flattened", "shape": list(flat.shape), "dtype": str(flat.dtype), "text": str(space)[:200],
            "low": [_bound(x) for x in low], "high": [_bound(x) for x in high], "codes": _codes(space)}  # fmt: skip


def action_of(space: Any) -> Json:
    """An action space as JSON. Raises SpaceError."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        size = math.prod(space.shape)
        if size < 1 or size > MAX_FEATURES:
            raise SpaceError(f"found actions of {size} numbers, expected 1 to {MAX_FEATURES}")
        low, high = (np.asarray(x, np.float64).reshape(-1) for x in (space.low, space.high))
        if (high <= low).any():
            words = "wrap the environment in an ActionWrapper that leaves out an action that is always the same"
            raise SpaceError(f"found actions {_short(space)} with low >= high, expected low < high: {words}")
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            words = "wrap the environment in an ActionWrapper whose action_space is a Box with finite low and high"
            raise SpaceError(f"found actions without finite bounds, {_short(space)}, expected bounded ones: {words}")
        return {
            "kind": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": low.tolist(),
            "high": high.tolist(),
        }
    made: Json
    if isinstance(space, spaces.Discrete):
        made = {"kind": "Discrete", "nvec": [int(space.n)], "start": [int(space.start)], "shape": [], "dtype": "int64"}
    elif isinstance(space, spaces.MultiDiscrete):
        nvec = np.asarray(space.nvec).reshape(-1)
        start = np.asarray(getattr(space, "start", np.zeros_like(nvec))).reshape(-1)
        made = {
            "kind": "MultiDiscrete",
            "nvec": nvec.tolist(),
            "start": start.tolist(),
            "shape": list(space.shape),
            "dtype": str(space.dtype),
        }
    elif isinstance(space, spaces.MultiBinary):
        count = math.prod(space.shape)
        made = {
            "kind": "MultiBinary",
            "nvec": [2] * count,
            "start": [0] * count,
            "shape": list(space.shape),
            "dtype": str(space.dtype),
        }
    else:
        kinds = "Discrete, MultiDiscrete, MultiBinary or Box"
        raise SpaceError(f"found actions {_short(space)}, expected {kinds}: wrap it in an ActionWrapper that makes one")
    count = math.prod(made["nvec"])
    if count > MAX_ACTIONS:
        words = "wrap the environment in an ActionWrapper with fewer"
        raise SpaceError(f"found {count} combinations of actions, expected at most {MAX_ACTIONS}: {words}")
    return made


def _leaves(space: Any) -> List[Any]:
    """Parts of a Dict or a Tuple, in the order of ``flatten``. Other containers stay whole: OneOf shows one of its
    parts at a time, in columns of no fixed meaning."""
    from gymnasium import spaces

    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [space]
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
    return [leaf for part in parts for leaf in _leaves(part)]


def _codes(space: Any) -> List[List[int]]:
    """Features [start, stop) of each one-hot code in what Gymnasium's ``flatten`` makes of the space."""
    from gymnasium import spaces

    found, at = [], 0
    for leaf in _leaves(space):
        if isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete)):
            for n in np.asarray(leaf.n if isinstance(leaf, spaces.Discrete) else leaf.nvec).reshape(-1).tolist():
                found.append([at, at + n])
                at += n
        else:
            at += math.prod(leaf.shape)
    return found


def _refuse_image(space: Any) -> None:
    shape, dtype = getattr(space, "shape", None) or (), str(getattr(space, "dtype", ""))
    if len(shape) in (2, 3) and dtype == "uint8" and min(sorted(shape)[-2:]) >= IMAGE_SIDE:
        words = "images are not learned from; choose a wrapper that gives features, such as minigrid.wrappers:FlatObs"
        raise SpaceError(f"found observations {_short(space)}, expected at most {MAX_FEATURES} numbers: {words}Wrapper")


def _check_size(size: int, space: Any) -> None:
    if not 1 <= size <= MAX_FEATURES:
        words = "choose fewer with a wrapper, such as gymnasium.wrappers:FilterObservation"
        raise SpaceError(f"found observations of {size} numbers, expected 1 to {MAX_FEATURES}: {words}")


def _bound(x: float) -> Optional[float]:
    """JSON has no infinity: None."""
    return x if math.isfinite(x) else None


def _short(space: Any) -> str:
    return str(space)[:120]


# -------------------------------------------------------------------------------------------------------- from the data


def read_observation(data: Any) -> Observation:
    """Raises ValueError with the key, what was found and what was expected."""
    codes = data.get("codes", []) if isinstance(data, dict) else []  # runs of older versions have none
    without = {k: v for k, v in data.items() if k != "codes"} if isinstance(data, dict) else data
    values = _mapping(without, "observation", {"kind", "shape", "dtype", "low", "high", "text"})
    low, high = _numbers(values["low"], "observation.low"), _numbers(values["high"], "observation.high")
    shape = _shape(values["shape"], "observation.shape")
    if values["kind"] not in ("Box", "flattened"):
        raise ValueError(f"observation.kind: found {values['kind']!r:.80}, expected Box or flattened")
    if not 1 <= len(low) == len(high) == math.prod(shape) <= MAX_FEATURES:
        raise ValueError(f"observation: found {len(low)} and {len(high)} bounds, expected 1 to {MAX_FEATURES} of each")
    lowest, highest = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    dtype, text = _dtype(values["dtype"], "observation.dtype"), str(values["text"])[:200]
    return Observation(values["kind"], shape, dtype, lowest, highest, text, read_codes(codes, len(low)))


def read_action(data: Any) -> Action:
    """Raises ValueError with the key, what was found and what was expected."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "Box":
        values = _mapping(data, "action", {"kind", "shape", "dtype", "low", "high"})
        low, high = _numbers(values["low"], "action.low"), _numbers(values["high"], "action.high")
        shape = _shape(values["shape"], "action.shape")
        finite = np.isfinite(low).all() and np.isfinite(high).all()
        if not 1 <= len(low) == len(high) == math.prod(shape) <= MAX_FEATURES or not finite or not (high > low).all():
            raise ValueError("action: found bounds that do not fit each other, expected low < high of every number")
        return Action(kind, shape, _dtype(values["dtype"], "action.dtype"), 0, (), (), low, high)
    values = _mapping(data, "action", {"kind", "shape", "dtype", "nvec", "start"})
    if kind not in ("Discrete", "MultiDiscrete", "MultiBinary"):
        raise ValueError(f"action.kind: found {kind!r:.80}, expected Discrete, MultiDiscrete, MultiBinary or Box")
    nvec, start = _integers(values["nvec"], "action.nvec", 1), _integers(values["start"], "action.start", -(2**31))
    shape, n = _shape(values["shape"], "action.shape"), math.prod(nvec)
    if not 1 <= len(nvec) == len(start) or not 1 <= n <= MAX_ACTIONS or math.prod(shape) != len(nvec):
        raise ValueError(f"action.nvec: found {str(nvec):.80}, expected 1 to {MAX_ACTIONS} combinations")
    none = np.zeros(0)
    return Action(kind, shape, _dtype(values["dtype"], "action.dtype"), n, nvec, start, none, none)


def _mapping(data: Any, name: str, keys: set) -> Json:
    if not isinstance(data, dict) or set(data) != keys:
        raise ValueError(f"{name}: found {str(data):.80}, expected a mapping with {', '.join(sorted(keys))}")
    return data


def _numbers(values: Any, name: str) -> np.ndarray:
    """List of numbers or None -> float64 with NaN for None."""
    if not isinstance(values, list) or len(values) > MAX_FEATURES:
        raise ValueError(f"{name}: found {str(values):.80}, expected a list of at most {MAX_FEATURES} numbers")
    for x in values:
        if x is not None and (isinstance(x, bool) or not isinstance(x, (int, float)) or not math.isfinite(x)):
            raise ValueError(f"{name}: found {x!r:.80}, expected a finite number")
    return np.array([math.nan if x is None else float(x) for x in values], np.float64)


def _integers(values: Any, name: str, least: int) -> Tuple[int, ...]:
    if isinstance(values, list) and len(values) > MAX_FEATURES:
        raise ValueError(f"{name}: found {len(values)} numbers, expected at most {MAX_FEATURES}")
    return integers(values, name, least)


def _shape(values: Any, name: str) -> Tuple[int, ...]:
    shape = _integers(values, name, 1)
    if len(shape) > 8:
        raise ValueError(f"{name}: found {len(shape)} axes, expected at most 8")
    return shape


def _dtype(value: Any, name: str) -> str:
    if not isinstance(value, str) or value not in _DTYPES:
        raise ValueError(f"{name}: found {value!r:.80}, expected one of {', '.join(_DTYPES)}")
    return value


_DTYPES = (
    "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
