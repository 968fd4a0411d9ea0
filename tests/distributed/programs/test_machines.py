"""Two machines: network namespaces of this one, joined by a cable, with host names and a folder that both see."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envolve.distributed.files.run_folder import RunSettings
from envolve.distributed.programs.cpus import deal
from envolve.distributed.programs.launch import roles_of
from envolve.distributed.programs.supervisor import DONE, Role, Supervisor
from tests.distributed.programs.test_faults import prepare
from tests.distributed.toy import Run, results, small

HOSTS = {"envolve-one": "10.213.77.1", "envolve-two": "10.213.77.2"}
ONE, TWO = HOSTS
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"),
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def machines() -> Iterator[None]:
    names = [(name, Path("/etc/netns") / name) for name in HOSTS]
    try:
        for name, etc in names:
            ip("netns", "add", name)
            etc.mkdir(parents=True)  # `ip netns exec` puts what is in it over /etc
            (etc / "hosts").write_text("".join(f"{a} {n}\n" for n, a in HOSTS.items()) + "127.0.0.1 localhost\n")
        ip("link", "add", "cable", "netns", ONE, "type", "veth", "peer", "name", "cable", "netns", TWO)
        for name, address in HOSTS.items():
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name, etc in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(etc, ignore_errors=True)


def on(machine: str, role: Role, *more: str) -> Role:
    named = ["ip", "netns", "exec", machine, "unshare", "--uts", "sh", "-c", f'hostname {machine}; exec "$@"', "sh"]
    return replace(role, command=[*named, *role.command, *more])


def run(folder: Path, bind: str, watch: Callable[[Supervisor], None] = lambda _: None) -> None:
    """Replay and learner on one machine, evaluator and a collector on the other, a second collector on the first."""
    settings = RunSettings(3, 2)
    prepare(folder, settings, num_iter=12)
    replay, learner, evaluator, *collectors = roles_of(folder, 2, deal(2, environ={}))
    roles = [
        on(ONE, replay, "--bind", bind),
        on(ONE, learner),
        on(TWO, evaluator),
        on(TWO, collectors[0]),
        on(ONE, collectors[1]),
    ]
    supervisor = Supervisor(roles, folder / "logs", quick_seconds=0.0, stop_seconds=10.0)
    assert supervisor.run(lambda: watch(supervisor)) == DONE


@pytest.mark.parametrize("bind", ["0.0.0.0", HOSTS[ONE]])
def test_the_same_bytes_as_in_one_process(machines: None, tmp_path: Path, bind: str) -> None:
    run(tmp_path / "run", bind)
    Run(small(num_iter=12), tmp_path / "embedded", 2).finish()
    assert results(tmp_path / "run") == results(tmp_path / "embedded")


def test_who_sits_elsewhere_finds_a_hub_that_moved(machines: None, tmp_path: Path) -> None:
    """It is killed, and comes back at another port."""
    hub, addresses = tmp_path / "run" / "hub.json", []

    def kill(supervisor: Supervisor) -> None:
        if (tmp_path / "run" / "learner.pt").exists() and len(addresses) < 1:
            addresses.append(json.loads(hub.read_text())["address"])
            os.kill(supervisor.pids()["replay"], signal.SIGKILL)

    run(tmp_path / "run", "0.0.0.0", kill)
    assert addresses[0].startswith(f"{ONE}:") and json.loads(hub.read_text())["address"] != addresses[0]
    Run(small(num_iter=12), tmp_path / "embedded", 2).finish()
    assert results(tmp_path / "run") == results(tmp_path / "embedded")
