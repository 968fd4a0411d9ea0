"""What travels between a driver and its Ray workers: bytes made here, which Ray passes on without pickling them.

A message is a header in JSON and the bytes of some arrays. ``work`` is a chunk whose configuration the worker has
learnt before; ``answer`` is its result, checked as a result from a file is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import DTYPES, Chunk, ChunkResult, result_from
from envolve.outer.exchange.pairs import IDENTITY, SCHEMA, pack
from envolve.outer.ray.parcel import frame, head_of
from envolve.outer.search.nes import perturbations
from envolve.outer.search.recipe import Ground, drawn_again

Drawn = Callable[[Tensor], Tensor]


class NotDrawn(Exception):
    """Raised for worlds that cannot be drawn here as they were there; they are to be sent."""


NAMES = {dtype: str(dtype)[len("torch.") :] for dtype in DTYPES}
KINDS = {name: dtype for dtype, name in NAMES.items()}


def join(header: dict[str, Any], arrays: Sequence[Tensor]) -> bytes:
    """header: plain values. arrays: contiguous, of ``DTYPES``."""
    shapes = [(NAMES[a.dtype], list(a.shape)) for a in arrays]
    return frame({**header, "arrays": shapes}, (a.contiguous().numpy().data for a in arrays))


def part(data: bytes, aligned: bool = True) -> tuple[dict[str, Any], list[Tensor]]:
    """Inverse of :func:`join`; the tensors own their memory. aligned: as torch's own memory is; last bits of matrix
    products depend on it. Raises Rejected."""
    try:
        header, at = head_of(data)
        view, arrays = memoryview(data), []
        for name, shape in header.pop("arrays"):
            kind = KINDS[name]
            size = prod(shape) * kind.itemsize
            if size:
                raw = torch.frombuffer(bytearray(view[at : at + size]), dtype=kind)
                raw = raw if len(shape) == 1 else raw.reshape(shape)
                arrays.append(torch.empty(shape, dtype=kind).copy_(raw) if aligned else raw)
            else:
                arrays.append(torch.empty(shape, dtype=kind))
            at += size
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, struct.error) as e:
        raise Rejected(f"{len(data)} bytes are no message: {type(e).__name__}: {e}") from e
    if at != len(data):
        raise Rejected(f"a message of {len(data)} bytes says that it has {at}")
    return header, arrays


def work(chunk: Chunk, key: str) -> bytes:
    """Encodes a chunk. key: of its configuration."""
    header = {name: getattr(chunk, name) for name in IDENTITY}
    return join({**header, "mode": chunk.mode, "config": key}, [chunk.worlds, chunk.seeds])


def thin_work(chunk: Chunk, key: str, ground: str) -> bytes:
    """The same without its worlds, for a worker that has learnt how they were drawn. ground: its key."""
    header = {name: getattr(chunk, name) for name in IDENTITY}
    header.update(mode=chunk.mode, config=key, ground=ground, check=checksum(chunk.worlds))
    return join(header, [chunk.recipe.rows, chunk.seeds])


def checksum(worlds: Tensor) -> int:
    """Of all bits of float32 [p, D]: their sum in words of 64 bits with random odd weights, modulo 2^64. A single word
    that differs is always seen. It takes a sixth of the time of a CRC, and the driver computes one per chunk."""
    flat = worlds.reshape(-1)
    if len(flat) % 2:
        flat = torch.cat((flat, flat.new_zeros(1)))
    words = flat.contiguous().numpy().view(np.uint64)
    return int(np.dot(words, _weights(len(words))))


@lru_cache(maxsize=4)
def _weights(count: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(0)).integers(0, 2**63, count, np.uint64) * np.uint64(2) + np.uint64(1)


def work_of(
    data: bytes, configs: Mapping[str, dict[str, Any]], grounds: Mapping[str, Drawn] = MappingProxyType({})
) -> Chunk:
    """Decodes a chunk. grounds: what draws the worlds of a thin one. Raises Rejected, also for a configuration that is
    not in ``configs``, and NotDrawn."""
    header, (worlds, seeds) = part(data)
    key, ground, check = header.pop("config"), header.pop("ground", None), header.pop("check", None)
    if key not in configs:
        raise Rejected(f"configuration {key} is unknown here")
    if ground is not None:
        if ground not in grounds:
            raise NotDrawn
        worlds = grounds[ground](worlds)
        if checksum(worlds) != check:  # another machine's logarithm, say
            raise NotDrawn
    return Chunk(config=configs[key], worlds=worlds, seeds=seeds, **header)


def ground_bytes(ground: Ground) -> bytes:
    numbers = {name: getattr(ground, name) for name in ("seed", "generation", "n", "noise_std")}
    return pack({"ground": {**numbers, "bases": ground.bases.contiguous(), "mask": ground.mask.to(torch.uint8)}})


def drawing(content: dict[str, Any]) -> Drawn:
    """What :func:`ground_bytes` said, as a function from rows to worlds. The perturbations are drawn once."""
    mask = content["mask"].float()
    noise = perturbations(content["seed"], content["generation"], content["n"], content["noise_std"], mask)
    return partial(drawn_again, content["bases"], noise)


def answer(result: ChunkResult) -> bytes:
    header = {name: getattr(result, name) for name in IDENTITY}
    names = list(result.values)
    header.update(names=names, reasons=result.reasons, error=result.error)
    return join(header, [result.values[name] for name in names])


def answer_of(data: bytes) -> ChunkResult:
    """Raises Rejected."""
    header, arrays = part(data, aligned=False)
    names = header.pop("names", None)
    if not isinstance(names, list) or len(names) != len(arrays):
        raise Rejected("an answer without the names of its values")
    values = dict(zip(names, arrays, strict=True))
    content = {**header, "schema": SCHEMA, "kind": "result", "input_sha256": "", "values": values}
    return result_from(content, received=False)
