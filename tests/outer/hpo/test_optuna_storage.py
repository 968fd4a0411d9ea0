"""The copy of a study in Optuna's storage, read back with Optuna: the trials of results.json, no more and no less."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from pathlib import Path

import pytest

from envolve.experiments import optimize_params
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.exchange.backlog import Patience
from envolve.outer.hpo.axes import Axis
from envolve.outer.hpo.nes_master import trial_of, values_of
from envolve.outer.hpo.optimise import Optimiser
from envolve.outer.hpo.optuna_storage import OptunaStorage, _value, storage_file
from envolve.outer.hpo.trial import TrialResult
from envolve.outer.hpo.trial_log import TrialLog
from tests.outer.hpo.small import study, write
from tests.outer.virtual import Cluster

optuna = pytest.importorskip("optuna")
TrialState = optuna.trial.TrialState
SPACE = {
    "agents.gtn.step_size": {"range": [0.1, 1], "log": True},
    "agents.ql.test_episodes": {"range": [4, 8]},
    "agents.gtn.mirrored_sampling": {"choices": [True, False]},
    "agents.gtn.score_transform_type": {"choices": [3, 7]},
    "agents.gtn.noise_std": {"range": [0.01, 1], "log": True, "when": {"agents.gtn.mirrored_sampling": [True]}},
}


class Quiet:
    def note(self, text): ...

    def update(self, record): ...

    def started(self, trial, who): ...


def evaluate(content, worlds, seeds, mode, threads):
    t = trial_of(content, content["study"])
    x = t.values["agents.gtn.step_size"]
    loss = math.inf if int(x * 1e6) % 6 == 0 else abs(x - 0.4) + 1 / t.budget
    return values_of(TrialResult(loss, {"seen": t.budget}, "" if math.isfinite(loss) else "it diverged widely"))


class Stop(Exception):
    pass


class StopsAfter:
    """A copy that ends the process, as far as the search can tell, right after trial ``id`` was logged."""

    def __init__(self, id):
        self.id = id

    def tell(self, record):
        if record.trial.id == self.id:
            raise Stop


def search(s, folder, *copies):
    folder.mkdir(exist_ok=True)
    cluster = Cluster()
    cluster.worker(0, evaluate)
    dispatcher = cluster.master(run_id="search", patience=Patience(factor=math.inf))
    try:
        Optimiser(s, folder, dispatcher, copies).execute(Quiet())
    finally:
        dispatcher.close()
    return TrialLog(folder).read()


def read(file, name="run"):
    return optuna.load_study(study_name=name, storage=f"sqlite:///{file}").trials


def check(trials, records, space):
    assert [t.number for t in trials] == [r.trial.id for r in records]
    for t, r in zip(trials, records):
        assert t.params == r.trial.values
        assert t.user_attrs["envolve:budget"] == r.trial.budget
        assert t.user_attrs["envolve:configuration"] == list(r.trial.config_id)
        assert t.datetime_complete.timestamp() == pytest.approx(r.finished, abs=1e-3)
        if math.isfinite(r.result.loss):
            assert t.state == (TrialState.COMPLETE if r.trial.budget == 9 else TrialState.PRUNED)
            assert t.value == r.result.loss == t.intermediate_values[round(r.trial.budget)]
            assert t.user_attrs["seen"] == r.trial.budget
        else:
            assert t.state == TrialState.FAIL and t.value is None and t.user_attrs["error"] == "it diverged widely"
    before = {}
    for t, r in zip(trials, records):  # the losses of a configuration's smaller budgets lead up to it
        before.setdefault(r.trial.config_id, {}).update(
            {round(r.trial.budget): r.result.loss} if math.isfinite(r.result.loss) else {}
        )
        assert t.intermediate_values == before[r.trial.config_id]


@pytest.mark.parametrize("backend", ["optuna", "random", pytest.param("bohb", marks=pytest.mark.slow)])
def test_a_study_is_copied_and_a_resumed_one_adds_what_is_missing(tmp_path, backend):
    found = {"backend": backend, "bracket": "hyperband", "seed": 0, "parallel": 3, "random_fraction": 1.0}
    s = study(tmp_path, stop={"trials": 25}, space=SPACE, search=found)
    whole = search(s, tmp_path / "whole")
    file = tmp_path / "studies.db"
    with pytest.raises(Stop):  # trial 5 is in the log and not in the copy
        search(s, tmp_path / "run", StopsAfter(5), OptunaStorage(str(file), s, "run"))
    assert len(read(file)) == 5
    records = search(s, tmp_path / "run", OptunaStorage(f"sqlite:///{file}", s, "run"))
    assert [(r.trial, r.result) for r in records] == [(r.trial, r.result) for r in whole]
    check(read(file), records, s.space)
    search(s, tmp_path / "run", OptunaStorage(str(file), s, "run"))  # complete: nothing new
    assert len(read(file)) == 25
    theirs = optuna.load_study(study_name="run", storage=f"sqlite:///{file}")
    assert theirs.metric_names == ["loss (score)"]
    best = theirs.best_trial
    assert best.value == min(r.result.loss for r in records if r.trial.budget == 9)
    states = {t.state for t in read(file)}
    assert states == {TrialState.COMPLETE, TrialState.FAIL} | ({TrialState.PRUNED} if backend != "random" else set())


def test_several_studies_share_a_file_and_one_of_the_same_name_is_refused(tmp_path):
    file = tmp_path / "new folder/studies.db"
    one = study(tmp_path / "a", stop={"trials": 3})
    other = study(tmp_path / "b", "search.seed=1", stop={"trials": 3})
    search(one, tmp_path / "one", OptunaStorage(str(file), one, "one"))
    search(other, tmp_path / "two", OptunaStorage(str(file), other, "two"))
    assert [len(read(file, name)) for name in ("one", "two")] == [3, 3]
    with pytest.raises(ConfigError, match="studies.db has another study named one, expected this one"):
        OptunaStorage(str(file), other, "one")
    optuna.create_study(storage=f"sqlite:///{file}", study_name="yours").add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(ConfigError, match="has another study named yours"):
        OptunaStorage(str(file), one, "yours")


def test_a_copy_that_breaks_costs_the_search_nothing(tmp_path, caplog):
    s = study(tmp_path, stop={"trials": 6})
    file, run = tmp_path / "studies.db", tmp_path / "run"

    class Breaks:
        def tell(self, record):
            if record.trial.id == 2:
                with contextlib.closing(sqlite3.connect(file)) as db:
                    db.execute("drop table trials")

    records = search(s, run, Breaks(), OptunaStorage(str(file), s, "run"))
    assert len(records) == 6
    messages = [r.getMessage() for r in caplog.records if "takes no trials any more" in r.getMessage()]
    assert len(messages) == 1 and "\n" not in messages[0] and str(file) in messages[0]
    again = tmp_path / "again.db"
    search(s, run, OptunaStorage(str(again), s, "run"))
    assert len(read(again)) == 6


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "--storage: found , expected a file of SQLite"),
        ("mysql://root@there/db", "--storage: found mysql://root@there/db, expected a file of SQLite"),
        (":memory:", "--storage: found :memory:, expected a file"),
        (".", "--storage: found the folder ., expected a file of SQLite such as studies.db"),
    ],
)
def test_what_is_no_file_of_sqlite_is_refused_before_anything_is_written(tmp_path, capsys, text, message):
    assert optimize_params.main([str(write(tmp_path)), f"--storage={text}", "--run-dir", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_file_of_something_else_is_named_and_left_alone(tmp_path):
    s = study(tmp_path)
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to look like one" * 30)
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=r"notes.txt cannot be used: .*file is not a database"):
        OptunaStorage(str(file), s, "run")
    assert file.read_bytes() == before


def test_only_the_search_copies(tmp_path, capsys):
    assert optimize_params.main([str(write(tmp_path)), "1", "2", "--storage", str(tmp_path / "s.db")]) == 2
    assert "--storage: found BOHB_ID 1, expected 0" in capsys.readouterr().err


def test_choices_that_are_equal_in_python_stay_apart():
    axis = Axis("x", choices=(1, True, "a"))
    assert [_value(axis, c) for c in axis.choices] == ["1", "true", "a"]
    plain = Axis("y", choices=(1, 2.5, "a"))
    assert [_value(plain, c) for c in plain.choices] == [1, 2.5, "a"]


def test_a_path_may_be_written_as_sqlalchemy_does():
    assert storage_file("sqlite:////tmp/x.db") == Path("/tmp/x.db")
