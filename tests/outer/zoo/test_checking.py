"""``envolve worlds check``: a learner of a file is compared, kept, and said to be worse by the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from envolve.experiments import worlds

LEARNER = """
import numpy as np
import envolve.worlds
from neighbour import RIGHT


def train(env_id, steps, seed):
    best, random = envolve.worlds.policy(env_id), np.random.default_rng(seed)
    return lambda x: best(x) if random.random() < RIGHT else int(random.integers(2))


def worse(env_id, steps, seed):
    random = np.random.default_rng(seed)
    return lambda x: int(random.integers(2))


def raises(env_id, steps, seed):
    return {}["no such key"]


def acts_wrongly(env_id, steps, seed):
    return lambda x: np.zeros(3)


def raises_later(env_id, steps, seed):
    return lambda x: 1 / 0


def none(env_id, steps, seed):
    pass


def ends(env_id, steps, seed):
    import os
    os._exit(7)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner that is right in nine of ten contexts, with a neighbour that it imports."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour.py").write_text("RIGHT = 0.9\n")
    path = tmp_path / "my_learner.py"
    path.write_text(f"{LEARNER}# {path}\n")  # a file with the same bytes would not be executed again
    return path


def test_a_learner_is_compared_with_another_one_and_later_with_itself(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = file.parent / "shares.json"
    words = ["--agents", "5", "--worlds", "CartPole-v1-bandit-2", "--workers", "1"]
    assert worlds.main(["check", f"{file}:train", "--like", f"{file}:worse", *words, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("CartPole-v1-bandit-2: agent ") == said.count(": the other learner's agent ") == 5
    assert "after 10,240 steps, of 5 agents here and 5 of the other learner:" in said
    assert "This learner is another one, and not worse" in said
    assert json.loads(out.read_text())["steps"] == 10_240
    again = ["check", f"{file}:train", "--like", str(out), "--same", "--workers", "1"]
    assert worlds.main(again) == 0 and "No difference is shown (p = 1)" in capsys.readouterr().out
    assert worlds.main(["check", f"{file}:worse", "--like", str(out), "--workers", "1"]) == 3
    assert "This learner is worse (p = 0.004)" in capsys.readouterr().out


def test_same_fails_where_a_learner_is_better(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", f"{file}:train", "--like", f"{file}:worse", "--worlds", "CartPole-v1-bandit-2", "--workers", "1"]
    assert worlds.main([*words, "--same"]) == 3
    assert "another one, and not worse" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, said",
    [
        ("raises", ":18: KeyError: 'no such key'\nTraceback"),
        ("acts_wrongly", "act: found an action of shape (3,), expected one of Discrete(2)"),
        ("raises_later", ":26: ZeroDivisionError: division by zero\nTraceback"),
        ("none", "none: found NoneType, expected a function of observations"),
        ("ends", "the process of an agent ended; does the learner crash?"),
        ("trian", "found no function trian, did you mean train"),
    ],
)
def test_what_is_wrong_with_a_learner_is_said(
    file: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert worlds.main(["check", f"{file}:{name}", "--workers", "2" if name == "ends" else "1"]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["my_learner.py"], 2, "found this, expected FILE.py:FUNCTION"),
        (["nowhere.py:train"], 1, "nowhere.py: found no readable file"),
        (["my_learner.py:train", "--like", "pppo"], 2, "--like: found 'pppo', expected one of ppo,"),
        (["my_learner.py:train", "--steps", "5"], 2, "--like ppo says the worlds and the steps"),
        (["my_learner.py:train", "--like", "neighbour.py"], 2, "found this, expected FILE.py:FUNCTION"),
        (["my_learner.py:train", "--like", "bad.json"], 1, "bad.json: found another content than"),
        (["my_learner.py:train", "--agents", "2"], 2, "--agents: 2 agents beside 20 in each of 2 worlds can show no"),
        (["my_learner.py:train", "--out", "nowhere/x.json"], 2, "--out: cannot write nowhere/x.json"),
        (["my_learner.py:train", "--learners", "ppo"], 2, "check: found --learners, expected one of --like"),
        ([], 2, "check: found nothing, expected FILE.py:FUNCTION"),
    ],
)
def test_bad_input_trains_nothing(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(file.parent)
    Path("bad.json").write_text('{"steps": 5, "shares": {"CartPole-v1-bandit": [1]}}')
    assert worlds.main(["check", *words]) == code
    found = capsys.readouterr()
    assert said in found.err and "agent 1" not in found.out
