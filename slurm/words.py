"""Checks of the words after ``--`` before the first job is sent: a wrong one would end every task on its node."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from envolve.slurm.commands import COMMAND, STUDY, SetupError, kind_of, master_options, replaced

T = TypeVar("T")
FRAME = re.compile(r"[\u2500-\u257f]+|[+|]?-{4,}[+|]?")  # that tyro draws around what is wrong


def check_words(words: Sequence[str], masters: int, run_dir: Path, python: str) -> None:
    """Parses the words as the masters will, and loads their configuration or study; devices are those of the nodes.
    python: that of the nodes; another one than this may have packages that are not here, so that nothing is loaded.
    Raises SetupError."""
    kind = kind_of(words)
    if kind == COMMAND:
        return
    for b in sorted({0, masters - 1}):  # {BOHB_ID} may be too large for a key
        own = [*replaced(words, b, masters, run_dir), *master_options(kind, b, run_dir)]
        if kind == STUDY:
            _check_study([own[0], str(b), str(masters), *own[1:]], python)
        else:
            _check_config(own, python)


def _check_config(argv: list[str], python: str) -> None:
    from envolve.core import commands
    from envolve.outer.arguments import PROG, build_parser, read_config  # late: it imports PyTorch

    args = _parsed(lambda: commands.parse_with(PROG, build_parser(), argv))
    if python == sys.executable:
        _loaded(lambda: read_config(args))


def _check_study(argv: list[str], python: str) -> None:
    from envolve.experiments import optimize_params as tune
    from envolve.experiments.command_line import parse

    args = _parsed(lambda: parse("optimize_params.py", tune.Args, argv, ""))
    if python == sys.executable:
        _loaded(lambda: tune.read_args(args))


def _parsed(parse: Callable[[], T]) -> T:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parse()
    except SystemExit as e:
        if not e.code:  # --help
            raise
        text = re.sub(r"^note: .*\n", "", FRAME.sub(" ", said.getvalue()), flags=re.MULTILINE)
        text = text.partition("Argument helptext")[0].rpartition(" error: ")[2]  # of tyro, and of argparse
        raise SetupError(f"after --: {' '.join(text.split())}") from None
    sys.stderr.write(said.getvalue())  # notes on old words
    return args


def _loaded(load: Callable[[], object]) -> None:
    from envolve.outer.config.load import ConfigError

    try:
        load()
    except ConfigError as e:
        first, *more = e.problems
        raise SetupError(f"after --: {first}" + (f" (and {len(more)} more)" if more else "")) from None
