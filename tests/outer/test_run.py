"""The outer loop in one process: the same bytes however it is cut, stopped or resumed; what failing members do."""

from __future__ import annotations

import csv
import errno
import io
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import envolve.outer.evaluate.networks
import envolve.outer.loop.run_keeper
import envolve.outer.run
import envolve.outer.search.target
from envolve.envs.worlds.file import read_world
from envolve.outer.checkpoint import UNKNOWN, RunError, UnscoredError, load_checkpoint, save_checkpoint
from envolve.outer.config import problem
from envolve.outer.config.load import load_config
from envolve.outer.evaluate.members import episode_length, lower_bound, mean_of, worst_for_failed
from envolve.outer.evaluate.networks import BUDGET, PROXY, REAL, evaluate, exploration, on_task
from envolve.outer.exchange.backlog import completed
from envolve.outer.exchange.messages import ChunkResult, chunk_content, chunk_from, result_of
from envolve.outer.reporting.report import LiveTable
from envolve.outer.run import Run, config_digest
from envolve.outer.search.nes import NES, member_seeds
from tests.examples import some_slow
from tests.outer.small import ROOT, cartpole, cliff


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    """Drawing takes a second; one test looks at the picture."""
    monkeypatch.setattr(
        envolve.outer.run, "learning_curve", lambda path, *args, **kwargs: Path(path).write_text("picture")
    )


class Direct:
    """A dispatcher without files and processes. ``change(chunk, values)`` may alter what a worker returns;
    ``stop_at``: the call that is interrupted."""

    def __init__(self, change=None, stop_at=-1, run_id="run"):
        self.run_id, self.change, self.stop_at = run_id, change, stop_at
        self.calls = []

    def evaluate(self, chunks, unfit=None):
        if len(self.calls) == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append((chunks[0].generation, chunks[0].mode, len(chunks)))
        results = []
        for chunk in chunks:
            chunk = chunk_from(chunk_content(chunk, ""))
            values = evaluate(chunk.config, chunk.worlds, chunk.seeds, chunk.mode)
            if self.change:
                values = self.change(chunk, values)
            results.append(values if isinstance(values, ChunkResult) else result_of(chunk, "", values))
        return results


def go(config, folder, resume=False, dispatcher=None):
    """-> what was printed, and the summary."""
    folder.mkdir(exist_ok=True)
    output = io.StringIO()
    total = config.data["agents"]["gtn"]["max_iterations"]
    table = LiveTable(total, "title", Console(file=output, width=200))
    with table:
        summary = Run(config, folder, dispatcher or Direct(), resume).execute(table)
    return output.getvalue(), summary


def files(folder):
    return (folder / "model.pt").read_bytes(), (folder / "scores.csv").read_bytes()


def rows(folder):
    with open(folder / "scores.csv", newline="") as f:
        return list(csv.DictReader(f))


