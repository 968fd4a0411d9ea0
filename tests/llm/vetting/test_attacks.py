"""Hostile code reaches nothing: through all layers, and with only some of them.

"whole": as a user has it. "no allow-list": the source is not looked at; the tracer, the jail and the check of the graph
hold alone. "naked": code is run as it is, and the jail and the check of the graph hold alone; also without bubblewrap.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
from pathlib import Path

import pytest

from envolve.llm.vetting import vet
from envolve.llm.vetting.jail import jailer
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.normal.normalise import Normalised
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.vet import Rejection, Vetted, Vetter
from tests.llm.attacks import ATTACKS, FAMILIES, REWARD

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")
GOOD = REWARD
REAL = {name: getattr(vet, name) for name in ("extract", "normalise", "check_source")}
# What is left out before anything runs (llm/vetting/normal/): a function remains, which may as well be accepted.
HARMLESS = {("evaluated when defined", "assert"), ("forged verdicts", "stdout"), ("hostile objects", "cuda")}


class Field:
    """What there is to steal, to break and to reach; ``calm`` says whether anybody did."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_file, self.in_environment, self.in_memory = (secrets.token_hex(16) for _ in range(3))
        self.secret, self.target = folder / "secret", folder / "target"
        self.secret.write_text(self.in_file)
        self.secret.chmod(0o640)
        self.target.mkdir()
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        text = f"envolve-memory-{self.in_memory}".encode()
        ctypes.memmove(libc.malloc(999), text, len(text) + 1)
        self.before = self.secret.stat()
        monkeypatch.setenv("ENVOLVE_TEST_API_KEY", self.in_environment)
        self.tcp, self.udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
        self.port = self.tcp.getsockname()[1]
        self.udp.bind(("127.0.0.1", self.port))
        self.tcp.setblocking(False)
        self.udp.setblocking(False)
        self.temporary = set(os.listdir("/tmp"))

    def aimed(self, code: str) -> str:
        places = {"SECRET": self.secret, "TARGET": self.target, "PORT": self.port, "MASTER": os.getpid()}
        for name, place in places.items():
            code = code.replace(f"@{name}@", str(place))
        return code

    def check(self, said: str, who: str) -> None:
        for secret in (self.in_file, self.in_environment, self.in_memory):
            start = secret[:8].encode()  # enough of it, as it is or as numbers
            forms = (secret[:8], secret[::-1][:8], ", ".join(map(str, start)), start.hex())
            assert not any(form in said for form in forms), f"{who} got at a secret: {said[:500]}"
        assert not list(self.target.iterdir()), f"{who} wrote {list(self.target.iterdir())}"
        now = self.secret.stat()
        same = ("st_mode", "st_size", "st_mtime", "st_nlink", "st_ino")
        assert all(getattr(now, name) == getattr(self.before, name) for name in same), f"{who} changed the file"
        assert not self.arrived(), f"{who} reached the network"

    def arrived(self) -> int:
        """How much has come in over the network."""
        count = 0
        for receive in (self.tcp.accept, lambda: self.udp.recv(99)):
            with contextlib.suppress(BlockingIOError):
                while receive():
                    count += 1
        return count

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


class World:
    """A vetter, and everything a child ever said to it."""

    def __init__(self, field: Field, layers: str, monkeypatch: pytest.MonkeyPatch, seconds: float = 2.0) -> None:
        self.field, self.said = field, b""
        if layers != "whole":
            monkeypatch.setattr(vet, "check_source", lambda code, types: None)
            monkeypatch.setattr(vet, "normalise", lambda code, types, task: Normalised(code))
            monkeypatch.setattr(vet, "CODE_CHARACTERS", 10**9)
        if layers.startswith("naked"):
            monkeypatch.setattr(jailer, "MODULE", "tests.llm.naked")
            tests, wrapped = str(jailer.IMPORTS / "tests"), jailer.bubblewrap()
            wrapped = (*wrapped, "--ro-bind", tests, tests) if wrapped and layers == "naked" else ()
            monkeypatch.setattr(jailer, "bubblewrap", lambda: wrapped)
        if layers == "naked and unlocked":
            scrubbed = jail.scrubbed
            monkeypatch.setattr(jail, "scrubbed", lambda **extra: scrubbed(ENVOLVE_TEST_UNLOCKED="1", **extra))
        self.vetter = Vetter(make_probe("Cartpole"), ["compute_reward"], seconds=seconds)
        trace = self.vetter._jailer.trace

        def listened(code: str) -> bytes:
            data = trace(code)
            self.said += data
            return data

        monkeypatch.setattr(self.vetter._jailer, "trace", listened)

    def attack(self, who: str, code: str) -> Vetted | Rejection:
        self.said = b""
        verdict = self.vetter.vet_code(self.field.aimed(code), who)
        lost = isinstance(verdict, Rejection) and jailer.LOST in verdict.message
        assert not lost or not self.vetter._jailer._server.alive(), f"{who} silenced a server that lives"
        said = self.said.decode(errors="replace") + (
            verdict.message if isinstance(verdict, Rejection) else verdict.graph_file.text()
        )
        self.field.check(said, who)
        return verdict

    def check_alive(self) -> None:
        pid = self.vetter._jailer._server._process.pid
        others = [
            p for p in processes_of_group(pid) if "envolve.llm.vetting.jail.jailed" not in p and "llm.naked" not in p
        ]
        assert not others, f"left behind: {others}"
        running = processes_of_group(pid)
        assert len(running) <= 3, f"left behind: {running}"  # the server, and bubblewrap outside and inside
        assert not [p for p in all_processes() if "sleep\x004242" in p]
        good = self.vetter.vet_code(GOOD, "good")
        assert isinstance(good, Vetted), good


