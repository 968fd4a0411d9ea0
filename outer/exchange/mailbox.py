"""Pairs of files between one master and its workers: results in, inputs out, in parallel on slow file systems."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from envolve.core.torch_quick import Encoded
from envolve.outer.exchange.lanes import Lanes, raise_first
from envolve.outer.exchange.machine import Files
from envolve.outer.exchange.messages import Chunk, ChunkResult, chunk_sent, encoded_config, result_from
from envolve.outer.exchange.pairs import (
    MAX_RESULT_BYTES,
    fetch_pair,
    pack_pair,
    parse_pair,
    put_pair,
    reject_pair,
    remove_pair,
    stem,
)

BATCH = 64  # inputs or results in memory at once
Found = ChunkResult | Exception | None  # None: nothing there after all


def batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Divides items into groups that fit into memory together."""
    return (items[i : i + BATCH] for i in range(0, len(items), BATCH))


class Mailbox:
    """Mailbox of the master with BOHB-ID ``bohb_id``; workers are named by their ids."""

    def __init__(self, files: Files, bohb_id: int, lanes: Lanes) -> None:
        self._files, self._bohb_id, self._lanes = files, bohb_id, lanes
        self._config: tuple[dict[str, Any], Encoded | None] | None = None  # the latest, and its bytes
        self._result = re.compile(rf"{bohb_id}_(0|[1-9]\d*)_result_check\.pt")

    def clear(self) -> None:
        """Removes the files of an earlier master, and what killed processes began to write. Raises ExchangeError."""
        b = self._bohb_id
        leftover = re.compile(rf"\.?{b}_\d+_(input|result)(_check)?\.pt(\.|$)|\.{b}_\w+_heartbeat\..*\.tmp$")
        for name in self._files.names():
            if leftover.match(name):
                self._files.remove(name)

    def answered(self, ids: Collection[int], names: Collection[str]) -> list[int]:
        """Those of ``ids`` with a result in ``names``, a list of the folder, by id."""
        found = [self._result.fullmatch(name) for name in names if name.endswith("_result_check.pt")]
        return sorted(i for i in (int(match[1]) for match in found if match) if i in ids)

    def fetch(self, ids: Sequence[int]) -> list[Found]:
        """Results of these workers, or why there is none (NotReady: not yet; Rejected: invalid); removes the valid
        ones. Raises ExchangeError."""
        names = [self._name(i, "result") for i in ids]
        found: list[Found] = []
        there = self._lanes.map(lambda n: fetch_pair(self._files, n, MAX_RESULT_BYTES), names)
        for name, fetched in zip(names, there, strict=True):
            try:
                raise_first([fetched])
                pair = parse_pair(fetched, name, "result")  # type: ignore[arg-type]
                found.append(None if pair is None else result_from(pair[0]))
            except Exception as e:
                found.append(e)
        read = [name for name, result in zip(names, found, strict=True) if isinstance(result, ChunkResult)]
        raise_first(self._lanes.map(lambda n: remove_pair(self._files, n), read))
        return found

    def put(self, chunks: Sequence[tuple[int, Chunk]]) -> list[str | Exception]:
        """Hands a chunk to each of these workers -> the SHA-256 of each input, which the answer repeats, or why it
        could not be written."""
        jobs = []
        for i, chunk in chunks:
            if self._config is None or self._config[0] is not chunk.config:
                self._config = chunk.config, encoded_config(chunk.config)
            data, check, sha256 = pack_pair(chunk_sent(chunk, os.urandom(16).hex(), self._config[1]))
            jobs.append((sha256, (self._name(i, "input"), data, check)))
        errors = self._lanes.map(lambda job: put_pair(self._files, *job[1]), jobs)
        return [error or sha256 for (sha256, _), error in zip(jobs, errors, strict=True)]

    def withdraw(self, id: int) -> None:
        """Takes back an input that has not been begun. Raises ExchangeError."""
        remove_pair(self._files, self._name(id, "input"))

    def reject(self, id: int) -> str:
        """Sets a result aside for inspection -> its new name. Raises ExchangeError."""
        reject_pair(self._files, self._name(id, "result"))
        return self._name(id, "result") + ".pt.rejected"

    def _name(self, id: int, kind: str) -> str:
        return stem(self._bohb_id, id, kind)
