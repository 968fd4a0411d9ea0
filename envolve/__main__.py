"""The command ``envolve``, and ``python3 -m envolve``: the table of commands is in core/command_table.py."""

from __future__ import annotations

import sys

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("envolve")  # before all that takes time to import

import os
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from envolve.core import commands


def load(argv: list[str]) -> Callable[[], int]:
    """The chosen command's main(), ready to be run. Help, and what is wrong, is said before anything is imported."""
    command, words = commands.choose(argv)
    prog = commands.called(command.script)
    sys.argv = [prog, *words]  # what commands keep of how they were started
    interrupt.listen(prog)
    loaded: Callable[[], int] = import_module(f"envolve.{command.module}").main
    return loaded


def main() -> NoReturn:
    """The console script. It finds modules of the current folder as ``python3 -m envolve`` does, after all others: an
    environment or a wrapper of the user's own may be one, and workers look where their master looks."""
    interrupt.listen("envolve")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    interrupt.run(load(sys.argv[1:]))


if __name__ == "__main__":
    interrupt.run(load(sys.argv[1:]))
