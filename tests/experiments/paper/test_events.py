"""TensorBoard and W&B: which commands have them, and what those without a folder of a run write."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from envolve.core.command_table import COMMANDS
from envolve.core.commands import flags_of
from envolve.experiments.paper import inference_time, learned_reward, step_size, tuned_baseline
from tests.experiments import command
from tests.outer.reporting.events import scalars
from tests.outer.reporting.test_wandb_run import Heard
from tests.outer.small import ROOT

CARTPOLE = str(ROOT / "default_config_cartpole_syn_env.yaml")
SMALL = [CARTPOLE, "--batch", "2", "--repeats", "2", "--steps", "2"]


def silent() -> dict[str, str]:
    """Commands that log nothing -> why, as docs/tracking.md has them."""
    text = (ROOT / "docs" / "tracking.md").read_text()
    table = text[text.index("## Commands that log nothing") :].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|$", table, re.MULTILINE)
    return {name: why for names, why in rows for name in re.findall(r"`([^`]+)`", names)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_logs_or_the_documentation_says_why_not(name: str) -> None:
    """A new command fails here until it has --wandb, which needs its events, or a row in the table."""
    flags, why = flags_of(COMMANDS[name]), silent().get(name, "")
    assert flags, f"{name} has no help: python3 -m envolve.experiments.write_help"
    assert ("--wandb" in flags) != bool(why), f"{name}: flags {sorted(flags)}, docs/tracking.md says {why!r}"
    if "--wandb" in flags:
        folder = flags & {"--tensorboard", "--run-dir", "--results-dir", "--folder", "--out"}
        assert folder, f"{name}: --wandb passes on events, expected a flag that says where they are"


def test_the_table_names_only_what_there_is() -> None:
    assert not set(silent()) - set(COMMANDS)


def test_a_measurement_without_worlds_writes_its_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = Heard()
    monkeypatch.setitem(sys.modules, "wandb", heard.module())
    events = tmp_path / "events"
    words = [*SMALL, "--json", tmp_path / "a.json", "--tensorboard", events, "--wandb", "mine"]
    code, _, _, content = command.run(inference_time.main, words, capsys, tmp_path / "a.json")
    assert code == 0 and not {"tensorboard", "wandb", "session"} & set(content["settings"])
    for name, q in content["series"].items():
        tag = name.replace(" ", "_")
        found = [value for _, value in scalars(events / tag)["ms_per_step"]]
        assert found == pytest.approx(q["ms_per_step"], abs=1e-4)
        assert [x for x, _ in heard.figures(f"{tag}/ms_per_step")] == [0, 1]
    assert heard.ends == [0] and heard.inits[0]["config"]["repeats"] == 2 and heard.inits[0]["project"] == "mine"


def test_wandb_begins_after_the_arguments_and_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = Heard()
    monkeypatch.setitem(sys.modules, "wandb", heard.module())
    words = [*SMALL, "--results-dir", str(tmp_path), "--wandb", "mine"]
    assert command.exit_code(inference_time.main, words) == 2
    assert "--wandb: found no --tensorboard DIR, expected the folder" in capsys.readouterr().err
    words += ["--tensorboard", str(tmp_path / "events")]
    assert command.exit_code(inference_time.main, [*words, "--batch", "0"]) == 2 and not heard.inits
    monkeypatch.setattr(inference_time, "seconds_per_step", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        inference_time.main(words)
    assert heard.ends == [1], "W&B is told that it failed"


def test_a_study_of_the_paper_hands_its_project_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(step_size.optimize_params, "main", lambda words: given.append(words) or 0)
    step_size.main(["--quick", "--wandb", "mine"])
    assert given[0][given[0].index("--wandb") + 1] == "mine"


def test_what_has_nothing_to_log_has_no_switch(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.exit_code(learned_reward.main, ["--tensorboard", "x"]) == 2
    assert "--tensorboard" in capsys.readouterr().err


def test_a_tuned_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study"
    (study / "runs" / "0_0").mkdir(parents=True)
    (study / "runs" / "0_0" / "agents.json").write_text('{"agents": [{"train_steps": 30}, {"train_steps": 40}]}')
    base = (ROOT / "configs" / "baselines" / "cartpole_ddqn.yaml").read_text()
    (study / "best.yaml").write_text(f"# study: real_cartpole_ddqn\n{base}")
    monkeypatch.setattr(tuned_baseline, "read_study", lambda path: Study())
    small: Any = {"returns": [9.0, 11.0], "train_steps": [20.0, 30.0], "failed": 0}
    monkeypatch.setattr(tuned_baseline, "measured", lambda *a: dict(small))
    words = [str(study), "--name", "mine", "--out", str(tmp_path / "out"), "--tensorboard", str(tmp_path / "events")]
    assert command.exit_code(tuned_baseline.main, words) == 0, capsys.readouterr().err
    for kind in ("fixed", "varied"):
        assert scalars(tmp_path / "events" / kind)["return"] == [(0, 9.0), (1, 11.0)]
    assert '"tuning_steps": 70' in (tmp_path / "out" / "mine.json").read_text()


class Study:
    evaluate, worlds, loss = "agent", None, "train_steps"
