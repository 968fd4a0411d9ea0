"""Workers that answer what they were not asked, on a virtual clock: their fault, never the chunk's."""

from __future__ import annotations

import logging

import pytest
import torch

from envolve.outer.config.load import Config
from envolve.outer.evaluate.members import evaluate_members
from envolve.outer.exchange.heartbeat import name_of, read_beat
from envolve.outer.exchange.messages import result_content
from envolve.outer.exchange.pairs import read_pair, write_pair
from tests.outer.virtual import Cluster, chunks_of, fake


def another(result):
    result.generation += 1


def smaller(result):
    result.values, result.reasons = {"score": torch.ones(2, dtype=torch.float64)}, ["", ""]


def liar(cluster, worker_id, lie=another):
    """A worker that spoils every result of its own; how often it did so is its ``lies``."""
    worker = cluster.worker(worker_id)
    worker.lies, good = 0, worker.evaluation
    worker.sound = good

    def work(chunk, sha256):
        worker.lies += 1
        result = good(chunk, sha256)
        lie(result)
        return result

    worker.evaluation = work
    return worker


def check(results, chunks):
    for result, chunk in zip(results, chunks):
        assert result.error == "" and torch.equal(result.values["score"], chunk.worlds.sum(1).double())


@pytest.mark.parametrize("lie", [another, smaller])
def test_a_liar_is_benched_and_its_chunks_go_to_another(lie, caplog):
    cluster = Cluster()
    worker = liar(cluster, 0, lie)

    def on_wait():
        if cluster.machine.now > 1200 and 1 not in cluster.workers:
            cluster.worker(1)

    chunks = chunks_of(3)
    check(cluster.master(on_wait=on_wait).evaluate(chunks), chunks)
    assert 3 <= worker.lies <= 3 + 200 / 60 + 1, "three in a row, then one a minute"
    assert "worker 0 gets no chunk for 60 s: of its last chunks it answered wrongly 3 in a row" in caplog.text
    assert "given up" not in caplog.text


def test_where_all_are_liars_it_waits_and_says_so(caplog):
    cluster = Cluster()
    workers = [liar(cluster, i) for i in range(2)]

    def on_wait():
        if cluster.machine.now > 1400:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.master(on_wait=on_wait).evaluate(chunks_of(3))
    assert "given up" not in caplog.text
    assert "workers of BOHB-ID 0: 0, 1: none of them can be trusted with a chunk" in caplog.text
    assert "python3 GTN_worker.py 0 2 --sync-dir /virtual" in caplog.text
    assert all(worker.lies < 12 for worker in workers)


def test_a_liar_that_comes_back_under_other_ids_costs_no_chunk():
    cluster = Cluster()
    liars = [liar(cluster, 0)]

    def on_wait():
        if liars[-1].lies >= 2 and len(liars) < 20:
            cluster.kill(liars[-1].worker_id)
            liars.append(liar(cluster, len(liars)))
        elif len(liars) == 20 and 20 not in cluster.workers:
            cluster.worker(20)

    chunks = chunks_of(2)
    check(cluster.master(on_wait=on_wait).evaluate(chunks), chunks)
    assert sum(worker.lies for worker in liars) >= 38


def test_nobody_can_answer_what_another_was_asked():
    """Whoever may write into the folder may also read which question the others have."""
    cluster = Cluster()
    cluster.worker(0)
    master, spied = cluster.master(), []
    write = cluster.files.write

    def spying(name, data):
        write(name, data)
        if name == "0_0_input_check.pt" and not spied:
            content, sha256 = read_pair(cluster.files, "0_0_input", "input")
            spied.append(sha256)
            false = cluster.workers[0].evaluation(chunks_of(1)[0], sha256)
            false.values["score"] += 666.0
            write_pair(cluster.files, "0_7_result", result_content(false))

    cluster.worker(7)
    cluster.kill(7)
    cluster.files.write = spying
    chunks = chunks_of(2)
    check(master.evaluate(chunks), chunks)
    assert spied


def test_what_raises_at_one_worker_is_tried_at_another():
    """A machine without memory or without a library would else fail every chunk that it gets, twice."""
    cluster, calls = Cluster(), []

    def broken(*args):
        calls.append(1)
        raise ImportError("no such library")

    cluster.worker(0, broken)
    cluster.worker(1)
    chunks = chunks_of(9)
    check(cluster.master().evaluate(chunks), chunks)
    assert calls, "it was never asked"


