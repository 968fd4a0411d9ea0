"""Experts that ended before a run was stopped are not trained again, and change no byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envolve.outer.config.load import config_of
from envolve.outer.distil import bandit
from envolve.outer.distil.kept import FOLDER
from envolve.outer.evaluate.networks import DISTIL
from envolve.outer.exchange.backlog import completed
from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import ChunkResult
from envolve.outer.exchange.pairs import pack, unpack
from tests.outer.distil.test_begin import changed
from tests.outer.test_run import Direct, files, go

SMALL: dict[str, Any] = {
    "expert": {"agents": 3},
    "ddqn_expert": {"train_steps": 100},
    "ddqn": {"train_steps": 20},
}


class OneByOne(Direct):
    """An engine that says of each result that it is there, as real ones do. stop_after: experts until Ctrl-C."""

    def __init__(self, stop_after: int = -1, change: Any = None) -> None:
        super().__init__(change)
        self.stop_after, self.experts = stop_after, list[int]()

    def evaluate(self, chunks: Any, unfit: Any = None) -> list[ChunkResult]:
        if chunks[0].mode != DISTIL:
            return super().evaluate(chunks, unfit)
        results = []
        for chunk in reversed(chunks):  # in any order
            if len(self.experts) == self.stop_after:
                raise KeyboardInterrupt
            results += super().evaluate([chunk], unfit)
            assert unfit(results[-1]) == ""
            self.experts.append(chunk.chunk_id)
        return results[::-1]


@pytest.fixture(scope="module", autouse=True)
def short_fits() -> Iterator[None]:
    """What is fitted does not matter here, and takes nine of ten seconds."""
    whole = bandit.minimise
    with pytest.MonkeyPatch.context() as m:
        m.setattr(bandit, "minimise", lambda flat, loss, steps: whole(flat, loss, 5))
        yield


@pytest.fixture(scope="module")
def config() -> Any:
    return config_of(changed(**SMALL), (), "test")


@pytest.fixture(scope="module")
def whole(config: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "whole"
    engine = OneByOne()
    go(config, folder, dispatcher=engine)
    assert engine.experts == [2, 1, 0]
    assert not (folder / FOLDER).exists(), "the checkpoint holds all that they were good for"
    return folder


def stopped(config: Any, folder: Path, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(config, folder, dispatcher=OneByOne(after))


def resumed(config: Any, folder: Path) -> tuple[str, list[int]]:
    """-> what was printed, and which experts were trained."""
    engine = OneByOne()
    said, _ = go(config, folder, resume=True, dispatcher=engine)
    return said, engine.experts


@pytest.mark.parametrize("after, left", [(0, [2, 1, 0]), (1, [1, 0]), (3, [])])
def test_a_resumed_run_trains_those_that_are_left(
    after: int, left: list[int], config: Any, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if after == 3:  # killed between the last expert and the checkpoint
        with monkeypatch.context() as m:
            m.setattr("envolve.outer.loop.run_keeper.RunKeeper.save_state", lambda self: stop_here())
            with pytest.raises(KeyboardInterrupt):
                go(config, tmp_path / "run", dispatcher=OneByOne())
    else:
        stopped(config, tmp_path / "run", after)
    said, trained = resumed(config, tmp_path / "run")
    assert trained == left
    assert ("have ended before" in said) == (after > 0)
    assert files(tmp_path / "run") == files(whole)
    assert (tmp_path / "run" / "distilled.pt").read_bytes() == (whole / "distilled.pt").read_bytes()
    assert not (tmp_path / "run" / FOLDER).exists()


def stop_here() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", ["torn", "another configuration", "another expert", "no result"])
def test_a_file_that_does_not_fit_is_said_and_its_expert_trained_again(
    damage: str, config: Any, whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(config, tmp_path / "run", 2)
    path = tmp_path / "run" / FOLDER / "2.pt"
    content = unpack(path.read_bytes(), path.name)
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:-7])
    elif damage == "another configuration":
        path.write_bytes(pack({**content, "config": "0"}))
    elif damage == "another expert":
        path.write_bytes((path.parent / "1.pt").read_bytes())
    else:
        path.write_bytes(pack({"config": content["config"]}))
    _, trained = resumed(config, tmp_path / "run")
    assert trained == [2, 0]
    assert "2.pt is not used, and the expert is trained again" in caplog.text
    assert files(tmp_path / "run") == files(whole)


class FirstFails(OneByOne):
    """The first expert raises; the values of its result are completed among those that were sent together."""

    def evaluate(self, chunks: Any, unfit: Any = None) -> list[ChunkResult]:
        results = super().evaluate(chunks, unfit)
        if chunks[0].mode != DISTIL:
            return results
        wrong = [ChunkResult.failed(c, "", "no memory") if c.chunk_id == 0 else r for c, r in zip(chunks, results)]
        return completed(wrong)


def test_an_expert_that_fails_after_a_restart_changes_nothing(config: Any, tmp_path: Path) -> None:
    go(config, tmp_path / "whole", dispatcher=FirstFails())
    stopped(config, tmp_path / "run", 2)
    go(config, tmp_path / "run", resume=True, dispatcher=FirstFails())
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_a_result_that_is_refused_is_not_kept(config: Any, tmp_path: Path) -> None:
    class Lies(OneByOne):
        def evaluate(self, chunks: Any, unfit: Any = None) -> list[ChunkResult]:
            results = Direct.evaluate(self, chunks, unfit)
            results[0].values.pop("real_steps")
            assert "no real_steps" in unfit(results[0])
            raise Rejected("as a worker of another version")

    with pytest.raises(Rejected):
        go(config, tmp_path, dispatcher=Lies())
    assert not (tmp_path / FOLDER).exists()
