"""TensorBoard events of a run, written as soon as they are known."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVENTS = "events.out.tfevents"  # begins the names of its files


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
