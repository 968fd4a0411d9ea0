"""Commands about tasks of mjlab: envolve replay, envolve tasks; and what they say of wrong files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from envolve.envs.managers import film
from envolve.envs.managers.guard import Dump, Moment
from envolve.envs.managers.mjlab import MJLAB
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments import describe_tasks, replay_dump
from tests.envs.managers import fake


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    past = [
        Moment(k, torch.zeros(2, 3), torch.tensor([[0.0, 0, 0], [1.0, 10.0**k, 0]]), torch.full((2, 1), k / 2))
        for k in range(6)
    ]
    path = tmp_path / "diverged_wild.pt"
    path.write_bytes(Dump.of("mjlab:Fake-Point", "wild", 1, past, True).content())
    return path


def test_the_last_steps_are_shown(
    dump: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_dump, "joint_names", lambda task: ["x", "slide", "z"])
    assert replay_dump.main([str(dump), "--last", "2"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert "candidate wild, environment 1, in its evaluation" in lines[0]
    assert lines[-2].split() == ["4", "2", "1e+04", "slide"] and lines[-1].split() == ["5", "2.5", "1e+05", "slide"]
    assert len(lines) == 5


def test_without_mjlab_the_table_has_no_names_and_there_is_no_film(
    dump: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing() -> None:
        raise SimulatorError("mjlab is not installed")

    monkeypatch.setattr(MJLAB, "load", missing)
    monkeypatch.setattr(replay_dump, "writable_format", lambda path: ".gif")
    assert replay_dump.main([str(dump), "--video", str(tmp_path / "f.gif")]) == 1
    out, err = capsys.readouterr()
    assert "velocity 1" in out and "no film: mjlab is not installed" in err and not (tmp_path / "f.gif").exists()


def test_a_dump_of_another_model_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr(film, "model_of", lambda task: (SimpleNamespace(nq=7, nv=6), None))
    dump = Dump("mjlab:t", "c", 0, False, np.arange(1), *[np.zeros((1, 3), np.float32)] * 3)
    with pytest.raises(SimulatorError, match="has 7 positions here, the file 3"):
        film.pictures(dump, 10, 10)


def test_a_wrong_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(b"nothing")
    assert replay_dump.main([str(path)]) == 2
    err = capsys.readouterr().err
    assert "not a dump of a diverged simulation" in err and err.count("\n") == 1


def test_the_tasks_command_knows_mjlab(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MJLAB, "load", fake.Registry)
    monkeypatch.setattr(MJLAB, "make", lambda cfg, device, until: fake.Environment(cfg, device))
    assert describe_tasks.main(["--task", "mjlab:fake-point"]) == 0
    out = capsys.readouterr().out
    assert "| `point_joint_pos` | [n, 1] |" in out and "| `rewards.near.std` | 0.5 |" in out
    assert "`compute_goal` sets 1 numbers: command 'goal' [1]" in out
    path = tmp_path / "p.terms.json"
    assert describe_tasks.main(["--task", "mjlab:Fake-Point", "--terms", str(path)]) == 0
    assert '"rewards.near.weight": 2.0' in path.read_text()
    capsys.readouterr()
    assert describe_tasks.main(["--task", "mjlab:Fake-Pont"]) == 2
    assert "nearest: 'Fake-Point'" in capsys.readouterr().err
    assert describe_tasks.main(["--task", "Cartpole", "--terms", str(path)]) == 2
    assert "expected a task of mjlab" in capsys.readouterr().err
