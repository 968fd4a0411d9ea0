"""The master's side, on a virtual clock and file system: whatever dies or gets lost, every chunk is answered once."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import re

import pytest
import torch

from envolve.core import commands, plugins
from envolve.outer.config.load import Config
from envolve.outer.exchange import heartbeat
from envolve.outer.exchange import worker as worker_module
from envolve.outer.exchange.backlog import Backlog, Patience
from envolve.outer.exchange.dispatch import SecondMasterError
from envolve.outer.exchange.heartbeat import read_beat
from envolve.outer.exchange.local_workers import start_some
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.exchange.messages import ChunkResult, chunk_content, result_content, result_of
from envolve.outer.exchange.pairs import pack, read_pair, write_pair
from envolve.outer.exchange.sources import sources
from envolve.outer.exchange.worker import SecondWorkerError
from envolve.outer.launch import _on_files
from tests.outer.virtual import Cluster, Hang, chunks_of, fake


def check(results, chunks):
    assert [r.chunk_id for r in results] == [c.chunk_id for c in chunks]
    for result, chunk in zip(results, chunks):
        assert result.error == ""
        assert torch.equal(result.values["score"], chunk.worlds.sum(1).double())
        assert torch.equal(result.values["train_steps"], chunk.seeds * 2)
        assert (result.run_id, result.generation) == (chunk.run_id, chunk.generation)


ERROR = ValueError("no such thing")


def failing(times, error=ERROR):
    """An evaluation of which the first ``times`` calls fail."""
    left = [times]

    def evaluate(*args):
        if left[0] > 0:
            left[0] -= 1
            raise error
        return fake(*args)

    return evaluate


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_in_the_order_of_the_chunks_for_any_number_of_workers(workers):
    cluster = Cluster()
    master = cluster.master()
    for i in range(workers):
        cluster.worker(i)
    for generation in range(3):
        chunks = chunks_of(5, generation)
        check(master.evaluate(chunks), chunks)
    assert master.evaluate([]) == []
    left = [n for n in cluster.machine.files if "input" in n or "result" in n]
    assert left == [], "the exchange leaves its files lying about"


def test_worker_before_master_and_master_before_worker():
    cluster = Cluster()
    cluster.worker(3)
    cluster.machine.advance(100)
    master = cluster.master()
    chunks = chunks_of(2)
    check(master.evaluate(chunks), chunks)
    late = Cluster()
    master = late.master(on_wait=lambda: late.worker(0) if late.machine.now > 1030 and not late.workers else None)
    check(master.evaluate(chunks), chunks)


def test_worker_that_starts_late_takes_the_input_that_lies_there():
    """The original's worker deleted it, and both sides waited for ever."""
    cluster = Cluster()
    calls = []

    def on_wait():
        calls.append(1)
        if "0_0_input_check.pt" in cluster.machine.files and not cluster.workers[0].alive_again:
            cluster.kill(0)
            cluster.worker(0).alive_again = True

    dead = cluster.worker(0)
    dead.alive_again = False
    dead.step = lambda: False
    master = cluster.master(on_wait=on_wait)
    chunks = chunks_of(1)
    results = master.evaluate(chunks)
    check(results, chunks)
    assert results[0].attempt == 0, "the input had to be sent again"


def test_dead_workers_chunk_goes_to_another():
    cluster = Cluster()
    cluster.worker(0, failing(1, Hang()))
    cluster.worker(1)
    master = cluster.master(on_wait=lambda: cluster.kill(0))
    chunks = chunks_of(4)
    begin = cluster.machine.now
    check(master.evaluate(chunks), chunks)
    assert cluster.machine.now - begin < 2, "a dead process of the same machine is noticed at once"


def test_worker_killed_and_started_anew_in_mid_chunk():
    cluster = Cluster()
    cluster.worker(0, failing(1, Hang()))
    restarted = []

    def on_wait():
        if not restarted and "0_0_input_check.pt" not in cluster.machine.files and cluster.machine.now > 1001:
            cluster.kill(0)
            restarted.append(cluster.worker(0))

    master = cluster.master(on_wait=on_wait)
    chunks = chunks_of(3)
    check(master.evaluate(chunks), chunks)
    assert restarted


