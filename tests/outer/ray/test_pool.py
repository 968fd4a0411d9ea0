"""The driver's side on Ray, over a cluster in this process: whatever dies, the results of a file exchange."""

from __future__ import annotations

import logging
import os

import pytest
import torch

from envolve.outer.exchange.backlog import Patience
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.exchange.messages import ChunkResult
from envolve.outer.ray.events import DIED, FAILED, LOST, Event
from tests.outer.ray.fake import MINE, FakeCluster, pool
from tests.outer.small import cliff
from tests.outer.test_run import files, go, reference  # noqa: F401  a fixture
from tests.outer.virtual import chunks_of


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    import envolve.outer.run

    monkeypatch.setattr(envolve.outer.run, "learning_curve", lambda path, *args, **kwargs: path.write_text("picture"))


def check(results, chunks):
    assert len(results) == len(chunks)
    for result, chunk in zip(results, chunks):
        assert result.error == "" and result.reasons == [""] * len(chunk.seeds)
        assert (result.run_id, result.generation, result.chunk_id) == (chunk.run_id, chunk.generation, chunk.chunk_id)
        assert torch.equal(result.values["score"], chunk.worlds.sum(1).double())
        assert torch.equal(result.values["train_steps"], chunk.seeds * 2)


def test_chunks_are_spread_over_all_slots_and_come_back_in_order():
    cluster = FakeCluster({"a": 2, "b": 1})
    chunks = chunks_of(7)
    with pool(cluster) as p:
        check(p.evaluate(chunks), chunks)
        assert p.workers() == [1, 2, 3] and cluster.now == pytest.approx(3.0)
        check(p.evaluate(chunks_of(2, 1)), chunks_of(2, 1))
    assert cluster.closed and sorted(cluster.sent[:3]) == [1, 2, 3]


@pytest.mark.parametrize("count, requested", [(2, 0), (5, 5)])
def test_number_of_workers_may_be_given(count, requested):
    """A cluster without the room is asked to grow."""
    cluster = FakeCluster({"a": 2, "b": 1})
    p = pool(cluster, count=count)
    check(p.evaluate(chunks_of(6)), chunks_of(6))
    assert len(p.workers()) == min(count, 3) and cluster.requested == requested


def test_a_real_run_gives_the_bytes_of_one_process(tmp_path, reference):  # noqa: F811
    from envolve.outer.evaluate.networks import evaluate

    cluster = FakeCluster({"a": 1, "b": 2}, evaluate)
    go(cliff(), tmp_path / "run", dispatcher=pool(cluster))
    assert files(tmp_path / "run") == reference


def test_a_worker_dies_and_its_chunk_goes_to_another(caplog):
    def once(cluster, worker, token, data):
        if len(cluster.sent) == 2:
            cluster.die(worker)
            return True
        return False

    cluster = FakeCluster({"a": 2}, script=once)
    p = pool(cluster)
    check(p.evaluate(chunks_of(6)), chunks_of(6))
    assert p.workers() == [1, 3] and "worker 2 on a died: killed" in caplog.text


def test_a_node_dies_and_another_joins():
    def killer(cluster, worker, token, data):
        if len(cluster.sent) == 3:
            cluster.kill_node("b")
            cluster.slots["c"] = 2
            return cluster.place[worker] == "b"
        return False

    cluster = FakeCluster({"a": 1, "b": 2}, script=killer)
    p = pool(cluster)
    check(p.evaluate(chunks_of(12)), chunks_of(12))
    assert {cluster.place[w] for w in p.workers()} == {"a", "c"} and len(p.workers()) == 3


def test_five_deaths_of_one_chunk_give_nan_and_the_reason():
    deadly = chunks_of(3)[1].worlds.numpy().tobytes()

    def script(cluster, worker, token, data):
        if deadly in data:
            cluster.die(worker, "out of memory")
            return True
        return False

    cluster = FakeCluster({"a": 2}, script=script)
    results = pool(cluster).evaluate(chunks_of(3))
    assert [bool(r.error) for r in results] == [False, True, False]
    assert results[1].values["score"].isnan().all() and "out of memory; given up after 5 attempts" in results[1].error
    assert results[1].reasons == [results[1].error] * 3 and results[1].values["train_steps"].tolist() == [0, 0, 0]


