"""A folder of one Ray worker on its node, and a worker that has one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from envolve.outer.exchange.evaluation import Evaluate
from envolve.outer.ray.evaluator import Evaluator
from envolve.outer.ray.events import NodeUnfit

FOLDER = "envolve_ray_worker_"  # begins its name
# Removes a folder when its input ends, and again: processes of the worker may still write. In the background, so
# that it is no child: Ray kills the children of a worker with it, and its process group.
REMOVE = 'exec 3<&0; (read -r _ <&3; for s in 3 5 10; do sleep $s; rm -rf -- "$1"; done) >/dev/null 2>&1 &'


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder of this process on its node, which goes with it, also when it is killed: as Ray ends its workers."""
    folder = tempfile.mkdtemp(prefix=FOLDER)
    watched, held = os.pipe()  # not inherited: the end that is held is closed when this process ends, however it does
    try:
        try:
            subprocess.run(["sh", "-c", REMOVE, "sh", folder], stdin=watched, check=True, start_new_session=True)
        except BaseException:
            os.rmdir(folder)
            raise
        finally:
            os.close(watched)
        yield Path(folder)
    finally:
        os.close(held)


class FolderEvaluator(Evaluator):
    """An evaluator with a folder of its own. ``_stack`` holds what lives as long as its process."""

    unfit: ClassVar[type[BaseException]]  # what the evaluation raises where the node is at fault, not the chunk

    def __init__(self, start: bytes) -> None:
        super().__init__(start, self._open)
        self._stack = contextlib.ExitStack()

    def evaluate(self, data: bytes) -> bytes:
        """Raises NodeUnfit in place of ``unfit``."""
        try:
            return super().evaluate(data)
        except self.unfit as e:
            raise NodeUnfit(str(e)) from e

    def _folder(self) -> Path:
        return self._stack.enter_context(own_folder())

    def _open(self) -> Evaluate:
        """Makes ready what evaluates -> the evaluation."""
        raise NotImplementedError
