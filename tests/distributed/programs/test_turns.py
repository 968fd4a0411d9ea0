from __future__ import annotations

import csv
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.off_policy.update import why_not
from envolve.distributed.engine.hub import Finished, Unpublished
from envolve.distributed.files.board import LearnerReport
from envolve.distributed.files.params import ParamsError
from envolve.distributed.files.policy_file import checkpoint_name, load_policy
from envolve.distributed.files.run_folder import SESSION, RunSettings, keep_settings, next_session
from envolve.distributed.programs.evaluator import EVALUATIONS, HEADER, greedy_episode
from envolve.distributed.programs.learner import CHECKPOINT, Learner
from envolve.distributed.programs.off_policy import make_population
from envolve.distributed.programs.turns import make_hub, widths_of
from envolve.outer.checkpoint import CheckpointError, RunError
from tests.distributed.toy import Run, results, small
from tests.examples import some_slow


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    """What an undisturbed run of two collectors leaves."""
    Run(small(), tmp_path / "expected", 2).finish()
    return results(tmp_path / "expected")


@pytest.mark.parametrize("algorithm", ["SAC", pytest.param("TD3", marks=pytest.mark.slow), "CRL"])
def test_a_run_to_the_end(tmp_path: Path, algorithm: str) -> None:
    run = Run(small(algorithm=algorithm), tmp_path, 2)
    before = run.learner.learner.policy()
    run.finish()
    assert run.learner.learner.updates == 6 * 3 and (tmp_path / "done").exists()
    assert not torch.equal(run.learner.learner.policy(), before)
    # 2 x 10 random steps, then 5 of each collector per iteration
    assert [p.steps for p in run.news] == [20 + 10 * i for i in range(7)]
    assert all(p.staleness == 0 for p in run.news)
    assert [step for step, _ in run.returns] == [0, 6, 12, 18]
    names = sorted(p.stem for p in (tmp_path / "policies" / "checkpoints").iterdir())
    assert names == [f"policy_checkpoint_{step:010d}" for step in (0, 6, 9, 12, 18)]
    with pytest.raises(Finished):
        run.collectors[0].turn()


def test_the_same_run_leaves_the_same_bytes(tmp_path: Path, expected: dict[str, bytes]) -> None:
    Run(small(), tmp_path / "again", 2).finish()
    assert results(tmp_path / "again") == expected


@pytest.mark.slow
def test_contrastive_runs_that_go_on_leave_the_same_bytes(tmp_path: Path) -> None:
    """Also of a memory that has gone round: its 40 rows are those of 4 iterations."""
    params = small(algorithm="CRL", n_episodes_in_buffer=4)
    Run(params, tmp_path / "expected", 2).finish()
    for stopped_after in (3, 6):
        folder = tmp_path / str(stopped_after)
        run = Run(params, folder, 2)
        for _ in range(stopped_after):
            run.turn()
        Run(params, folder, 2).finish()
        assert results(folder) == results(tmp_path / "expected")


@pytest.mark.parametrize("stopped_after", some_slow(range(8), (0, 3, 6)))
def test_a_run_that_goes_on_leaves_the_same_bytes(
    tmp_path: Path, expected: dict[str, bytes], stopped_after: int
) -> None:
    """Checkpoints are at 0, 3 and 6; whatever came after the last is done again."""
    run = Run(small(), tmp_path / "run", 2)
    for _ in range(min(stopped_after, 7)):
        run.turn()
    Run(small(), tmp_path / "run", 2).finish()
    assert results(tmp_path / "run") == expected


