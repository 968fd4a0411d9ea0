"""Whatever file a command is given, and whatever lies where it keeps its own: one line, no hang, no memory for it."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envolve.core.files import UnfitFileError
from envolve.distributed.files.params_file import load_train_params, read_json
from envolve.distributed.files.policy_file import read_policy
from envolve.distributed.files.run_folder import read_settings
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.envs.graph.file import load_graph_file
from envolve.envs.shaping.candidate import load_candidate
from envolve.envs.shaping.section import shapers_digest
from envolve.envs.worlds.file import read_world
from envolve.experiments.paper.common import data as paper_data
from envolve.experiments.paper.common.proxies import read_result
from envolve.experiments.policies.episodes import read_policy_file
from envolve.llm import json_lines
from envolve.llm.gym.config import load_gym_config
from envolve.llm.models.record import read_recording
from envolve.outer.checkpoint import load_checkpoint
from envolve.outer.config.load import load_config
from envolve.outer.goals.arguments import stored_plan as goal_plan
from envolve.outer.goals.evolution import GoalEvolution
from envolve.outer.goals.evolve_sections import EvolveSection
from envolve.outer.goals.run import GoalRun
from envolve.outer.hpo.nes_trial import measured
from envolve.outer.hpo.trial_log import TrialLog
from envolve.outer.loop.loop import Evaluated
from envolve.outer.reporting.scores import ScoresCSV, read_curve
from envolve.outer.search.ranking import read_ranking
from envolve.slurm.commands import kind_of, read_exit
from envolve.slurm.fleet import Fleet
from tests.core.odd_files import ODD, make_odd

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "default_config_cartpole_syn_env.yaml")
MOST = 100 * 2**20  # bytes of memory for a command that refuses a file: modules that it imports
SECONDS = 120  # until a reader counts as hanging


@pytest.fixture(autouse=True)
def no_reader_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """And no command takes SIGTERM from pytest, or leaves a folder in the repository."""
    monkeypatch.chdir(tmp_path)

    def late(signum: int, frame: Any) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def peak(anew: bool = False) -> int:
    """Bytes of memory that this process had at the most; anew: since now."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


# module, words before the file, the file's name, words after it
COMMANDS: list[tuple[str, list[str], str, list[str]]] = [
    ("GTN_master", [], "c.yaml", ["--check"]),
    ("GTN_master", ["--resume"], "run/config.yaml", []),
    ("envolve.experiments.vet_shaper", [], "shaper.py", []),
    ("envolve.experiments.eval_shapers", ["--schedule"], "s.yaml", []),
    ("envolve.experiments.auto_shape", ["--config"], "c.yaml", ["--task", "Ant"]),
    ("envolve.experiments.auto_shape", ["--resume"], "run/config.yaml", []),
    ("envolve.experiments.evaluate_proxy", [], "model.pt", []),
    ("envolve.experiments.optimize_params", [], "study.yaml", ["--check"]),
    ("envolve.experiments.optimize_params", ["--resume"], "run/study.yaml", []),
    ("envolve.experiments.train_distributed", ["--params"], "params.py", []),
    (
        "envolve.experiments.train_distributed",
        ["--params", str(ROOT / "tests/distributed/toy.py"), "--config"],
        "c.json",
        [],
    ),
    ("envolve.experiments.train_goal", ["--resume"], "run/config.yaml", []),
    ("envolve.experiments.evolve_goals", ["--resume"], "run/config.yaml", []),
    ("envolve.experiments.paper.train_proxy", [], "c.yaml", ["--mode", "2"]),
    ("envolve.experiments.paper.unseen_agents", [CONFIG, "--world"], "model.pt", []),
    ("envolve.experiments.paper.inference_time", [], "c.yaml", []),
    ("envolve.slurm.submit", ["--run-dir", "there", "--"], "c.yaml", []),
    ("envolve.slurm.submit", ["--run-dir", "there", "--setup"], "setup.sh", ["--", CONFIG]),
]


