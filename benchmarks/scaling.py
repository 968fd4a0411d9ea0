#!/usr/bin/env python3
"""What a master costs per generation against the number of workers, and what a network file system makes of it.

    python3 benchmarks/scaling.py [--workers 1 10 100 300 1000] [--folder /dev/shm] [--latency 0.5 2 10] [--json FILE]

The master is the real one (outer/exchange/dispatch.py) in a real folder. The workers are one other process that plays
all of them through the same files: their heartbeats at the real rate, their answers when an evaluation would have
ended, but nothing is evaluated. They say that they are on another machine, as on a cluster. docs/scaling.md has the
figures.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import math
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from envolve.outer.config.load import load_config  # noqa: E402
from envolve.outer.exchange.dispatch import Dispatcher  # noqa: E402
from envolve.outer.exchange.heartbeat import Heartbeat, name_of  # noqa: E402
from envolve.outer.exchange.machine import Files, Host, NotReady  # noqa: E402
from envolve.outer.exchange.messages import Chunk, chunk_from, result_content, result_of  # noqa: E402
from envolve.outer.exchange.pairs import read_pair, remove_pair, stem, write_pair  # noqa: E402
from envolve.outer.exchange.roster import Roster  # noqa: E402
from envolve.outer.exchange.worker import pause  # noqa: E402

CONFIG = "default_config_cartpole_syn_env_paper.yaml"
MEMBERS, PARAMETERS, TESTS = 8, 2247, 10  # of a chunk: members, numbers of a world, test episodes
FLOOR = {"open": 4, "read": 2, "write": 2, "rename": 2, "unlink": 2}  # the master's operations per chunk: four files
MOST_WORK = 4.0  # seconds of evaluation in a generation: with few workers the evaluations are shorter
THREADS = 16  # of the master: as it has where its files are not replaced
LOOK, BEATING = 0.01, 4  # the simulated workers: seconds between two looks, threads that beat


class Counting(Files):
    """Counts what it asks of the file system. Every operation takes ``latency`` seconds longer: a round trip each."""

    def __init__(self, folder: str, latency: float = 0.0) -> None:
        super().__init__(folder)
        self.latency = latency
        self._lock = threading.Lock()
        self.operations: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.answered: dict[str, float] = {}  # slot -> when its latest result was there, by the file system's clock
        self.pickups: list[float] = []  # seconds from a result to its being read ...
        self.reissues: list[float] = []  # ... and to the next input of the same worker

    def _did(self, *kinds: str) -> None:
        with self._lock:
            self.operations.update(kinds)
        if self.latency:
            time.sleep(self.latency * len(kinds))

    def names(self) -> list[str]:
        self._did("listdir")
        return super().names()

    def read(self, name: str, limit: int) -> bytes | None:
        self._did("open")
        if name.endswith("_result_check.pt"):
            slot = name.rpartition("_result")[0]
            self.answered[slot] = os.stat(self.path(name)).st_mtime
            self.pickups.append(time.time() - self.answered[slot])
        data = super().read(name, limit)
        if data is not None:
            self._did("read")
            self.bytes["read"] += len(data)
        return data

    def write(self, name: str, data: bytes) -> None:
        self._did("open", "write", "rename")
        super().write(name, data)
        self.bytes["write"] += len(data)
        slot, _, rest = name.partition("_input")
        if rest == "_check.pt" and slot in self.answered:
            self.reissues.append(time.time() - self.answered.pop(slot))

    def remove(self, name: str) -> None:
        self._did("unlink")
        super().remove(name)


class Elsewhere(Host):
    """A host whose processes nobody here can ask about: a master judges them by their heartbeats alone."""

    def __init__(self) -> None:
        super().__init__()
        self.name = self.machine = "elsewhere"


class Crowd:
    """``count`` workers in one process: the protocol's files, with waiting in place of the evaluation.

    What real workers do side by side costs no more time here: an evaluation begins when its input was there (by the
    file system's clock) and the worker would have looked, not when this process came round to reading it.
    """

    def __init__(self, folder: str, count: int, seconds: float, interval: float, latency: float) -> None:
        self._files, host = Files(folder), Elsewhere()
        self._seconds = seconds + sum(FLOOR.values()) * latency  # a worker needs as many operations as the master
        self._interval = interval
        self._hearts = [Heartbeat(self._files, host, name_of(0, str(i)), interval) for i in range(count)]
        self._pattern = re.compile(r"0_(\d+)_input_check\.pt")
        self._due: list[tuple[float, int, dict[str, Any]]] = []  # when a result is to be there, whose, and what
        self._idle_since = [time.time()] * count
        self._random = random.Random(0)
        self.beats = 0

    def run(self, stop: Any) -> None:
        for heart in self._hearts:
            heart.claim()
        threads = [threading.Thread(target=self._beat, args=(stop, i)) for i in range(BEATING)]
        for thread in threads:
            thread.start()
        while not stop.is_set():
            looked = time.time()
            for match in filter(None, map(self._pattern.fullmatch, self._files.names())):
                self._take(int(match[1]))
            while self._due and self._due[0][0] <= time.time():
                _, i, result = heapq.heappop(self._due)
                write_pair(self._files, stem(0, i, "result"), result)
                self._hearts[i].doing, self._idle_since[i] = "", time.time()
            ahead = self._due[0][0] - time.time() if self._due else LOOK
            time.sleep(max(0.0005, min(ahead, looked + LOOK - time.time())))
        for thread in threads:
            thread.join()

    def _beat(self, stop: Any, first: int) -> None:
        """Every BEATING-th worker's heartbeat, spread over the interval."""
        mine = self._hearts[first::BEATING]
        begin = time.monotonic()
        while not stop.is_set():
            for i, heart in enumerate(mine):
                time.sleep(max(0.0, begin + self._interval * i / len(mine) - time.monotonic()))
                heart.beat()
                self.beats += 1
            begin = max(begin + self._interval, time.monotonic() - self._interval)

    def _take(self, i: int) -> None:
        """As outer/exchange/worker.py: read, say so, remove; the result is due once the evaluation would have ended."""
        name = stem(0, i, "input")
        try:
            began = os.stat(self._files.path(name + "_check.pt")).st_mtime
            pair = read_pair(self._files, name, "input")
        except (FileNotFoundError, NotReady):  # the master took it back
            return
        if pair is None:
            return
        chunk, sha256 = chunk_from(pair[0]), pair[1]
        self._hearts[i].doing = sha256
        remove_pair(self._files, name)
        began += self._random.random() * pause(began - self._idle_since[i])
        result = result_of(chunk, sha256, answer(chunk))
        heapq.heappush(self._due, (began + self._seconds, i, result_content(result)))


def answer(chunk: Chunk) -> dict[str, Any]:
    """Of the shapes that outer.evaluate returns; the score is the first number of each world."""
    p = len(chunk.seeds)
    values: dict[str, Any] = {k: torch.zeros(p, dtype=torch.int64) for k in ("train_steps", "episodes", "updates")}
    return {
        "score": chunk.worlds[:, 0],
        "mean_return": torch.zeros(p),
        "real_steps": torch.zeros(p, dtype=torch.int64),
        "test_returns": torch.zeros(p, TESTS),
        "reason": [""] * p,
        **values,
    }


def _crowd(folder: str, count: int, seconds: float, interval: float, latency: float, stop: Any, used: Any) -> None:
    torch.set_num_threads(1)
    crowd = Crowd(folder, count, seconds, interval, latency)
    began, busy = time.monotonic(), time.process_time()
    crowd.run(stop)
    lasted = time.monotonic() - began
    used[:] = (time.process_time() - busy) / lasted, crowd.beats / lasted


@contextlib.contextmanager
def crowd(folder: str, workers: int, seconds: float, interval: float = 1.0) -> Iterator[Dispatcher]:
    """A master of simulated workers in a folder."""
    context = multiprocessing.get_context("spawn")
    stop, used = context.Event(), context.Array("d", 2)
    process = context.Process(target=_crowd, args=(folder, workers, seconds, interval, 0.0, stop, used))
    process.start()
    try:
        with Dispatcher(folder, 0, "benchmark") as dispatcher:
            while len(dispatcher.workers()) < workers:
                time.sleep(0.1)
            yield dispatcher
    finally:
        stop.set()
        process.join()


def measure(
    folder: str,
    workers: int,
    chunks: int,
    generations: int = 3,
    seconds: float = 1.0,
    interval: float = 1.0,
    latency: float = 0.0,
) -> dict[str, Any]:
    """Medians over the generations; the first one, in which the workers come, is not counted."""
    seconds = min(seconds, MOST_WORK * workers / chunks)
    ideal = math.ceil(chunks / workers) * seconds
    config = load_config(str(ROOT / CONFIG)).data
    context = multiprocessing.get_context("spawn")
    stop, used = context.Event(), context.Array("d", 2)
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as sync:
        crowd = context.Process(target=_crowd, args=(sync, workers, seconds, interval, latency, stop, used))
        crowd.start()
        try:
            files = Counting(sync, latency)
            with Dispatcher(sync, 0, "scaling", files=files, threads=THREADS) as dispatcher:

                def check() -> None:
                    if not crowd.is_alive():
                        raise RuntimeError(f"the simulated workers ended with exit code {crowd.exitcode}")

                dispatcher.on_wait = check
                while len(dispatcher.workers()) < workers:
                    time.sleep(0.1)
                for generation in range(generations + 1):
                    worlds = torch.randn(chunks, MEMBERS, PARAMETERS)
                    seeds = torch.arange(MEMBERS)
                    work = [
                        Chunk("scaling", generation, i, 0, "proxy", config, worlds[i], seeds) for i in range(chunks)
                    ]
                    files.operations.clear()
                    files.bytes.clear()
                    files.pickups, files.reissues = [], []
                    wall, busy = time.perf_counter(), time.process_time()
                    results = dispatcher.evaluate(work)
                    busy, wall = time.process_time() - busy, time.perf_counter() - wall
                    scores = torch.stack([r.values["score"] for r in results])
                    assert torch.equal(scores, worlds[:, :, 0].double()), "a result that does not answer its input"
                    rows.append(_row(files, wall, busy))
                look = _look(files, dispatcher.bohb_id)
        finally:
            stop.set()
            crowd.join()
    counted = rows[1:] or rows
    row: dict[str, Any] = {"workers": workers, "chunks": chunks, "seconds": seconds, "latency_ms": latency * 1e3}
    row.update({key: _median([r[key] for r in counted]) for key in counted[0] if key != "operations"})
    row["added_percent"] = (row["wall_s"] / ideal - 1) * 100
    row["cpu_ms_per_chunk"] = row["cpu_s"] / chunks * 1e3
    row["operations"] = {k: _median([r["operations"].get(k, 0) for r in counted]) for k in ("listdir", *FLOOR)}
    row["operations_per_chunk"] = sum(row["operations"].values()) / chunks
    row["floor_per_chunk"] = sum(FLOOR.values())
    row["operations_per_s"] = sum(row["operations"].values()) / row["wall_s"]
    row["crowd_cores"], row["beats_per_s"] = used[:]  # what the figures are worth: it must keep up
    return {**row, **look}


def _row(files: Counting, wall: float, busy: float) -> dict[str, Any]:
    return {
        "wall_s": wall,
        "cpu_s": busy,
        "cores": busy / wall,
        "pickup_ms": _median(files.pickups) * 1e3,
        "reissue_ms": _median(files.reissues) * 1e3,
        "mib_read": files.bytes["read"] / 2**20,
        "mib_written": files.bytes["write"] / 2**20,
        "operations": dict(files.operations),
    }


def _look(files: Counting, bohb_id: int) -> dict[str, float]:
    """One listing, and one reading of all heartbeats, by themselves."""
    roster = Roster(files, Host(), bohb_id, 30.0)
    begin = time.perf_counter()
    names = set(files.names())
    listed = time.perf_counter()
    roster.scan(names)
    return {"listing_ms": (listed - begin) * 1e3, "scan_ms": (time.perf_counter() - listed) * 1e3, "files": len(names)}


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else math.nan


COLUMNS = {
    "workers": "{:.0f}", "seconds": "{:.3f}", "latency_ms": "{:.1f}", "wall_s": "{:.2f}", "added_percent": "{:.0f}",
    "cpu_s": "{:.2f}", "cores": "{:.2f}", "cpu_ms_per_chunk": "{:.2f}", "operations_per_chunk": "{:.0f}",
    "operations_per_s": "{:.0f}", "pickup_ms": "{:.0f}", "reissue_ms": "{:.0f}", "listing_ms": "{:.1f}",
    "scan_ms": "{:.1f}", "crowd_cores": "{:.2f}", "beats_per_s": "{:.0f}",
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100, 300, 1000])
    parser.add_argument("--chunks", type=int, default=256, help="of a generation (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=3, help="that count (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of an evaluation, at most (default: %(default)s)")
    parser.add_argument(
        "--heartbeat", type=float, default=1.0, help="of the workers, in seconds (default: %(default)s)"
    )
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0], metavar="MS", help="of every operation")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the sync folder is made")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    widths = [max(len(name), 7) for name in COLUMNS]
    print("  ".join(name.rjust(w) for name, w in zip(COLUMNS, widths, strict=True)))
    rows = []
    for latency in args.latency:
        for workers in args.workers:
            row = measure(
                args.folder, workers, args.chunks, args.generations, args.seconds, args.heartbeat, latency / 1e3
            )
            rows.append(row)
            cells = [form.format(row[name]) for name, form in COLUMNS.items()]
            print("  ".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"arguments": vars(args), "rows": rows}, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
