from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.files.policy_file import load_policy
from envolve.experiments import evaluate_policy
from envolve.experiments.train_distributed import main
from tests.experiments.command import exit_code

PARAMS = """
from tests.distributed.toy import StepsParams

class TrainParams(StepsParams):
    hidden = (8, 8)
    n_episodes_in_buffer = 8
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "p.py").write_text(PARAMS)
    (tmp_path / "c.json").write_text(json.dumps({"length": 30}))
    return [
        "--params",
        str(tmp_path / "p.py"),
        "--config",
        str(tmp_path / "c.json"),
        "--run-dir",
        str(tmp_path / "run"),
    ]


def test_quick(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--quick"]) == 0
    run = tmp_path / "run"
    assert len((run / "evaluations.csv").read_text().splitlines()) == 4  # before, in the middle, at the end
    assert load_policy(run / "policies/checkpoints/policy_checkpoint_0000000080")([[0, 0, 0, 0]]).shape == (1, 2)
    assert list((run / "train/0").glob("events*")) and list((run / "learner").glob("events*"))
    assert json.loads((run / "config.json").read_text())["length"] == 30
    (tmp_path / "p.py").write_text(PARAMS.replace("8, 8", "9, 9"))  # the copy in the folder counts
    assert main([*files, "--quick"]) == 0
    assert "this run is complete" in capsys.readouterr().out


def test_contrastive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example, to its end and looked at."""
    folder, run = Path(__file__).parents[2] / "experiments" / "params", tmp_path / "run"
    config = json.loads((folder / "reacher.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps({**config, "train_params": {"n_train_episodes_per_iter": 1}}))
    words = ["--params", str(folder / "reacher_params.py"), "--config", str(tmp_path / "c.json")]
    assert main([*words, "--run-dir", str(run), "--collectors", "2", "--quick"]) == 0
    lines = list(csv.DictReader((run / "evaluations.csv").open()))
    assert [line["step"] for line in lines] == ["0", "40", "80"]
    assert all(line["success"] in ("0", "1") and line["mean_length"] == "100" for line in lines)
    assert evaluate_policy.main(["--run-dir", str(run), "-n", "2"]) == 0
    assert "CRL" in (out := capsys.readouterr().out) and "success" in out
    played = json.loads((run / "evaluation_policy_checkpoint_0000000080_seed0.json").read_text())
    assert set(played["members"][0]["success"]["values"]) <= {0.0, 1.0}


def test_every_field_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(f"  {f.name} = " in out for f in dataclasses.fields(TrainParamsBase) if f.name != "env_config")


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--collectors", "0"], 2, "--collectors: found 0, expected 1 to 1024"),
        (["--params", "nowhere.py"], 2, "nowhere.py"),
    ],
)
def test_wrong_arguments(
    files: list[str], more: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*files, *more]) == code
    assert words in capsys.readouterr().err


def test_a_run_goes_on_only_as_it_was_begun(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--quick"]) == 0
    assert main([*files, "--quick", "--seed", "1"]) == 1
    assert "seed: found 1 on the command line, expected 0" in capsys.readouterr().err