def test_silent_worker_of_another_machine_loses_its_chunk_and_may_come_back(caplog):
    cluster = Cluster()
    cluster.worker(0, name="elsewhere")
    master = cluster.master(worker_timeout=20.0)
    check(master.evaluate(chunks_of(2)), chunks_of(2))
    cluster.hosts[0].stopped = True  # SIGSTOP
    cluster.machine.advance(1)
    begin = cluster.machine.now

    def on_wait():
        if cluster.machine.now > begin + 40 and 1 not in cluster.workers:
            cluster.worker(1)
        if cluster.machine.now > begin + 42:
            cluster.hosts[0].stopped = False  # SIGCONT, with a chunk in hand that is long answered

    master.on_wait = on_wait
    chunks = chunks_of(3, generation=1)
    check(master.evaluate(chunks), chunks)
    cluster.machine.advance(10)
    chunks = chunks_of(6, generation=2)
    check(master.evaluate(chunks), chunks)
    assert "worker 0 is gone" in caplog.text


def test_a_stopped_worker_of_this_machine_is_no_death_of_the_chunk():
    """One of a machine so busy that it does not beat, or of a job that was suspended, may be at work on anything."""
    cluster = Cluster()
    stopped = cluster.worker(0)
    master = cluster.master(worker_timeout=20.0, patience=Patience(max_attempts=1, factor=math.inf))
    check(master.evaluate(chunks_of(1)), chunks_of(1))

    def stop(*args):
        cluster.hosts[0].stopped = True  # SIGSTOP
        raise Hang

    stopped.evaluation.function = stop
    begin = cluster.machine.now
    master.on_wait = lambda: (
        cluster.worker(1) if cluster.machine.now > begin + 40 and 1 not in cluster.workers else None
    )
    chunks = chunks_of(1, generation=1)
    check(master.evaluate(chunks), chunks)


def test_a_long_chunk_among_short_ones_is_not_given_up_within_a_day():
    backlog = Backlog(Patience())
    for _ in range(5):
        backlog.took("proxy", 10.0)
    index = backlog.add(chunks_of(1)[0])
    for hours, given_up in ((0.9, []), (3.0, []), (23.0, []), (25.0, [index])):
        assert backlog.hopeless({index: [3600 * hours]}, workers=1) == given_up
    backlog.took("proxy", 1e6)  # a machine that has become slow makes all of them long
    for _ in range(9):
        backlog.took("proxy", 1e6)
    assert backlog.hopeless({index: [90000.0]}, workers=1) == []


def test_straggler_is_given_to_a_second_worker_and_the_late_answer_is_dropped():
    cluster = Cluster()
    slow = cluster.worker(0)
    cluster.worker(1)
    master = cluster.master()
    check(master.evaluate(chunks_of(8)), chunks_of(8))
    slow.evaluation.function = failing(1, Hang())  # it lives and beats, and does not come back
    chunks = chunks_of(4, generation=1)
    begin = cluster.machine.now
    check(master.evaluate(chunks), chunks)
    assert 2 < cluster.machine.now - begin < 5


def deaf(index):
    """An evaluation that never comes back from chunk ``index``, though its process lives and beats."""

    def evaluate(config, worlds, seeds, mode, threads):
        if int(seeds[0]) == 10 * index:
            raise Hang
        return fake(config, worlds, seeds, mode, threads)

    return evaluate


def test_a_chunk_that_is_late_at_two_workers_goes_to_a_third():
    cluster = Cluster()
    slow = [cluster.worker(0), cluster.worker(1)]
    cluster.worker(2)
    master = cluster.master()
    check(master.evaluate(chunks_of(9)), chunks_of(9))
    for worker in slow:
        worker.evaluation.function = failing(1, Hang())
    chunks = chunks_of(3, generation=1)
    begin = cluster.machine.now
    check(master.evaluate(chunks), chunks)
    assert 2 < cluster.machine.now - begin < 10


