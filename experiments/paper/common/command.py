"""Common behaviour of all commands: errors become one line and an exit code, and data are not lost by accident."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
import tyro

from envolve.core import interrupt
from envolve.envs.outside.build import OutsideError
from envolve.envs.worlds.file import WorldFileError
from envolve.experiments.command_line import exit_code
from envolve.experiments.paper.common.data import Data, DataError, Series, data_path, is_full, load, plain, save
from envolve.experiments.paper.common.events import SWITCHES, EventArgs, begin_tracking, tell_series
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError
from envolve.outer.exchange.machine import ExchangeError

A = TypeVar("A")
EVENTS = ("return", "train_steps", "episode_return", "episode_length", "ms_per_step")
EXIT_CODES = """
Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments or configuration, 130 Ctrl-C, 143 SIGTERM."""


@dataclass(kw_only=True)
class DataArgs(EventArgs):
    """Arguments of every command that writes data."""

    seed: int = 0
    """Random seed of the agents. The evolution never uses the seeds derived from it."""
    threads: int = 0
    """CPU threads; 0: all that this process may use."""
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values that override the configuration; the same as for train_proxy.py --set."""
    name: str | None = None
    """Name of the folder of the worlds; the same as for train_proxy.py --name."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Quick look of about a minute, with few agents. Missing worlds are evolved first (train_proxy.py --quick)."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Folder with the worlds. The data are written to its folder paper/."""
    out: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None
    """Data file to write. Default: <results-dir>/paper/<experiment>/<task>[_<what>].json."""


def run_command(prog: str, work: Callable[[A], int], args: A) -> int:
    """work(args) -> the exit code; what it raises is said in one line. W&B hears of it, if the arguments say so."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)  # members are shared among threads; torch's own would compete with them
    errors = (RunError, ExchangeError, WorldFileError, DataError, OutsideError, ValueError)

    def session() -> int:
        with args.session if isinstance(args, EventArgs) else contextlib.nullcontext():
            return work(args)

    return exit_code(prog, session, errors, interrupt.GO_ON)


class Measurement:
    """The data file of one call: refused before the work begins if it cannot be kept, written at its end."""

    def __init__(
        self, experiment: str, task: str, what: str, args: Any, out: Path | None, results_dir: Path, quick: bool
    ) -> None:
        """Raises ConfigError."""
        self.experiment, self.task, self.quick = experiment, task, quick
        self.args = {k: v for k, v in vars(args).items() if k not in SWITCHES}  # what the data depend on
        self.switches = args
        self.told: set[str] = set()  # series whose events are written
        self.path = out or data_path(results_dir, experiment, task, what)
        self.began = time.monotonic()
        if quick and is_full(self.path):
            words = "found the data of a full experiment there, expected none: --quick needs another --json FILE"
            raise ConfigError([f"{self.path}: {words}"])
        if self.path.is_dir():
            raise ConfigError([f"--json: found the folder {self.path}, expected a file"])
        there = next(p for p in (self.path.parent, *self.path.parent.parents) if p.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):  # the folder is made when there is something to keep
            code = errno.EACCES if there.is_dir() else errno.ENOTDIR
            raise OSError(code, os.strerror(code), str(there))
        begin_tracking(args)
        self.parts_path = self.path.with_name(self.path.stem + ".part.json")
        self.parts = self._parts()

    def _parts(self) -> Series:
        """Series that an interrupted call with the same arguments has finished."""
        if not self.parts_path.exists():
            return {}
        try:
            found = load(self.parts_path)
        except DataError as e:
            print(f"{e}; what it held is measured again", file=sys.stderr)
            return {}
        wanted = Data(self.experiment, self.task, plain(self.args, "arguments"), self.quick, {}, 0.0)
        same = all(getattr(found, k) == getattr(wanted, k) for k in ("experiment", "settings", "quick", "versions"))
        return found.series if same else {}

    def part(self, title: str, worlds: Sequence[str], make: Callable[[], dict[str, list[Any]]]) -> dict[str, list[Any]]:
        """One series, made or, after an interruption, as it was made; kept at once. worlds: of each agent, none: those
        on the task; they become its quantity "world"."""
        known = self.parts.get(title)
        if known is not None and known.get("world") == list(worlds):
            print(f"{title}: finished by an earlier call", file=sys.stderr)
            self._tell({title: known})
            return known
        self.parts[title] = {**make(), "world": list(worlds)}
        save(self.parts_path, Data(self.experiment, self.task, self.args, self.quick, self.parts, 0.0))
        self._tell({title: self.parts[title]})
        return self.parts[title]

    def together(self, titles: Sequence[str], make: Callable[[], Series]) -> Series:
        """Series that are made at once, or, after an interruption, as they were made; kept at once."""
        if not all(title in self.parts for title in titles):
            self.parts.update(make())
            save(self.parts_path, Data(self.experiment, self.task, self.args, self.quick, self.parts, 0.0))
        return {title: self.parts[title] for title in titles}

    def _tell(self, series: Series) -> None:
        """Events of series that have none yet."""
        for title, quantities in series.items():
            if title not in self.told:
                self.told.add(title)
                tell_series(self.switches, title, {k: v for k, v in quantities.items() if k in EVENTS})

    def save(self, series: Series, **settings: Any) -> None:
        self.save_part(self.path, series, **settings)
        self.parts_path.unlink(missing_ok=True)

    def save_part(self, path: Path, series: Series, **settings: Any) -> None:
        """Writes the data so far to another file."""
        arguments = {**self.args, **settings}
        seconds = time.monotonic() - self.began
        save(path, Data(self.experiment, self.task, arguments, self.quick, series, seconds))
        self._tell(series)
        print(f"{path} ({seconds:.0f} s{', quick' * self.quick})")
