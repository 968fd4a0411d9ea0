"""Modules from files that no import finds: files of the user's own, which are named by path.

The caller reads the file, looks at its bytes, and hands them over. What was looked at is what is executed: neither the
file nor cached code of it is read again. Who may hand over what stands at the callers and in ``core/plugins.py``.
Python 3.8.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType


def module_of(name: str, path: str, data: bytes, listed: bool = True) -> ModuleType:
    """Executes the bytes of a Python file as the module ``name``. Raises what they raise.

    path: what tracebacks call the file; a relative one gets the working directory in front. listed: ``sys.modules`` has
    the module, where dataclasses and type hints look it up; one that could not be executed is taken out again.
    """
    loader = _Bytes(name, os.path.join(os.getcwd(), path), data)
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    if not listed:
        loader.exec_module(module)
        return module
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


class _Bytes(SourceFileLoader):
    """Executes bytes that were read before, and no cached code."""

    def __init__(self, name: str, path: str, data: bytes) -> None:
        super().__init__(name, path)
        self.data = data

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.data, self.path)
        return code
