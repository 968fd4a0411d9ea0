"""An evolution without generations: a call, a vetting or a training never waits for the others.

As many attempts as an iteration has are under way at any time. Each is asked for, vetted and, if needed, repaired in a
thread of its own. The main thread trains whatever is ready in one simulator. What ends is told to the search at once,
and the next attempt is asked for from all that is known then.

What is decided depends on the order in which things end, which no two runs share. So the order is written down:
events.jsonl has a line for every decision, before it has an effect. A resumed run, and a replay of a finished one,
takes the same decisions in the same order, whatever ends first this time, and comes to the same bytes.

    {"do": "ask", "ids": [4]}      attempt 4 is asked for, from what was told so far
    {"do": "train", "ids": [2, 3]} these share a simulator
    {"do": "tell", "ids": [2, 3]}  they are over: the search knows them now
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from envolve.llm import json_lines
from envolve.llm.asking import attempt
from envolve.llm.evolution import Evolution
from envolve.llm.finals import Result
from envolve.llm.search.individual import Individual, Proposal, RewardSearch
from envolve.llm.training import reject_copies, train

EVENTS = "events.jsonl"
ASK, TRAIN, TELL = "ask", "train", "tell"
OVER = "over"  # what a thread says of an attempt that cannot be mended
JOIN = 10.0  # s that the coordinator has to finish what it is writing
PATIENCE = 0.2  # s between looks at Ctrl-C


class OneByOne(RewardSearch, Protocol):
    """A search that can be asked for a single attempt at any time. samples: attempts under way at once."""

    samples: int

    def one(self, number: int, under_way: Sequence[str] = ()) -> Proposal: ...


class Event(NamedTuple):
    """A decision."""

    do: str
    ids: tuple[int, ...]


class EventError(ValueError):
    """Raised for a file of events that cannot be followed. The text names file, line and fault."""


def read_events(path: Path) -> list[Event]:
    """Events of a run; none without a file. Raises EventError."""
    out = []
    try:
        for number, content in json_lines.read(path):
            do, ids = str(content.get("do")), content.get("ids")
            if (
                do not in (ASK, TRAIN, TELL)
                or not isinstance(ids, list)
                or not ids
                or not all(type(i) is int for i in ids)
            ):
                raise EventError(
                    f'{path}, line {number}: expected {{"do": "ask", "train" or "tell", "ids": [numbers]}}'
                )
            out.append(Event(do, tuple(ids)))
    except json_lines.JSONLinesError as e:
        raise EventError(str(e)) from None
    return out


class Steady(Evolution):
    """One asynchronous evolution. guide: events of the run that is replayed, none without one."""

    search: OneByOne
    guide: Sequence[Event] = ()

    def run(self) -> Result:
        """Same as of ``Evolution``. Raises EventError as well."""
        s, path = self.s, self.folder / EVENTS
        own = read_events(path)
        guide = self.guide
        k = next((k for k, (a, b) in enumerate(zip(own, guide)) if a != b), None)
        if k is not None:
            raise EventError(
                f"{path}, line {k + 1}: found {own[k].do} {own[k].ids}, expected what the replayed run has"
            )
        self._planned = iter([*own, *guide[len(own) :]])
        self._written = len(own)
        self._known = {i.id: i for group in self.remember().values() for i in group}
        self._total = s.iterations * self.search.samples
        self._asked = 0
        self._under_way: dict[int, Individual] = {}  # asked for and not told
        self._vetted: set[int] = set()
        self._training: tuple[int, ...] = ()
        self._over: set[int] = set()  # may be told
        self._seen: list[Individual] = []  # that the search has been told, and those in training
        self._first_batch: set[int] = set()  # with which the human's shapers are trained
        self._pending = 0  # what is yet to come to _done
        self._done: queue.Queue[tuple[str, int, BaseException | None]] = queue.Queue()
        self._work: queue.Queue[tuple[tuple[int, ...], list[float]] | None] = queue.Queue()
        coordinator = threading.Thread(target=self._coordinate, name="steady", daemon=True)
        coordinator.start()
        try:
            self._train_as_told()
        except BaseException:
            self._closed = True  # first: nothing new is asked meanwhile
            self.asking.chat.stop()
            raise
        finally:
            self._closed = True
            coordinator.join(JOIN)
        self.individuals.sort(key=lambda i: i.id)
        if self.asking.stopped:
            self.watcher.note(f"stopped after {len(self.individuals)} attempts: {self.asking.stopped}")
        return self.finish()

    _closed = False
    _broken: BaseException | None = None

    # ------------------------------------------------------------------------------------------------ the main thread

    def _train_as_told(self) -> None:
        """Trains batches until the coordinator has no more; Ctrl-C arrives here."""
        while True:
            try:
                work = self._work.get(timeout=PATIENCE)
            except queue.Empty:
                continue
            if work is None:
                break
            batch, shorts = work
            members = [self._under_way[i] for i in batch]
            train(self.s, self.watcher, members[0].iteration, members, self.human, shorts)
            self._done.put((TRAIN, batch[0], None))
        if self._broken is not None:
            raise self._broken

    # ------------------------------------------------------------------------------------------------ the coordinator

    def _coordinate(self) -> None:
        act = {ASK: self._ask_now, TRAIN: self._train_now, TELL: self._tell_now}
        try:
            for event in self._events():
                if self._written:
                    self._written -= 1  # of an earlier session
                else:
                    json_lines.append(self.folder / EVENTS, event._asdict() | {"ids": list(event.ids)})
                act[event.do](event.ids)
        except BaseException as e:
            self._broken = e
        self._work.put(None)

    def _events(self) -> Iterator[Event]:
        """Decisions: the planned ones, each when it can be taken, then new ones."""
        for number, event in enumerate(self._planned, 1):
            if event.do == ASK and (event.ids[0] >= self._total or event.ids[0] != self._asked):
                break  # of a longer run
            while not self._possible(event):
                if not self._pending:
                    raise EventError(
                        f"{self.folder / EVENTS}, line {number}: found {event.do} {list(event.ids)}, expected what can "
                        "follow the lines before it"
                    )
                self._wait()
            yield event
        while True:
            if self._closed:
                return
            new = self._decided()
            if new is not None:
                yield new
            elif not self._under_way:
                return
            else:
                self._wait()

    def _possible(self, event: Event) -> bool:
        if event.do == ASK:
            return True
        if event.do == TRAIN:  # what an earlier session has trained and repaired is over already
            done = {i for i in self._over if self._known.get(i) is self._under_way[i]}
            return not self._training and set(event.ids) <= self._vetted | done
        return set(event.ids) <= self._over

    def _decided(self) -> Event | None:
        """What to do now, from what has ended."""
        if self._over:
            return Event(TELL, tuple(sorted(self._over)))
        if self._vetted and not self._training:
            return Event(TRAIN, tuple(sorted(self._vetted)))
        more = self._asked < self._total and len(self._under_way) < self.search.samples and not self.asking.stopped
        return Event(ASK, (self._asked,)) if more else None

    def _wait(self) -> None:
        """Waits for something to end."""
        try:
            what, number, error = self._done.get(timeout=PATIENCE)
        except queue.Empty:
            if self._closed:
                raise KeyboardInterrupt from None
            return
        self._pending -= 1
        if error is not None:
            raise error
        if what == TRAIN:
            batch, self._training = self._training, ()
            for i in batch:
                individual = self._under_way[i]
                again = individual.failure is not None and len(individual.repairs) < self.s.repairs
                if again and not self.asking.stopped:
                    self._begin(i, None)
                else:
                    self._over.add(i)
        elif what == OVER or self._under_way[number].rejection is not None:
            self._over.add(number)
        else:
            self._vetted.add(number)

    # --------------------------------------------------------------------------------------------------- the decisions

    def _ask_now(self, ids: tuple[int, ...]) -> None:
        (number,) = ids
        p = self.search.one(number, [i.model for i in self._under_way.values()])
        iteration = number // self.search.samples
        self._asked = number + 1
        old = self._known.get(number)
        if old is not None:
            self._under_way[number] = old
            self._pending += 1
            self._done.put((ASK, number, None))
            return
        self._under_way[number] = attempt(number, iteration, p)
        self.watcher.asking(iteration, 1)
        self._begin(number, p)

    def _begin(self, number: int, p: Proposal | None) -> None:
        """Asks and vets in a thread; None: again, with what was wrong."""
        self._pending += 1
        thread = threading.Thread(target=self._reply, args=(number, p), name=f"attempt {number}", daemon=True)
        thread.start()

    def _reply(self, number: int, p: Proposal | None) -> None:
        individual, asking, error, what = self._under_way[number], self.asking, None, ASK
        try:
            if p is None:
                what = ASK if asking.repair(individual.iteration, [individual], 1) else OVER
            else:
                asking.ask_one(individual, p)
                if individual.rejection is None:
                    asking.vet(individual.iteration, [individual])
                    asking.repair(individual.iteration, [individual] * (individual.rejection is not None))
        except BaseException as e:
            error = e
        self._done.put((what, number, error))

    def _train_now(self, ids: tuple[int, ...]) -> None:
        self._vetted -= set(ids)
        members = [self._under_way[i] for i in ids]
        if all(self._known.get(i.id) is i for i in members):  # trained in an earlier session
            self._first_batch = self._first_batch or set(ids)
            self._seen += members
            self._over |= set(ids)
            return
        self._over -= set(ids)
        members = [self._fresh(i) for i in members]
        self._under_way.update({i.id: i for i in members})
        reject_copies(self.s, members, self._seen)
        accepted = [i for i in members if i.rejection is None]
        self._first_batch = self._first_batch or {i.id for i in accepted}
        self._seen += accepted
        self._training = ids
        self._pending += 1
        self._work.put((ids, [i.short for i in self.individuals]))

    def _fresh(self, i: Individual) -> Individual:
        """Of an earlier session, if others of its batch were not trained: as it was before the training."""
        if i.id not in self._known:
            return i
        nan = float("nan")
        return replace(i, failure=None, score=nan, interval=None, agent_scores=[], curves={}, steps=0, short=nan)

    def _tell_now(self, ids: tuple[int, ...]) -> None:
        told = [self._under_way.pop(i) for i in ids]
        self._over -= set(ids)
        new = [i for i in told if self._known.get(i.id) is not i]
        first = not self._human_told and bool(self._first_batch & set(ids))
        self._human_told = self._human_told or first
        if new:
            self.archive.put([self.human, *new] if first else new)
        self.individuals += told
        self.search.tell([*told, self.human] if self._human_told and self.human.ok else told)
        self.watcher.finished(told[0].iteration, told)

    _human_told = False


def guided(evolution: Steady, recording: Path | None) -> Steady:
    """The evolution that follows the events of a recorded run, if they are beside its calls."""
    evolution.guide = read_events(recording.with_name(EVENTS)) if recording is not None else []
    return evolution
