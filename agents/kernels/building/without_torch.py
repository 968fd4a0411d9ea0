"""Lets the processes that compile do without torch, whose import takes half as long as compiling does.

Of torch the kernels' modules only say in annotations, bases and decorators what their twins compute with. ``pretend()``
has ``import torch`` give something that stands for all of that and can compute nothing; a number from it in a kernel
would be a type that numba does not know. A process that trains never does this.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, List, Optional

NAME = "torch"
# learners whose kernels can be called without it (shortest.py)
NEED_NONE = ("ddqn", "duelingddqn", "td3", "td3_discrete", "sac", "ppo")


class _Kind(type):
    """Metaclass of a class that has every attribute, and as a decorator leaves a function as it is."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not options else _Anything

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class _Anything(metaclass=_Kind):
    """Every function, class and number of torch."""


class _Module(ModuleType):
    __path__: List[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if name.split(".")[0] != NAME:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def pretend() -> None:
    """Before torch is imported."""
    if NAME not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def pretended() -> bool:
    return isinstance(sys.modules.get(NAME), _Module)
