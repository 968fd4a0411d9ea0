"""Random schedules on a virtual network file system (tests/outer/simulation): whatever happens, all ends well; and a
bug planted in the protocol is found, so the simulation can fail."""

from __future__ import annotations

import os

import pytest

import outer.dispatch
import outer.exchange
import outer.heartbeat
import outer.machine
import outer.roster
import outer.worker
from tests.outer.simulation.__main__ import main, report
from tests.outer.simulation.one_seed import shrink, simulate


@pytest.fixture(autouse=True)
def one_core():
    """Tasks hand over to each other: to another core takes four times as long."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_every_seed_ends_with_the_undisturbed_result(first):
    for seed in range(first, first + 20):
        world = simulate(seed)
        assert world.failure is None, report(world, shrink(seed))


@pytest.mark.slow
def test_ten_thousand_seeds(capsys):
    assert main(["--seeds", "0:10000"]) == 0, capsys.readouterr().out


def test_a_seed_replays_exactly():
    for seed in (3, 10):
        first, second = [], []
        worlds = [simulate(seed, trace=trace) for trace in (first, second)]
        assert first == second and len(first) > 100
        assert worlds[0].now == simulate(seed).now, "looking at it changes it"


# ------------------------------------------------------------------------------------------------ planted bugs


def answers_go_by_name(monkeypatch):
    """A result counts for the latest input of the same run, generation and chunk."""
    latest = {}
    write, parse = outer.dispatch.write_pair, outer.dispatch.result_from

    def write_pair(files, name, content):
        sha256 = write(files, name, content)
        latest[content["run_id"], content["generation"], content["chunk_id"]] = sha256, content["attempt"]
        return sha256

    def result_from(content):
        result = parse(content)
        key = result.run_id, result.generation, result.chunk_id
        result.input_sha256, result.attempt = latest.get(key, (result.input_sha256, result.attempt))
        return result

    monkeypatch.setattr(outer.dispatch, "write_pair", write_pair)
    monkeypatch.setattr(outer.dispatch, "result_from", result_from)


def checksum_is_believed(monkeypatch):
    """The check file's word is taken for the data's."""

    def read_pair(files, name, kind):
        check = files.read(name + "_check.pt", 10**6)
        data = files.read(name + ".pt", 10**6)
        if check is None or data is None:
            return None
        return outer.exchange.unpack(data, name), outer.exchange.unpack(check, name)["sha256"]

    monkeypatch.setattr(outer.worker, "read_pair", read_pair)


def deaths_are_not_noticed(monkeypatch):
    monkeypatch.setattr(
        outer.roster.Roster, "_bury", lambda self, slot, issue: outer.roster.Loss(issue.index, "", False)
    )
    monkeypatch.setattr(outer.dispatch.Dispatcher, "_again", lambda self, index: None)


def lost_files_are_not_noticed(monkeypatch):
    monkeypatch.setattr(outer.roster.Roster, "_missing", lambda *args: False)


def worker_forgets_to_say_what_it_does(monkeypatch):
    heartbeat = outer.heartbeat.Heartbeat
    ignore = property(lambda self: "", lambda self, value: None)
    monkeypatch.setattr(heartbeat, "doing", ignore, raising=False)


def nobody_gives_way(monkeypatch):
    monkeypatch.setattr(outer.heartbeat, "living_owner", lambda *args: None)
    monkeypatch.setattr(
        outer.heartbeat.Heartbeat, "usurper", property(lambda s: None, lambda s, v: None), raising=False
    )


def a_stale_handle_is_the_end(monkeypatch):
    monkeypatch.setattr(outer.machine, "_patiently", lambda action: action())


PLANTED = {
    answers_go_by_name: 200,
    checksum_is_believed: 200,
    deaths_are_not_noticed: 40,
    lost_files_are_not_noticed: 40,
    worker_forgets_to_say_what_it_does: 60,
    nobody_gives_way: 200,
    a_stale_handle_is_the_end: 40,
}


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_planted_bug_is_found(bug, monkeypatch):
    bug(monkeypatch)
    for seed in range(PLANTED[bug]):
        world = simulate(seed)
        if world.failure is not None:
            print(seed, world.failure)
            return
    pytest.fail(f"{PLANTED[bug]} seeds and nothing found")
