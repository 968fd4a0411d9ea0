"""Thousands of files that should not be: none is executed or taken for what it is not, none ends or bloats anybody.

Master and worker are the real ones on a real folder, with a virtual clock. One file of each exchange is replaced by a
mutant of itself; the chunk must come back right all the same. Seeds are the numbers of the mutants.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from envolve.envs.worlds.file import WorldFileError, checksum, read_world
from envolve.outer.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from envolve.outer.exchange.heartbeat import Beat, Watch, living_owner, read_beat
from envolve.outer.exchange.machine import Files
from envolve.outer.exchange.messages import chunk_content, result_content, result_of
from envolve.outer.exchange.pairs import IDENTITY, SCHEMA, pack
from envolve.outer.exchange.roster import Roster
from envolve.outer.exchange.worker import Worker
from tests.envs.worlds.test_file import save as save_model
from tests.faults.mutants import FAMILIES, Good
from tests.outer.test_checkpoint import DIGEST, contents
from tests.outer.virtual import Cluster, VirtualHost, chunks_of, fake

MAX_MEMORY = 150 * 2**20  # more than before, at any moment of a mutant
MAX_SECONDS = 10.0  # of the processor, per mutant
EVENTS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "pickle.find_class",
    "exec",
    "compile",
)
EVENTS += ("socket.connect", "ctypes.dlopen", "urllib.Request", "shutil.rmtree")
watching: list[str] = []
watch_on = [False]


def _hook(event, args):
    if not watch_on[0] or event not in EVENTS:
        return
    file = args[0].co_filename if event == "exec" else args[1] if event == "compile" else "<string>"
    if file == "<string>":  # not a module that is imported late
        watching.append(f"{event} {args!r}"[:300])


@contextlib.contextmanager
def nothing_executed():
    """An audit hook cannot be taken away again, so it is switched."""
    if not watching:
        sys.addaudithook(_hook)
        watching.append("installed")
    watch_on[0] = True
    try:
        yield
    finally:
        watch_on[0] = False
    assert watching == ["installed"]


@pytest.fixture
def limited():
    """A mutant that asks for terabytes gets a MemoryError, not the machine."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * 2**30, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


def mutated(family, good, r):
    """The making of a mutant may well call what reading it must not."""
    before, watch_on[0] = watch_on[0], False
    try:
        return FAMILIES[family](good, r)
    finally:
        watch_on[0] = before


# what tells a file from one of another run, chunk or version
OTHER = [("run_id", "other"), ("generation", 999_999), ("chunk_id", 5), ("attempt", 7), ("schema", 2)]


class Peak:
    """The most memory that this process has had since the last reset, in bytes."""

    @staticmethod
    def reset() -> int:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        return Peak.now()

    @staticmethod
    def now() -> int:
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


