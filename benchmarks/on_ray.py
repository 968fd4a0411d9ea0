#!/usr/bin/env python3
"""What an engine costs: Ray beside files, in one run on one machine.

    python3 benchmarks/on_ray.py [--generations 50] [--slots 1000] [--node-slots 63] [--no-files] [--no-ray]
        [--json FILE]

instant   a generation of 16 chunks of 8 x 2,247 numbers, two workers, an evaluation that takes no time
busy      as many chunks of 1 s as there are simulated slots, which wait in place of the evaluation
drawn     the same on Ray with chunks as ``search: nes`` sends them: their worlds are drawn again by the worker

``driver`` is CPU time of the process that hands out, per chunk; ``waited`` is how long its main thread was ready and
had no core, which a quiet machine saves. Slots on Ray are --node-slots per simulated node and foreman; those of files
are the crowd of benchmarks/scaling.py. ``floor`` is what no master can leave out with these files: a chunk's system
calls, checksums and copies alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import exchange_overhead, scaling  # noqa: E402
from envolve.outer.config.load import load_config  # noqa: E402
from envolve.outer.exchange.dispatch import Dispatcher  # noqa: E402
from envolve.outer.exchange.local_workers import LocalWorkers  # noqa: E402
from envolve.outer.exchange.messages import Chunk, chunk_sent, result_content, result_of  # noqa: E402
from envolve.outer.exchange.pairs import IDENTITY, pack_pair  # noqa: E402
from envolve.outer.ray.cluster import Node, RayCluster, connected  # noqa: E402
from envolve.outer.ray.codec import answer, part  # noqa: E402
from envolve.outer.ray.evaluator import Evaluator, setup  # noqa: E402
from envolve.outer.ray.events import READY  # noqa: E402
from envolve.outer.ray.foreman import Foreman  # noqa: E402
from envolve.outer.ray.foremen import MANY  # noqa: E402
from envolve.outer.ray.pool import RayPool  # noqa: E402
from envolve.outer.search.recipe import Ground, Recipe  # noqa: E402

MINE = {"benchmark": "1"}
SECONDS = 1.0  # of an evaluation
SHARED = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where the sync folder is made


class Instant(Evaluator):
    def __init__(self, start: bytes) -> None:
        super().__init__(start, lambda: exchange_overhead.instant)

    def hello(self) -> dict[str, str]:
        super().hello()
        return {**MINE, "nice": "0"}


class Idle:
    """What all simulated workers are for Ray."""

    def hello(self) -> dict[str, str]:
        return {**MINE, "nice": "0"}

    def learn(self, key: str, config: bytes) -> None: ...


class Slots(Foreman):
    """A foreman that plays the workers of its node; SECONDS of waiting per chunk."""

    def _teach(self, worker: int, key: str, lesson: bytes) -> None: ...

    def _evaluation(self, worker: int, data: bytes) -> Awaitable[bytes]:
        return self._play(data)

    async def _play(self, data: bytes) -> bytes:
        until = time.monotonic() + SECONDS
        await asyncio.sleep(SECONDS / 2)  # a real worker reads and draws on a core of its own, not on the driver's
        chunk = read(data)
        done = answer(result_of(chunk, "", scored(chunk)))
        await asyncio.sleep(until - time.monotonic())
        return done


class Crowd(RayCluster):
    """``slots`` slots on simulated nodes of at most ``each``, whose foremen are processes."""

    def __init__(self, slots: int, each: int) -> None:
        super().__init__(Idle, b"", 0, foreman=Slots)
        self.slots, self.each = slots, each
        self.idle = self._ray.remote(Idle).options(num_cpus=0).remote()

    def nodes(self) -> list[Node]:
        count = -(-self.slots // self.each)  # of nodes, alike in size: a small one would have no foreman
        sizes = [len(range(i, self.slots, count)) for i in range(count)]
        self._slots = {f"node{i}": size for i, size in enumerate(sizes)}
        return [Node(name, name, size) for name, size in self._slots.items()]

    def begin(self, worker: int, node: str) -> None:
        self._handles[worker] = self.idle
        self._follow(self.idle.hello.remote(), READY, worker)
        self.events.hire(worker, node, self._slots[node])

    def close(self) -> None:
        self._ray.kill(self.idle)
        self.events.close()

    def _pin(self, node: str) -> dict[str, Any]:
        return {}


def read(data: bytes) -> Chunk:
    """A chunk without its configuration, and without its worlds if they are to be drawn."""
    header, (worlds, seeds) = part(data)
    return Chunk(config={}, worlds=worlds, seeds=seeds, **{name: header[name] for name in (*IDENTITY, "mode")})


def scored(chunk: Chunk) -> dict[str, Any]:
    """What an evaluation returns. The score is the seed, which is the first number of a member's world, too."""
    return {**scaling.answer(chunk), "score": chunk.seeds}


def chunks_of(count: int, generation: int, config: dict[str, Any], drawn: bool) -> list[Chunk]:
    seeds = torch.arange(count * 8).reshape(count, 8)
    recipes: list[Recipe | None] = [None] * count
    if drawn:
        ground = Ground(0, generation, count * 4, 0.1, torch.randn(1, 2247), torch.ones(2247))
        pairs = torch.stack([torch.arange(1, count * 4 + 1), -torch.arange(1, count * 4 + 1)], 1).reshape(count, 8)
        recipes = [Recipe(ground, torch.stack([torch.zeros(8), pair], 1).int()) for pair in pairs]
    worlds = torch.randn(count, 8, 2247)
    worlds[:, :, 0] = seeds
    chunk = partial(Chunk, "benchmark", generation, attempt=0, mode="proxy", config=config)
    return [chunk(i, worlds=worlds[i], seeds=seeds[i], recipe=recipes[i]) for i in range(count)]


