"""Asks language models: in parallel, with retries, within a budget, and never twice for the same reply.

    with make_chat(["gpt-4o", "ollama:llama3"], record=Path("results/run/calls.jsonl"), budget=Budget(usd=5)) as chat:
        replies = chat.ask([Call(0, Request("gpt-4o", (("user", "..."),))), Call(1, ...)])

Everything that a model says is in the record before ``ask`` returns; with the same record a run that was killed goes
on without paying again, and "replay:results/run/calls.jsonl" in the place of the models repeats it without a network.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from envolve.llm.models.attempts import Caller, backoff
from envolve.llm.models.ledger import Budget, Ledger, Reservation
from envolve.llm.models.openai_chat import OpenAIChat
from envolve.llm.models.prices import Price, find_price
from envolve.llm.models.record import Record, RecordError, ReplayMismatch
from envolve.llm.models.replay import Replay
from envolve.llm.models.request import (
    Backend,
    BudgetSpent,
    Call,
    ChatError,
    ChatFailure,
    RecordingEnds,
    Reply,
    Request,
    Unanswered,
)
from envolve.llm.models.servers import KEYS, find_key, find_server

__all__ = [
    "Budget", "BudgetSpent", "Call", "Chat", "ChatError", "ChatFailure", "Ledger", "Price", "RecordError",
    "RecordingEnds", "ReplayMismatch", "Reply", "Request", "Unanswered", "backoff", "make_chat", "settled",
]  # fmt: skip

log = logging.getLogger("envolve")

GRACE = 3.0  # s that Ctrl-C leaves to replies under way, which are paid for


class Chat:
    """Models by name, and the one door to them.

    backends: name that requests use -> where it is asked. record: calls.jsonl, read first if it is there; ledger.json
    beside it holds the costs. prices: per model, None: unknown. attempts: of each call. seed: of the waits.
    sleep: function that waits some seconds; by default until then or until the chat is closed.
    Raises ChatError (a record of another run, a budget in USD without a price).
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        record: Path | None,
        budget: Budget = Budget(),  # noqa: B008  frozen
        parallel: int = 8,
        attempts: int = 6,
        *,
        prices: Mapping[str, Price | None] | None = None,
        seed: int = 0,
        sleep: Callable[[float], Any] | None = None,
    ) -> None:
        if parallel < 1 or attempts < 1:
            raise ChatError("parallel and attempts must be at least 1")
        self.models = list(backends)
        self._told: set[str] = set()
        self._backends, self._stop = dict(backends), threading.Event()
        self._room = threading.BoundedSemaphore(parallel)  # of all calls together, whichever thread asks
        self._running: set[threading.Thread] = set()
        free = frozenset(model for model, backend in backends.items() if backend.free)
        known = {model: Price(0, 0) if model in free else (prices or {}).get(model) for model in backends}
        self.ledger = Ledger(known, budget, free)
        self._record = None if record is None else Record(record, self.models)
        self._caller = Caller(self._backends, self.ledger, self._record, attempts, seed, self._stop, sleep)
        if self._record is not None:
            self._restore(self._record)

    def _restore(self, record: Record) -> None:
        """Books what earlier sessions paid."""
        for entry in record.recording.everything:
            assert entry.request is not None
            if entry.reply is not None:
                tokens = entry.reply.prompt_tokens, entry.reply.completion_tokens
                self.ledger.restore(entry.request["model"], *tokens, entry.usd)
            self.ledger.restore_unconfirmed(entry.request["model"], *entry.unconfirmed)
            self.ledger.settle_unconfirmed(entry.request["model"], *entry.settles)
        for sent in [*record.recording.lost, *record.recording.under_way.values()]:
            self.ledger.restore_unconfirmed(sent.model, *sent.most)
        for body in record.recording.bodies.values():
            if body.counted is None and any(body.before):  # killed between the body and what became of it
                self.ledger.restore_unconfirmed(body.model, *body.before)

    def ask(self, calls: Sequence[Call]) -> list[Reply | ChatFailure]:
        """The replies, in the order of calls; where a call has none, why.

        Calls in the record are answered from it, those that failed are asked again. Where a model is out, those that
        are left stand in for it. After a BudgetSpent or RecordingEnds nothing more can be asked.
        Raises ReplayMismatch, ChatError (an unknown model), OSError (the record cannot be written), KeyboardInterrupt.
        """
        answers = self._ask(calls)
        while True:
            lost = [i for i, answer in enumerate(answers) if isinstance(answer, ChatFailure) and answer.model_is_out]
            living = [m for m in self.models if m not in self._caller.out and not self._backends[m].free]
            if not lost or not living:
                return answers
            self._say_who_is_out()
            again = [self._stand_in(calls[i], living[k % len(living)]) for k, i in enumerate(lost)]
            for i, call, answer in zip(lost, again, self._ask(again)):
                answers[i] = replace(answer, asked=call.request.model) if isinstance(answer, Reply) else answer

    def _say_who_is_out(self) -> None:
        """Logs a failed model, once per model."""
        for model, why in list(self._caller.out.items()):
            if model not in self._told:
                log.warning("%s; its calls go to the other models, and a resumed run asks it again", why)
                self._told.add(model)

    @staticmethod
    def _stand_in(call: Call, model: str) -> Call:
        """Same question to another model."""
        return Call(call.index, replace(call.request, model=model), call.request.model)

    def _ask(self, calls: Sequence[Call]) -> list[Reply | ChatFailure]:
        """Same as ``ask``, with the models as given."""
        answers: list[Reply | ChatFailure | None] = [self._known(call) for call in calls]
        todo = [i for i, answer in enumerate(answers) if answer is None]
        broken: list[BaseException] = []
        mine: list[threading.Thread] = []

        def one(i: int, reserved: Reservation | None) -> None:
            try:
                answers[i] = self._caller.get(calls[i], reserved)
            except BaseException as error:  # a bug, a full disk: for the caller, once the others are home
                broken.append(error)
            finally:
                self._running.discard(threading.current_thread())
                self._room.release()

        try:
            for i in todo:
                self._room.acquire()
                if broken:
                    self._room.release()
                    break
                try:
                    # here, so that a budget ends with the same call every time
                    reserved = self._caller.reserve(calls[i])
                except BudgetSpent as error:
                    answers[i] = error
                    self._room.release()
                    continue
                # threads of our own: Python waits for those of a ThreadPoolExecutor at exit, so Ctrl-C would hang
                name = f"call {calls[i].index}"
                mine.append(threading.Thread(target=one, args=(i, reserved), name=name, daemon=True))
                self._running.add(mine[-1])
                try:
                    mine[-1].start()
                except RuntimeError as error:  # the machine has no room for another thread
                    self._running.discard(mine.pop())
                    if reserved is not None:
                        self.ledger.release(reserved)
                    self._room.release()
                    broken.append(error)
                    break
            for thread in mine:
                thread.join()
        except KeyboardInterrupt:
            self.stop()
            raise
        if broken:
            raise broken[0]
        return [cast("Reply | ChatFailure", answer) for answer in answers]

    @property
    def stopped(self) -> bool:
        """True once no attempt begins any more."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Lets no attempt begin, and waits a moment for replies under way, whichever thread asked for them: Ctrl-C
        arrives in the main thread alone."""
        self._stop.set()
        alive = [thread for thread in self._running.copy() if thread.is_alive()]
        if alive:
            log.warning("waiting up to %g s for %d pending replies; press Ctrl-C to skip", GRACE, len(alive))
        left = GRACE
        for thread in alive:
            while thread.is_alive() and left > 0:
                thread.join(0.1)
                left -= 0.1

    def _known(self, call: Call) -> Reply | None:
        """Reply from the record. Raises ReplayMismatch, ChatError, OSError."""
        if call.request.model not in self._backends:
            raise ChatError(f"unknown model {call.request.model!r}; this run has {', '.join(self.models)}")
        if self._record is None or call.instead_of:
            return None
        recording = self._record.recording
        entry = recording.find(call)
        if entry is not None and entry.reply is not None:
            return entry.reply_to(call)
        left = recording.bodies.get(call.index)
        if left is None or left.sha256 != call.request.sha256():
            return None
        return self._caller.read_again(call, left.body, left.counted, left.before)

    def close(self) -> None:
        """Closes connections."""
        self._stop.set()
        for backend in self._backends.values():
            backend.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def settled(answers: Sequence[Reply | ChatFailure]) -> str:
    """Reason why nothing more can be asked (the budget is spent, the recording ends); "": more can be asked.

    Raises Unanswered where calls failed that may be answered another time, as the next question depends on them; the
    same where all were refused, which is no fault of a single one.
    """
    ends = [a for a in answers if isinstance(a, (BudgetSpent, RecordingEnds))]
    failed = [a for a in answers if isinstance(a, ChatFailure) and a not in ends]
    waiting = [a for a in failed if not a.final] or (failed if len(failed) == len(answers) else [])
    dead = [a for a in waiting if a.model_is_out]
    if dead or (waiting and not ends):
        replies = sum(isinstance(a, Reply) for a in answers)
        raise Unanswered(f"{(dead or waiting)[0]}; {replies} of {len(answers)} calls are answered and kept")
    return str(ends[0]) if ends else ""