class Tampering(Files):
    """Replaces the next file or pair of files of a name by what ``mutate`` makes of it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.target, self.mutate, self.check = "", None, None

    def write(self, name, data):
        if self.mutate and name == self.target + ".pt":
            data, self.check = self.mutate(data)
            self.mutate = None
        elif self.check and name == self.target + "_check.pt":
            data, self.check = self.check(data), None
        super().write(name, data)


def pair_check(data, content):
    """A check file that fits ``data``, with the identity that the content claims."""
    check = {"schema": content.get("schema", SCHEMA), "kind": content.get("kind"), "size": len(data)}
    check.update({key: content.get(key) for key in IDENTITY}, sha256=hashlib.sha256(data).hexdigest())
    return pack(check)


class Exchange:
    """A master and a worker; ``trial`` evaluates one chunk, of which one file is replaced on its way."""

    def __init__(self, folder, canary):
        self.files, self.canary = Tampering(str(folder)), str(canary)
        self.cluster = Cluster()
        self.cluster.files = self.files
        self.seen = []
        host = VirtualHost(self.cluster.machine, 99)
        self.worker = Worker(0, 0, self.files, host, lambda: self._evaluate)
        self.worker.start()
        self.cluster.machine.schedule(host, 0.2, self._work)  # seldom, as most mutants are looked at for two seconds
        self.master = self.cluster.master()
        self.earlier = {"input": [], "result": []}

    def _work(self):
        while self.worker.step():
            pass

    def _evaluate(self, config, worlds, seeds, mode, threads):
        assert type(config) is dict and type(mode) is str and worlds.dtype == torch.float32 and worlds.ndim == 2
        assert seeds.dtype == torch.int64 and seeds.shape == worlds.shape[:1] and worlds.device.type == "cpu"
        json.dumps(config)
        assert worlds.numel() == 15 or len(seeds) <= 30, "of a size that nobody sent"
        self.seen.append((config, worlds, seeds, mode))
        return fake(config, worlds, seeds, mode, threads)

    def trial(self, family, side, number):
        """-> "refused", or "another" if a valid message with other values was taken: no reader can know better."""
        r = random.Random(f"{family} {side} {number}")
        self.files.target, self.seen = f"0_0_{side}", []
        self.files.mutate = lambda data: self._mutant(family, side, data, r)
        (chunk,) = chunks_of(1, generation=number + 1)
        (result,) = self.master.evaluate([chunk])
        assert self.files.mutate is None and self.files.check is None, "the mutant has not been there"
        left = [n for n in self.files.names() if "input" in n or "result" in n]
        assert all(n.endswith(".rejected") for n in left), left
        (again,) = self.master.evaluate(chunks_of(1, generation=number + 1)) if number % 20 == 0 else [result]
        assert torch.equal(again.values["score"], chunk.worlds.sum(1).double()) or again is result
        expected = result_content(result_of(chunk, "", fake({}, chunk.worlds, chunk.seeds, "", 1)))
        if _same(result_content(result), expected):
            return "refused"
        valid = result.run_id == chunk.run_id and result.generation == chunk.generation and len(result.reasons) == 3
        for value in result.values.values():
            valid &= (
                type(value) is torch.Tensor and value.device.type == "cpu" and len(value) == 3 and not value.is_neg()
            )
            value.numpy().copy()
        "".join(result.reasons).encode()
        assert valid and family in ("fields", "tensors", "program"), result
        return "another"

    def _mutant(self, family, side, data, r):
        content = torch.load(io.BytesIO(data), weights_only=True)
        self.earlier[side] = self.earlier[side][-7:] + [data]
        if family == "swapped":
            return self._swapped(content, side, data, r)
        if r.random() < 0.2:  # the check file is the mutant
            check = pair_check(data, content)
            changed = mutated(family, self._good(check, []), r)
            return data, lambda genuine: changed
        sealed = []
        changed = mutated(family, self._good(data, sealed), r)
        if r.random() < 0.15:
            return changed, None  # with the check file of the good one
        return changed, lambda genuine: pair_check(changed, sealed[-1] if sealed else content)

    def _good(self, data, sealed):
        def seal(content, changed):
            sealed.append(content)
            return changed

        return Good(data, torch.load(io.BytesIO(data), weights_only=True), self.canary, seal)

    def _swapped(self, content, side, data, r):
        """Whole files of something else: all in order, but not what is waited for."""
        kind = r.randrange(4)
        if kind == 0 and self.earlier[side][:-1]:
            return r.choice(self.earlier[side][:-1]), None  # data of an earlier one under the new check file
        if kind == 1 and self.earlier[side][:-1]:  # an earlier pair
            old = r.choice(self.earlier[side][:-1])
            return old, lambda genuine: pair_check(old, torch.load(io.BytesIO(old), weights_only=True))
        if kind == 2:  # the right data, a check file of something else
            key, value = r.choice([*OTHER, ("kind", "x")])
            changed = {**content, key: value}
            return data, lambda genuine: pair_check(data, changed)
        key, value = r.choice([*OTHER, ("kind", "quit")])
        if r.random() < 0.2:  # what only the other side writes
            chunk = chunks_of(1)[0]
            other = (
                chunk_content(chunk, "x")
                if side == "result"
                else result_content(result_of(chunk, "a" * 64, fake({}, chunk.worlds, chunk.seeds, "", 1)))
            )
            packed = pack(other)
            return packed, lambda genuine: pair_check(packed, other)
        other = {**content, key: value}
        if side == "result" and r.random() < 0.3:
            other["input_sha256"] = "0" * 64
        packed = pack(other)
        return packed, lambda genuine: pair_check(packed, other)


def _same(a, b):
    keys = set(a) - {"input_sha256", "attempt"}
    if set(a["values"]) != set(b["values"]) or any(a[k] != b[k] for k in keys - {"values"}):
        return False
    return all(v.dtype == b["values"][k].dtype and torch.equal(v, b["values"][k]) for k, v in a["values"].items())


class Checkpoints:
    def __init__(self, folder, canary):
        self.path, self.canary = folder / "checkpoint.pt", str(canary)
        self.expected = contents()
        save_checkpoint(self.path, *self.expected, DIGEST)
        self.whole = self.path.read_bytes()

    def trial(self, family, side, number):
        r = random.Random(f"{family} {side} {number}")
        head, _, body = self.whole.partition(b"\n")
        good = Good(
            body, torch.load(io.BytesIO(body), weights_only=True), self.canary, lambda content, changed: changed
        )
        changed = mutated(family, good, r) if family != "swapped" else body
        if family == "swapped":
            head = r.choice([head[:-1] + b"x", head.replace(b"-1 ", b"-2 "), b"", head + b" x", head[::-1]])
        elif r.random() < 0.9:
            parts = head.split(b" ")
            parts[1] = hashlib.sha256(changed).hexdigest().encode()
            head = b" ".join(parts)
        self.path.write_bytes(head + b"\n" + changed)
        try:
            nes, progress = load_checkpoint(self.path, DIGEST)
        except CheckpointError as e:
            assert str(self.path) in str(e) and "\n" not in str(e) and len(str(e)) < 1000
            return "refused"
        different = []
        for value, wanted in zip((nes, progress), self.expected):
            for key, other in vars(wanted).items():
                mine = getattr(value, key)
                assert type(mine) is type(other), key
                if torch.is_tensor(other):
                    assert mine.dtype == other.dtype and mine.shape == other.shape and mine.isfinite().all(), key
                    different += [key] if not torch.equal(mine, other) else []
                else:
                    different += [key] if mine != other else []
        assert not different or family in ("fields", "program"), different
        return "another" if different else "the same"


class Models:
    def __init__(self, folder, canary):
        self.path, self.canary = folder / "model.pt", str(canary)
        save_model(self.path)
        self.data = self.path.read_bytes()
        self.expected = read_world(str(self.path))

    def _seal(self, content, changed):
        try:
            content["sha256"] = checksum(content)
            return pack(content)
        except Exception:  # no checksum can be made of such values
            return changed

    def trial(self, family, side, number):
        r = random.Random(f"{family} {side} {number}")
        content = torch.load(io.BytesIO(self.data), weights_only=True)
        good = Good(
            self.data, content, self.canary, lambda c, changed: changed if c is content else self._seal(c, changed)
        )
        if family == "swapped":
            self.path.write_bytes(pack({**content, "sha256": r.choice(["", "0" * 64, content["sha256"][::-1]])}))
        else:
            self.path.write_bytes(mutated(family, good, r))
        try:
            world = read_world(str(self.path))
        except WorldFileError as e:
            assert str(self.path) in str(e) and len(str(e)) < 3000
            return "refused"
        assert world.flat.dtype == torch.float32 and world.flat.isfinite().all() and world.kind in ("se", "rn")
        world.world()
        same = torch.equal(world.flat, self.expected.flat) and world.config == self.expected.config
        same &= (world.budget, world.score, world.solved) == (1500, 196.5, True)
        assert same or family in ("fields", "tensors", "program"), family
        return "the same" if same else "another"


class Heartbeats:
    """Whatever lies where a heartbeat should: no news, or a beat of the right types."""

    def __init__(self, folder, canary):
        self.files, self.cluster = Files(str(folder)), Cluster()
        host = VirtualHost(self.cluster.machine, 1)
        self.host, self.roster = host, Roster(self.files, host, 0, 30.0)
        self.beat = dict(uuid="a" * 32, counter=5, machine=host.machine, host="here", pid=1, started=7, interval=1.0)
        self.beat.update(run_id="run", doing="", note="", code="0123456789ab")

    def trial(self, family, side, number):
        r = random.Random(f"{family} {side} {number}")
        good = json.dumps(self.beat).encode()
        stand_in = Good(good, {}, "", lambda content, changed: changed)
        if family in ("bits", "stretch", "truncated", "extended", "shuffled"):
            data = mutated(family, stand_in, r)
        else:
            key = r.choice(list(self.beat))
            odd = r.choice(
                [
                    "1e999",
                    "NaN",
                    "-1",
                    "1" * 5000,
                    "[" * 7000,
                    '{"a":' * 1000,
                    '"\\ud800"',
                    '"\\u0000"',
                    "true",
                    "null",
                    "1e-300",
                    "[]",
                    '"x"',
                    "0.5",
                    str(2**53),
                    str(-(2**70)),
                    '"' + "x" * 9000 + '"',
                    "0",
                ]
            )
            text = json.dumps({k: v for k, v in self.beat.items() if k != key})[:-1]
            data = f'{text}, "{r.choice([key, key, key, "more"])}": {odd}}}'.encode()
        name = "0_0_heartbeat"
        self.files.write(name, data)
        beat = read_beat(self.files, name)
        self.roster.scan({name})
        living_owner(self.files, self.host, name)
        Watch(self.host, 30.0).see(beat)
        if beat is not None:
            assert data != good or beat == Beat(**self.beat)
            for key, value in vars(beat).items():
                assert type(value) is type(self.beat[key]) or (key == "interval" and type(value) is int), key
            json.dumps(vars(beat), ensure_ascii=False).encode()
        self.files.write(name, good)
        self.roster.scan({name})
        assert read_beat(self.files, name) == Beat(**self.beat)
        return "refused" if beat is None else "the same" if beat == Beat(**self.beat) else "another"


READERS = {"input": 3, "result": 3, "checkpoint": 2, "model": 2, "heartbeat": 1}  # shares


def mutants(count, first=0):
    names = [name for name, share in READERS.items() for _ in range(share)]
    families = [*FAMILIES, "swapped"]
    for number in range(first, first + count):
        r = random.Random(number)
        yield number, r.choice(names), families[number % len(families)]


def go(tmp_path, count, first=0):
    canary = tmp_path / "executed"
    exchange = Exchange(tmp_path / "sync", canary)
    readers = {"input": exchange, "result": exchange, "checkpoint": Checkpoints(tmp_path, canary)}
    readers.update(model=Models(tmp_path, canary), heartbeat=Heartbeats(tmp_path / "beats", canary))
    repr(torch.zeros(2, 2))  # a message may say what was found, and torch imports late what that needs
    for warm_up in range(10):  # imports, caches
        for name in readers:
            readers[name].trial("truncated", name, 10**7 + warm_up)
    gc.collect()
    counts, most, longest = Counter(), 0, 0.0
    for number, name, family in mutants(count, first):
        before, began = Peak.reset(), time.process_time()
        try:
            with nothing_executed():
                outcome = readers[name].trial(family, name, number)
        except BaseException:
            print(f"\nmutant {number}: {family} of {name}")
            raise
        assert not canary.exists(), (number, name, family)
        most, longest = max(most, Peak.now() - before), max(longest, time.process_time() - began)
        assert Peak.now() - before < MAX_MEMORY, (number, name, family, Peak.now() - before)
        assert time.process_time() - began < MAX_SECONDS, (number, name, family)
        counts[family, name, outcome] += 1
    assert counts.total() == count
    return counts, most, longest


def table(counts):
    outcomes = sorted({o for _, _, o in counts})
    lines = []
    for family in [*FAMILIES, "swapped"]:
        by = {o: sum(n for (f, _, out), n in counts.items() if f == family and out == o) for o in outcomes}
        lines.append(f"{family:10} " + "  ".join(f"{o} {n}" for o, n in by.items()))
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def _look_less_often(monkeypatch):
    """The clock is virtual: a master that looks a thousand times a second only takes real time."""
    monkeypatch.setattr("envolve.outer.exchange.dispatch.pause", lambda idle: 0.1)


@pytest.fixture
def folder(tmp_path):
    """In memory where that is possible: every trial renames a dozen files."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.filterwarnings("ignore")
def test_mutated_files(folder, limited):
    go(folder, 280)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_mutated_files(folder, limited):
    counts, most, longest = go(folder, 10_000, first=1000)
    print(f"\n{table(counts)}\nmost memory {most / 2**20:.0f} MiB, longest {longest:.2f} s of the processor")
