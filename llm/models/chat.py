"""Asks language models: in parallel, with retries, within a budget, and never twice for the same reply.

    with make_chat(["gpt-4o", "ollama:llama3"], record=Path("results/run/calls.jsonl"), budget=Budget(usd=5)) as chat:
        replies = chat.ask([Call(0, Request("gpt-4o", (("user", "..."),))), Call(1, ...)])

Everything that a model says is in the record before ``ask`` returns; with the same record a run that was killed goes
on without paying again, and "replay:results/run/calls.jsonl" in the place of the models repeats it without a network.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from envs.world_file import write_atomic
from llm.models.ledger import Budget, Ledger, Reservation
from llm.models.openai_chat import OpenAIChat
from llm.models.prices import Price, find_price
from llm.models.record import Record, RecordError, ReplayMismatch
from llm.models.replay import Replay
from llm.models.request import (
    Backend,
    BudgetSpent,
    Call,
    ChatError,
    ChatFailure,
    RecordingEnds,
    Reply,
    Request,
    Transient,
)
from llm.models.servers import KEYS, find_key, find_server

__all__ = [
    "Budget", "BudgetSpent", "Call", "Chat", "ChatError", "ChatFailure", "Ledger", "Price", "RecordError",
    "RecordingEnds", "ReplayMismatch", "Reply", "Request", "backoff", "make_chat",
]  # fmt: skip

log = logging.getLogger("envolve")

FIRST_WAIT = 1.0  # s; doubles with every attempt
LONGEST_WAIT = 60.0
LONGEST_RETRY_AFTER = 120.0
GRACE = 10.0  # s that Ctrl-C leaves to replies under way, which are paid for


def backoff(attempt: int, retry_after: float | None, rng: random.Random) -> float:
    """Seconds to wait after ``attempt`` (1, 2, ...) failed: exponential with jitter,
    min(LONGEST_WAIT, FIRST_WAIT 2^(attempt-1)) U with U in [0.5, 1), so that parallel calls do not return together;
    at least what the server asks for, up to LONGEST_RETRY_AFTER."""
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempt - 1, 30)) * rng.uniform(0.5, 1.0)
    return wait if retry_after is None else max(wait, min(retry_after, LONGEST_RETRY_AFTER))


@dataclass
class _Spent:
    """On one call so far. tokens, usd: the most that attempts without a reply may have been billed."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0