def full(*args):
    values = fake(*args)
    count = torch.ones(len(values["score"]), dtype=torch.int64)
    return {**values, "mean_return": values["score"].double(), "episodes": count, "updates": count, "real_steps": count}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values.pop("mean_return"),
        lambda values: values.update(train_steps=values["train_steps"].double()),
        lambda values: values.update(episodes=torch.ones(3, 2, dtype=torch.int64)),
    ],
)
def test_values_that_a_generation_cannot_use_are_a_lie(spoil, caplog):
    cluster = Cluster()
    worker = liar(cluster, 0, lambda result: spoil(result.values))
    cluster.worker(1, full)
    worker.sound.function = full
    config = Config({"agents": {"gtn": {"chunk_size": 3}}}, [], "")
    worlds = torch.arange(30.0).view(6, 5)
    values, reasons = evaluate_members(cluster.master(), config, 1, worlds, torch.arange(6), "proxy")
    assert values["score"].tolist() == worlds.sum(1).tolist() and values["updates"].tolist() == [1] * 6
    assert worker.lies and "discarded the result of worker 0" in caplog.text


def test_nothing_that_a_worker_says_reaches_a_log_raw(caplog):
    """Not as an escape sequence, nor as a line of its own, nor as a text without end."""
    caplog.set_level(logging.INFO, "envolve")
    evil = "x" * 10_000 + "\x1b[2J\x07 boom\n12:00:00 all is well \u202egnp.\ud800"
    cluster = Cluster()

    def raising(*args):
        raise ValueError(evil)

    worker = cluster.worker(0, raising)
    worker._heartbeat.note = evil
    worker._heartbeat._beat.host = worker._heartbeat._beat.run_id = evil[9_500:-1]
    worker._heartbeat.beat()
    beat = read_beat(cluster.files, name_of(0, "0"))
    assert beat is None or beat.note.isprintable() and beat.where.isprintable() and beat.run_id.isprintable()
    worker._heartbeat.note = evil[9_500:-1]
    worker._heartbeat.beat()
    (result,) = cluster.master().evaluate(chunks_of(1))
    assert "boom" in result.reasons[0] and "boom" in caplog.text
    assert result.error.isprintable() and all(reason.isprintable() for reason in result.reasons)
    own = [record.getMessage() for record in caplog.records if record.module in ("worker", "evaluation")]
    assert own and not any(c in text for text in own for c in "\x1b\x07\u202e\ud800"), (
        "a worker's traceback may have lines"
    )
    said = [record.getMessage() for record in caplog.records if record.module not in ("worker", "evaluation")]
    assert all(text.isprintable() and len(text) < 4000 for text in said)


def test_any_number_of_results_that_nobody_asked_for_are_a_few_lines(caplog):
    caplog.set_level(logging.INFO, "envolve")
    cluster, sent = Cluster(), []
    worker = cluster.worker(0)
    good = worker.evaluation

    def work(chunk, sha256):
        return good(chunk, "0" * 64 if len(sent) < 300 else sha256)

    worker.evaluation = work
    write = cluster.files.write

    def repeating(name, data):
        write(name, data)
        if name == "0_0_result_check.pt":
            kept.update({n: d for n, d in cluster.machine.files.items() if "0_0_result" in n})

    kept = {}
    cluster.files.write = repeating
    remove = cluster.files.remove

    def back(name):
        remove(name)
        if name == "0_0_result.pt" and len(sent) < 300:
            sent.append(1)
            cluster.machine.files.update(kept)

    cluster.files.remove = back
    chunks = chunks_of(2)
    check(cluster.master().evaluate(chunks), chunks)
    lines = [r for r in caplog.records if "that is not expected" in r.getMessage()]
    assert len(sent) == 300 and 1 <= len(lines) <= 12


def test_who_dispatches_to_others_than_workers_says_how_to_start_those(caplog):
    cluster = Cluster()
    master = cluster.master(
        on_wait=lambda: cluster.worker(3) if not cluster.workers and cluster.machine.now > 1100 else None,
        advice=lambda free_id: f"start number {free_id} of those",
    )
    check(master.evaluate(chunks_of(1)), chunks_of(1))
    assert "no worker for BOHB-ID 0; start number 0 of those" in caplog.text and "GTN_worker" not in caplog.text
