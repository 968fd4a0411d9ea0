"""Compiled loops that take an algorithm as a parameter, without compiling the algorithms that are not used.

numba cannot keep a function that closes over other compiled functions in its cache on disk. So an algorithm is a type:
the class of the NamedTuple that holds a member's numbers. ``@by_type`` makes a function whose first argument is such a
tuple a choice by that class, taken when the caller is compiled, hence once per algorithm and at no cost afterwards:

    @by_type
    def learn(agent, batch): "what every algorithm must have"        # in the loop's file

    class DDQN(NamedTuple): ...                                      # in the algorithm's file
    def learn(agent, batch): ...
    implement(DDQN, learn=learn)
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from numba.extending import overload

from envolve.agents.kernels import JIT_UNCOUNTED

_IMPLEMENTED: Dict[Tuple[type, str], Any] = {}
_OPTIONS = {name: value for name, value in JIT_UNCOUNTED.items() if name != "cache"}  # the caller is cached


def implement(cls: type, **functions: Any) -> None:
    """What the declarations of these names do if their first argument is a ``cls``: plain functions, to be compiled."""
    for name, function in functions.items():
        _IMPLEMENTED[cls, name] = function


def by_type(declaration: Callable) -> Callable:
    """Decorator of a declaration ``f(tuple, ...)`` with a docstring alone; compiled code calls it as any function."""

    def choose(first: Any, *rest: Any) -> Callable:
        return _IMPLEMENTED[first.instance_class, declaration.__name__]

    overload(declaration, jit_options=_OPTIONS, strict=False)(choose)
    return declaration
