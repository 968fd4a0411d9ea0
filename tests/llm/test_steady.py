"""Asynchronous runs: nothing waits, and the record of the order gives the same bytes."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest

from envolve.envs.physics.cartpole import CartPole
from envolve.llm.finals import Result
from envolve.llm.models.chat import Budget, Chat, make_chat
from envolve.llm.search.elites import Elites
from envolve.llm.search.greedy import Extras
from envolve.llm.search.individual import HUMAN, NOVELTY
from envolve.llm.search.prompts import Brief
from envolve.llm.settings import Settings
from envolve.llm.steady import ASK, EVENTS, TELL, TRAIN, EventError, Steady, guided, read_events
from tests.llm.attempts import evolution as make_evolution
from tests.llm.test_evolution import TRAINING, FakeVetter, Watched, recording

REPLIES = ["cos 2", "nonsense", "sin 1", "cos 2", "cos -3", "exp 1", "neg 1", "abs 2", "tanh 1", "sin 3"]
BRIEF = Brief(CartPole, "balance", ("compute_reward",))


class Slow(FakeVetter):
    """Takes a random time, so that things end in another order every time."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw, self.lock = random.Random(seed), threading.Lock()

    def vet(self, reply: str):
        with self.lock:
            seconds = self.draw.random() * 0.01
        time.sleep(seconds)
        return super().vet(reply)


def score(i) -> float:
    """Stands in for a training."""
    return float(sum(map(ord, i.reply)) % 17)


class Trainer:
    """evaluate() without a simulator. kill: raises Ctrl-C in the n-th batch; broken: replies that fail in training."""

    def __init__(self, seed: int, kill: int = -1, broken: tuple[str, ...] = ()) -> None:
        self.draw, self.kill, self.broken, self.batches = random.Random(seed), kill, broken, []

    def __call__(self, training, individuals, seed, report=None) -> None:
        self.batches.append([i.id for i in individuals])
        if len(self.batches) == self.kill:
            raise KeyboardInterrupt
        time.sleep(self.draw.random() * 0.02)
        for i in individuals:
            i.steps += training.iterations
            if i.reply in self.broken:
                i.failure = "NotFinite"
                continue
            i.score, i.curves = (1.0 if i.operator == HUMAN else score(i)), {"score": [0.0, 1.0], "reward": [0.0]}
            i.interval = (i.score - 0.5, i.score + 0.5)


def run(folder: Path, llm: str, seed: int, monkeypatch, kill: int = -1, broken=(), guide=None, **settings) -> Result:
    folder.mkdir(exist_ok=True)
    trainer = Trainer(seed, kill, broken)
    monkeypatch.setattr("envolve.llm.training.evaluate", trainer)
    monkeypatch.setattr("envolve.llm.cascade.evaluate", trainer)
    monkeypatch.setattr("envolve.llm.evolution.last_test", lambda s, entries, watcher: ([], None, []))
    with make_chat([llm], record=folder / "calls.jsonl", budget=Budget()) as chat:
        search = Elites(BRIEF, 3, chat.models, 0, Extras(edits=0.5, notes=True))
        s = Settings(**{"iterations": 3, "training": TRAINING, "seed": 0, "novelty": 1.0, **settings})
        evolution = guided(Steady(s, folder, search, chat, Slow(seed), Watched()), guide)
        return evolution.run()


def bytes_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / EVENTS).read_bytes(), (folder / "individuals.jsonl").read_bytes()