def test_chunks_behind_the_one_that_kills_are_not_blamed():
    """Short chunks are sent ahead; a worker's death is the fault of the first alone."""
    quick = chunks_of(40)
    deadly = chunks_of(48)[44].worlds.numpy().tobytes()

    def script(cluster, worker, token, data):
        if deadly in data:
            cluster.die_once_begun(worker)
            return True
        return False

    cluster = FakeCluster({"a": 1}, script=script, seconds=0.001)
    p = pool(cluster)
    check(p.evaluate(quick), quick)
    results = p.evaluate(chunks_of(48))
    assert [i for i, r in enumerate(results) if r.error] == [44]


def test_an_exception_is_tried_once_more_at_another_worker_then_nan():
    calls = []

    def evaluate(config, worlds, seeds, mode, threads):
        calls.append(int(seeds[0]))
        if int(seeds[0]) in (10, 20) and (int(seeds[0]) == 20 or calls.count(10) == 1):
            raise ValueError("boom")
        return {"score": worlds.sum(1), "train_steps": seeds * 2, "reason": [""] * len(seeds)}

    cluster = FakeCluster({"a": 2}, evaluate)
    results = pool(cluster).evaluate(chunks_of(4))
    assert [bool(r.error) for r in results] == [False, False, True, False]
    assert "ValueError: boom" in results[2].error and calls.count(20) == 2 and calls.count(10) == 2


def test_a_call_that_raises_in_ray_itself_counts_as_an_exception():
    def script(cluster, worker, token, data):
        cluster.events.put(Event(FAILED, worker, token, text="cannot unpickle"))
        return True

    (result,) = pool(FakeCluster({"a": 1}, script=script)).evaluate(chunks_of(1))
    assert result.error == "cannot unpickle"


def test_a_full_object_store_costs_time_and_nothing_else(caplog):
    def full(cluster, worker, token, data):
        if cluster.now < 30:
            cluster.events.put(Event(LOST, worker, token, text="no room in the object store"))
            return True
        return False

    cluster = FakeCluster({"a": 2}, script=full)
    check(pool(cluster).evaluate(chunks_of(3)), chunks_of(3))
    assert 30 < cluster.now < 34 and caplog.text.count("no room in the object store") == 1


def test_a_straggler_is_asked_twice_and_the_late_answer_is_dropped():
    def hangs(cluster, worker, token, data):
        return cluster.place[worker] == "slow" and len(cluster.sent) > 8

    cluster = FakeCluster({"fast": 1, "slow": 1}, script=hangs)
    p = pool(cluster)
    check(p.evaluate(chunks_of(8)), chunks_of(8))
    begin = cluster.now
    check(p.evaluate(chunks_of(2, 1)), chunks_of(2, 1))
    assert 4 < cluster.now - begin < 6
    check(p.evaluate(chunks_of(3, 2)), chunks_of(3, 2))  # the one that hangs is left alone


def test_a_chunk_that_hangs_everywhere_is_given_up():
    p = pool(FakeCluster({"a": 2}), patience=Patience(hopeless=100.0))
    check(p.evaluate(chunks_of(6)), chunks_of(6))
    p._cluster.script = lambda *args: True
    (result,) = p.evaluate(chunks_of(1, 1))
    assert "given up" in result.error and p._cluster.now < 400


@pytest.mark.parametrize("other", ["Python", "envolve"])
def test_a_node_with_another_version_gets_no_chunk(caplog, other):
    cluster = FakeCluster({"good": 1, "odd": 1})
    cluster.versions["odd"] = {other: "0.1"}
    p = pool(cluster)
    check(p.evaluate(chunks_of(4)), chunks_of(4))
    assert {cluster.place[w] for w in cluster.sent} == {"good"}
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert lines == [f"node odd has {other} 0.1 there and {MINE[other]} here; install the same on all nodes"]


