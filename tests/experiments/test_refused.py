"""What is refused before anything begins: films into no folder, devices not there, folders for files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from envolve.envs.shaping.candidate import Candidate, candidate_files, load_candidate
from envolve.experiments import optimize_params, train_distributed, train_goal
from envolve.experiments import run as master
from envolve.outer.shapers.report import HUMAN, Outcome
from envolve.outer.shapers.run import ShaperRun
from tests.experiments.command import run

ROOT = Path(__file__).resolve().parents[2]
CARTPOLE = ROOT / "default_config_cartpole_syn_env.yaml"
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def refused(main, words, capsys, tmp_path: Path) -> str:
    """The one line of a command that ends with exit code 2 and leaves nothing."""
    before = sorted(tmp_path.rglob("*"))
    code, _, err, _ = run(main, words, capsys, tmp_path / "none.json")
    assert code == 2 and len(err.splitlines()) == 1 and sorted(tmp_path.rglob("*")) == before, err
    return str(err)


def test_a_film_into_a_folder_that_is_not_there(tmp_path: Path, capsys) -> None:
    words = ["--results_dir", tmp_path / "results", "--video", tmp_path / "none" / "a.gif"]
    assert "--video: found" in refused(train_goal.main, words, capsys, tmp_path)


@no_gpu
@pytest.mark.parametrize("words", [["--check", "--single"], ["--single", "--results-dir", "{results}"]])
def test_a_device_that_is_not_there(words: list[str], tmp_path: Path, capsys) -> None:
    words = [w.format(results=tmp_path / "results") for w in words]
    err = refused(master.main, [CARTPOLE, *words, "--set", "device=cuda"], capsys, tmp_path)
    assert "device: found 'cuda', which PyTorch cannot use here" in err or "device: found cuda" in err
    assert "expected cpu: PyTorch finds no GPU on this machine" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--collectors", "0"], "--collectors: found 0, expected 1 to"),
        (["--mode", "async"], "--mode async: found all programs in one process"),
        (["--seed", "-1"], "--seed: found -1"),
    ],
)
def test_arguments_of_train_distributed(words: list[str], said: str, tmp_path: Path, capsys) -> None:
    params = ROOT / "experiments/params/reacher_params.py"
    words = ["--params", params, "--run-dir", tmp_path / "run", *words]
    assert said in refused(train_distributed.main, words, capsys, tmp_path)


@pytest.mark.parametrize("main", [optimize_params.main, master.main])
def test_a_folder_in_place_of_a_file_suggests_nothing(main, tmp_path: Path, capsys) -> None:
    (tmp_path / "default_config_a.yaml").mkdir()
    err = refused(main, [tmp_path / "default_config_a.yaml", "--check"], capsys, tmp_path)
    assert "found a folder, expected a YAML" in err and "did you mean" not in err


def test_what_is_suggested_is_another_file_that_exists(tmp_path: Path, capsys) -> None:
    (tmp_path / "default_config_a.yaml").mkdir()
    (tmp_path / "default_config_abc.yaml").write_text("")
    err = refused(master.main, [tmp_path / "default_config_ab.yaml", "--check"], capsys, tmp_path)
    assert f"did you mean {tmp_path / 'default_config_abc.yaml'}" in err


@pytest.mark.parametrize("task", ["ant", "anymal", "cartpole"])
def test_the_candidates_that_a_task_ranks_by_default_can_be_loaded(task: str) -> None:
    for path in candidate_files(ROOT / "envs/user_functions" / task):
        assert not path.name.startswith("bad") and load_candidate(path).failure is None


@pytest.mark.parametrize(("scores", "filmed"), [((5.0, 5.0), "mine"), ((6.0, 5.0), HUMAN), ((5.0, 6.0), "mine")])
def test_of_equals_the_candidate_is_filmed(scores: tuple[float, float], filmed: str) -> None:
    candidates = [(Candidate(HUMAN), None), (Candidate("mine"), "mine.py")]
    ranking = [Outcome(c, f, [s], [s], None, 0, [], [], [], {}, 1, 1) for (c, f), s in zip(candidates, scores)]
    ranking.sort(key=lambda o: -o.score)
    plan = SimpleNamespace(candidates=candidates, K=1)
    best = ShaperRun.best(SimpleNamespace(result=object(), plan=plan), ranking)  # type: ignore[arg-type]
    assert best is not None and best[0].name == filmed