class Chat:
    """Models by name, and the one door to them.

    backends: name that requests use -> where it is asked. record: calls.jsonl, read first if it is there; ledger.json
    beside it holds the costs. prices: per model, None: unknown. attempts: of each call. seed: of the waits.
    sleep: waits so many seconds; by default until then or until the chat is closed.
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
        self._backends, self._attempts, self._parallel, self._seed = dict(backends), attempts, parallel, seed
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait
        free = frozenset(model for model, backend in backends.items() if backend.free)
        known = {model: Price(0, 0) if model in free else (prices or {}).get(model) for model in backends}
        self.ledger = Ledger(known, budget, free)
        self._out: dict[str, ChatFailure] = {}  # models that no call can reach
        self._record = None if record is None else Record(record, self.models)
        self._ledger_file = None if record is None else record.with_name("ledger.json")
        self._writing = threading.Lock()
        if self._record is not None:
            self._restore(self._record)

    def _restore(self, record: Record) -> None:
        """Counts what earlier sessions paid."""
        for entry in record.recording.everything:
            assert entry.request is not None
            if entry.reply is not None:
                tokens = entry.reply.prompt_tokens, entry.reply.completion_tokens
                self.ledger.restore(entry.request["model"], *tokens, entry.usd)
            self.ledger.restore_unconfirmed(entry.request["model"], *entry.unconfirmed)

    def ask(self, calls: Sequence[Call]) -> list[Reply | ChatFailure]:
        """The replies, in the order of calls; where a call has none, why.

        Calls in the record are answered from it. After a BudgetSpent or RecordingEnds nothing more can be asked.
        Raises ReplayMismatch, ChatError (an unknown model), OSError (the record cannot be written), KeyboardInterrupt.
        """
        answers: list[Reply | ChatFailure | None] = [self._known(call) for call in calls]
        todo = [i for i, answer in enumerate(answers) if answer is None]
        broken: list[BaseException] = []
        room = threading.BoundedSemaphore(self._parallel)
        running: list[threading.Thread] = []

        def one(i: int, reserved: Reservation | None) -> None:
            try:
                answers[i] = self._get(calls[i], reserved)
            except BaseException as error:  # a bug, a full disk: for the caller, once the others are home
                broken.append(error)
            finally:
                room.release()

        try:
            for i in todo:
                room.acquire()
                if broken:
                    break
                try:
                    reserved = self._reserve(calls[i])  # here, so that a budget ends with the same call every time
                except BudgetSpent as error:
                    answers[i] = error
                    room.release()
                    continue
                # threads of our own: Python waits for those of a ThreadPoolExecutor at exit, so Ctrl-C would hang
                name = f"call {calls[i].index}"
                running.append(threading.Thread(target=one, args=(i, reserved), name=name, daemon=True))
                running[-1].start()
            for thread in running:
                thread.join()
        except KeyboardInterrupt:
            self._interrupted(running)
            raise
        if broken:
            raise broken[0]
        return [cast("Reply | ChatFailure", answer) for answer in answers]

    def _reserve(self, call: Call) -> Reservation | None:
        """Raises BudgetSpent."""
        return None if call.request.model in self.ledger.free else self.ledger.reserve(call.request)

    def _interrupted(self, running: list[threading.Thread]) -> None:
        self._stop.set()
        alive = [thread for thread in running if thread.is_alive()]
        if alive:
            log.warning("waiting up to %g s for %d replies that are under way; Ctrl-C: not at all", GRACE, len(alive))
        left = GRACE
        for thread in alive:
            while thread.is_alive() and left > 0:
                thread.join(0.1)
                left -= 0.1

    def _known(self, call: Call) -> Reply | None:
        """From the record. Raises ReplayMismatch, ChatError."""
        if call.request.model not in self._backends:
            raise ChatError(f"unknown model {call.request.model!r}; this run has {', '.join(self.models)}")
        entry = self._record.recording.find(call) if self._record is not None else None
        return entry.reply if entry is not None else None

    def _get(self, call: Call, reserved: Reservation | None) -> Reply | ChatFailure:
        """One call with its retries, booked and recorded. Raises ReplayMismatch, OSError."""
        model, spent = call.request.model, _Spent()
        rng = random.Random(f"{self._seed}:{call.index}")
        while True:
            if model in self._out or self._stop.is_set():
                if reserved is not None:
                    self.ledger.release(reserved)
                return self._failed(call, self._out.get(model) or ChatFailure("stopped"), spent)
            answer = self._attempt(call, reserved, spent)
            if isinstance(answer, Reply) or isinstance(answer, RecordingEnds):
                return answer
            if isinstance(answer, ChatFailure):
                if answer.model_is_out:
                    self._out[model] = answer
                return self._failed(call, answer, spent)
            if spent.attempts >= self._attempts:
                url = getattr(self._backends[model], "base_url", None)
                where = f"{model} at {url}" if url else model
                text = f"{where}: gave up after attempt {spent.attempts}; the last one: {answer}"
                return self._failed(call, ChatFailure(text), spent)
            wait = backoff(spent.attempts, answer.retry_after, rng)
            log.warning("call %d of %s: %s; next attempt in %.1f s", call.index, model, answer, wait)
            self._sleep(wait)
            try:
                reserved = self._reserve(call)
            except BudgetSpent as error:
                return self._failed(call, error, spent)

    def _attempt(self, call: Call, reserved: Reservation | None, spent: _Spent) -> Reply | ChatFailure | Transient:
        """One attempt, booked; a reply is recorded, too."""
        spent.attempts += 1
        try:
            reply = self._backends[call.request.model].send(call)
        except (ChatFailure, Transient) as error:
            if reserved is not None and error.billed:
                spent.tokens += reserved.tokens
                spent.usd += reserved.usd
                self.ledger.lose(reserved)
            elif reserved is not None:
                self.ledger.release(reserved)
            return error
        except BaseException:
            if reserved is not None:  # no other call may wait for it
                self.ledger.lose(reserved)
            raise
        tokens = reply.prompt_tokens, reply.completion_tokens
        if reserved is None:
            usd = self.ledger.book_free(call.request.model, *tokens)
        else:
            usd = self.ledger.settle(reserved, *tokens)
        line = {"model": reply.model, "reply": reply.text, "finish": reply.finish, "tokens": [*tokens], "usd": usd}
        self._write(call, {**line, "seconds": reply.seconds}, spent)
        return reply

    def _failed(self, call: Call, failure: ChatFailure, spent: _Spent) -> ChatFailure:
        log.warning("call %d: %s", call.index, failure)
        self._write(call, {"failure": str(failure), "model_is_out": failure.model_is_out}, spent)
        return failure

    def _write(self, call: Call, line: dict[str, Any], spent: _Spent) -> None:
        if self._record is None:
            return
        head = {"index": call.index, "sha256": call.request.sha256(), "request": call.request.values()}
        lost = {"unconfirmed": [spent.tokens, spent.usd]} if spent.tokens else {}
        time = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._record.append({**head, **line, **lost, "attempts": spent.attempts, "time": time})
        self.save_ledger()

    def save_ledger(self) -> None:
        """Writes ledger.json beside the record."""
        if self._ledger_file is not None:
            with self._writing:
                text = json.dumps(self.ledger.values(), indent=1)
                write_atomic(str(self._ledger_file), text.encode())

    def close(self) -> None:
        """Lets go of connections."""
        self._stop.set()
        for backend in self._backends.values():
            backend.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


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
            raise ChatError(f"model {sorted(twice)[0]!r} is there twice: named, or in two recordings")
        backends.update(found)
    return Chat(backends, record, budget, parallel, attempts, prices=known, seed=seed, sleep=sleep)