def test_nodes_whose_workers_give_way_are_named_once(caplog):
    cluster = FakeCluster({"slow": 2, "quick": 1})
    cluster.versions["slow"] = {"nice": str(os.nice(0) + 15)}
    check(pool(cluster).evaluate(chunks_of(4)), chunks_of(4))
    lines = [r.getMessage() for r in caplog.records if "niceness" in r.getMessage()]
    words = f"run at niceness {os.nice(0) + 15}; start its Ray with RAY_worker_niceness=0 for the full speed"
    assert lines == [f"workers of node slow {words}"]


@pytest.mark.parametrize("kind", ["version", "unfit", "dies"])
def test_without_a_node_that_can_work_there_is_one_line(kind):
    cluster = FakeCluster({"a": 2})
    if kind == "version":
        cluster.versions["a"] = {"envolve": "0"}
    elif kind == "unfit":
        cluster.unfit["a"] = "No module named envolve"
    else:
        cluster.begin = lambda worker, node: cluster.events.put(Event(DIED, worker, text="no memory"))
    words = {"version": "node a has envolve 0 there and 1 here", "unfit": "node a: No module named envolve"}.get(
        kind, "node a: 10 workers in a row died, the last: no memory"
    )
    with pytest.raises(ExchangeError, match=f"no worker can be started on Ray: {words}"):
        pool(cluster).evaluate(chunks_of(1))


def test_a_node_that_kills_whatever_it_gets_is_left_alone(caplog):
    def kills(cluster, worker, token, data):
        if cluster.place[worker] == "b":
            cluster.die(worker, "illegal instruction")
        return cluster.place[worker] == "b"

    cluster = FakeCluster({"a": 1, "b": 1}, script=kills)
    check(pool(cluster).evaluate(chunks_of(60)), chunks_of(60))
    assert "node b: 10 workers in a row died, the last: illegal instruction" in caplog.text


def test_values_that_do_not_fit_are_not_accepted():
    def unfit(result: ChunkResult) -> str:
        return "it has no mean_return"

    (result,) = pool(FakeCluster({"a": 1})).evaluate(chunks_of(1), unfit)
    assert result.error == "it has no mean_return"


def test_what_workers_would_reject_is_found_at_once():
    p = pool(FakeCluster({"a": 1}))
    (chunk,) = chunks_of(1)
    chunk.worlds = chunk.worlds.double()
    with pytest.raises(ValueError, match="generation 0 chunk 0 .*worlds"):
        p.submit(chunk)


def test_waiting_without_a_node_is_said(caplog):
    cluster = FakeCluster({})
    p = pool(cluster)
    calls = []

    def comes():
        calls.append(1)
        if cluster.now > 100:
            cluster.slots["late"] = 1

    p.on_wait = comes
    check(p.evaluate(chunks_of(1)), chunks_of(1))
    assert caplog.text.count("no worker on Ray yet; no node has room") == 2 and len(calls) > 300


def test_results_are_asked_for_one_by_one_and_holders_are_known():
    """As a study does."""
    cluster = FakeCluster({"a": 1})
    p = pool(cluster)
    tickets = [p.submit(chunk) for chunk in chunks_of(3)]
    seen = []
    p.on_wait = lambda: seen.extend(p.holders())
    check([p.result(t) for t in tickets], chunks_of(3))
    assert {ticket for ticket, _ in seen} == set(tickets) and {worker for _, worker in seen} == {1}
    p.submit(chunks_of(1)[0])
    p.withdraw()
    check(p.evaluate(chunks_of(2, 1)), chunks_of(2, 1))


def test_configurations_are_sent_once_per_worker(monkeypatch):
    cluster, learnt = FakeCluster({"a": 2}), []
    learn = cluster.learn
    monkeypatch.setattr(cluster, "learn", lambda worker, *rest: (learnt.append(worker), learn(worker, *rest)))
    p = pool(cluster)
    for generation in range(3):
        p.evaluate(chunks_of(8, generation))
    assert sorted(learnt) == [1, 2]
    for i in range(200):  # more than a worker remembers
        chunks = chunks_of(2, i)
        for chunk in chunks:
            chunk.config = {"agents": {"gtn": {"num_threads_per_worker": 1, "i": i % 70}}}
        check(p.evaluate(chunks), chunks)
    assert len(cluster.objects[1]._configs) == 64
