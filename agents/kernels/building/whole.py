"""Makes numba compile a kernel as one piece. For processes that compile and do nothing else (``foreman.py``).

numba optimises each function that a kernel calls, makes machine code of it and stores it; then it links it into its
caller and does all of that again, up the calls. What lies at the bottom of a learner's loop went through LLVM nine
times, which was two thirds of the time. Here a function that is compiled because another one calls it is only put into
LLVM's language; what Python calls is linked with all that it calls, optimised, turned into machine code and stored.
LLVM's passes go from the called to the caller, so the code is as fast and computes the same bits
(tests/agents/kernels/building/test_ahead.py).
"""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

from numba.core import caching, codegen, cpu, dispatcher, sigutils
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

NEEDED = {
    codegen.CPUCodeLibrary: ("finalize", "_finalize_dynamic_globals", "_raise_if_finalized"),
    codegen.JITCPUCodegen: ("set_env",),
    codegen.JitEngine: ("is_symbol_defined",),
    dispatcher.Dispatcher: ("compile", "add_overload"),
    caching.Cache: ("load_overload", "save_overload"),
    cpu.CPUContext: ("create_cpython_wrapper",),
}


def compile_whole() -> None:
    """From now on in this process; not at all with a numba that is built otherwise."""
    if all(hasattr(cls, name) for cls, names in NEEDED.items() for name in names):
        # the functions that count references to arrays are no kernel's: without machine code, a call jumps to address 0
        rtsys.initialize(cpu_target.target_context)
        _replace()


def _all_that_it_calls(library: Any) -> List[Any]:
    """The libraries to be linked into one, each once and after all that call it: LLVM leaves out what is not called yet
    so far."""
    found: Dict[Any, None] = {}

    def visit(one: Any) -> None:
        for called in one._linking_libraries:
            if called not in found:
                visit(called)
        found[one] = None

    visit(library)
    del found[library]
    return list(reversed(list(found)))


def _check(library: Any) -> None:
    missing = [f.name for f in library._final_module.functions if f.is_declaration and f.name.startswith("_ZN")]
    if missing:
        raise RuntimeError(f"{library.name} lacks {', '.join(missing)}")


def _replace() -> None:
    library, compiles, keeps = codegen.CPUCodeLibrary, dispatcher.Dispatcher, caching.Cache
    finalize, set_env = library.finalize, codegen.JITCPUCodegen.set_env
    compile_, add, load, save = compiles.compile, compiles.add_overload, keeps.load_overload, keeps.save_overload
    wrap = cpu.CPUContext.create_cpython_wrapper
    under_way: List[str] = []  # names of the functions being compiled, first the one that Python called
    inner: Set[Any] = set()  # function and types of its arguments, of those without machine code
    environments: Dict[str, Any] = {}  # by symbol: what such a function finds its globals by, once it is in a kernel

    def compile_one(self: Any, signature: Any) -> Any:
        key = self, sigutils.normalize_signature(signature)[0]
        if not under_way and key in inner:  # now Python calls it
            inner.remove(key)
            del self.overloads[key[1]]
        under_way.append(self.py_func.__qualname__)
        try:
            return compile_(self, signature)
        finally:
            under_way.pop()

    def add_one(self: Any, compiled: Any) -> None:
        if len(under_way) <= 1:
            return add(self, compiled)
        key = self, tuple(compiled.signature.args)
        self.overloads[key[1]] = compiled  # Python does not find it there: calling it, it would jump to address 0
        inner.add(key)

    def finalize_one(self: Any) -> None:
        if not under_way or (len(under_way) == 1 and self.name == under_way[0]):
            self._linking_libraries = _all_that_it_calls(self)
            finalize(self)
            _check(self)
            for name in [name for name in environments if self.codegen._engine.is_symbol_defined(name)]:
                set_env(self.codegen, name, environments.pop(name))
            return
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        self._finalized = True

    def set_env_of(self: Any, name: str, env: Any) -> None:
        if self._engine.is_symbol_defined(name):
            set_env(self, name, env)
        else:
            environments[name] = env

    def load_one(self: Any, signature: Any, context: Any) -> Any:
        return load(self, signature, context) if len(under_way) == 1 else None  # an inner one was optimised by itself

    def save_one(self: Any, signature: Any, compiled: Any) -> None:
        if len(under_way) == 1:
            save(self, signature, compiled)

    def wrapper_of(self: Any, *args: Any, **options: Any) -> None:
        if len(under_way) == 1:  # for calls from Python
            wrap(self, *args, **options)

    replaced: List[Tuple[Any, str, Any]] = [
        (compiles, "compile", compile_one), (compiles, "add_overload", add_one), (library, "finalize", finalize_one),
        (keeps, "load_overload", load_one), (keeps, "save_overload", save_one),
        (codegen.JITCPUCodegen, "set_env", set_env_of), (cpu.CPUContext, "create_cpython_wrapper", wrapper_of),
    ]  # fmt: skip
    for cls, method, function in replaced:
        setattr(cls, method, function)
