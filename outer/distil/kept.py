"""Experts that have ended, on disk, until the first checkpoint: a run that stops while others train goes on with them.

An expert takes minutes and is a chunk of its own. A result depends on the chunk alone, so one that is read again gives
the same bytes as one that is computed again.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from envolve.core.files import read_plain
from envolve.envs.worlds.file import write_atomic
from envolve.outer.exchange.backlog import completed
from envolve.outer.exchange.engine import Engine, Unfit
from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import Chunk, ChunkResult, result_content, result_from
from envolve.outer.exchange.pairs import MAX_RESULT_BYTES, pack, unpack

FOLDER = "experts"  # in a run's
log = logging.getLogger("envolve")


class Kept:
    """``evaluate`` of an engine for one expert per chunk. Results are written as they arrive."""

    def __init__(self, engine: Engine, run_dir: Path, digest: str, count: int) -> None:
        """digest: of the configuration; experts of another one are trained again. count: of experts."""
        self.run_id = engine.run_id
        self._engine, self._folder, self._digest = engine, run_dir / FOLDER, digest
        found = {number: self._read(number) for number in range(count)}
        self._ended = {number: result for number, result in found.items() if result is not None}

    @property
    def ended(self) -> int:
        """How many experts need no training any more."""
        return len(self._ended)

    def evaluate(self, chunks: Sequence[Chunk], unfit: Unfit | None = None) -> list[ChunkResult]:
        """As :meth:`Engine.evaluate`; a chunk with an error is not kept. Raises OSError."""

        def keep(result: ChunkResult) -> str:
            wrong = unfit(result) if unfit else ""
            if not wrong:
                self._write(result)
            return wrong

        missing = [chunk for chunk in chunks if chunk.chunk_id not in self._ended]
        new = {result.chunk_id: result for result in (self._engine.evaluate(missing, keep) if missing else [])}
        found = {**self._ended, **new}
        return completed([found[chunk.chunk_id] for chunk in chunks])  # one kept, one failed: alike in their values

    def forget(self) -> None:
        """Removes the files: a checkpoint holds what they are good for."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.pt"

    def _write(self, result: ChunkResult) -> None:
        self._folder.mkdir(exist_ok=True)
        content = {"config": self._digest, "result": result_content(result)}
        write_atomic(str(self._path(result.chunk_id)), pack(content))

    def _read(self, number: int) -> ChunkResult | None:
        """None: there is none, or one that cannot be used, which the log says."""
        path = self._path(number)
        try:
            content = unpack(read_plain(path, MAX_RESULT_BYTES), path.name)
            if content.get("config") != self._digest:
                raise Rejected("it belongs to another configuration")
            result = result_from(content["result"])
            if result.error or (result.generation, result.chunk_id, len(result.reasons)) != (0, number, 1):
                raise Rejected("it is not the result of this expert")
        except FileNotFoundError:
            return None
        except (OSError, Rejected, KeyError, TypeError) as e:
            log.warning("%s is not used, and the expert is trained again: %s", path, e)
            return None
        return replace(result, run_id=self.run_id)
