"""What a model's reward sees of the environment: copies of numbers and containers, read-only views of other objects.

The allow-list tells a model early that it may not change the environment. This keeps the promise whatever the list lets
through: nothing that is handed out is the environment's own, at any depth.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from envolve.llm.gym.reward import MEMORY

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_UNARY = "neg pos abs invert float int complex index round floor ceil trunc len str"
_BINARY = "add sub mul matmul truediv floordiv mod divmod pow and or xor"
_COMPARISONS = "lt le gt ge getitem contains"


def copied(value: Any) -> Any:
    """A value as the reward may have it. Functions answer with such values; other objects are views."""
    if isinstance(value, PLAIN) or isinstance(value, View):
        return value
    if isinstance(value, np.ndarray):
        own = value.copy()
        if value.dtype == object:
            own.flat = [copied(part) for part in value.flat]
        return own
    if isinstance(value, dict):
        return {copied(k): copied(v) for k, v in value.items()}
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, (list, collections.deque)):
        return [copied(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return {copied(part) for part in value}
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        return value.detach().clone()
    if callable(value) and not isinstance(value, type):
        return lambda *args, **kwargs: copied(value(*map(_own, args), **{k: _own(v) for k, v in kwargs.items()}))
    return View(value)


def _own(value: Any) -> Any:
    """What a view shows, for an operation of the environment's own object."""
    return object.__getattribute__(value, "_of") if isinstance(value, View) else value


class View:
    """Read-only object of the environment: its attributes can be read, it takes part in arithmetic and comparisons as
    the object does, and all that it answers with is ``copied``."""

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        object.__setattr__(self, "_of", of)

    def __getattr__(self, name: str) -> Any:
        return copied(getattr(_own(self), name))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"compute_reward must not change the environment; use self.{MEMORY}[{name!r}]")

    def __iter__(self) -> Iterator[Any]:
        return map(copied, iter(_own(self)))

    def __eq__(self, other: object) -> bool:
        return bool(_own(self) == _own(other))

    def __ne__(self, other: object) -> bool:
        return bool(_own(self) != _own(other))

    def __hash__(self) -> int:
        return hash(_own(self))

    def __bool__(self) -> bool:
        return bool(_own(self))

    def __format__(self, spec: str) -> str:
        return format(_own(self), spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(_own(self), dtype=dtype)


class Self(View):
    """``self`` of compute_reward."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        env = _own(self)
        return env._reward_memory if name == MEMORY else copied(getattr(env, name))


def _delegated(name: str) -> Callable[..., Any]:
    """The object's own method of this name, as Python calls it for an operator."""

    def call(self: View, *args: Any) -> Any:
        method = getattr(type(_own(self)), name, None)
        if method is None:
            return NotImplemented
        found = method(_own(self), *map(_own, args))
        return found if found is NotImplemented else copied(found)

    return call


for _name in f"{_UNARY} {_BINARY} {_COMPARISONS}".split():
    setattr(View, f"__{_name}__", _delegated(f"__{_name}__"))
for _name in _BINARY.split():
    setattr(View, f"__r{_name}__", _delegated(f"__r{_name}__"))
