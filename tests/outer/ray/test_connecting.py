"""Tokens, and what is said when a connection does not work: one line each."""

from __future__ import annotations

import logging
import os
import re
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest

from envolve.experiments import eval_shapers, optimize_params, run, train_distributed
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray import address, cluster
from envolve.outer.ray.address import installed
from tests.experiments.test_optimize_params import FEW
from tests.outer.hpo.small import write
from tests.outer.ray import local
from tests.outer.small import ROOT

CONFIG = str(ROOT / "default_config_gridworld_reward_env_paper.yaml")


# --------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_the_loopback_needs_no_token_of_the_network(host, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    cluster._check_token(f"{host}:6379")


@pytest.mark.parametrize("host", ["10.0.0.5", "node7", "[fd00::5]", "0.0.0.0", "localhost.evil.org"])
def test_a_cluster_elsewhere_needs_a_token(host, monkeypatch, caplog):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(ExchangeError, match=rf"^the Ray cluster at {re.escape(host)}:6379 has no token, .* get-auth-"):
        cluster._check_token(f"{host}:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    cluster._check_token(f"{host}:6379")
    assert not caplog.records
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    cluster._check_token(f"{host}:6379")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "whoever reaches it may execute code there" in record.getMessage()


def test_no_other_user_gets_into_the_folder_of_a_cluster_of_its_own(monkeypatch):
    """Ray gives its own to all users (0777), and its sockets and logs lie there."""
    found = []

    def as_ray_does(options, what):
        path = Path(options["_temp_dir"])
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        found.append([path, *(p for p in path.parents if p != Path("/tmp") and p != Path("/"))])
        assert any(stat.S_IMODE(p.stat().st_mode) == 0o700 for p in found[0]), found
        assert len(str(path)) + 70 < 103  # what Ray adds to it, at most; names of sockets are no longer

    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None))
    monkeypatch.setattr(cluster, "_init", as_ray_does)
    with cluster.connected(None, 1):
        pass
    assert found and not found[0][0].exists()


def test_room_that_was_asked_for_is_given_back(monkeypatch):
    """An autoscaler keeps to the latest request, also after the process that made it."""
    requests = []
    sdk = types.SimpleNamespace(request_resources=lambda bundles: requests.append(bundles))
    ray = types.SimpleNamespace(remote=lambda cls: cls)
    strategies = types.SimpleNamespace(NodeAffinitySchedulingStrategy=None)
    modules = {"ray": ray, "ray.util": ray, "ray.util.scheduling_strategies": strategies, "ray.autoscaler": ray}
    for name, module in {**modules, "ray.autoscaler.sdk": sdk}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for workers in (0, 3):
        found = cluster.RayCluster(object, b"", cpus=2)
        if workers:
            found.request(workers)
        found.close()
    assert requests == [[{"CPU": 2}] * 3, []]