def test_a_hub_that_is_killed_is_made_again_from_its_log(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """In the middle of an iteration: one of two collectors had brought its chunk."""
    params, folder = small(), tmp_path / "run"
    run = Run(params, folder, 2)
    run.turn()
    for _ in range(3):
        assert run.learner.publish() and run.collectors[1].turn()
        hub = make_hub(params, run.widths, run.settings, folder)
        for program in (run.learner, *run.collectors):
            program.hub = hub  # type: ignore[attr-defined]
        assert not run.learner.learn()  # the hub has no policy: it is published again
        assert run.collectors[0].turn() and run.learner.learn()
    run.finish()
    assert results(folder) == expected


def test_a_hub_that_is_killed_while_all_collect_counts_what_they_bring(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """Their policy was handed out by the hub that is gone; the next one's is the same, and not for a second turn."""
    params, folder = small(), tmp_path / "run"
    run = Run(params, folder, 2)
    run.turn()
    hub = run.hub
    for _ in range(3):
        assert run.learner.publish()
        for program in run.collectors:
            handout = hub.pull(program.collector.worker, 0)
            assert handout is not None
            program.chunk = program.collector.collect(handout)
        hub = make_hub(params, run.widths, run.settings, folder)
        for part in (run.learner, *run.collectors):
            part.hub = hub  # type: ignore[attr-defined]
        assert not run.collectors[0].turn()  # it comes before the learner has published again
        assert not run.learner.learn()
        for program in run.collectors:
            assert program.turn() and hub.pull(program.collector.worker, 0) is None
        assert run.learner.learn()
    run.finish()
    assert results(folder) == expected


def test_a_chunk_of_a_training_that_was_taken_back_is_refused(tmp_path: Path, expected: dict[str, bytes]) -> None:
    params, folder = small(), tmp_path / "run"
    run = Run(params, folder, 2)
    for _ in range(5):
        run.turn()
    assert run.learner.publish() and run.collectors[0].turn()
    handout = run.hub.pull(1, 0)
    assert handout is not None
    late = run.collectors[1].collector.collect(handout)
    run.learner = type(run.learner)(run.learner.learner, run.hub, True, lambda *_: None)  # starts anew, from version 3
    with pytest.raises(Unpublished):
        run.hub.append(late)
    run.learner.publish()
    assert not run.hub.append(late)
    run.finish()
    assert results(folder) == expected


def test_async_bounds_how_old_a_policy_is(tmp_path: Path) -> None:
    """The learner runs ahead as far as the rule lets it."""
    run = Run(small(num_iter=20), tmp_path, 2, "async")
    run.turn()
    pushed = []
    while not run.learner.learner.complete:
        while not run.learner.learner.complete and run.hub.table.may_push():
            assert run.learner.publish() and run.learner.learn()
        rule = run.hub.table.rule
        assert 0 <= 2 * rule.pushes - rule.pulls <= 4
        pushed.append(rule.pushes)
        run.collectors[len(pushed) % 2].turn()
    ages = [p.staleness for p in run.news[1:]] + [run.hub.progress().staleness]
    assert all(0 <= age <= 2 for age in ages) and ages[-1] > 0.9, ages  # it is behind, and says so in every line
    assert all(chunk.version <= 20 for chunk in run.chunks)


def test_async_goes_on_without_losing_what_was_collected(tmp_path: Path) -> None:
    run = Run(small(), tmp_path, 2, "async")
    for _ in range(5):
        run.turn()
    steps = run.hub.progress().steps
    again = Run(small(), tmp_path, 2, "async")
    assert again.hub.progress().steps == steps == 20 + 4 * 10
    assert again.learner.learner.version == 3
    again.finish()
    assert again.hub.progress().steps == steps + 3 * 10


def test_targets_move_when_they_are_due(tmp_path: Path) -> None:
    params = small(target_update_period=3, num_steps_per_iter=1)
    learner = Learner(params, widths_of(params), torch.tensor([1]), tmp_path)
    batch, moved = torch.randn(1, learner.widths.row, 8), []
    for _ in range(6):
        rows = learner.agent.parts()
        before = rows["target"].clone()
        learner.update(batch)
        moved.append(not torch.equal(before, rows["target"]))
    assert moved == [False, False, True] * 2


@pytest.mark.parametrize(("field", "part"), [("actor_lr", 0), ("critic_lr", 1), ("alpha_lr", 2)])
def test_each_part_learns_at_its_own_rate(tmp_path: Path, field: str, part: int) -> None:
    """Adam's first step is the rate, whatever the gradient."""
    params = small(**{field: 1e-2})
    learner = Learner(params, widths_of(params), torch.tensor([1]), tmp_path)
    rows = learner.agent.parts()
    border = learner.policy().shape[1]
    before, alpha = rows["params"].clone(), rows["log_alpha"].clone()
    learner.update(torch.randn(1, learner.widths.row, 8))
    moved = (rows["params"] - before).abs()
    steps = [float(moved[:, :border].max()), float(moved[:, border:].max()), float((rows["log_alpha"] - alpha).abs())]
    assert steps[part] == pytest.approx(1e-2, rel=1e-2)
    assert all(step == pytest.approx(3e-4, rel=1e-2) for i, step in enumerate(steps) if i != part)


def test_the_first_line_has_no_rates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(small(), tmp_path)
    report = LearnerReport(SimpleNamespace(write=lambda step, values: None))
    with caplog.at_level(logging.INFO, "envolve"):
        report(run.learner.learner, run.hub.progress())
        report(run.learner.learner, run.hub.progress())
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("iteration ") and "steps/s" not in first and "updates/s" not in first
    assert second.endswith("  0 steps/s  0 updates/s")


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    Run(small(), tmp_path).finish()
    path = tmp_path / CHECKPOINT
    with pytest.raises(CheckpointError, match="params: expected torch.float32 of shape"):
        Run(small(hidden=(9, 9)), tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="its checksum does not fit"):
        Run(small(), tmp_path)


def test_success_stands_in_the_evaluations_where_it_is_reported(tmp_path: Path) -> None:
    """The toy with goals reports one after its second step, if the action of then is positive."""
    for algorithm in ("SAC", "CRL"):
        Run(small(algorithm=algorithm, n_eval_episodes=8), tmp_path / algorithm).finish()
    lines = {a: list(csv.DictReader((tmp_path / a / EVALUATIONS).open())) for a in ("SAC", "CRL")}
    assert [line["success"] for line in lines["SAC"]] == [""] * 4
    params = small(algorithm="CRL")
    for line in lines["CRL"]:
        policy = load_policy(tmp_path / "CRL" / "policies" / "checkpoints" / checkpoint_name(int(line["step"])))
        played = [greedy_episode(params.eval_env(0, 0), policy, seed, 10) for seed in range(40)]
        assert {p[2] for p in played} <= {0.0, 1.0} and 0 <= float(line["success"]) <= 1
    env = params.eval_env(0, 0)
    pushes = {sign: greedy_episode(env, lambda obs, s=sign: np.full((1, 2), s), 1, 10) for sign in (1.0, -1.0)}  # type: ignore
    assert (pushes[1.0][2], pushes[-1.0][2]) == (1, 0) and pushes[1.0][:2] == (8.0, 4)
    cut = greedy_episode(env, lambda obs: np.ones((1, 2)), 1, 1)
    assert cut == (2.0, 1, 0.0)  # over before it could succeed


def test_evaluations_of_an_earlier_version_go_on(tmp_path: Path) -> None:
    params = small()
    (tmp_path / EVALUATIONS).write_text("step,member,episodes,mean_return,std_return,mean_length\n0,0,2,1,0,4\n")
    Run(params, tmp_path).finish()
    lines = (tmp_path / EVALUATIONS).read_text().splitlines()
    assert lines[:2] == [",".join(HEADER), "0,0,2,1,0,4,"] and len(lines) == 5


@pytest.mark.parametrize("line", ["x,y", "4,0,2", "4,0,2,1,0,4,1,9", ""])
def test_a_line_that_is_no_evaluation_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / EVALUATIONS).write_text(f"{','.join(HEADER)}\n0,0,2,1,0,4,\n{line}\n")
    with pytest.raises(RunError, match=r"evaluations.csv:3: found .*, expected values of step.*; remove the line"):
        Run(small(), tmp_path)


@pytest.mark.parametrize("text", ["", "one", "-3"])
def test_a_damaged_number_of_starts_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SESSION).write_text(text)
    with pytest.raises(RunError, match=f"session: found '{text}', expected how often a learner was started; write"):
        next_session(tmp_path)
    (tmp_path / SESSION).write_text("4\n")
    assert [next_session(tmp_path), next_session(tmp_path)] == [5, 6]