def test_all_is_asked_for_told_once_and_in_an_order_that_makes_sense(tmp_path, monkeypatch) -> None:
    result = run(tmp_path / "run", recording(tmp_path / "r.jsonl", REPLIES), 1, monkeypatch)
    assert [i.id for i in result.individuals] == list(range(9)) and not result.stopped
    assert [i.reply for i in result.individuals] == REPLIES[:9] and result.human.ok
    assert result.individuals[1].rejection == ("extract", "no code")
    assert any(i.rejection and i.rejection[0] == NOVELTY for i in result.individuals)  # "cos 2" again
    under_way: set[int] = set()
    trained: set[int] = set()
    told: set[int] = set()
    for event in read_events(tmp_path / "run" / EVENTS):
        if event.do == ASK:
            under_way |= set(event.ids)
            assert len(under_way) <= 3
        elif event.do == TRAIN:
            assert set(event.ids) <= under_way - trained
            trained |= set(event.ids)
        else:
            assert event.do == TELL and not told & set(event.ids)
            told |= set(event.ids)
            under_way -= set(event.ids)
    assert told == set(range(9)) and not under_way


def test_a_replay_comes_to_the_same_bytes_in_another_order_of_time(tmp_path, monkeypatch) -> None:
    llm = recording(tmp_path / "r.jsonl", REPLIES)
    run(tmp_path / "one", llm, 1, monkeypatch, cascade=0.5)
    for seed in (2, 3):
        guide = tmp_path / "one" / "calls.jsonl"
        other = tmp_path / f"other_{seed}"
        run(other, f"replay:{guide}", seed, monkeypatch, guide=guide, cascade=0.5)
        assert bytes_of(other) == bytes_of(tmp_path / "one")


def cut(folder: Path, new: Path, events: int, lines: int) -> None:
    """What a run had written when it was killed: the calls are whole, the last lines are torn."""
    new.mkdir()
    (new / "calls.jsonl").write_bytes((folder / "calls.jsonl").read_bytes())
    for name, count in ((EVENTS, events), ("individuals.jsonl", lines)):
        every = (folder / name).read_bytes().splitlines(keepends=True)
        (new / name).write_bytes(b"".join(every[:count]) + b"".join(every[count : count + 1])[:9])


def test_killed_anywhere_it_goes_on_to_the_same_bytes(tmp_path, monkeypatch) -> None:
    """Every event, with the individuals that were on disk then, and with one more."""
    llm = recording(tmp_path / "r.jsonl", REPLIES)
    whole = tmp_path / "whole"
    run(whole, llm, 1, monkeypatch)
    events = read_events(whole / EVENTS)
    for k in range(0, len(events), 3):
        told = sum(len(e.ids) for e in events[:k] if e.do == TELL)
        human = any(
            json.loads(line)["operator"] == HUMAN
            for line in (whole / "individuals.jsonl").read_bytes().splitlines()[: told + 1]
        )
        for more in (0, 1):
            folder = tmp_path / f"cut_{k}_{more}"
            cut(whole, folder, k, told + human * (told > 0) + more)
            run(folder, f"replay:{whole / 'calls.jsonl'}", 7 + k, monkeypatch, guide=whole / "calls.jsonl")
            assert bytes_of(folder) == bytes_of(whole), (k, more)


def test_ctrl_c_in_a_training_ends_it_and_a_resumed_run_keeps_what_was_decided(tmp_path, monkeypatch) -> None:
    llm, folder = recording(tmp_path / "r.jsonl", REPLIES), tmp_path / "run"
    stopped = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Chat, "stop", lambda chat: stopped.append(chat))
        run(folder, llm, 1, monkeypatch, kill=2)
    assert stopped  # replies under way, which other threads wait for, are kept
    before, _ = bytes_of(folder)
    result = run(folder, llm, 5, monkeypatch)
    assert bytes_of(folder)[0].startswith(before) and [i.id for i in result.individuals] == list(range(9))
    again = tmp_path / "again"
    run(again, f"replay:{folder / 'calls.jsonl'}", 6, monkeypatch, guide=folder / "calls.jsonl")
    assert bytes_of(again) == bytes_of(folder)


