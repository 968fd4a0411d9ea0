"""TensorBoard events of a run, written as soon as they are known."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envolve.outer.config.yaml_lines import ConfigError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVENTS = "events.out.tfevents"  # begins the names of its files
SAFE = re.compile(r"[^\w.,+-]+")  # what no name of a folder has


def check_events(folder: Path | None) -> None:
    """Before hours of work, not after them. Raises ConfigError."""
    if folder is None:
        return
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError([f"--tensorboard: cannot write {folder}, expected a folder, or the name of a new one"])


def write_series(folder: Path, title: str, quantities: Mapping[str, Sequence[Any]]) -> None:
    """Events of one series of agents, in a folder of its own, so that series lie over each other. Of a quantity
    [agents]: a value for each, whose number is the step; of one [agents][episodes] the mean over agents at every
    episode. Other lists, and what is not finite, are left out. Raises OSError."""
    scalars: dict[int, dict[str, float]] = {}
    for name, values in quantities.items():
        nested = bool(values) and all(isinstance(row, (list, tuple)) for row in values)
        points: Sequence[float | None] = [_number(v) for v in values]
        if nested:
            rows = [[_number(v) for v in row] for row in values]
            columns = [[row[k] for row in rows if k < len(row)] for k in range(max(map(len, rows)))]
            points = [math.fsum(x for x in c if x is not None) / n if (n := sum(x is not None for x in c)) else None
                      for c in columns]  # fmt: skip
        for step, value in enumerate(points):
            if value is not None:
                scalars.setdefault(step, {})[f"{name}, mean" if nested else name] = value
    with contextlib.closing(Board(folder / SAFE.sub("_", title), purge=0)) as board:
        for step in sorted(scalars):
            board.write(step, scalars[step])


def _number(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


class Board:
    """Writer of one folder, which has one kind of step. The file is made with the first figures.

    purge: what an earlier process wrote from this step on is hidden; None: from the first step that is written.
    """

    def __init__(self, folder: str | os.PathLike[str], purge: int | None = None) -> None:
        self.folder, self.purge = str(folder), purge
        self._writer: SummaryWriter | None = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Figures that are not finite are left out. Raises OSError, which names the file."""
        with self._named_errors():
            if self._writer is None:
                # the import costs 0.1 s (torch is there already), which a command that only checks need not pay
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(self.folder, purge_step=step if self.purge is None else self.purge)
            for name, value in values.items():
                if math.isfinite(value):
                    self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def close(self) -> None:
        if self._writer:
            with self._named_errors():
                self._writer.close()
            self._writer = None

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Names the file in errors of the writer's own thread, e.g. on a full disk."""
        try:
            yield
        except OSError as e:
            raise OSError(e.errno, e.strerror, os.path.join(self.folder, EVENTS)) from e
