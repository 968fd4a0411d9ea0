"""The report with a study beside it: best.yaml, how to go on; and experiments/study_report.py."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("ConfigSpace")

from envolve.experiments import study_report
from envolve.outer.config.load import load_config
from envolve.outer.hpo.report import finished, write_report
from envolve.outer.hpo.study import Study, dump_study, read_study
from envolve.outer.hpo.trial import Record, Trial, TrialResult
from envolve.outer.hpo.trial_log import TrialLog
from tests.outer.hpo.trials import record

ROOT = Path(__file__).resolve().parents[3]
CONTENT = {
    "config": str(ROOT / "default_config_cartpole_syn_env_paper.yaml"),
    "evaluate": "nes",
    "loss": "score",
    "repeats": 2,
    "search": {"backend": "random", "parallel": 2, "seed": 5},
    "budget": {"unit": "generations", "least": 5, "most": 45, "eta": 3},
    "stop": {"full_evaluations": 2},
    "space": {
        "agents.gtn.step_size": {"range": [0.1, 1], "log": True},
        "agents.gtn.mirrored_sampling": {"choices": [True, False]},
        "agents.ddqn.gamma": {"one_minus": [0.001, 0.1], "log": True},
    },
}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "cartpole_nes.yaml"
    path.write_text(yaml.safe_dump(CONTENT))
    return read_study(path)


def trials(study: Study, count: int = 9) -> list[Record]:
    out = []
    for k in range(count):
        found = dict(study.space.config_space.sample_configuration())
        values = {name: v.item() if isinstance(v, np.generic) else v for name, v in found.items()}
        out.append(record(k, (0, 0, k), values, (5.0, 15.0)[k % 2], -float(k)))
    return out


def test_best_yaml_is_the_best_configuration_in_full(tmp_path: Path, study: Study) -> None:
    rs = trials(study)
    text = write_report(tmp_path, study, rs)
    best = max((r for r in rs if r.trial.budget == 15), key=lambda r: r.trial.id)  # losses fall with the id
    config = load_config(tmp_path / "best.yaml")
    assert config.data == study.member_config(best.trial.values).data
    assert config.data["agents"]["gtn"]["step_size"] == best.trial.values["agents.gtn.step_size"]
    assert config.data["agents"]["ddqn"]["gamma"] == 1 - best.trial.values["1-agents.ddqn.gamma"]
    assert f"python3 GTN_master.py {tmp_path / 'best.yaml'} --single" in text
    assert f"python3 experiments/optimize_params.py --resume {tmp_path}" in text  # 85 of 90 generations
    head = (tmp_path / "best.yaml").read_text().split("\n\n")[0]
    assert "# trial: 7\n" in head and "# loss (score): -7.0\n" in head and "15 generations" in head
    assert "cartpole_nes: 3 parameters" in text and "mean of 2 runs" in text and "1.889 of 2 full evaluations" in text


def test_a_study_ends_at_its_limits(study: Study) -> None:
    rs = trials(study, 10)  # 5 at 5, 5 at 15
    assert not finished(study, rs[:9]) and finished(study, rs)
    assert finished(dataclasses.replace(study, trials=4), rs[:4])
    assert not finished(dataclasses.replace(study, trials=4), rs[:3])
    text = "\n".join(["--resume" * finished(study, r) for r in (rs[:9], rs)])
    assert text == "\n--resume"


def test_values_that_fit_no_more_are_said(tmp_path: Path, study: Study) -> None:
    trial = Trial(0, (0, 0, 0), {"agents.gtn.step_size": 0.5}, 5.0)
    text = write_report(tmp_path, study, [Record(trial, TrialResult(1.0), 0.0, 1.0, 2.0)])
    assert "There is no best.yaml: its values do not fit the configuration any more: " in text
    assert not (tmp_path / "best.yaml").exists()


def folder(tmp_path: Path, study: Study | None, rs: list[Record]) -> Path:
    out = tmp_path / "run"
    out.mkdir()
    log = TrialLog(out)
    for r in rs:
        log.append(r)
    if study is not None:
        (out / "study.yaml").write_text(dump_study(study))
    return out


def test_the_command_writes_the_same_report_again(
    tmp_path: Path, study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(tmp_path, study, trials(study))
    with (run / "results.json").open("ab") as file:
        file.write(b"[[0, 0,")  # being written just now
    before = (run / "results.json").read_bytes()
    assert study_report.main([str(run)]) == 0
    out = capsys.readouterr().out
    assert out == (run / "summary.txt").read_text() + f"Page: {run / 'report.html'} (1.6 MB)\n"
    assert "9 trials of 9 configurations" in out and out.startswith("cartpole_nes: 3 parameters")
    assert (run / "results.json").read_bytes() == before
    assert load_config(run / "best.yaml").data["agents"]["gtn"]["step_size"]
    again = (run / "best.yaml").read_bytes()
    assert study_report.main([str(run)]) == 0
    assert (run / "best.yaml").read_bytes() == again


def test_the_command_reads_a_folder_of_hpbandster(
    tmp_path: Path, study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = folder(tmp_path, None, trials(study)), tmp_path / "elsewhere" / "deep"
    names = sorted(p.name for p in run.iterdir())
    assert study_report.main([str(run), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "There is no best.yaml: the study's YAML is not here." in text
    assert sorted(p.name for p in run.iterdir()) == names
    assert (out / "parallel_coordinates.png").exists() and str(run / "results.json") in text


def test_what_the_command_refuses(tmp_path: Path, study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    assert study_report.main([str(tmp_path / "nowhere")]) == 2
    assert f"{tmp_path / 'nowhere'}: found no such folder, expected the folder of a run" in capsys.readouterr().err
    assert study_report.main([str(tmp_path / "nowhere"), "--text"]) == 2
    assert "results.json: found no such file" in capsys.readouterr().err
    run = folder(tmp_path, study, trials(study, 2))
    (run / "configs.json").write_text("[]\n")
    assert study_report.main([str(run)]) == 2
    assert "configs.json:1: found [], expected [config_id, values, config_info]" in capsys.readouterr().err
    (run / "configs.json").unlink()
    (run / "results.json").write_text("")
    (run / "study.yaml").write_text("nonsense: 1\n")
    assert study_report.main([str(run)]) == 2
    assert "study.yaml:1" in capsys.readouterr().err


def test_no_success_yet_is_exit_code_1(tmp_path: Path, study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    r = trials(study, 1)[0]
    run = folder(tmp_path, study, [dataclasses.replace(r, result=TrialResult(math.inf, {}, "no"))])
    assert study_report.main([str(run)]) == 1
    assert "1 x no (trial 0)" in capsys.readouterr().out
    assert not (run / "best.yaml").exists()


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        study_report.main(["--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0 and "hpbandster" in text and "best.yaml" in text and "--out" in text
