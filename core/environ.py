"""Environment variables for a while, and where a child process finds modules. Python 3.8."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Iterator, List, Mapping

# ``python -m`` and ``python -c`` put the current folder before the search path: a child would find other modules than
# its parent, or a file of the user's in place of one of Python's own.
_BEGIN = """\
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


@contextlib.contextmanager
def added(values: Mapping[str, str]) -> Iterator[None]:
    """Adds variables to this process's environment; afterwards it is as it was."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def search_path() -> str:
    """PYTHONPATH with which a child finds the modules that this process finds: the folders of its own ``sys.path``, the
    current one too where it counts. A package of the user's own may lie there that an environment is made from."""
    folders = (os.path.abspath(path) for path in sys.path)
    return os.pathsep.join(path for path in folders if os.path.isdir(path) and os.pathsep not in path)


def words_of(module: str) -> List[str]:
    """The words that start a module of this project in a child, which has ``search_path()`` as its PYTHONPATH."""
    return [sys.executable, "-c", _BEGIN, module]