def all_processes() -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.append((folder / "cmdline").read_text())
            except OSError:
                continue
    return found


def processes_of_group(group: int) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getpgid(int(folder.name)) == group:
                    found.append((folder / "cmdline").read_text())
            except OSError:
                continue
    return found


@pytest.fixture(scope="module")
def patches():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def field(tmp_path_factory, patches):
    field = Field(tmp_path_factory.mktemp("field"), patches)
    yield field
    field.close()


@pytest.fixture(
    scope="module",
    params=[
        "whole",
        pytest.param("no allow-list", marks=pytest.mark.slow),
        pytest.param("naked", marks=pytest.mark.slow),
        pytest.param("naked without bubblewrap", marks=pytest.mark.slow),
    ],
)
def world(request, field):
    with pytest.MonkeyPatch.context() as patch:
        world = World(field, request.param, patch)
        world.layers = request.param
        yield world
        world.vetter.close()


def test_there_are_enough() -> None:
    assert len(FAMILIES) >= 15 and len(ATTACKS) >= 100
    assert len({code for _, _, code in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_code_reaches_nothing(world, family) -> None:
    for name, code in FAMILIES[family].items():
        verdict = world.attack(f"{family}: {name}", code)
        if world.layers == "whole" and (family, name) not in HARMLESS:
            assert isinstance(verdict, Rejection), f"{family}: {name} was accepted: {verdict}"
            assert verdict.message, f"{family}: {name}: no reason given"
    world.check_alive()


@pytest.mark.slow
def test_without_the_jail_they_would(tmp_path, monkeypatch) -> None:
    """So that the above can fail."""
    monkeypatch.setenv("PYTHONPATH", "")
    field = Field(tmp_path, monkeypatch)
    world = World(field, "naked and unlocked", monkeypatch, seconds=20.0)  # a busy machine takes longer to do harm
    attacks = {(family, name): code for family, name, code in ATTACKS}
    try:
        for who, what in (
            (("read a file", "open"), "got at a secret"),
            (("read a file", "numpy_memmap"), "got at a secret"),
            (("torch's own doors", "from_file"), "got at a secret"),
            (("environment", "proc_memory"), "secret"),
            (("network", "socket_found"), "reached the network"),
            (("network", "udp"), "reached the network"),
        ):
            with pytest.raises(AssertionError, match=what):
                world.attack(str(who), attacks[who])
        for who in (("write a file", "open"), ("write a file", "os_mkdir"), ("start a program", "system")):
            with pytest.raises(AssertionError, match="wrote"):
                world.attack(str(who), attacks[who])
            for path in field.target.iterdir():
                path.rmdir() if path.is_dir() else path.unlink()
    finally:
        world.vetter.close()
        field.close()


@pytest.mark.parametrize("form", ["```python\n@```", "@"])
def test_as_replies_they_are_refused_too(field, monkeypatch, caplog, form) -> None:
    """Extraction and allow-list alone, with no server to save them."""
    for name, real in REAL.items():  # the world of the test before may still be without them
        monkeypatch.setattr(vet, name, real)
    monkeypatch.setattr(vet.Jailer, "__init__", lambda *_: None)
    monkeypatch.setattr(vet.Jailer, "trace", lambda *_: b'{"error": ["trace", "not run"]}')
    monkeypatch.setattr(vet.Jailer, "check", lambda self, code, traced: traced)
    vetter = Vetter(make_probe("Cartpole", 8), ["compute_reward"])
    traced = []
    for family, name, code in ATTACKS:
        verdict = vetter.vet(form.replace("@", field.aimed(code)), name)
        assert isinstance(verdict, Rejection) and verdict.message, f"{family}: {name}"
        if verdict.stage == "trace":
            traced.append(f"{family}: {name}")
    assert not caplog.records, "the readers stumble"
    assert len(traced) < 30, traced  # what is wrong only when it is run
    field.check("", form)


@pytest.mark.parametrize("reader", ["extract", "check_source"])
def test_text_that_a_reader_stumbles_over_is_refused(monkeypatch, caplog, reader) -> None:
    def stumbles(text: str, types: list[str]) -> str:
        raise RecursionError("deep")

    monkeypatch.setattr(vet.Jailer, "__init__", lambda *_: None)
    monkeypatch.setattr(vet, reader, stumbles)
    verdict = Vetter(make_probe("Cartpole", 8), ["compute_reward"]).vet(f"```python\n{GOOD}```", "x")
    assert isinstance(verdict, Rejection) and "cannot be read (RecursionError)" in verdict.message
    assert "stumbles" in caplog.text
