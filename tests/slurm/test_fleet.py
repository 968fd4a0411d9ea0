"""What submit.py decides, against a cluster that is a random walk: whoever is needed is sent again, nobody twice."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.slurm.arrays import ranges
from envolve.slurm.batch import Entry
from envolve.slurm.commands import CONFIG, EXIT_WRONG, MASTER, STUDY, WORKER, Exit
from envolve.slurm.fleet import LONG, MAX_DELAY, SETTLE, STOP_GRACE, Actions, Fleet, new_name
from tests.examples import examples

Exits = dict[tuple[str, int], Exit]


def make(masters: int = 2, workers: int = 3, kind: str = CONFIG, max_sends: int = 5) -> Fleet:
    return Fleet(masters, workers, kind, {"words": ["x"]}, "run-1", max_sends)


class Cluster:
    """A queue that does what it is told. Job ids grow by one with every sbatch."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.last, self.tasks, self.now = fleet, 0, {}, 1000.0  # type: ignore[var-annotated]
        self.exits: Exits = {}

    def entries(self) -> list[Entry]:
        return [
            Entry(f"{job}_{i}", self.fleet.job_name(role), i, state) for (role, i), (job, state) in self.tasks.items()
        ]

    def look(self, seconds: float = 1.0) -> Actions:
        self.now += seconds
        actions = self.fleet.look(self.now, self.entries(), self.exits)
        cancelled = set(actions.cancel)
        self.tasks = {(r, i): (j, s) for (r, i), (j, s) in self.tasks.items() if f"{j}_{i}" not in cancelled}
        for role, indices in actions.send.items():
            self.last += 1
            for i in indices:
                assert (role, i) not in self.tasks, f"{role} {i} is sent while it is in the queue"
                self.tasks[role, i] = (self.last, "RUNNING")
        return actions


def test_all_are_sent_at_once_and_then_nothing() -> None:
    cluster = Cluster(make())
    assert cluster.look().send == {MASTER: [0, 1], WORKER: [0, 1, 2, 3, 4, 5]}
    for _ in range(20):
        actions = cluster.look()
        assert not actions.send and not actions.cancel and actions.code is None


def test_a_task_counts_as_gone_only_when_it_stays_away() -> None:
    cluster = Cluster(make())
    cluster.look()
    held = cluster.tasks.pop((WORKER, 4))
    for _ in range(SETTLE - 1):
        assert not cluster.look(100).send
    cluster.tasks[WORKER, 4] = held  # it was between two states
    for _ in range(5):
        assert not cluster.look(100).send
    del cluster.tasks[WORKER, 4]
    sent = [cluster.look(100).send for _ in range(SETTLE)]
    assert sent == [{}] * (SETTLE - 1) + [{WORKER: [4]}]


def test_who_dies_at_once_waits_longer_each_time_and_is_given_up() -> None:
    cluster = Cluster(make(max_sends=4))
    cluster.look()
    times, notes = [], []
    for _ in range(4000):
        cluster.tasks.pop((WORKER, 5), None)
        actions = cluster.look(0.5)
        notes += actions.notes
        if actions.send:
            times.append(cluster.now)
    gaps = [b - a for a, b in zip([1001.0, *times], times, strict=False)]
    assert gaps == [10.0, 20.0, 40.0]
    assert notes == ["worker 5 is given up: submitted 4 times; see its logs"]
    assert cluster.fleet.task(WORKER, 5).given_up and not cluster.fleet.task(MASTER, 1).given_up


def test_who_ran_long_is_sent_again_at_once() -> None:
    cluster = Cluster(make(max_sends=50))
    cluster.look()
    for _ in range(10):
        cluster.look(LONG)
        del cluster.tasks[MASTER, 1]
        cluster.look()
        assert cluster.look().send == {MASTER: [1]}
    assert MAX_DELAY < LONG


def test_wrong_arguments_are_not_tried_again() -> None:
    cluster = Cluster(make())
    cluster.look()
    for b in (0, 1):
        del cluster.tasks[MASTER, b]
        cluster.exits[MASTER, b] = Exit(EXIT_WRONG, "ended")
    codes = [cluster.look().code for _ in range(3)]
    assert "wrong arguments" in cluster.fleet.task(MASTER, 0).given_up
    assert codes[-1] is None and len(cluster.tasks) == 6  # the workers see it and end
    assert [cluster.look(STOP_GRACE).code, cluster.look().code] == [None, 1]
    assert not cluster.tasks  # those that did not were cancelled


def test_workers_go_with_their_own_master_only() -> None:
    cluster = Cluster(make())
    cluster.look()
    del cluster.tasks[MASTER, 0]
    cluster.exits[MASTER, 0] = Exit(0, "ended")
    cluster.tasks[WORKER, 1] = (2, "PENDING")
    assert cluster.look().cancel == ["2_1"]  # it has not begun: nothing to wait for
    assert sorted(cluster.look(STOP_GRACE).cancel) == ["2_0", "2_2"]
    assert {i for role, i in cluster.tasks if role == WORKER} == {3, 4, 5}
    del cluster.tasks[WORKER, 4], cluster.tasks[MASTER, 1]
    cluster.exits[MASTER, 1] = Exit(130, "cancelled")
    cluster.look(100)
    assert cluster.look(100).send == {MASTER: [1], WORKER: [4]}  # its master is not done