def test_a_cluster_of_its_own_has_the_loopback_and_a_token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    seen = []
    for _ in range(2):
        with cluster._loopback("/tmp/x"):
            seen.append({k: v for k, v in os.environ.items() if k.startswith("RAY_") or k == "TMPDIR"})
    for found in seen:
        assert found["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0" and found["RAY_AUTH_MODE"] == "token"
        assert re.fullmatch("[0-9a-f]{64}", found["RAY_AUTH_TOKEN"])
        assert found["RAY_worker_niceness"] == "0" and found["RAY_USAGE_STATS_ENABLED"] == "0"
    assert seen[0]["RAY_AUTH_TOKEN"] != seen[1]["RAY_AUTH_TOKEN"]
    assert os.environ["RAY_AUTH_MODE"] == "disabled" and "RAY_AUTH_TOKEN" not in os.environ


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (run.main, [CONFIG]),
        (optimize_params.main, ["STUDY"]),
        (eval_shapers.main, ["--task", "Cartpole"]),
        (train_distributed.main, ["--params", "PARAMS"]),
    ],
)
def test_no_package_ray(main, words, tmp_path, monkeypatch, capsys):
    """What to install, in one line; nothing is left behind."""
    monkeypatch.setattr(address, "installed", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.py").touch()
    files = {"STUDY": str(write(tmp_path, **FEW)), "PARAMS": str(tmp_path / "params.py")}
    before = sorted(tmp_path.iterdir())
    assert main([*(files.get(word, word) for word in words), "--workers-on", "ray:10.0.0.1:6379"]) == 2
    err = capsys.readouterr().err
    found = "--workers-on: found no package ray, which ray:10.0.0.1:6379 needs; pip install 'envolve[ray]'"
    assert found in err and err.count("\n") == 1 and sorted(tmp_path.iterdir()) == before


CAUSES = [
    (
        "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
        "This process on node h was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n",
        "Version mismatch: The cluster was started with: Ray: 2.60.0 Python: 3.11.7; install the same versions on all",
    ),
    ("Could not find any running Ray instance. Please", "found no running one on this machine; start one with ray st"),
    ("... Ray expects this IP address to be ...", "this machine is no node of it; join it first: ray start --address="),
    ("Failed to connect to Ray cluster at x", "what answers there is no Ray, or has another token; copy"),
]


@pytest.mark.parametrize(("said", "words"), CAUSES)
def test_what_ray_says_in_many_lines_is_one(said, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(exceptions=types.SimpleNamespace()))
    found = cluster._cause(RuntimeError(said))
    assert words in found and "\n" not in found


def test_a_wrong_token_among_the_causes(monkeypatch):
    class AuthenticationError(Exception):
        pass

    errors = types.SimpleNamespace(AuthenticationError=AuthenticationError)
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(exceptions=errors))
    e = ConnectionError("Failed to connect to Ray cluster at x")
    e.__cause__ = AuthenticationError("invalid")
    assert "its token is not the one here" in cluster._cause(e)


@pytest.mark.parametrize("at", ["127.0.0.1:1", "no.such.host.invalid:6379"])
def test_nobody_at_the_address(at):
    words = "start one with ray start --head, and take the address that it prints"
    with pytest.raises(ExchangeError, match=f"^no Ray cluster at {at}: .*; {words}$"):
        cluster._check_reachable(at)


# ------------------------------------------------------------------------------------------------------ Ray itself


def listening(of: set[int]) -> set[str]:
    """Addresses, as the kernel writes them, at which these processes listen."""
    inodes = set()
    for pid in of:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(re.sub(r"socket:\[(\d+)\]", r"\1", os.readlink(fd)))
            except OSError:
                continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


OWN = """
import os
from envolve.outer.ray.cluster import connected
with connected(None, 1):
    import ray
    print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], flush=True)
    input()
"""


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="no ray: pip install 'envolve[ray]'")
def test_a_cluster_of_its_own_listens_on_the_loopback_and_wants_its_token(tmp_path):
    """In a process of its own, for Ray reads its token once."""
    options = {"cwd": ROOT, "env": local.environ_of(tmp_path), "text": True}
    with subprocess.Popen([sys.executable, "-c", OWN], stdin=-1, stdout=-1, **options) as process:
        at, token = process.stdout.readline().split()
        of_ray = set(local.ray_processes(tmp_path))
        assert len(of_ray) >= 3 and listening(of_ray) and listening(of_ray) <= LOOPBACK
        code = f"from envolve.outer.ray.cluster import connected\nwith connected({at!r}): print('there')"
        for mine, expected in ((token, "there"), ("0" * 64, "token"), ("", "token")):
            environ = options["env"] | local.ENVIRON | {"RAY_AUTH_TOKEN": mine, "HOME": str(tmp_path)}
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120
            )
            assert expected in (done.stdout + done.stderr).strip().splitlines()[-1], done.stderr
            assert ("there" in done.stdout) == (mine == token)
        process.communicate("\n", timeout=60)
