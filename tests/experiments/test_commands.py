"""The one command: its table, help that is there at once, old words and wrong ones."""

from __future__ import annotations

import importlib
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from envolve import __main__ as door
from envolve.core import commands, interrupt
from envolve.core.command_table import COMMANDS, Command
from envolve.core.commands import modern
from envolve.experiments import write_help
from tests.outer.small import ROOT

ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
ONES = list(COMMANDS.values())


def start(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, check=False)


def refused(capsys: pytest.CaptureFixture[str], call, *args: object) -> str:
    """The one line of what ends with exit code 2."""
    with pytest.raises(SystemExit) as e:
        call(*args)
    err = capsys.readouterr().err
    assert e.value.code == 2 and len(err.splitlines()) == 1, err
    return err


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the door remembers is forgotten."""
    for name in ("_started", "_door"):
        monkeypatch.setattr(commands, name, getattr(commands, name))
    monkeypatch.setattr(sys, "argv", ["envolve"])
    monkeypatch.setattr(interrupt, "listen", lambda prog: None)


# ------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("words", [["-m", "envolve", "write", "--help"], ["experiments/auto_shape.py", "-h"],
                                   ["GTN_master.py", "--help"], ["-m", "envolve"]])  # fmt: skip
def test_help_costs_nothing(words: list[str]) -> None:
    """Without torch: 0.05 s of CPU, 4 to 7 with it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = start(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and done.stdout.startswith("Usage: envolve ") and not done.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_a_wrong_flag_is_named_before_anything_is_imported() -> None:
    done = start("-X", "importtime", "-m", "envolve", "shape", "--iteration", "3")
    assert done.returncode == 2 and "envolve shape: found --iteration" in done.stderr and "torch" not in done.stderr


@pytest.mark.parametrize("command", ONES, ids=lambda c: c.name.replace(" ", "_"))
def test_help_is_what_the_command_declares(command: Command) -> None:
    """python3 -m envolve.experiments.write_help brings it up to date."""
    written = write_help.texts(command)
    for path, text in written.items():
        assert Path(path).read_text() == text, f"{path}: python3 -m envolve.experiments.write_help"
    short, everything = commands.help_text(command), commands.help_text(command, True)
    assert len(re.findall(r"^  --", short, re.MULTILINE)) <= write_help.MOST
    for text in (short, everything):
        assert text.index("Examples:") < text.index("\n  --") and "Exit codes:" in text
        assert "default: None" not in text and not re.search(r"--\w+_", text)
    flags = {flag for f in write_help.declared(command).flags for flag in f.spelt.split(", ") if flag[:2] == "--"}
    assert commands.flags_of(command) == flags
    assert set(command.old.values()) <= flags and not set(command.old) & flags


def test_no_help_is_left_of_what_is_no_more() -> None:
    known = {commands.help_file(c) for c in ONES} | {commands.help_file(COMMANDS[n], True) for n in write_help.SHOWN}
    assert {str(p) for p in Path(commands.HELP_FOLDER).iterdir()} == known


def test_help_of_a_main_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as e:
            importlib.import_module("envolve.experiments.controls").main([word])
        assert e.value.code == 0 and capsys.readouterr().out == commands.help_text(COMMANDS["controls"])


def test_what_follows_two_dashes_is_another_programs() -> None:
    words = ["--run-dir", "a", "--", "x.yaml", "--help", "--what_ever"]
    assert modern("submit.py", words) == words


# ------------------------------------------------------------------------------------------------------------- the door


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        commands.choose([])
    out = capsys.readouterr().out
    assert e.value.code == 0 and "18 commands: envolve paper --help" in out
    for command in ONES:
        assert (f"\n  {command.name} " in out) != command.name.startswith("paper ")
    with pytest.raises(SystemExit):
        commands.choose(["paper"])
    assert "\n  paper transfer " in capsys.readouterr().out


def test_every_command_is_there_through_both_doors() -> None:
    for command in ONES:
        path = ROOT / (command.module.replace(".", "/") + ".py")
        old = ROOT / command.words[1]
        assert path.is_file() and old.is_file() and f'interrupt.listen("{command.script}"' in old.read_text()


@pytest.mark.parametrize(
    ("words", "nearest"),
    [(["rnu"], "run"), (["evalute"], "evaluate"), (["paper", "transfr"], "paper transfer"), (["Papre"], "paper")],
)
def test_a_wrong_command(words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, commands.choose, words).endswith(f"nearest: {nearest}\n")


@pytest.mark.usefixtures("not_started")
def test_a_command_is_loaded_and_knows_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    main = door.load(["controls", "a.pt", "--only", "x"])
    assert main is importlib.import_module("envolve.experiments.controls").main
    assert sys.argv == ["envolve controls", "a.pt", "--only", "x"]
    assert commands.called("controls.py") == "envolve controls" and commands.called("submit.py") == "submit.py"
    assert commands.typed("auto_shape.py") == ["envolve", "write"]
    assert "envolve controls: WORLD: found no 'a.pt'" in refused(capsys, main)


@pytest.mark.usefixtures("not_started")
def test_old_names_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for old, new in (("auto_shape", "write"), ("GTN_master.py", "run"), ("train-proxy", "paper train-proxy")):
        assert commands.choose([old])[0].name == new
        assert capsys.readouterr().err == f"note: {old.replace('-', '_')} is now {new}\n"
    assert commands.choose(["evolve_goals"])[0].name == "evolve-goals"
    assert commands.choose(["evaluate", "results/a/model.pt"])[0].name == "evaluate-world"
    assert commands.choose(["evaluate", "--run-dir", "a"])[0].name == "evaluate"
    assert capsys.readouterr().err == ""


def test_without_the_door_everything_is_called_as_before() -> None:
    assert commands.called("auto_shape.py") == "auto_shape.py"
    assert commands.typed("auto_shape.py") == ["python3", "experiments/auto_shape.py"]
    assert commands.typed("GTN_worker.py") == ["python3", "GTN_worker.py"]


# ------------------------------------------------------------------------------------------------------ flags and files


@pytest.mark.parametrize(
    ("script", "old", "new", "note"),
    [
        ("eval_shapers.py", "--out a", "--run-dir a", "--out is now --run-dir"),
        ("eval_shapers.py", "--num_envs_per_shaper 3 --set a_b=c", "--num-envs-per-shaper 3 --set a_b=c", ""),
        ("eval_shapers.py", "--learning_iterations=3", "--iterations=3", "--learning_iterations is now --iterations"),
        ("GTN_master.py", "x.yaml --num-workers 2", "x.yaml --workers 2", "--num-workers is now --workers"),
        ("submit.py", "--workers-per-master=2", "--workers=2", "--workers-per-master is now --workers"),
        ("train_goal.py", "--env_name a --env b", "--task a --task b", "--env_name is now --task"),
        ("train_goal.py", "--exp_name a", "--exp-name a", "--exp_name is now --run-dir, the whole path"),
        ("train_distributed.py", "--exp-dir a", "--run-dir a", "--exp-dir is now --run-dir"),
        ("evaluate_policy.py", "--exp_dir a -n 3", "--run-dir a -n 3", "--exp_dir is now --run-dir"),
        ("transfer.py", "c --out d", "c --json d", "--out is now --json"),
        ("auto_shape.py", "--video", "--video", "--video now takes a FILE; without one the film is best.mp4 in the "
         "run's folder"),
        ("auto_shape.py", "--video a.mp4", "--video a.mp4", ""),
    ],
)  # fmt: skip
def test_old_flags(script: str, old: str, new: str, note: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert modern(script, old.split()) == new.split()
    err = capsys.readouterr().err
    assert err.splitlines()[:1] == ([f"note: {note}"] if note else [])


@pytest.mark.parametrize(
    ("script", "flag", "nearest"),
    [("auto_shape.py", "--shapers_per_itr", "--shapers-per-iter"), ("GTN_master.py", "--singel", "--single"),
     ("train_goal.py", "--batchsize=3", "--batch-size"), ("optimize_params.py", "--num-worker", "--workers")],
)  # fmt: skip
def test_a_wrong_flag(script: str, flag: str, nearest: str, capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(capsys, modern, script, [flag, "3"])
    assert err.startswith(f"{script}: found {flag.split('=')[0]}, ") and err.endswith(f"nearest: {nearest}\n")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--minutes", "abc"], "--minutes: found 'abc', expected a number"),
        (["--minutes"], "--minutes: found nothing, expected a number"),
        (["--agents=2.5"], "--agents: found '2.5', expected a whole number"),
        (["--agents", "--quick"], "--agents: found nothing, expected a whole number"),
    ],
)
def test_a_wrong_value(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, modern, "evolve.py", ["gymnasium:CartPole-v1", *words]).rstrip().endswith(said)


def test_a_wrong_word_of_few(capsys: pytest.CaptureFixture[str]) -> None:
    command = COMMANDS["write"]
    assert commands.kinds_of(command)["--learner"] == "{ppo,sac,td3}"
    said = refused(capsys, modern, command.script, ["--learner", "ppox"])
    assert said.rstrip().endswith("--learner: found 'ppox', expected one of ppo, sac, td3; nearest: ppo")


def test_a_command_that_names_all_wrong_values_at_once_is_left_to_it() -> None:
    assert not commands.kinds_of(COMMANDS["goal"]) and not commands.kinds_of(COMMANDS["evolve-goals"])
    assert modern(COMMANDS["goal"].script, ["--h-dim", "3.5"]) == ["--h-dim", "3.5"]


def test_values_that_numbers_may_have() -> None:
    words = ["--minutes", "1e1", "--agents", "-3", "--seed", "1_000"]  # what is too small, the command says
    assert modern("evolve.py", words) == words
    assert commands.expected_of("X", "inf") == commands.expected_of("N", " 7 ") == ""


def test_a_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.pt").write_text("")
    main = importlib.import_module("envolve.experiments.controls").main
    assert f"did you mean {tmp_path / 'model.pt'}" in refused(capsys, main, [str(tmp_path / "modle.pt")])
    assert "did you mean" not in refused(capsys, main, [str(tmp_path / "none" / "x")])