def waited() -> float:
    """Milliseconds for which the main thread was ready to run and had no core."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e6


def measure(
    engine: Any, count: int, generations: int, config: dict[str, Any], drawn: bool = False, warm: int = 2
) -> dict[str, float]:
    """Medians over generations: milliseconds of a generation, of waiting for a core in it, and of the driver's CPU per
    chunk. drawn: whether a chunk says how its worlds are drawn."""
    walls, cpus, waits = [], [], []
    for generation in range(generations + warm):
        chunks = chunks_of(count, generation, config, drawn)
        wall, cpu, wait = time.perf_counter(), time.process_time(), waited()
        results = engine.evaluate(chunks)
        cpus.append((time.process_time() - cpu) * 1e3 / count)
        walls.append((time.perf_counter() - wall) * 1e3)
        waits.append(waited() - wait)
        for result, chunk in zip(results, chunks, strict=True):
            assert torch.equal(result.values["score"], chunk.worlds[:, 0].double()), "it answers another chunk"
    walls, cpus, waits = walls[warm:], cpus[warm:], waits[warm:]
    middle = {"wall_ms": walls, "waited_ms": waits, "driver_ms": cpus}
    return {**{name: statistics.median(values) for name, values in middle.items()}, "best_ms": min(walls)}


@contextlib.contextmanager
def on_files(slots: int) -> Iterator[Any]:
    """slots 0: two real workers."""
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        if slots:
            with scaling.crowd(folder, slots, SECONDS) as dispatcher:
                yield dispatcher
            return
        script, extra = exchange_overhead.__file__, ("--worker",)
        with Dispatcher(folder, 0, "benchmark") as dispatcher, LocalWorkers(
            2, folder, 0, folder, script=script, extra_args=extra
        ):
            while len(dispatcher.workers()) < 2:
                time.sleep(0.1)
            time.sleep(1.0)  # until both have loaded
            yield dispatcher


@contextlib.contextmanager
def on_ray(slots: int, each: int) -> Iterator[Any]:
    cluster = Crowd(slots, each) if slots else RayCluster(Instant, setup("benchmark", {}))
    with RayPool(cluster, "benchmark", MINE) as pool:
        while len(pool.workers()) < (slots or 2):
            time.sleep(0.1)
        yield pool


def floor(config: dict[str, Any], count: int = 300) -> float:
    """Milliseconds of CPU per chunk: its input written and renamed, its result read and removed, with both checksums of
    either; best of five."""
    (chunk,) = chunks_of(1, 0, config, False)
    sent = pack_pair(chunk_sent(chunk, "0" * 32, config))
    answered = pack_pair(result_content(result_of(chunk, sent[2], scaling.answer(chunk))))[:2]
    found = []
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        paths = [[f"{folder}/{i}_{kind}.pt" for kind in ("input", "input_check")] for i in range(count)]
        results = [[f"{folder}/{i}_{kind}.pt" for kind in ("result", "result_check")] for i in range(count)]
        for _ in range(5):
            for names in results:
                for name, data in zip(names, answered):
                    _put(name, data)
            began = time.process_time()
            for names, theirs in zip(paths, results):
                hashlib.sha256(sent[0]), zlib.crc32(b"".join([sent[0]]))
                for name, data in zip(names, sent[:2]):
                    _put(name, data)
                read = [_take(name) for name in reversed(theirs)]
                hashlib.sha256(read[1]), zlib.crc32(read[1])
            found.append((time.process_time() - began) * 1e3 / count)
    return min(found)


def _put(path: str, data: bytes) -> None:
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(fd, data)
    os.close(fd)
    os.replace(path + ".tmp", path)


def _take(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, os.fstat(fd).st_size)
    os.close(fd)
    os.remove(path)
    return data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=50, help="of instant chunks")
    parser.add_argument("--slots", type=int, nargs="+", default=[1000])
    parser.add_argument("--node-slots", type=int, default=63, help="of a simulated node of Ray")
    parser.add_argument("--no-files", action="store_true")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if min(args.slots) < MANY or args.node_slots < 2 * MANY:
        parser.error(f"--slots and half of --node-slots: expected at least {MANY}: nodes of fewer have no foreman")
    torch.set_num_threads(1)
    config = load_config(str(ROOT / scaling.CONFIG)).data
    rows: list[dict[str, Any]] = []
    with contextlib.nullcontext() if args.no_ray else connected(None, 2):
        for name, engine in (("ray", partial(on_ray, each=args.node_slots)), ("files", on_files)):
            if args.no_files if name == "files" else args.no_ray:
                continue
            sizes = [(0, False), *((slots, drawn) for slots in args.slots for drawn in (False, True))]
            for slots, drawn in sizes if name == "ray" else [size for size in sizes if not size[1]]:
                with engine(slots) as e:
                    row: dict[str, Any] = dict(measure(e, slots or 16, 3 if slots else args.generations, config, drawn))
                row |= {"engine": name, "slots": slots, "drawn": drawn, "load": os.getloadavg()[0]}
                rows.append(row)
                what = f"{slots} chunks of 1 s" if slots else "16 instant chunks"
                what += ", drawn" if drawn else ""
                top = f" ({row['wall_ms'] / 10 - 100:.0f} % on top)" if slots else ""
                print(
                    f"{name:5} {what:27} {row['wall_ms']:8.1f} ms{top}, {row['waited_ms']:.1f} without a core, best "
                    f"{row['best_ms']:.1f}; driver {row['driver_ms']:.2f} ms per chunk; load {row['load']:.1f}",
                    flush=True,
                )
    if not args.no_files:
        rows.append({"engine": "files", "floor_ms": floor(config)})
        print(f"files floor {rows[-1]['floor_ms']:.2f} ms per chunk")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