@pytest.mark.parametrize(
    "kind", ["pipe", "sparse", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("device", "folder"))]
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{c[0].split('.')[-1]} {c[2]}")
def test_a_command_says_what_is_wrong_with_its_file(
    command: tuple[str, list[str], str, list[str]],
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, before, file, after = command
    if file == "setup.sh" and kind == "sparse":
        pytest.skip("bash reads it, on the node, line by line")
    module = importlib.import_module(name)
    path = make_odd(kind, tmp_path / "odd" / file)
    argument = path.parent if file.startswith("run/") else path
    monkeypatch.setattr(signal, "signal", lambda *_: signal.SIG_DFL)
    had = peak(anew=True)
    try:
        code = module.main([*before, str(argument), *after])
    except SystemExit as e:
        code = e.code
    out, err = capsys.readouterr()
    assert code in (1, 2), (code, out, err)
    assert "Traceback" not in out + err and err.strip()
    assert peak() - had < MOST


def evolution(path: Path) -> Any:
    return GoalEvolution(path.parent, EvolveSection(), 0, ["a"], lambda *_: Evaluated(np.zeros(0), 0))


# what a run, or another one, left: file, and what reads it
STORED: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "checkpoint": ("checkpoint.pt", lambda p: load_checkpoint(p, "0" * 64)),
    "goal evolution": ("checkpoint.pt", evolution),
    "world": ("model.pt", lambda p: read_world(str(p))),
    "policy of a shaper": ("policy.pt", lambda p: read_policy_file(p, {"task": str})),
    "distributed policy": ("p.pt", read_policy),
    "graph file": ("a.graph.json", load_graph_file),
    "configuration": ("c.yaml", load_config),
    "gym configuration": ("c.yml", load_gym_config),
    "goal run": ("config.yaml", lambda p: goal_plan(p.parent)),
    "recording": ("r.jsonl", read_recording),
    "JSON lines": ("a.jsonl", lambda p: list(json_lines.read(p))),
    "trials": ("results.json", lambda p: TrialLog(p.parent).read()),
    "figures of a trial": ("measured.json", lambda p: measured(p.parent)),
    "scores": ("scores.csv", lambda p: ScoresCSV(p, 3)),
    "learning curve": ("scores.csv", read_curve),
    "ranking": ("scores.csv", read_ranking),
    "data of an experiment": ("a.json", paper_data.load),
    "result of a proxy": ("result.json", lambda p: read_result(p.parent)),
    "params": ("params.py", load_train_params),
    "JSON of params": ("c.json", read_json),
    "settings of a run": ("run.json", lambda p: read_settings(p.parent)),
    "replay": ("rows_000000000000.log", lambda p: list(ReplayLog(p.parent, 1, 4, 10).read())),
    "state of a fleet": ("state.json", Fleet.load),
    "kind of a command": ("c.yaml", lambda p: kind_of([str(p)])),
    "digest of candidates": ("a.py", lambda p: shapers_digest([p])),
}
FINE = {("scores", "empty"), ("scores", "binary"), ("learning curve", "empty"), ("ranking", "empty"),
        ("JSON lines", "empty"), ("JSON lines", "binary"), ("trials", "empty"), ("trials", "binary"),
        ("recording", "empty"), ("recording", "binary"),
        ("replay", "sparse"), ("replay", "empty"), ("replay", "binary"), ("params", "empty"),
        ("kind of a command", "empty"), ("digest of candidates", "empty"), ("digest of candidates", "binary"),
        }  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", STORED)
def test_what_lies_there_is_looked_at_before_it_is_read(name: str, kind: str, tmp_path: Path) -> None:
    file, read = STORED[name]
    path, had = make_odd(kind, tmp_path / "run" / file), peak(anew=True)
    try:
        read(path)
        assert (name, kind) in FINE, "it was taken"
    except AssertionError:
        raise
    except UnfitFileError as e:
        assert e.strerror and e.filename
    except Exception as e:  # in the words of whoever reads it
        assert "Traceback" not in str(e) and str(e).count("\n") <= 2
        assert not isinstance(e, (MemoryError, RecursionError))
    assert peak() - had < MOST


@pytest.mark.parametrize("kind", ODD)
def test_candidates_that_cannot_be_read_are_rejected_ones(kind: str, tmp_path: Path) -> None:
    for file in ("a.py", "b.graph.json"):
        path, had = make_odd(kind, tmp_path / file), peak(anew=True)
        try:
            failure = load_candidate(path).failure
        except OSError as e:
            assert e.strerror
        else:
            assert failure is not None and failure.kind == "CannotLoad" or kind in ("binary", "empty"), failure
        assert peak() - had < MOST


@pytest.mark.parametrize("kind", ODD)
def test_a_goal_run_does_not_go_on_from_an_odd_checkpoint(kind: str, tmp_path: Path) -> None:
    from envolve.outer.goals.arguments import build_parser, make_plan

    args = build_parser().parse(["--task", "simple_u_maze", "--agent", "crl", "--max_replay_size", "100"])
    plan = make_plan(args)
    make_odd(kind, tmp_path / "run" / "checkpoint.pt")
    had = peak(anew=True)
    with pytest.raises(Exception, match="not a checkpoint of this run") as e:
        GoalRun(plan, tmp_path / "run", True)
    assert type(e.value).__name__ == "RunError" and "\n" not in str(e.value)
    assert peak() - had < 4 * MOST, "its own memory and no more"


def test_an_exit_file_that_is_none_is_no_news(tmp_path: Path) -> None:
    for kind in ODD:
        assert read_exit(make_odd(kind, tmp_path / kind)) is None


def test_a_learner_does_not_go_on_from_an_odd_checkpoint(tmp_path: Path) -> None:
    from envolve.distributed.programs.learner import CHECKPOINT
    from envolve.outer.checkpoint import CheckpointError
    from tests.distributed.toy import Run, small

    run = Run(small(), tmp_path / "run")
    for kind in ODD:
        path = make_odd(kind, tmp_path / kind / CHECKPOINT)
        run.learner.learner.folder, had = path.parent, peak(anew=True)
        with pytest.raises(CheckpointError):
            run.learner.learner.load()
        assert peak() - had < MOST
    assert torch.isfinite(run.learner.learner.agent.weights()).all()