def test_what_failed_in_training_is_repaired_and_trained_again(tmp_path, monkeypatch) -> None:
    path = tmp_path / "r.jsonl"
    recording(path, REPLIES)
    result = run(tmp_path / "run", f"replay:{path}", 1, monkeypatch, broken=("sin 1",), repairs=1)
    assert result.individuals[2].failure == "NotFinite"  # a recording by hand has no repairs: once, and no more
    trained = [e.ids for e in read_events(tmp_path / "run" / EVENTS) if e.do == TRAIN]
    assert sum(2 in ids for ids in trained) == 1


def test_nothing_waits_for_a_training(tmp_path, monkeypatch) -> None:
    """While a training takes its time, other attempts are asked for and vetted."""
    slow, came = threading.Event(), []
    real = Trainer.__call__

    def train(self, *args):
        real(self, *args)
        if len(self.batches) == 1:
            came.append(slow.wait(60))

    class Seen(Slow):
        def vet(self, reply):
            if reply == "cos -3":  # the fifth: more than are under way at first
                slow.set()
            return super().vet(reply)

    monkeypatch.setattr(Trainer, "__call__", train)
    monkeypatch.setattr("tests.llm.test_steady.Slow", Seen)
    replies = ["no", "cos 2", "none", "nothing", "cos -3", *REPLIES[5:]]  # refused ones make room
    run(tmp_path / "run", recording(tmp_path / "r.jsonl", replies), 1, monkeypatch)
    assert came == [True]


@pytest.mark.parametrize(
    "line", ['{"do": "jump", "ids": [1]}', '{"do": "ask"}', '{"do": "ask", "ids": ["1"]}', "[]", "{"]
)
def test_events_that_cannot_be_followed(tmp_path, line) -> None:
    path = tmp_path / EVENTS
    path.write_text('{"do": "ask", "ids": [0]}\n' + line + "\n")
    with pytest.raises(EventError, match="line 2"):
        read_events(path)


def test_a_run_of_other_decisions_is_not_followed(tmp_path, monkeypatch) -> None:
    llm, folder = recording(tmp_path / "r.jsonl", REPLIES), tmp_path / "run"
    run(folder, llm, 1, monkeypatch)
    events = (folder / EVENTS).read_text().splitlines()
    other = tmp_path / "other"
    other.mkdir()
    (other / EVENTS).write_text("\n".join([*events[:2], '{"do": "tell", "ids": [8]}']) + "\n")
    with pytest.raises(EventError, match="line 3: found tell"):
        run(other, llm, 1, monkeypatch, guide=folder / "calls.jsonl")


@pytest.mark.parametrize("line", ['{"do": "tell", "ids": [8]}', '{"do": "train", "ids": [0, 7]}'])
def test_events_that_can_never_be_taken_end_the_run(tmp_path, monkeypatch, line) -> None:
    """A file that was changed: it would wait for ever."""
    llm, folder = recording(tmp_path / "r.jsonl", REPLIES), tmp_path / "run"
    folder.mkdir()
    (folder / EVENTS).write_text('{"do": "ask", "ids": [0]}\n' + line + "\n")
    with pytest.raises(EventError, match=r"events.jsonl, line 2: found t\w+ \[.*, expected what can follow"):
        run(folder, llm, 1, monkeypatch)


def test_once_the_chat_is_stopped_no_repair_is_asked_for(tmp_path, monkeypatch) -> None:
    """At Ctrl-C the vetter is closed below a thread, whose verdict is then none that a repair could be asked for."""
    with make_chat([recording(tmp_path / "r.jsonl", REPLIES)], record=tmp_path / "calls.jsonl") as chat:
        search = Elites(BRIEF, 3, chat.models, 0, Extras())
        s = Settings(iterations=1, training=TRAINING, seed=0, repairs=2)
        evolution = Steady(s, tmp_path, search, chat, FakeVetter(), Watched())
        monkeypatch.setattr("envolve.llm.asking.ask_again", lambda *a: pytest.fail("a repair was asked for"))
        (individual,) = make_evolution(1, 1)
        individual.rejection, individual.repairs = ("limits", "it ended without a result"), []
        chat.stop()
        assert chat.stopped and evolution.asking.repair(0, [individual]) == []
