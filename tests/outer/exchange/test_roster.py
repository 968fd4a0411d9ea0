"""The roster on a virtual machine: how often heartbeats are read, and what is not taken for a death or a loss."""

from __future__ import annotations

from collections import Counter

import pytest

from envolve.outer.exchange.heartbeat import ALIVE, DEAD, Beat, Watch, name_of
from envolve.outer.exchange.pairs import stem
from envolve.outer.exchange.roster import SCAN_SECONDS, Roster
from tests.outer.virtual import Cluster, VirtualFiles, VirtualHost, chunks_of


class Slow(VirtualFiles):
    """Every read takes ``seconds``, and is counted."""

    def __init__(self, machine, seconds):
        super().__init__(machine)
        self.seconds, self.reads = seconds, Counter()

    def read(self, name, limit):
        self.reads[name] += 1
        self._m.advance(self.seconds)
        return super().read(name, limit)


def look(cluster, roster, seconds):
    """As the dispatcher does, four times per second."""
    end, losses = cluster.machine.now + seconds, []
    while cluster.machine.now < end:
        losses += roster.scan(set(cluster.files.names()))
        cluster.machine.advance(0.25)
    return losses


def test_a_heartbeat_is_read_once_per_beat():
    cluster = Cluster()
    cluster.worker(0, name="elsewhere")
    files = Slow(cluster.machine, 0.0)
    roster = Roster(files, VirtualHost(cluster.machine, 1), 0, 30.0)
    look(cluster, roster, 5.0)  # while it is not known whether it lives, four times as often
    files.reads.clear()
    look(cluster, roster, 20.0)
    assert 18 <= files.reads[name_of(0, "0")] <= 21
    assert roster.free()


def test_a_worker_of_this_machine_is_missed_at_once_though_its_file_is_read_rarely():
    cluster = Cluster()
    cluster.worker(0)
    roster = Roster(cluster.files, VirtualHost(cluster.machine, 1), 0, 30.0)
    look(cluster, roster, 3.0)
    assert roster.usable()
    cluster.kill(0)
    look(cluster, roster, 0.25)
    assert not roster.usable()


def test_reading_is_spread_where_it_takes_long_and_nobody_is_taken_for_dead():
    cluster = Cluster()
    for i in range(40):
        cluster.worker(i, name="elsewhere")
    files = Slow(cluster.machine, 0.05)  # a round takes seconds, longer than the time-out
    roster = Roster(files, VirtualHost(cluster.machine, 1), 0, 1.0)
    look(cluster, roster, 30.0)
    assert len(roster.usable()) == 40
    for _ in range(20):
        names, began = set(cluster.files.names()), cluster.machine.now
        roster.scan(names)
        assert cluster.machine.now - began <= SCAN_SECONDS + 2 * files.seconds
        cluster.machine.advance(0.25)
        assert len(roster.usable()) == 40
    assert min(files.reads[name_of(0, str(i))] for i in range(40)) >= 5


@pytest.mark.parametrize("interval, lives, dies", [(1.0, 29.0, 31.0), (20.0, 59.0, 61.0), (1e9, 179.0, 181.0)])
def test_slow_beats_are_no_death(interval, lives, dies):
    machine = Cluster().machine
    watch = Watch(VirtualHost(machine, 1), 30.0)
    for counter in (0, 1):
        watch.see(Beat("u", counter, "elsewhere", "elsewhere", 2, 7, interval))
    machine.now += lives
    assert watch.see(None) == ALIVE
    machine.now += dies - lives
    assert watch.see(None) == DEAD


def test_a_chunk_is_not_lost_by_a_list_of_names_older_than_its_result():
    """The master was busy elsewhere while the worker took the input, evaluated it, answered and beat four times."""
    cluster = Cluster()
    dispatcher = cluster.master()
    cluster.worker(0, name="elsewhere")
    look(cluster, dispatcher._roster, 3.0)
    (ticket,) = map(dispatcher.submit, chunks_of(1))
    dispatcher._step()
    slot, _ = next(dispatcher._roster.holders())
    # taken, though its latest beat does not know it yet, and neither does the next list know of a result
    taken = {n for n in cluster.files.names() if not n.startswith(stem(0, 0, "input"))}
    slot.read_at = 0.0
    assert dispatcher._roster.scan(taken) == []
    cluster.machine.advance(4.0)
    assert stem(0, 0, "result") + "_check.pt" in cluster.files.names()
    slot.read_at = 0.0
    assert dispatcher._roster.scan(taken) == []
    assert dispatcher.result(ticket).values["score"].numel() == 3
    dispatcher.close()