@pytest.mark.parametrize("workers, beyond_hope", [(2, 2), pytest.param(7, 5, marks=pytest.mark.slow)])
def test_a_chunk_that_hangs_everywhere_is_given_up_and_the_rest_goes_on(workers, beyond_hope, caplog):
    cluster = Cluster()
    for i in range(workers):
        cluster.worker(i)
    master = cluster.master(patience=Patience(hopeless=3600.0))
    check(master.evaluate(chunks_of(9)), chunks_of(9))
    for worker in cluster.workers.values():
        worker.evaluation.function = deaf(1)
    begin = cluster.machine.now
    results = master.evaluate(chunks_of(4, generation=1))
    assert 3600 < cluster.machine.now - begin < 3700
    assert results[1].values["score"].isnan().all() and "given up" in results[1].reasons[0]
    held = re.search(r"no answer from worker ([\d, ]+) for", results[1].error)
    assert len(held[1].split(",")) == beyond_hope
    check([results[0], *results[2:]], [chunks_of(4, 1)[i] for i in (0, 2, 3)])
    assert "given up" in caplog.text


def test_chunks_are_submitted_one_by_one_and_asked_for_in_any_order():
    cluster = Cluster()
    cluster.worker(0)
    cluster.worker(1)
    master = cluster.master()
    chunks = chunks_of(5)
    tickets = [master.submit(chunk) for chunk in chunks[:3]]
    check([master.result(tickets[1])], [chunks[1]])
    tickets += [master.submit(chunk) for chunk in chunks[3:]]
    for i in (4, 0, 2, 3):
        check([master.result(tickets[i])], [chunks[i]])
    with pytest.raises(KeyError):
        master.result(tickets[0])
    assert not master._rounds._issued, "what was delivered is forgotten"


@pytest.mark.parametrize("pause", [0.0, 1.0])
def test_chunk_that_kills_its_workers_gets_nan_and_the_reason(pause):
    """Whether a worker is started anew before its death was noticed, or after."""
    cluster = Cluster()
    kills, died_at, restarts = [], [], []

    def deadly(config, worlds, seeds, mode, threads):
        if int(seeds[0]) == 10:
            kills.append(1)
            raise Hang
        return fake(config, worlds, seeds, mode, threads)

    cluster.worker(0, deadly)

    def on_wait():
        if len(kills) > len(died_at):
            cluster.kill(0)
            died_at.append(cluster.machine.now)
        if len(died_at) > len(restarts) and cluster.machine.now >= died_at[-1] + pause:
            restarts.append(cluster.worker(0, deadly))

    master = cluster.master(on_wait=on_wait, patience=Patience(max_attempts=5))
    chunks = chunks_of(3)
    results = master.evaluate(chunks)
    assert len(kills) == 5
    check([results[0], results[2]], [chunks[0], chunks[2]])
    assert results[1].values["score"].isnan().all() and results[1].values["score"].shape == (3,)
    assert results[1].values["train_steps"].tolist() == [0, 0, 0], "failed chunks must join with the rest"
    assert "died" in results[1].reasons[2] and "5 attempts" in results[1].error


def test_exception_in_the_evaluation_is_tried_once_more_then_reported(caplog):
    cluster = Cluster()
    cluster.worker(0, failing(1))
    chunks = chunks_of(2)
    check(cluster.master().evaluate(chunks), chunks)
    cluster = Cluster()
    cluster.worker(0, failing(2, ValueError("x" * 5000 + " the end")))
    results = cluster.master().evaluate(chunks_of(2))
    bad = [r for r in results if r.error]
    assert len(bad) == 1 and bad[0].values["score"].isnan().all()
    assert len(bad[0].reasons[0]) <= 2000 and "the end" in bad[0].reasons[0]
    assert "the end" in caplog.text


@pytest.mark.parametrize(
    "returned",
    [
        {},
        {"score": [1.0, 2.0]},
        {"score": [[1.0]] * 3},
        {"score": [1.0] * 3, "reason": [""]},
        {"score": [object()] * 3},
        None,
    ],
)
def test_evaluation_that_returns_nonsense_is_a_failed_chunk(returned):
    cluster = Cluster()
    cluster.worker(0, lambda *args: returned)
    (result,) = cluster.master().evaluate(chunks_of(1))
    assert result.values["score"].isnan().all() and result.error