@pytest.mark.parametrize("kind, code", [(STUDY, 0), (CONFIG, None)])
def test_a_study_ends_with_its_search(kind: str, code: int | None) -> None:
    cluster = Cluster(make(kind=kind))
    cluster.look()
    for key in list(cluster.tasks):
        if key[0] == MASTER:
            del cluster.tasks[key]
    cluster.exits = {(MASTER, 0): Exit(0, "ended"), (MASTER, 1): Exit(143, "cancelled")}
    cluster.look()
    cluster.look(STOP_GRACE)
    actions = cluster.look(STOP_GRACE)
    assert actions.code == code
    assert ((MASTER, 1) in cluster.tasks) == (kind == CONFIG)


def test_a_master_without_workers_does_not_wait_for_ever() -> None:
    cluster = Cluster(make(masters=1, workers=2, max_sends=1))
    cluster.look()
    for i in (0, 1):
        del cluster.tasks[WORKER, i]
    notes = [note for _ in range(3) for note in cluster.look(100).notes]
    assert notes[-1] == "master 0 is given up: all its workers are given up"
    cluster.look(STOP_GRACE)
    cluster.look(STOP_GRACE)
    assert cluster.look().code == 1


def test_of_doubles_the_one_that_runs_stays() -> None:
    fleet = make(1, 1)
    cluster = Cluster(fleet)
    cluster.look()
    master, worker = fleet.job_name(MASTER), fleet.job_name(WORKER)
    jobs = [("3_0", master, "PENDING"), ("7_0", master, "RUNNING"), ("5_0", worker, "RUNNING"),
            ("4_0", worker, "RUNNING"), ("9_0", "another-workers", "RUNNING")]  # fmt: skip
    queue = [Entry(job, name, 0, state) for job, name, state in jobs]
    assert sorted(fleet.look(2000, queue, {}).cancel) == ["3_0", "5_0"]


def test_a_held_task_is_told_once() -> None:
    fleet = make(1, 1)
    Cluster(fleet).look()
    queue = [
        Entry("3_0", fleet.job_name(MASTER), 0, "RUNNING"),
        Entry("4_0", fleet.job_name(WORKER), 0, "PENDING", "launch failed requeued held"),
    ]
    notes = [fleet.look(2000 + i, queue, {}).notes for i in range(3)]
    assert "scontrol release 4_0" in notes[0][0] and notes[1:] == [[], []]


@settings(max_examples=examples(100), deadline=None)
@given(masters=st.integers(1, 3), workers=st.integers(1, 3), kind=st.sampled_from([CONFIG, STUDY]), data=st.data())
def test_any_run_ends(masters: int, workers: int, kind: str, data: st.DataObject) -> None:
    """Random deaths, lost watchers and ends; then masters are left to finish: all complete, and nothing is left."""
    cluster = Cluster(make(masters, workers, kind, max_sends=1000))
    for event in data.draw(st.lists(st.integers(0, 1 << 16), max_size=40)):
        cluster.look(1 + event % 50)
        if event % 3 == 0 and cluster.tasks:
            key = sorted(cluster.tasks)[event % len(cluster.tasks)]
            del cluster.tasks[key]
            if event % 7 == 0 and key[0] == MASTER:
                cluster.exits[key] = Exit(event % 2, "ended")
        if event % 11 == 0:  # submit.py dies and starts again
            with tempfile.TemporaryDirectory() as folder:
                cluster.fleet.save(Path(folder) / "state.json")
                cluster.fleet = Fleet.load(Path(folder) / "state.json")
    for b in range(masters):
        cluster.tasks.pop((MASTER, b), None)
        cluster.exits[MASTER, b] = Exit(0, "ended")
    codes = [cluster.look(STOP_GRACE).code for _ in range(4)]
    assert codes[-1] == 0 and not cluster.tasks


def test_the_state_file(tmp_path: Path) -> None:
    fleet = make()
    Cluster(fleet).look()
    fleet.save(tmp_path / "state.json")
    assert Fleet.load(tmp_path / "state.json") == fleet
    for text in ("[]", "{}", '{"format": 1, "tasks": [{"colour": 3}]}', '{"format": 2}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match="not a state file"):
            Fleet.load(tmp_path / "bad.json")


def test_names_and_ranges() -> None:
    assert new_name(Path("/a/my run,1")).startswith("my_run_1-")
    assert new_name(Path("x")) != new_name(Path("x"))
    assert ranges([5, 0, 1, 2, 9, 8]) == "0-2,5,8-9"
    assert ranges([3]) == "3"
