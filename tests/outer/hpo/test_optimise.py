"""The loop of a search on a virtual cluster: the same log with any number of NES masters, whoever dies, however often
it is resumed."""

from __future__ import annotations

import json
import math
import random
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import envolve.outer.hpo.nes_master
from envolve.outer.checkpoint import RunError
from envolve.outer.exchange.backlog import Patience
from envolve.outer.hpo.nes_master import NESMaster, result_of, trial_chunk, trial_of, values_of
from envolve.outer.hpo.optimise import Optimiser
from envolve.outer.hpo.trial import Trial, TrialResult
from envolve.outer.hpo.trial_log import TrialLog
from tests.examples import examples
from tests.outer.hpo.small import study, trial
from tests.outer.virtual import Cluster, Hang


class Notes:
    def __init__(self):
        self.notes, self.updates, self.starts = [], [], []

    def note(self, text):
        self.notes.append(text)

    def update(self, record):
        self.updates.append(record.trial.id)

    def started(self, trial, who):
        self.starts.append((trial.id, who))


def loss(t):
    """Of a trial; one in six has no loss."""
    x, y = t.values["agents.gtn.step_size"], t.values["agents.gtn.noise_std"]
    return math.inf if int(x * 1e6) % 6 == 0 else abs(x - 0.4) + abs(y - 0.2) + 1 / t.budget


def evaluate(content, worlds, seeds, mode, threads):
    t = trial_of(content, content["study"])
    result = TrialResult(loss(t), {"seen": t.budget}, "" if math.isfinite(loss(t)) else "it diverged")
    return values_of(result)


def search(s, folder, masters=2, evaluate=evaluate, on_wait=None, cluster=None, table=None):
    """-> the log as it lies on the disk, without times."""
    folder.mkdir(exist_ok=True)
    cluster = cluster or Cluster()
    for i in range(masters):
        cluster.worker(i, evaluate)
    dispatcher = cluster.master(run_id="search", patience=Patience(factor=math.inf), on_wait=on_wait)
    try:
        Optimiser(s, folder, dispatcher).execute(table or Notes())
    finally:
        dispatcher.close()
    return lines(folder)


def lines(folder):
    configs = (folder / "configs.json").read_text()
    results = [json.loads(line) for line in (folder / "results.json").read_text().splitlines()]
    return configs, [[key, budget, result, error] for key, budget, _, result, error in results]


def test_the_log_does_not_depend_on_how_many_masters_there_are(tmp_path):
    s = study(tmp_path, stop={"trials": 40})
    logs = [search(s, tmp_path / str(n), n) for n in (1, 2, 5)]
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0][1]) == 40 and any(error for *_, error in logs[0][1])
    assert {budget for _, budget, _, _ in logs[0][1]} == {1.0, 3.0, 9.0}