@pytest.mark.parametrize("kind", ["input", "result"])
def test_lost_files_are_noticed(kind):
    cluster = Cluster()
    cluster.worker(0)
    lost = []
    write = cluster.files.write

    def losing(name, data):
        if name == f"0_0_{kind}_check.pt" and len(lost) < 2:
            lost.append(name)
        else:
            write(name, data)

    cluster.files.write = losing
    chunks = chunks_of(3)
    check(cluster.master().evaluate(chunks), chunks)
    assert len(lost) == 2


def test_torn_and_foreign_results_are_never_accepted(caplog):
    caplog.set_level(logging.INFO, "envolve")
    cluster = Cluster()
    cluster.worker(0)
    master = cluster.master()
    write, tampered = cluster.files.write, []

    def tampering(name, data):
        if name == "0_0_result.pt" and len(tampered) < 2:
            tampered.append(name)
            data = data[: len(data) // 2] if len(tampered) == 1 else data.replace(b"run", b"rum")
        write(name, data)

    cluster.files.write = tampering
    chunks = chunks_of(3)
    check(master.evaluate(chunks), chunks)
    assert len(tampered) == 2 and "rejected a result" in caplog.text
    # an intact answer to a question of another run, another generation, or to none
    cluster.files.write = write
    for run_id, generation in (("other", 1), ("run", 0), ("run", 1)):
        chunk = chunks_of(1, generation, run_id)[0]
        result = result_of(chunk, "0" * 64, {"score": [666.0] * 3})
        write_pair(cluster.files, "0_0_result", result_content(result))
        chunks = chunks_of(2, generation=1)
        check(master.evaluate(chunks), chunks)
    assert "discarded a result" in caplog.text


def test_answer_to_this_question_with_another_name_or_size_is_not_accepted():
    cluster = Cluster()
    worker = cluster.worker(0)
    good, wrong = worker.evaluation, []

    def lying(chunk, sha256):
        result = good(chunk, sha256)
        if len(wrong) < 2:
            wrong.append(1)
            if len(wrong) == 1:
                result.generation += 1
            else:
                result.values, result.reasons = {"score": torch.ones(2, dtype=torch.float64)}, ["", ""]
        return result

    worker.evaluation = lying
    chunks = chunks_of(2)
    check(cluster.master().evaluate(chunks), chunks)
    assert len(wrong) == 2


def test_worker_that_rejects_everything_is_barred(caplog):
    cluster = Cluster()
    from envolve.outer.exchange.machine import Rejected

    class Deaf:
        def __getattr__(self, name):
            return getattr(cluster.files, name)

        def read(self, name, limit):
            if name.endswith("input_check.pt") and name in cluster.machine.files:
                raise Rejected("schema 1, this program speaks 2")
            return cluster.files.read(name, limit)

    bad = cluster.worker(0)
    bad._files = Deaf()
    master = cluster.master(
        on_wait=lambda: None if 1 in cluster.workers or cluster.machine.now < 1030 else cluster.worker(1)
    )
    write, inputs = cluster.files.write, []

    def counting(name, data):
        inputs.extend([name] if name == "0_0_input.pt" else [])
        write(name, data)

    cluster.files.write = counting
    chunks = chunks_of(3)
    check(master.evaluate(chunks), chunks)
    assert len(inputs) == 3
    assert "speaks 2" in caplog.text and "gets no chunk for 60 s" in caplog.text


def test_second_master_is_refused_and_the_first_not_harmed():
    cluster = Cluster()
    first = cluster.master(run_id="first")
    with pytest.raises(SecondMasterError, match="pid 100 on here, run first"):
        cluster.master()
    with pytest.raises(SecondMasterError):
        cluster.master(name="elsewhere")
    cluster.master(bohb_id=1)
    cluster.worker(0)
    check(first.evaluate(chunks_of(2)), chunks_of(2))
    first.close()
    cluster.master()


@pytest.mark.parametrize("name", ["here", "elsewhere"])
def test_stale_master_is_taken_over(name):
    cluster = Cluster()
    cluster.master()
    cluster.machine.dead.add(100)
    cluster.master(name=name)


def test_usurped_master_stops():
    cluster = Cluster()
    first = cluster.master(on_wait=lambda: None)
    host = first._host
    host.stopped = True
    cluster.machine.advance(1)
    second = cluster.master(name="elsewhere")  # it sees no beat for three intervals
    host.stopped = False
    with pytest.raises(SecondMasterError, match="taken over"):
        first.evaluate(chunks_of(1))
    cluster.worker(0)
    check(second.evaluate(chunks_of(2)), chunks_of(2))


def test_second_worker_is_refused_and_the_first_not_harmed(monkeypatch):
    monkeypatch.setattr(plugins, "_folders", [])  # of tests before, in this process
    cluster = Cluster()
    cluster.worker(0)
    cluster.worker(5)
    for name in ("here", "elsewhere"):
        with pytest.raises(SecondWorkerError, match="GTN_worker.py 0 6"):
            cluster.worker(5, name=name)
    monkeypatch.setattr(commands, "_door", ["envolve"])
    with pytest.raises(SecondWorkerError, match="e.g. envolve worker 0 6 --sync-dir /virtual, or"):
        cluster.worker(5)
    plugins.allow("/own files")
    with pytest.raises(SecondWorkerError, match="--sync-dir /virtual --plugins '/own files', or"):
        cluster.worker(5)
    cluster.worker(5, bohb_id=1)
    check(cluster.master().evaluate(chunks_of(3)), chunks_of(3))


def test_of_two_workers_started_at_the_same_instant_one_goes_on():
    cluster = Cluster()
    a = cluster.worker(0)
    beat = cluster.machine.files.pop("0_0_heartbeat")
    b = cluster.worker(0)
    assert beat != cluster.machine.files["0_0_heartbeat"]
    cluster.machine.advance(3)
    with pytest.raises(SecondWorkerError, match="taken this slot"):
        a.step()
    assert not b.step()
    assert a._heartbeat.usurper is not None and b._heartbeat.usurper is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_full_or_read_only_disk_is_an_error_of_the_master_and_not_of_the_worker(code):
    cluster = Cluster()
    cluster.worker(0)
    master = cluster.master()
    cluster.machine.fail = code
    with pytest.raises(ExchangeError, match=errno.errorcode[code]):
        master.evaluate(chunks_of(1))
    cluster.machine.fail = None
    check(master.evaluate(chunks_of(2)), chunks_of(2))


def test_worker_keeps_its_result_until_the_disk_has_room():
    cluster = Cluster()
    calls = []

    def evaluate(*args):
        cluster.machine.fail = errno.ENOSPC
        calls.append(1)
        return fake(*args)

    cluster.worker(0, evaluate)

    def clean_up():
        if cluster.machine.now > 1020:
            cluster.machine.fail = None

    cluster.machine.schedule(cluster.hosts[0], 1.0, clean_up)
    check(cluster.master().evaluate(chunks_of(1)), chunks_of(1))
    assert calls == [1]


def test_says_what_to_start_when_there_is_no_worker(caplog):
    cluster = Cluster()
    master = cluster.master(
        on_wait=lambda: cluster.worker(0) if not cluster.workers and cluster.machine.now > 1300 else None
    )
    check(master.evaluate(chunks_of(1)), chunks_of(1))
    said = [r.message for r in caplog.records if "python3 GTN_worker.py 0 0 --sync-dir /virtual" in r.message]
    assert 2 <= len(said) <= 8


def test_the_command_for_workers_is_written_once(tmp_path, monkeypatch):
    """The hint in the log is the note of the beginning: with the folder that the run's own files need, by the door by
    which the master was started."""
    monkeypatch.setattr(commands, "_door", ["envolve"])
    data = {"env_name": "gymnasium:my_env.py:MyEnv"}
    with contextlib.ExitStack() as stack:
        dispatcher, _, _, note = _on_files(
            stack, Config(data, [], ""), tmp_path / "run", None, str(tmp_path / "sync"), 4
        )
        line = f"start some, one per core: envolve worker 4 %d --sync-dir {tmp_path}/sync --plugins {tmp_path}/run &"
        assert note == f"waiting for workers; {line % 0}" and dispatcher._advice(3) == line % 3


def test_the_command_for_workers_names_the_folder_wherever_it_is_typed(tmp_path, monkeypatch):
    """In another terminal, or on another machine, the same relative path is another folder."""
    monkeypatch.chdir(tmp_path)
    text = start_some(0, "results/GTN_sync", "results/run")
    assert f"--sync-dir {tmp_path}/results/GTN_sync --plugins {tmp_path}/results/run &" in text


def test_start_removes_leftovers_of_its_own_id_alone():
    cluster = Cluster()
    mine = ["0_3_input.pt", "0_3_input_check.pt", "0_0_result.pt", "0_0_input.pt.rejected", ".0_1_input.pt.9.tmp"]
    mine += [".0_7_heartbeat.9.ab.tmp", ".0_master_heartbeat.9.ab.tmp"]  # of processes that were killed
    others = ["1_0_input.pt", "10_0_result.pt", "0_0_heartbeat", "1_master_heartbeat", "notes.txt"]
    others += [".1_7_heartbeat.9.ab.tmp", ".10_master_heartbeat.9.ab.tmp"]
    cluster.machine.files.update({name: b"x" for name in mine + others})
    cluster.master()
    assert set(cluster.machine.files) == set(others) | {"0_master_heartbeat"}


def test_a_worker_of_another_checkout_is_named_on_both_sides(monkeypatch, caplog):
    """The same seed shall give the same bytes: a worker that was left from before an update trains by the code of
    then."""
    cluster = Cluster()
    monkeypatch.setattr(heartbeat, "sources", lambda: "0123456789ab")  # as the old one's own
    cluster.worker(3)
    monkeypatch.undo()
    cluster.worker(4)
    master = cluster.master()
    caplog.clear()
    check(master.evaluate(chunks_of(6)), chunks_of(6))
    cluster.workers[3]._look_for_master()
    told = f"here is {sources()}: the same member may score otherwise; start both from one version"
    said = [r.message for r in caplog.records if r.levelno == logging.ERROR]
    assert said == [f"worker 3 runs other code (0123456789ab), {told}"]
    caplog.clear()
    monkeypatch.setattr(worker_module, "sources", lambda: "0123456789ab")
    cluster.worker(5)
    assert f"worker 5: its master runs other code ({sources()}), here is 0123456789ab" in caplog.text


def test_a_beat_need_not_say_which_code_runs(caplog):
    """Of workers that others wrote, and of earlier versions."""
    cluster = Cluster()
    cluster.worker(0)
    content = json.loads(cluster.machine.files["0_0_heartbeat"])
    assert content.pop("code") == sources()
    cluster.machine.files["0_0_heartbeat"] = json.dumps(content).encode()
    assert read_beat(cluster.files, "0_0_heartbeat").code == ""
    master = cluster.master()
    assert master.workers() == [0]
    assert "worker 0 does not say which code it runs, here is" in caplog.text


@pytest.mark.parametrize("id", [4294967296, 10**18 - 1])
def test_an_id_may_be_long(id):
    """As those of jobs are."""
    cluster = Cluster()
    cluster.worker(id)
    check(cluster.master().evaluate(chunks_of(2)), chunks_of(2))


def test_an_id_that_no_master_would_see_is_refused():
    with pytest.raises(ExchangeError, match=f"ID: found {10**18}, expected at most 18 digits"):
        Cluster().worker(10**18)


def test_close_leaves_workers_waiting_or_tells_them_to_quit():
    cluster = Cluster()
    worker = cluster.worker(0)
    master = cluster.master()
    check(master.evaluate(chunks_of(2)), chunks_of(2))
    master.close()
    cluster.machine.advance(5)
    assert not worker.quit
    master = cluster.master()
    check(master.evaluate(chunks_of(2)), chunks_of(2))
    master.close(quit_workers=True)
    cluster.machine.advance(5)
    assert (
        worker.quit
        and "0_0_heartbeat" not in cluster.machine.files
        and "0_master_heartbeat" not in cluster.machine.files
    )


def test_workers_of_other_machines_are_told_to_quit_even_by_a_master_that_has_just_come():
    """It has seen one beat of theirs, which might be a file that somebody left behind."""
    cluster = Cluster()
    here, elsewhere = cluster.worker(0), cluster.worker(1, name="elsewhere")
    cluster.worker(2, name="third")
    cluster.kill(2)
    begin = cluster.machine.now
    cluster.master().close(quit_workers=True)
    assert cluster.machine.now - begin < 5
    cluster.machine.advance(5)
    assert here.quit and elsewhere.quit and "0_2_input.pt" not in cluster.machine.files


def test_an_exception_that_a_network_file_system_shows_twice_counts_once():
    cluster = Cluster()
    cluster.worker(0, failing(1))
    remove, kept = cluster.files.remove, []

    def forgetting(name):
        if name.startswith("0_0_result") and len(kept) < 2:
            kept.append(name)
        else:
            remove(name)

    cluster.files.remove = forgetting
    chunks = chunks_of(1)
    check(cluster.master().evaluate(chunks), chunks)
    assert len(kept) == 2


def test_interrupted_evaluation_leaves_a_usable_master():
    cluster = Cluster()
    cluster.worker(0)
    master = cluster.master()

    def interrupt():
        raise KeyboardInterrupt

    master.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        master.evaluate(chunks_of(4))
    master.on_wait = None
    chunks = chunks_of(3, generation=1)
    check(master.evaluate(chunks), chunks)


def test_chunk_that_no_worker_would_take_is_refused_at_once():
    chunk = chunks_of(1)[0]
    chunk.config["lr"] = chunk.worlds
    with pytest.raises(ValueError, match=r"generation 0 chunk 0 .*config\.'?lr"):
        Cluster().master().evaluate([chunk])


def test_same_chunks_twice_are_evaluated_twice():
    """The bytes of an input are unlike any other's, so a worker does not take the second for an echo of the first."""
    cluster = Cluster()
    cluster.worker(0)
    master = cluster.master()
    for _ in range(3):
        begin = cluster.machine.now
        check(master.evaluate(chunks_of(1)), chunks_of(1))
        assert cluster.machine.now - begin < 1


def test_worker_ignores_an_input_that_a_network_file_system_shows_again():
    cluster = Cluster()
    calls = []
    worker = cluster.worker(0, lambda *args: calls.append(1) or fake(*args))
    write_pair(cluster.files, "0_0_input", chunk_content(chunks_of(1)[0], "q"))
    shown = {n: d for n, d in cluster.machine.files.items() if "input" in n}
    assert worker.step()
    cluster.machine.files.update(shown)
    assert worker.step() and not worker.step() and calls == [1]
    content, _ = read_pair(cluster.files, "0_0_result", "result")
    assert content["run_id"] == "run"


def test_worker_puts_odd_inputs_aside_and_goes_on():
    cluster = Cluster()
    worker = cluster.worker(0)
    cluster.files.write("0_0_input.pt", b"junk")
    cluster.files.write("0_0_input_check.pt", pack({"schema": 1, "sha256": "0" * 64, "size": 4}))
    cluster.machine.advance(1)
    assert "0_0_input_check.pt" in cluster.machine.files, "the data may still be on its way"
    cluster.machine.advance(3)
    assert "0_0_input_check.pt" not in cluster.machine.files
    assert cluster.machine.files["0_0_input.pt.rejected"] == b"junk"
    assert b"rejected input 1" in cluster.machine.files["0_0_heartbeat"] and not worker.quit
    check(cluster.master().evaluate(chunks_of(2)), chunks_of(2))


def test_failed_results_have_the_schema_of_good_ones():
    chunk = chunks_of(1)[0]
    result = ChunkResult.failed(chunk, "0" * 64, "why")
    assert result.reasons == ["why"] * 3 and result.values["score"].dtype == torch.float64


def test_long_evaluation_of_a_live_worker_is_left_alone(caplog):
    cluster = Cluster()
    cluster.worker(0, failing(1, Hang()))

    def on_wait():
        if cluster.machine.now > 1100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.master(on_wait=on_wait, worker_timeout=10.0).evaluate(chunks_of(1))
    assert "is sent again" not in caplog.text
