"""One call from its first attempt to its end: retries, what it may cost and has cost, and its lines in the record.

What a server sends is in the record before it is parsed, and a reply before it is used.
"""

from __future__ import annotations

import datetime
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from envolve.envs.worlds.file import write_atomic
from envolve.llm.models.ledger import Ledger, Reservation
from envolve.llm.models.record import Record
from envolve.llm.models.request import Backend, Body, BudgetSpent, Call, ChatFailure, RecordingEnds, Reply, Transient

log = logging.getLogger("envolve")

FIRST_WAIT = 1.0  # s; doubles with every attempt
LONGEST_WAIT = 60.0
LONGEST_RETRY_AFTER = 120.0
POLL = 0.2  # between looks at whether the model is out


def backoff(attempt: int, retry_after: float | None, rng: random.Random) -> float:
    """Seconds to wait after ``attempt`` (1, 2, ...) failed: exponential with jitter,
    min(LONGEST_WAIT, FIRST_WAIT 2^(attempt-1)) U with U in [0.5, 1), so that parallel calls do not return together;
    at least what the server asks for, up to LONGEST_RETRY_AFTER."""
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempt - 1, 30)) * rng.uniform(0.5, 1.0)
    return wait if retry_after is None else max(wait, min(retry_after, LONGEST_RETRY_AFTER))


@dataclass
class Spent:
    """State of one call. tokens, usd: the most that attempts without a reply may have been billed."""

    attempts: int = 0
    tokens: int = 0
    usd: float = 0.0