def test_nor_on_who_dies(tmp_path):
    s = study(tmp_path, stop={"trials": 25})
    undisturbed = search(s, tmp_path / "undisturbed")
    rng, cluster, dead = random.Random(3), Cluster(), []

    def dying(*args):
        if rng.random() < 0.3:
            raise Hang
        return evaluate(*args)

    def undertaker():
        for i, host in list(cluster.hosts.items()):
            if rng.random() < 0.2 and host.pid not in cluster.machine.dead:
                cluster.kill(i)
                dead.append(i)
                cluster.worker(i, dying)

    cluster_log = search(s, tmp_path / "dying", 2, dying, undertaker, cluster)
    assert len(dead) > 10
    assert cluster_log == undisturbed


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study, the folder of its finished search, and the log."""
    folder = tmp_path_factory.mktemp("whole")
    s = study(folder, stop={"trials": 25})
    return s, folder / "run", search(s, folder / "run")


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 24), st.integers(0, 80))
def test_a_search_resumes_after_any_trial_and_any_torn_byte(whole, kept, torn):
    s, folder, log = whole
    with tempfile.TemporaryDirectory() as name:
        cut = Path(name)
        results = (folder / "results.json").read_bytes().splitlines(keepends=True)
        tail = results[kept][:torn] if torn < len(results[kept]) else b""
        (cut / "results.json").write_bytes(b"".join(results[:kept]) + tail)
        (cut / "configs.json").write_bytes((folder / "configs.json").read_bytes())
        table = Notes()
        assert search(s, cut, table=table) == log
        assert table.updates == list(range(kept, 25)), "only what is missing is evaluated"


def test_a_prolonged_search_goes_on_where_it_ended(tmp_path, whole):
    s, _, log = whole
    search(study(tmp_path, stop={"trials": 10}), tmp_path / "cut")
    assert search(s, tmp_path / "cut") == log


def test_a_log_of_another_search_is_refused(tmp_path):
    search(study(tmp_path, "search.seed=1"), tmp_path / "run")
    with pytest.raises(RunError, match="trial 0 of the log is another than this search asks for"):
        search(study(tmp_path, "search.seed=2"), tmp_path / "run")


def test_it_ends_by_the_sum_of_budgets(tmp_path):
    s = study(tmp_path, stop={"full_evaluations": 3})
    _, results = search(s, tmp_path / "run")
    spent = [budget for _, budget, _, _ in results]
    assert sum(spent[:-1]) < 27 <= sum(spent)


def test_the_table_is_told_who_has_what(tmp_path):
    cluster, rng, table = Cluster(), random.Random(0), Notes()

    def doze():
        for host in cluster.hosts.values():
            host.stopped = rng.random() < 0.9

    search(study(tmp_path), tmp_path / "run", 2, on_wait=doze, cluster=cluster, table=table)
    assert table.starts[:2] == [(0, "NES master 0"), (1, "NES master 1")] and table.updates == list(range(12))
    assert all(f"trial {i} failed: it diverged" in table.notes for i in failed(tmp_path / "run"))


def failed(folder):
    return [r.trial.id for r in TrialLog(folder).read() if r.result.error]


def test_a_trial_that_kills_its_masters_is_given_up(tmp_path):
    s = study(tmp_path, stop={"trials": 4})
    cluster, hung = Cluster(), []

    def deadly(content, *args):
        if content["id"] == 1:
            hung.append(1)
            raise Hang
        return evaluate(content, *args)

    def restart():
        for i in list(cluster.hosts):
            beat = json.loads(cluster.machine.files[f"0_{i}_heartbeat"])
            if beat["doing"] not in ("", "starting"):
                cluster.kill(i)
                cluster.worker(i, deadly)

    search(s, tmp_path / "run", 1, deadly, restart, cluster)
    (record,) = [r for r in TrialLog(tmp_path / "run").read() if r.trial.id == 1]
    assert record.result.loss == math.inf and "given up after 5 attempts" in record.result.error


def test_trials_and_results_survive_the_exchange():
    t = Trial(7, (2, 0, 5), {"a": True, "b": 3, "c": 0.1, "d": "relu"}, 4.5, 1, True)
    chunk = trial_chunk("run", "digest", t)
    assert trial_of(chunk.config, "digest") == t and chunk.generation == 8
    with pytest.raises(ValueError, match="another study"):
        trial_of(chunk.config, "other")
    for result in (TrialResult(0.25, {"x": 1.0}), TrialResult(math.inf, {}, "no good")):
        values = values_of(result)
        tensors = {name: torch.tensor(v, dtype=torch.float64) for name, v in values.items() if name != "reason"}
        assert result_of(tensors, values["reason"][0], "") == result
    assert result_of({"score": torch.tensor([math.nan])}, "", "killed").error == "killed"


def test_a_master_with_another_study_stops_instead_of_failing_the_trial(tmp_path):
    s, other = study(tmp_path), study(tmp_path / "other", "search.seed=5")
    master = NESMaster(other, tmp_path, 0)
    evaluate = master._load()
    try:
        chunk = trial_chunk("run", s.digest, trial(1))
        with pytest.raises(envolve.outer.hpo.nes_master.Broken, match="another study"):
            evaluate(chunk.config, chunk.worlds, chunk.seeds, chunk.mode, 1)
    finally:
        master._stack.close()


@pytest.mark.parametrize("env_name, allowed", [("Cliff", False), ("gymnasium:my_env.py:MyEnv", True)])
def test_workers_of_a_master_may_make_an_environment_from_outside(tmp_path, monkeypatch, env_name, allowed):
    """Those that it starts, and those that it asks for."""
    s = study(tmp_path)
    s.config.data["env_name"] = env_name
    begun = []

    class Workers:
        def __init__(self, *args, plugins):
            begun.append(plugins)

        __enter__ = __exit__ = poll = lambda self, *args: self

    monkeypatch.setattr(envolve.outer.hpo.nes_master, "LocalWorkers", Workers)
    master = NESMaster(s, tmp_path, 3, num_workers=2)
    master._load()
    try:
        assert begun == [tmp_path if allowed else None]
        said = master.dispatcher._advice(7)
        assert f"GTN_worker.py 3 7 --sync-dir {tmp_path}/sync" in said
        assert (f"--plugins {tmp_path} &" in said) == allowed
    finally:
        master._stack.close()


def test_a_full_disk_stops_the_master_instead_of_failing_the_trial(tmp_path, monkeypatch):
    s = study(tmp_path)
    master = NESMaster(s, tmp_path, 0)

    def full(*args):
        raise OSError(28, "No space left on device", "runs")

    monkeypatch.setattr(envolve.outer.hpo.nes_master.NESTrials, "__call__", full)
    evaluate = master._load()
    try:
        with pytest.raises(envolve.outer.hpo.nes_master.Broken, match="trial 0 is left to another.*No space"):
            evaluate(trial_chunk("run", s.digest, trial(1)).config, None, None, "trial", 1)
    finally:
        master._stack.close()