def undisturbed(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("reference") / "run"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(envolve.outer.run, "learning_curve", lambda path, *args, **kwargs: None)
        go(config, folder)
    return files(folder)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """model.pt and scores.csv of the undisturbed run."""
    return undisturbed(tmp_path_factory, cliff())


SHORT = "agents.gtn.max_iterations=3"


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return undisturbed(tmp_path_factory, cliff(SHORT))


# -------------------------------------------------------------------------------- the same bytes


def test_same_seed_same_bytes(tmp_path, reference):
    torch.manual_seed(1)
    go(cliff(), tmp_path / "other", dispatcher=Direct(run_id="another name"))
    assert files(tmp_path / "other") == reference
    go(cliff("seed=1"), tmp_path / "seed")
    assert files(tmp_path / "seed")[1] != reference[1]


@pytest.mark.parametrize("size", [1, 12, 100])
def test_how_the_population_is_cut_does_not_matter(tmp_path, reference, size):
    dispatcher = Direct()
    go(cliff(f"agents.gtn.chunk_size={size}"), tmp_path / "run", dispatcher=dispatcher)
    assert dispatcher.calls[0] == (1, PROXY, -(-12 // size))
    assert files(tmp_path / "run")[1] == reference[1]


def test_cartpole_in_chunks(tmp_path):
    for size in (2, 100):
        go(cartpole(f"agents.gtn.chunk_size={size}"), tmp_path / str(size))
    assert files(tmp_path / "2")[1] == files(tmp_path / "100")[1]
    one, other = (read_world(str(tmp_path / str(size) / "model.pt")) for size in (2, 100))
    assert torch.equal(one.flat, other.flat) and one.score == other.score


def test_interrupted_at_every_evaluation(tmp_path, short):
    """Ctrl-C in any generation or in the closing comparison; every second time once more after the resume."""
    whole, config = Direct(), cliff(SHORT)
    go(config, tmp_path / "whole", dispatcher=whole)
    assert [mode for _, mode, _ in whole.calls] == [PROXY] * 3 + [BUDGET, REAL]
    for stop_at in range(len(whole.calls)):
        folder = tmp_path / str(stop_at)
        folder.mkdir()
        resume = False
        for again in range(1 + stop_at % 2):
            with pytest.raises(KeyboardInterrupt):
                go(config, folder, resume, Direct(stop_at=max(0, stop_at - again * stop_at)))
            resume = True
        text, _ = go(config, folder, resume=True)
        assert files(folder) == short, stop_at
        if stop_at == 0:
            assert "no generation was finished" in text
        elif stop_at < 3:
            assert f"resumed at generation {stop_at + 1}" in text


class At:
    """Raises at the n-th call of an os function, before or after doing it."""

    def __init__(self, monkeypatch, name, n, error, after=False):
        self.real, self.n, self.error, self.after, self.calls = getattr(os, name), n, error, after, 0
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args):
        self.calls += 1
        now = self.calls == self.n + 1
        if now and not self.after:
            raise self.error
        value = self.real(*args)
        if now:
            raise self.error
        return value


WRITES = [("fsync", False), ("fsync", True), ("replace", False), ("replace", True)]


# between the other two and the first of these nothing happens that a reader could see
@pytest.mark.parametrize("call,after", some_slow(WRITES, [("fsync", True), ("replace", True)]))
def test_interrupted_at_every_write(tmp_path, monkeypatch, short, call, after):
    """Between model.pt, scores.csv and checkpoint.pt: whichever was written last, resume ends in the same bytes."""
    n, finished, config = 0, False, cliff(SHORT)
    while not finished:
        folder = tmp_path / str(n)
        with monkeypatch.context() as m:
            at = At(m, call, n, KeyboardInterrupt(), after)
            try:
                go(config, folder)
                finished = at.calls <= n
            except KeyboardInterrupt:
                pass
        go(config, folder, resume=True)
        assert files(folder) == short, n
        n += 1
    assert n > 5


def test_killed_in_the_middle_of_a_line_of_scores(tmp_path, reference):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        go(cliff(), folder, dispatcher=Direct(stop_at=3))
    with open(folder / "scores.csv", "ab") as f:
        f.write(b"4,0,orig,-12")
    go(cliff(), folder, resume=True)
    assert files(folder) == reference


def test_a_lost_model_comes_back_from_the_checkpoint(tmp_path, reference):
    folder = tmp_path / "run"
    go(cliff(), folder)
    (folder / "model.pt").unlink()
    go(cliff(), folder, resume=True)
    assert files(folder) == reference


def test_resume_of_a_finished_run_only_compares(tmp_path, reference):
    folder = tmp_path / "run"
    _, first = go(cliff(), folder)
    events = sorted(p.name for p in folder.glob("events*"))
    dispatcher = Direct()
    text, second = go(cliff(), folder, resume=True, dispatcher=dispatcher)
    assert "the search ended with generation 6; only the closing comparison is made again" in text
    assert [mode for _, mode, _ in dispatcher.calls] == [BUDGET, REAL]
    assert files(folder) == reference and "generation 6/6" not in text
    for a, b in ((first.proxy, second.proxy), (first.real, second.real)):
        assert (a.returns, a.steps) == (b.returns, b.steps) and first.generations == second.generations == 6
    assert sorted(p.name for p in folder.glob("events*")) == events


def test_a_new_run_does_not_write_over_an_old_one(tmp_path):
    go(cliff(), tmp_path / "run")
    with pytest.raises(FileExistsError):
        go(cliff(), tmp_path / "run")


# -------------------------------------------------------------------------------- a full disk


def test_full_disk_at_every_write(tmp_path, monkeypatch, short):
    """The error names the file; the checkpoint of the last finished generation is whole; resume goes on."""
    n, seen, finished, config = 0, Counter(), False, cliff(SHORT)
    digest = config_digest(config)
    while not finished:
        folder = tmp_path / str(n)
        dispatcher = Direct()
        with monkeypatch.context() as m:
            at = At(m, "fsync", n, OSError(errno.ENOSPC, "No space left on device"))
            try:
                go(config, folder, dispatcher=dispatcher)
                finished = at.calls <= n
            except OSError as e:
                assert e.errno == errno.ENOSPC and Path(e.filename).parent == folder
                seen[Path(e.filename).name] += 1
        if (folder / "checkpoint.pt").exists():
            nes, progress = load_checkpoint(folder / "checkpoint.pt", digest)
            evaluated = sum(mode == PROXY for _, mode, _ in dispatcher.calls)
            assert nes.generation == (evaluated if progress.finished else evaluated - 1)
        go(config, folder, resume=True)
        assert files(folder) == short, n
        n += 1
    assert set(seen) == {"scores.csv", "model.pt", "checkpoint.pt"}


def mounted(folder: Path, kib: int) -> bool:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def test_a_disk_that_really_is_full(tmp_path, short):
    """After every 8 KiB of what a run writes."""
    disk, config, kib = tmp_path / "disk", cliff(SHORT), 0
    if not mounted(disk, 8):
        pytest.skip("mounting a small file system is not allowed here")
    ended = Counter()
    try:
        while not ended["complete"]:
            kib += 8
            subprocess.run(["mount", "-o", f"remount,size={kib}k", str(disk)], check=True)
            folder = disk / "run"
            try:
                go(config, folder)
                ended["complete"] += 1
            except OSError as e:
                assert e.errno == errno.ENOSPC and e.filename, e
                ended[Path(e.filename).name.split(".")[0]] += 1
            subprocess.run(["mount", "-o", "remount,size=4096k", str(disk)], check=True)
            go(config, folder, resume=True)
            assert files(folder) == short, kib
            shutil.rmtree(folder)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert ended["checkpoint"] and ended["model"], ended


# -------------------------------------------------------------------------------- failing members


def failing(which):
    """Members for which ``which(generation, index in the population)`` is true come back without a score."""

    def change(chunk, values):
        size = chunk.config["agents"]["gtn"]["chunk_size"]
        for i in range(len(chunk.seeds)):
            if chunk.mode == PROXY and which(chunk.generation, chunk.chunk_id * size + i):
                values["score"][i] = values["mean_return"][i] = float("nan")
                values["reason"][i] = "the world's output is not finite"
        return values

    return change


def test_a_failed_member_gets_the_worst_score_and_its_reason_is_kept(tmp_path):
    change = failing(lambda generation, i: generation == 2 and i == 7)
    text, _ = go(cliff(), tmp_path / "run", dispatcher=Direct(change))
    bad = [r for r in rows(tmp_path / "run") if r["reason"]]
    assert [(r["generation"], r["member"], r["score"], r["reason"]) for r in bad] == [
        ("2", "7", "nan", "the world's output is not finite")
    ]
    lines = [line for line in text.splitlines() if line.startswith("generation")]
    assert len(lines) == 6 and ["failed 1" in line for line in lines] == [False, True, False, False, False, False]


def test_the_worst_score_is_what_nes_is_told(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(NES, "tell", lambda self, scores: told.append(scores))
    monkeypatch.setattr(envolve.outer.loop.run_keeper, "save_checkpoint", lambda *args: None)
    change = failing(lambda generation, i: i in (0, 7))
    with pytest.raises(KeyboardInterrupt):
        go(cliff(), tmp_path / "run", dispatcher=Direct(change, stop_at=1))
    scores = told[0]
    assert len(scores) == 12 and scores[0] == scores[7] == scores.min() and np.isfinite(scores).all()


def test_worst_for_failed():
    scores, failed = worst_for_failed(np.array([3.0, np.nan, -5.0, np.inf]))
    assert scores.tolist() == [3, -5, -5, -5] and failed.tolist() == [False, True, False, True]
    scores, failed = worst_for_failed(np.array([np.nan, np.nan]))
    assert np.isfinite(scores).all() and failed.all()


def test_a_generation_in_which_all_fail_is_said_and_never_the_best(tmp_path):
    """Scores of this RN are about -3,600: a 0 for "none" would beat them all."""
    folder = tmp_path / "run"
    text, _ = go(cliff(), folder, dispatcher=Direct(failing(lambda generation, i: generation == 3)))
    assert "generation 3: all members failed, the first because the world's output is not finite" in text
    assert "generation 3/6  score -  best -" in text
    assert -5000 < read_world(str(folder / "model.pt")).score < -100
    assert len(rows(folder)) == 6 * 12


@pytest.mark.parametrize("first, generations", [(1, 3), (2, 6)])
def test_a_run_in_which_nothing_but_one_fault_was_ever_seen_ends_soon(tmp_path, first, generations):
    folder = tmp_path / "run"
    direct = Direct(failing(lambda generation, i: generation >= first))
    if first == 1:
        with pytest.raises(UnscoredError, match="no world has a score: every agent failed in all 3 generations"):
            go(cliff(), folder, dispatcher=direct)
    else:
        go(cliff(), folder, dispatcher=direct)
    assert len({row["generation"] for row in rows(folder)}) == generations


def test_failed_unperturbed_members_are_never_the_best(tmp_path):
    """The perturbations' worst score stands in for them, but says nothing about the world that would be kept."""
    folder = tmp_path / "run"
    with pytest.raises(RunError, match="no world has a score: every agent failed in all 6 generations.*scores.csv"):
        go(cliff(), folder, dispatcher=Direct(failing(lambda generation, i: i < 4)))
    assert not (folder / "model.pt").exists() and len(rows(folder)) == 72


def test_chunks_that_nobody_can_evaluate(tmp_path):
    """An exception in the evaluation of every chunk is no property of the members: the run ends, resumable."""

    def broken(chunk, values):
        return ChunkResult.failed(chunk, "", "MemoryError: out of memory") if chunk.generation == 3 else values

    with pytest.raises(RunError, match=r"no worker can evaluate generation 3 chunk 0 \(proxy\): MemoryError"):
        go(cliff(), tmp_path / "run", dispatcher=Direct(broken))
    assert load_checkpoint(tmp_path / "run" / "checkpoint.pt", config_digest(cliff()))[0].generation == 2


def test_a_chunk_that_cannot_be_evaluated_costs_its_members_alone(tmp_path):
    class Dispatching(Direct):
        def evaluate(self, chunks, unfit=None):
            return completed(super().evaluate(chunks))

    def broken(chunk, values):
        lost = chunk.generation == 2 and chunk.chunk_id == 1
        return ChunkResult.failed(chunk, "", "ValueError: no such thing") if lost else values

    _, summary = go(cliff(), tmp_path / "run", dispatcher=Dispatching(broken))
    bad = [(r["generation"], int(r["member"])) for r in rows(tmp_path / "run") if r["reason"]]
    assert bad == [("2", i) for i in range(5, 10)] and summary.generations == 6


# -------------------------------------------------------------------------------- collapse and restart


def ended_at_once(kind, task, section, seeds):
    """A fresh SE whose done_net's last bias ends every episode after one step."""
    worlds = INIT_WORLD(kind, task, section, seeds)
    worlds[:, -1] = 50.0
    return worlds


INIT_WORLD = envolve.outer.search.target.init_world
COLLAPSE = ("agents.gtn.collapse_generations=2", "agents.gtn.max_iterations=7", "agents.gtn.max_restarts=2")


def test_a_collapsed_world_is_left_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(envolve.outer.search.target, "init_world", ended_at_once)
    text, summary = go(cartpole(*COLLAPSE), tmp_path / "run", dispatcher=Direct(scored(lambda chunk: 9.0)))
    said = [line for line in text.splitlines() if "collapsed" in line]
    assert said == [
        f"note: generation {g}: the world collapsed (episodes of 1.0 steps); restarting from a new one" for g in (2, 4)
    ]
    assert summary.restarts == 2, "and not more often than max_restarts"
    monkeypatch.setattr(envolve.outer.search.target, "init_world", INIT_WORLD)
    text, summary = go(cartpole(*COLLAPSE), tmp_path / "sound")
    assert "collapsed" not in text and summary.restarts == 0


def test_restart_and_resume(tmp_path, monkeypatch):
    monkeypatch.setattr(envolve.outer.search.target, "init_world", ended_at_once)
    config, flat = cartpole(*COLLAPSE, "agents.gtn.max_iterations=5"), scored(lambda chunk: 9.0)
    assert "restarting" in go(config, tmp_path / "whole", dispatcher=Direct(flat))[0]
    for stop_at in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            go(config, tmp_path / str(stop_at), dispatcher=Direct(flat, stop_at=stop_at))
        go(config, tmp_path / str(stop_at), resume=True, dispatcher=Direct(flat))
        assert files(tmp_path / str(stop_at)) == files(tmp_path / "whole")


def test_no_collapse_where_agents_learn_all_the_same(tmp_path, monkeypatch):
    """Short episodes, but the best are far above the median: some of the best worlds are near-bandits."""
    monkeypatch.setattr(envolve.outer.search.target, "init_world", ended_at_once)
    learns = scored(lambda chunk: 150.0 if chunk.chunk_id == 2 else 9.0)
    assert "collapsed" not in go(cartpole(*COLLAPSE), tmp_path / "run", dispatcher=Direct(learns))[0]


def test_a_population_without_any_score_counts_as_collapsed(tmp_path):
    change = failing(lambda generation, i: generation in (2, 3))
    text, summary = go(cliff("agents.gtn.collapse_generations=2"), tmp_path / "run", dispatcher=Direct(change))
    assert "generation 3: the world collapsed (all members failed)" in text and summary.restarts == 1


# -------------------------------------------------------------------------------- solved, best, masks


def scored(score_of):
    def change(chunk, values):
        if chunk.mode == PROXY or is_confirmation(chunk):
            values["score"] = torch.full_like(values["score"], score_of(chunk))
        return values

    return change


def is_confirmation(chunk):
    return any(s in CONFIRM_SEEDS for s in chunk.seeds.tolist())


CONFIRM_SEEDS = {s for g in range(10) for s in member_seeds(0, 4, g, 10).tolist()}  # two stages of five
LUCKY = {s for g in range(10) for s in member_seeds(0, 4, g, 5).tolist()[:3]}
SOLVE = ("agents.gtn.confirm_agents=5", "agents.gtn.max_iterations=4", "agents.gtn.collapse_generations=0")


def test_solved_is_confirmed_by_fresh_agents_and_ends_the_run(tmp_path):
    dispatcher = Direct(scored(lambda chunk: 196.0 if chunk.generation > 1 else 100.0))
    _, summary = go(cartpole(*SOLVE), tmp_path / "run", dispatcher=dispatcher)
    assert summary.solved and summary.generations == 2
    roles = [(r["generation"], r["role"]) for r in rows(tmp_path / "run") if r["role"] == "confirm"]
    assert roles == [("2", "confirm")] * 10
    assert [int(r["member"]) for r in rows(tmp_path / "run") if r["generation"] == "2"] == list(range(18))
    world = read_world(str(tmp_path / "run" / "model.pt"))
    assert world.solved and world.score == 196.0 and world.budget == 60


def test_what_is_not_confirmed_is_not_solved(tmp_path):
    change = scored(lambda chunk: 194.0 if is_confirmation(chunk) else 200.0)
    _, summary = go(cartpole(*SOLVE), tmp_path / "run", dispatcher=Direct(change))
    assert not summary.solved and summary.generations == 4
    assert sum(r["role"] == "confirm" for r in rows(tmp_path / "run")) == 20


def test_the_second_stage_has_to_confirm_as_well(tmp_path):
    second = {s for g in range(10) for s in member_seeds(0, 4, g, 10).tolist()[5:]}
    change = scored(lambda c: 194.0 if any(s in second for s in c.seeds.tolist()) else 200.0)
    _, summary = go(cartpole(*SOLVE, "agents.gtn.chunk_size=5"), tmp_path / "run", dispatcher=Direct(change))
    assert not summary.solved
    assert sum(r["role"] == "confirm" for r in rows(tmp_path / "run")) == 4 * 10


def test_a_failed_confirming_agent_confirms_nothing(tmp_path):
    def change(chunk, values):
        values = scored(lambda c: 200.0)(chunk, values)
        if is_confirmation(chunk):
            values["score"][-1] = float("nan")
        return values

    assert not go(cartpole(*SOLVE), tmp_path / "run", dispatcher=Direct(change))[1].solved


def test_a_mean_that_may_be_luck_confirms_nothing(tmp_path):
    """Mean 196 of 195, but with a standard error of 2: another draw could well fall below."""

    def change(chunk, values):
        values = scored(lambda c: 200.0)(chunk, values)
        if is_confirmation(chunk):
            odd = torch.tensor([s in LUCKY for s in chunk.seeds.tolist()])
            values["score"] = torch.where(odd, 200.0, 190.0).double()
        return values

    assert not go(cartpole(*SOLVE), tmp_path / "run", dispatcher=Direct(change))[1].solved
    assert lower_bound(np.array([196.0, 196.0, 196.0])) == 196.0
    assert lower_bound(np.array([190.0, 202.0])) == pytest.approx(196 - 1.645 * 6.0)


def test_without_confirmation_the_mean_decides(tmp_path):
    overrides = (*SOLVE, "agents.gtn.confirm_agents=0")
    assert go(cartpole(*overrides), tmp_path / "a", dispatcher=Direct(scored(lambda c: 195.0)))[1].generations == 1
    assert go(cartpole(*overrides), tmp_path / "b", dispatcher=Direct(scored(lambda c: 194.9)))[1].generations == 4


def test_quit_when_solved_false_goes_on_and_keeps_the_best_solved_world(tmp_path):
    overrides = (*SOLVE, "agents.gtn.quit_when_solved=false", "agents.gtn.confirm_agents=5")
    means = {1: 198.0, 2: 196.0, 3: 199.0, 4: 100.0}
    # generation 3 is best, but its confirmation falls short
    change = scored(lambda c: 190.0 if c.generation == 3 and is_confirmation(c) else means[c.generation])
    _, summary = go(cartpole(*overrides), tmp_path / "run", dispatcher=Direct(change))
    world = read_world(str(tmp_path / "run" / "model.pt"))
    assert summary.solved and summary.generations == 4 and world.score == 198.0


@pytest.mark.parametrize("keep, kept", [("best", 2), ("last", 4)])
def test_model_is_the_world_that_was_scored(tmp_path, keep, kept):
    """Before the update of its generation, not after it; of the best generation, or the last."""
    worlds = {}

    def change(chunk, values):
        if chunk.mode == PROXY:
            worlds.setdefault(chunk.generation, chunk.worlds[0])
        return scored(lambda c: {1: 5.0, 2: 9.0}.get(c.generation, 7.0))(chunk, values)

    overrides = ("agents.gtn.estimator=published", f"agents.gtn.keep={keep}", "agents.gtn.max_iterations=4")
    go(cartpole(*overrides), tmp_path / "run", dispatcher=Direct(change))
    assert torch.equal(read_world(str(tmp_path / "run" / "model.pt")).flat, worlds[kept])
    assert not torch.equal(worlds[2], worlds[4])


@pytest.mark.parametrize("real_return,solved", [(-12.0, True), (-50.0, False)])
def test_an_rn_is_solved_by_its_agents_returns(tmp_path, real_return, solved):
    """Its score is no return: a score above solved_reward ends nothing, a return above it neither."""

    def change(chunk, values):
        values["mean_return"][:] = real_return
        return scored(lambda c: 1000.0)(chunk, values)

    _, summary = go(cliff(), tmp_path / "run", dispatcher=Direct(change))
    assert summary.generations == 6 and summary.solved is solved


@pytest.mark.parametrize("evolve", [False, True])
def test_prelu_slopes(tmp_path, evolve):
    """The original left them at 0.25."""
    seen = []

    def change(chunk, values):
        seen.append(chunk.worlds)
        return values

    go(cliff(f"agents.gtn.evolve_prelu={evolve}"), tmp_path / "run", dispatcher=Direct(change))
    slopes = torch.cat(seen)[:, -1]
    assert slopes[0] == 0.25 and (len(slopes.unique()) > 10 if evolve else (slopes == 0.25).all())
    model = read_world(str(tmp_path / "run" / "model.pt"))
    assert model.flat.shape == (1602,)


# -------------------------------------------------------------------------------- what a run leaves


def test_files_of_a_run(tmp_path, monkeypatch):
    monkeypatch.undo()  # with the picture
    folder = tmp_path / "run"
    text, summary = go(cliff(), folder)
    assert (folder / "learning_curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "Cliff, reward network" in (folder / "summary.txt").read_text()
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1
    assert [line.split()[1] for line in text.splitlines() if line.startswith("generation")] == [
        f"{g}/6" for g in range(1, 7)
    ]
    table = rows(folder)
    assert Counter((r["generation"], r["role"]) for r in table) == {
        (str(g), role): 4 for g in range(1, 7) for role in ("orig", "plus", "minus")
    }
    assert len(summary.proxy.returns) == len(summary.real.returns) == 3 and summary.total_steps > 6 * 12 * 100


def test_comparison_agents_are_strangers(tmp_path):
    """No seed of the comparison was used in the search, and the two columns do not share theirs."""
    seen = {}

    def change(chunk, values):
        seen.setdefault(chunk.mode, set()).update(chunk.seeds.tolist())
        return values

    go(cliff(), tmp_path / "run", dispatcher=Direct(change))
    assert {mode: len(seeds) for mode, seeds in seen.items()} == {PROXY: 72, BUDGET: 3, REAL: 3}
    assert len(set.union(*seen.values())) == 78


def test_without_a_comparison(tmp_path):
    dispatcher = Direct()
    text, summary = go(cliff("agents.gtn.comparison_agents=0"), tmp_path / "run", dispatcher=dispatcher)
    assert summary.proxy is None and "comparing" not in text
    assert [mode for _, mode, _ in dispatcher.calls] == [PROXY] * 6 + [BUDGET], "fresh agents say what it is worth"


@pytest.mark.parametrize("compared", [0, 3])
def test_an_rn_is_solved_if_fresh_agents_solve_the_task(tmp_path, compared):
    """Those that gave it its score end above the mark, all others at -50."""

    def change(chunk, values):
        values["mean_return"][:] = -13.0 if chunk.mode == PROXY else -50.0
        return values

    config = cliff(SHORT, f"agents.gtn.comparison_agents={compared}")
    _, summary = go(config, tmp_path / "run", dispatcher=Direct(change))
    assert not summary.solved and not read_world(str(tmp_path / "run" / "model.pt")).solved


def count_real(seen):
    def change(chunk, values):
        seen.append((chunk.mode, int(values["real_steps"].sum())))
        return values

    return change


def test_real_steps_of_the_evolution_are_counted(tmp_path):
    """Of all generations and confirmations, and not of the closing comparison; stopped and resumed, the same."""
    seen, folder = [], tmp_path / "run"
    easy = ("envs.CartPole-v0.solved_reward=1", "agents.gtn.confirm_agents=4", "agents.gtn.comparison_agents=2")
    config = cartpole(*easy, "agents.gtn.quit_when_solved=false")
    _, summary = go(config, folder, dispatcher=Direct(count_real(seen)))
    modes = [mode for mode, _ in seen]
    closing = -modes[::-1].index(PROXY) or None  # chunks after the last generation: its confirmation, the comparison
    evolution = [n for mode, n in seen if mode != REAL]
    comparison = [n for mode, n in seen[closing:] if mode == BUDGET][-1]
    assert summary.real_steps == sum(evolution) - comparison > 0 and BUDGET in modes[:closing]
    assert read_world(str(folder / "model.pt")).evolution_steps == summary.real_steps
    assert f"{summary.real_steps:,} real steps were spent on evolving" in (folder / "summary.txt").read_text()
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        go(config, stopped, dispatcher=Direct(stop_at=4))
    assert go(config, stopped, resume=True)[1].real_steps == summary.real_steps and files(stopped) == files(folder)


def test_a_run_that_began_before_steps_were_counted_says_so(tmp_path):
    folder, config = tmp_path / "run", cliff(SHORT)
    with pytest.raises(KeyboardInterrupt):
        go(config, folder, dispatcher=Direct(stop_at=2))
    state, progress = load_checkpoint(folder / "checkpoint.pt", config_digest(config))
    progress.real_steps = UNKNOWN
    save_checkpoint(folder / "checkpoint.pt", state, progress, config_digest(config))
    assert go(config, folder, resume=True)[1].real_steps is None
    assert read_world(str(folder / "model.pt")).evolution_steps is None
    assert "were not recorded" in (folder / "summary.txt").read_text()


def test_agents_on_the_task_explore_on_a_schedule_of_their_own():
    """Beside a bandit: its eps falls per episode of one step."""
    bandit = load_config(ROOT / "default_config_cartpole_contextual_bandit.yaml").data
    name, hyper, _ = problem.learner(bandit)
    assert hyper.eps_decay == 0.998 and on_task(name, hyper, True).eps_decay == 0.9
    assert "eps_decay 0.9" in exploration(name, hyper, True) and "published" in exploration(name, hyper, True)
    assert on_task(name, hyper, False) is hyper and exploration(name, hyper, False) == ""
    seen = []
    with pytest.MonkeyPatch.context() as m:
        m.setattr(envolve.outer.evaluate.networks, "train", lambda name, hyper, *args: seen.append(hyper))
        for mode in (PROXY, REAL):
            envolve.outer.evaluate.networks.train_members(
                bandit, torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), mode
            )
    assert [h.eps_decay for h in seen] == [0.998, 0.9]


def test_small_figures():
    values = {"train_steps": np.array([10, 30, 99]), "episodes": np.array([1, 3, 9])}
    assert episode_length(values, np.array([True, True, False])) == 10
    assert np.isnan(episode_length({k: v * 0 for k, v in values.items()}, np.array([True] * 3)))
    assert mean_of(np.array([1.0, np.nan, 3.0])) == 2 and np.isnan(mean_of(np.array([np.nan])))