class Caller:
    """Makes calls, each in a thread of its own. record: None: nothing is kept. attempts: of each call. seed: of the
    waits. stop: once it is set no attempt begins. sleep: waits so many seconds; None: until then, or until no attempt
    will follow."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        ledger: Ledger,
        record: Record | None,
        attempts: int,
        seed: int,
        stop: threading.Event,
        sleep: Callable[[float], Any] | None,
    ) -> None:
        self.backends, self.ledger, self.record = backends, ledger, record
        self.out: dict[str, ChatFailure] = {}  # models that no call can reach
        self._attempts, self._seed, self._stop, self._sleep = attempts, seed, stop, sleep
        self._writing = threading.Lock()

    def reserve(self, call: Call) -> Reservation | None:
        """Reserves the cost. Raises BudgetSpent."""
        return None if call.request.model in self.ledger.free else self.ledger.reserve(call.request)

    def get(self, call: Call, reserved: Reservation | None) -> Reply | ChatFailure:
        """One call with its retries, booked and recorded. Raises ReplayMismatch, OSError."""
        model, spent = call.request.model, Spent()
        rng = random.Random(f"{self._seed}:{call.index}")
        while True:
            if model in self.out or self._stop.is_set():
                if reserved is not None:
                    self.ledger.release(reserved)
                return self._failed(call, self.out.get(model) or ChatFailure("stopped"), spent)
            answer = self._attempt(call, reserved, spent)
            if isinstance(answer, Reply) or isinstance(answer, RecordingEnds):
                return answer
            if isinstance(answer, ChatFailure):
                if answer.model_is_out:
                    self.out.setdefault(model, answer)
                return self._failed(call, answer, spent)
            if spent.attempts >= self._attempts:
                url = getattr(self.backends[model], "base_url", None)
                where = f"{model} at {url}" if url else model
                text = f"{where}: gave up after attempt {spent.attempts}; the last one: {answer}"
                return self._failed(call, ChatFailure(text), spent)
            wait = backoff(spent.attempts, answer.retry_after, rng)
            log.warning("call %d of %s: %s; next attempt in %.1f s", call.index, model, answer, wait)
            self._pause(model, wait)
            try:
                reserved = self.reserve(call)
            except BudgetSpent as error:
                return self._failed(call, error, spent)

    def _pause(self, model: str, seconds: float) -> None:
        if self._sleep is not None:
            self._sleep(seconds)
            return
        end = time.monotonic() + seconds
        while model not in self.out and (left := end - time.monotonic()) > 0 and not self._stop.wait(min(left, POLL)):
            pass

    def _attempt(self, call: Call, reserved: Reservation | None, spent: Spent) -> Reply | ChatFailure | Transient:
        """One attempt, booked; a body and a reply are recorded, too."""
        spent.attempts += 1
        backend = self.backends[call.request.model]
        try:
            if reserved is not None:
                self._sent(call, reserved, spent)
            answer = backend.send(call)
            if isinstance(answer, Body):
                self._keep(call, answer, spent)
                answer = backend.read(answer, call.request)
        except (ChatFailure, Transient) as error:
            if reserved is not None and error.billed:
                tokens, usd = self.ledger.lose(reserved, error.tokens)
                spent.tokens += tokens
                spent.usd += usd
            elif reserved is not None:
                self.ledger.release(reserved)
            return error
        except BaseException:
            if reserved is not None:  # no other call may wait for it
                self.ledger.lose(reserved)
            raise
        self._replied(call, answer, reserved, spent)
        return answer

    def read_again(
        self, call: Call, body: Body, counted: tuple[int, float] | None, before: tuple[int, float] = (0, 0.0)
    ) -> Reply | None:
        """Reply from the body that an earlier session received and could not read; None if this session cannot either.
        counted: tokens and USD that were booked for its call, None: nothing; then before is what its earlier attempts
        may have cost, which is booked. Raises OSError."""
        most = self.ledger.most(call.request)
        try:
            reply = self.backends[call.request.model].read(body, call.request)
        except (ChatFailure, Transient) as error:
            if counted is None:  # killed between the body and what became of it
                said = error.tokens or (most.prompt, most.completion)
                own = sum(said), self.ledger.usd(call.request.model, *said)
                self.ledger.restore_unconfirmed(call.request.model, *own)
                self._failed(call, ChatFailure(str(error)), Spent(1, before[0] + own[0], before[1] + own[1]))
            return None
        tokens, usd = counted or (0, 0.0)  # of all attempts of that session; this body's was one of them
        spent = Spent(1) if counted else Spent(1, *before)
        self._replied(call, reply, None, spent, (min(tokens, most.tokens), min(usd, most.usd)))
        return reply

    def _replied(
        self,
        call: Call,
        reply: Reply,
        reserved: Reservation | None,
        spent: Spent,
        settles: tuple[int, float] = (0, 0.0),
    ) -> None:
        """Books and records a reply. settles: tokens and USD that were booked as unconfirmed for it before."""
        tokens = reply.prompt_tokens, reply.completion_tokens
        if reserved is None:
            usd = self.ledger.book(call.request.model, *tokens)
        else:
            usd = self.ledger.settle(reserved, *tokens)
        line: dict[str, Any] = {"model": reply.model, "reply": reply.text, "finish": reply.finish}
        line |= {"tokens": [*tokens], "usd": usd}
        if any(settles):
            self.ledger.settle_unconfirmed(call.request.model, *settles)
            line["settles"] = [*settles]
        if reply.asked and reply.asked != call.request.model:  # a recording in which that one stood in
            call = Call(call.index, replace(call.request, model=reply.asked), call.request.model)
        self._write(call, {**line, "seconds": reply.seconds}, spent)

    def _failed(self, call: Call, failure: ChatFailure, spent: Spent) -> ChatFailure:
        if not failure.model_is_out:  # logged once, where the run stops or goes on with other models
            log.warning("call %d: %s", call.index, failure)
        what = {"failure": str(failure), "model_is_out": failure.model_is_out, "final": failure.final}
        self._write(call, what, spent)
        return failure

    def _write(self, call: Call, line: dict[str, Any], spent: Spent) -> None:
        stood_in = {"instead_of": call.instead_of} if call.instead_of else {}
        lost = {"unconfirmed": [spent.tokens, spent.usd]} if spent.tokens else {}
        self._append(call, {"request": call.request.values(), **stood_in, **line, **lost, "attempts": spent.attempts})
        self.save_ledger()

    def _sent(self, call: Call, reserved: Reservation, spent: Spent) -> None:
        """Records what the call may have cost by the end of this attempt: nothing else is left of it if the run is
        killed before the answer."""
        most = [spent.tokens + reserved.tokens, spent.usd + reserved.usd]
        self._append(call, {"sent": spent.attempts, "model": call.request.model, "most": most})

    def _keep(self, call: Call, body: Body, spent: Spent) -> None:
        """Records a body, with what the attempts before it may have cost."""
        line: dict[str, Any] = {"body": body.text, "content_type": body.kind, "seconds": body.seconds}
        if spent.tokens:
            line |= {"model": call.request.model, "unconfirmed": [spent.tokens, spent.usd]}
        self._append(call, line)

    def _append(self, call: Call, line: dict[str, Any]) -> None:
        if self.record is not None:
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            self.record.append({"index": call.index, "sha256": call.request.sha256(), **line, "time": now})

    def save_ledger(self) -> None:
        """Writes ledger.json beside the record."""
        if self.record is not None:
            with self._writing:
                text = json.dumps(self.ledger.values(), indent=1)
                write_atomic(str(self.record.recording.path.with_name("ledger.json")), text.encode())