def test_what_cannot_be_built_is_said(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"hidden: found \(8, 9\), expected layers of one width"):
        Run(small(hidden=(8, 9)), tmp_path)


def test_a_resume_says_what_the_run_was_begun_with(tmp_path: Path) -> None:
    keep_settings(tmp_path, RunSettings(1, 2, "async"))
    keep_settings(tmp_path, RunSettings(1, 2, "async"))
    with pytest.raises(RunError, match="num_collectors: found 3 on the command line, expected 2, with which"):
        keep_settings(tmp_path, RunSettings(1, 3, "async"))
    (tmp_path / "run.json").write_text('{"seed": 1, "num_collectors": 0, "mode": "x"}')
    with pytest.raises(RunError, match="expected seed, num_collectors >= 1 and a mode of lockstep, async"):
        keep_settings(tmp_path, RunSettings())


@pytest.mark.parametrize("algorithm", ["SAC", "TD3"])
def test_updates_are_compiled(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """An agent with learning rates of its own is no other algorithm."""
    asked: list[str] = []
    monkeypatch.setattr(ahead, "why_not", asked.append)
    params = small(algorithm=algorithm)
    agents = make_population(params, widths_of(params), torch.arange(1))
    assert why_not(agents.algorithm) is None and asked == [f"{algorithm.lower()}_update"]
