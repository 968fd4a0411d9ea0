"""A worker's object without Ray: versions, and whose code it executes."""

from __future__ import annotations

import pytest

from envolve.core import plugins
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.exchange.messages import PLUGINS
from envolve.outer.exchange.pairs import pack
from envolve.outer.ray.codec import answer_of, work
from envolve.outer.ray.evaluator import Evaluator, differences, setup, versions
from envolve.outer.ray.start import device_share, own_files
from tests.outer.virtual import chunks_of, fake


def evaluator(files=None):
    e = Evaluator(setup("run", files or {}), lambda: fake)
    e.hello()
    return e


def test_versions_name_what_a_result_depends_on():
    mine = versions()
    assert set(mine) == {"Python", "envolve", "torch", "numba"} and differences(mine, dict(mine)) == []
    assert differences(mine, {**mine, "torch": "1.0"}) == [f"torch 1.0 there and {mine['torch']} here"]
    assert {**mine, "pid": "", "host": "", "nice": ""}.keys() == evaluator().hello().keys()


def test_a_chunk_is_evaluated():
    e = evaluator()
    (chunk,) = chunks_of(1)
    e.learn("k", pack({"config": chunk.config}))
    assert answer_of(e.evaluate(work(chunk, "k"))).values["train_steps"].tolist() == [0, 2, 4]


def test_a_file_of_the_users_own_needs_to_have_been_sent(monkeypatch):
    """As a worker of the file exchange, which executes what lies in its run's folder with the hash of the chunk."""
    import hashlib

    from envolve.outer.plugins import use

    monkeypatch.setattr(plugins, "_sources", {})
    monkeypatch.setattr(plugins, "_contents", set())
    monkeypatch.setattr(plugins, "_folders", [])
    code = b"x = 1\n"
    sha256 = hashlib.sha256(code).hexdigest()

    def evaluate(config, worlds, seeds, mode, threads):
        use(config)
        return fake(config, worlds, seeds, mode, threads)

    (chunk,) = chunks_of(1)
    chunk.config = {**chunk.config, "plugins": {"mine.py": {"sha256": sha256, "task": "Mine"}}}
    for files, words in (
        ({}, "no folder is allowed here"),
        ({"mine.py": b"x = 2\n"}, "no folder is allowed here"),  # another version is none
        ({"mine.py": code}, "found no class Mine"),  # it was executed
    ):
        e = Evaluator(setup("run", files), lambda: evaluate)
        e.hello()
        e.learn("k", pack({"config": chunk.config}))
        error = answer_of(e.evaluate(work(chunk, "k"))).error
        assert error.startswith(PLUGINS) and words in error, error


def test_files_come_from_the_runs_folder_alone(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    (tmp_path / "other.py").write_text("x = 2\n")
    (tmp_path / "environment.json").write_text("{}")
    data = {"plugins": {"mine.py": {}, "gone.py": {}}}
    assert own_files(data, tmp_path) == {"mine.py": b"x = 1\n", "environment.json": b"{}"}
    assert own_files({}, tmp_path / "nowhere") == {}
    outside = own_files({"env_name": "gymnasium:folder/other.py:Env"}, tmp_path)
    assert outside == {"other.py": b"x = 2\n", "environment.json": b"{}"}


@pytest.mark.parametrize("device, share", [("cpu", 0), ("cuda", 1), ("cuda:0", 1)])
def test_a_worker_has_one_gpu_or_none(device, share):
    assert device_share(device) == share
    with pytest.raises(ExchangeError, match="device: found cuda:1, expected cuda"):
        device_share("cuda:1")