def make_chat(
    models: Sequence[str],
    base_url: str | None = None,
    record: Path | None = None,
    *,
    budget: Budget = Budget(),  # noqa: B008  frozen
    prices: Mapping[str, Price] = {},
    parallel: int = 8,
    attempts: int = 6,
    timeout: float = 300.0,
    seed: int = 0,
    environ: Mapping[str, str] = os.environ,
    sleep: Callable[[float], Any] | None = None,
) -> Chat:
    """A Chat for models as a user names them; ``Chat.models`` has the names for requests.

    "gpt-...", "o3", ... (OPENAI_API_KEY), "claude-..." (ANTHROPIC_API_KEY), "ollama:NAME" (OLLAMA_HOST), "replay:FILE",
    or with base_url any name that the server there knows (LLM_API_KEY, if it wants a key). prices: go before the table
    in prices.py. timeout: of an attempt, in s.
    Raises ChatError: no such model, no key, no `openai`, a recording or record that cannot be used.
    """
    if not models:
        raise ChatError("no model: name one, such as gpt-4o, claude-sonnet-5, ollama:llama3 or replay:FILE")
    backends: dict[str, Backend] = {}
    known: dict[str, Price | None] = {}
    for name in models:
        if name.startswith("replay:"):
            replay = Replay(name)
            found: dict[str, Backend] = dict.fromkeys(replay.models, replay)
        else:
            model, url = find_server(name, base_url, environ)
            found = {name: OpenAIChat(model, url, find_key(name, url, environ), timeout)}
            # another server may sell the same name for another price; Ollama's models run on the user's machine
            table = {name: Price(0, 0)} if name.startswith("ollama:") else {}
            known[name] = find_price(name, {**table, **prices}) if table or url in KEYS else prices.get(name)
        twice = backends.keys() & found.keys()
        if twice:
            raise ChatError(f"model {sorted(twice)[0]!r} is given twice: by name, or in two recordings")
        backends.update(found)
    return Chat(backends, record, budget, parallel, attempts, prices=known, seed=seed, sleep=sleep)
