"""Spares numba's compiler work that changes nothing: what it computes anew and could remember, tells no listener, or
does to what has no body. For processes that compile and do nothing else (``whole.py``).

Most of the time that a kernel takes is Python's: numba types and translates about a hundred functions, LLVM takes a
fifth. Each replacement here gives the same answers and is left out with a numba that is built otherwise; what is
compiled has the same bits with and without them (tests/agents/kernels/building/test_ahead.py).
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict, List, Set

from llvmlite import binding
from numba.core import base, codegen, ir, targetconfig, types


def be_frugal() -> None:
    """From now on in this process."""
    gc.disable()  # what is compiled stays, and the process ends soon
    for cls, name, replace in (
        (targetconfig.TargetConfig, "values", _values),
        (ir.Inst, "_rec_list_vars", _list_vars),
        (base.BaseContext, "get_abi_sizeof", _sizes),
        (types.functions.BaseFunction, "get_call_type", _call_types),
    ):
        if hasattr(cls, name):
            setattr(cls, name, replace(getattr(cls, name)))
    if hasattr(codegen.CPUCodegen, "_pass_builder"):  # LLVM's newer passes, which it prepares for each function
        library = codegen.CPUCodeLibrary
        library._optimize_functions = _with_bodies(library._optimize_functions)
    _tell_nobody()


def _values(values: Callable) -> Callable:
    """Options of a compilation, which are compared at every look for a function's types."""
    defaults: Dict[type, Dict[str, Any]] = {}

    def remembered(self: Any) -> Dict[str, Any]:
        cls = type(self)
        if cls not in defaults:
            defaults[cls] = {name: option.default for name, option in cls.options.items()}
        return {**defaults[cls], **self._values}

    return remembered


def _list_vars(list_vars: Callable) -> Callable:
    """The variables in an instruction, in order."""
    none: Set[type] = set()  # types that hold no variables

    def collect(self: Any, value: Any, found: List[Any]) -> None:
        kind = type(value)
        if kind in none:
            return
        if kind is ir.Var:
            found.append(value)
        elif kind is dict or kind is list or kind is tuple:
            for one in value.values() if kind is dict else value:
                collect(self, one, found)
        elif isinstance(value, (ir.Var, ir.Inst, dict, list, tuple)):
            found.extend(list_vars(self, value))
        else:
            none.add(kind)

    def collected(self: Any, value: Any) -> List[Any]:
        found: List[Any] = []
        collect(self, value, found)
        return found

    return collected


def _sizes(get_abi_sizeof: Callable) -> Callable:
    """LLVM is asked for the size of a type by a module that is written and parsed."""
    known: Dict[Any, int] = {}

    def remembered(self: Any, ty: Any) -> int:
        if ty not in known:
            known[ty] = get_abi_sizeof(self, ty)
        return known[ty]

    return remembered


def _call_types(get_call_type: Callable) -> Callable:
    """Remembers types of calls with numbers: numba looked ``a + b`` up among all meanings of +, wherever it stood."""
    numbers = (types.Number, types.Boolean, types.Literal)
    known: Dict[Any, Any] = {}

    def remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or not all(isinstance(arg, numbers) for arg in args):
            return get_call_type(self, context, args, kws)
        key = self, context, tuple(args), targetconfig.ConfigStack.top_or_none()
        if key not in known:
            signature = get_call_type(self, context, args, kws)
            known[key] = signature, self._impl_keys[signature.args]
        signature, self._impl_keys[signature.args] = known[key]
        return signature

    return remembered


def _with_bodies(optimize_functions: Callable) -> Callable:
    """Passes over the functions of a module are not for those that it declares alone, nine of ten."""

    class Defined:
        def __init__(self, module: Any) -> None:
            object.__setattr__(self, "module", module)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.module, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self.module, name, value)

        @property
        def functions(self) -> List[Any]:
            return [f for f in self.module.functions if not f.is_declaration]

    return lambda self, module: optimize_functions(self, Defined(module))


def _tell_nobody() -> None:
    """Every call of LLVM was told to every timer of a compilation under way, up to forty."""
    lock: Any = getattr(binding.ffi.lib, "_lock", None)
    for callbacks in list(getattr(lock, "_cblist", ())):
        lock.unregister(*callbacks)
