"""Append-only log of all chunks on disk, from which a killed replay buffer is rebuilt.

A chunk is written before it is acknowledged, once, so that keeping everything costs a disk what the collectors produce
and a checkpoint costs nothing. A file is named after the number of its first row. What a kill tore is cut off.

Record: HEAD (session, version, worker, ticket, T, E as int64; CRC-32 of all else), rows float32 [P, T, W], episodes
float32 [E, 2]. Little-endian.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from envolve.core.files import check_plain
from envolve.distributed.memory.rows import Chunk

HEAD = struct.Struct("<6qI")
NAME = re.compile(r"rows_(\d{12,19})\.log", re.ASCII)  # what else lies there is not of the log
MAX_ROWS = 2**31  # of a record: more is damage


class ReplayLog:
    """Log files of one run. P members, W columns."""

    def __init__(self, folder: Path, members: int, width: int, file_rows: int) -> None:
        """file_rows: rows per file. Raises OSError."""
        self.folder, self.P, self.W, self.file_rows = folder, members, width, file_rows
        folder.mkdir(parents=True, exist_ok=True)
        self.file: FileIO | None = None
        self.rows = 0  # in the open file

    def files(self) -> list[tuple[int, Path]]:
        """Files with the number of their first row, oldest first."""
        found = ((NAME.fullmatch(p.name), p) for p in self.folder.iterdir())
        return sorted((int(match[1]), path) for match, path in found if match)

    def begin_file(self, first: int) -> None:
        """Begins a new file with row ``first``."""
        self.sync()
        self.close()
        self._open(self.folder / f"rows_{first:012d}.log")

    def open_last(self) -> None:
        """Continues the newest file, if there is one."""
        for _, path in self.files()[-1:]:
            self._open(path)

    def _open(self, path: Path) -> None:
        self.file, self.rows = open(path, "ab", buffering=0), 0  # what is written counts: no byte of it may come later

    def full(self) -> bool:
        return self.file is None or self.rows >= self.file_rows

    def append(self, chunk: Chunk) -> None:
        """Appends a record, all of it or nothing. Raises OSError."""
        self._write(encoded(chunk))
        self.rows += chunk.rows.shape[1]

    def sync(self) -> None:
        """Flushes to disk."""
        if self.file is not None:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def read(self, before: int | None = None) -> Iterator[Chunk]:
        """All chunks in the order of their arrival. Cuts off everything from a damaged record on, and from the first
        chunk whose version is not below ``before``."""
        self.close()
        files = self.files()
        for i, (_, path) in enumerate(files):
            check_plain(path, sys.maxsize)
            with open(path, "rb") as file:
                end, size = 0, os.fstat(file.fileno()).st_size
                while (chunk := self._next(file, size - end)) is not None:
                    if before is not None and chunk.version >= before:
                        break
                    yield chunk
                    end = file.tell()
            if end < path.stat().st_size:
                for _, later in reversed(files[i + 1 :]):  # the newest first: a kill on the way leaves a beginning
                    self._remove(later)
                self._cut(path, end)
                return

    def _next(self, file: BinaryIO, left: int) -> Chunk | None:
        """Reads a record; None at the end and at a damaged record. left: bytes to the file's end."""
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        session, version, worker, ticket, T, E, checksum = HEAD.unpack(head)
        if not (0 <= T < MAX_ROWS and 0 <= E < MAX_ROWS):
            return None
        size = 4 * (self.P * T * self.W + 2 * E)
        if size > left - HEAD.size:  # before that much memory is asked for
            return None
        body = file.read(size)
        if len(body) != size or zlib.crc32(body, zlib.crc32(head[:-4])) != checksum:
            return None
        numbers = torch.from_numpy(np.frombuffer(body, "<f4").copy())
        rows, episodes = numbers[: self.P * T * self.W], numbers[self.P * T * self.W :]
        return Chunk(session, version, worker, ticket, rows.view(self.P, T, self.W), episodes.view(E, 2))

    def drop_before(self, row: int) -> None:
        """Deletes files that contain only earlier rows."""
        files = self.files()
        for (_, path), (following, _) in zip(files, files[1:]):
            if following <= row:
                self._remove(path)

    # ------------------------------------------------------------------------------- what changes files, all of it

    def _write(self, data: bytes) -> None:
        """To the system: a killed process loses nothing that it has."""
        assert self.file is not None
        at, left = self.file.tell(), memoryview(data)
        try:
            while left:
                left = left[self.file.write(left) :]
        except OSError:  # a full disk, say; the beginning of a record would hide all that comes after it
            self.take_back(at)
            raise

    def take_back(self, at: int) -> None:
        """Cuts the open file off at this byte: what comes after it was not acknowledged, and may come again."""
        assert self.file is not None
        self.file.truncate(at)
        self.file.seek(at)

    def _cut(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def _remove(self, path: Path) -> None:
        path.unlink()


def encoded(chunk: Chunk) -> bytes:
    """Encodes a record."""
    body = chunk.rows.contiguous().numpy().astype("<f4").tobytes() + chunk.episodes.numpy().astype("<f4").tobytes()
    whose = chunk.session, chunk.version, chunk.worker, chunk.ticket
    head = HEAD.pack(*whose, chunk.rows.shape[1], len(chunk.episodes), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body
