"""Ledger of calls and costs by model, and a budget that they cannot exceed.

Before a call is sent, the most that it can cost is reserved; when its reply is there, what it did cost is booked
instead. So the money spent never exceeds the budget, however many calls are under way, as long as servers keep to
max_tokens and prompts have no more tokens than is estimated here.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from envolve.llm.models.prices import Price
from envolve.llm.models.request import BudgetSpent, ChatError, Request


@dataclass(frozen=True)
class Budget:
    """Largest cost of a run, over all its sessions. None: no limit. tokens: of prompts and replies together."""

    usd: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value < math.inf:
                raise ChatError(f"budget of {value} {name}; expected 0 or more")


@dataclass(frozen=True)
class Reservation:
    """Reservation for one attempt. usd: 0 if the price is unknown (then there is no budget in USD)."""

    model: str
    prompt: int
    completion: int
    usd: float

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


@dataclass
class LedgerRow:
    """One model, or all ("total"). usd: None if a price is unknown.

    unconfirmed: the most that attempts without a readable reply (timeouts, cut connections) may have been billed.
    """

    model: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = 0.0
    unconfirmed_tokens: int = 0
    unconfirmed_usd: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """Table row: model, calls, tokens in, tokens out, USD."""
        usd = "unknown" if self.usd is None else f"{self.usd:.4f}"
        if self.unconfirmed_usd:
            usd += f" (+ at most {self.unconfirmed_usd:.4f})"
        return self.model, f"{self.calls:,}", f"{self.prompt_tokens:,}", f"{self.completion_tokens:,}", usd


def prompt_tokens(request: Request) -> int:
    """Upper estimate of the tokens of English, code or Chinese: a token for 3 bytes, and 8 for each message."""
    size = sum(len(content.encode("utf-8", "replace")) for _, content in request.messages)
    return math.ceil(size / 3) + 8 * len(request.messages)


class Ledger:
    """Thread-safe. ``prices[model]`` is None where unknown; raises ChatError if that leaves a budget in USD unchecked.

    free: models whose replies count against no budget (recordings).
    """

    def __init__(self, prices: Mapping[str, Price | None], budget: Budget, free: frozenset[str] = frozenset()) -> None:
        self.prices, self.budget, self.free = dict(prices), budget, free
        for model, price in prices.items():
            self._check_price(model, price is not None)
        self._rows = {model: LedgerRow(model, usd=None if price is None else 0.0) for model, price in prices.items()}
        self._open: list[Reservation] = []
        self._spent = False  # once a call did not fit, no later one is sent: the end of a run is one place
        self._changed = threading.Condition()

    def _check_price(self, model: str, known: bool) -> None:
        if self.budget.usd is not None and not known:
            raise ChatError(
                f"a budget in USD, but the price of {model!r} is unknown: give --price {model}=IN,OUT in USD per "
                "million tokens (0,0 for a server of your own), or a budget in tokens instead"
            )

    def reserve(self, request: Request) -> Reservation:
        """Reserves the cost of an attempt; waits for pending calls if these hold the rest of the budget. Raises
        BudgetSpent."""
        wanted = self.most(request)
        with self._changed:
            while not self._spent and (lack := self._lacking(wanted)):
                if self._open:
                    self._changed.wait()
                    continue
                self._spent = True
                self._changed.notify_all()
                raise BudgetSpent(lack)
            if self._spent:
                raise BudgetSpent("the budget is spent")
            self._open.append(wanted)
        return wanted

    @property
    def spent(self) -> bool:
        """True if a call was refused because of the budget."""
        return self._spent

    def most(self, request: Request) -> Reservation:
        """Largest cost of an attempt."""
        model, prompt = request.model, prompt_tokens(request)
        return Reservation(model, prompt, request.max_tokens, self.usd(model, prompt, request.max_tokens))

    def usd(self, model: str, prompt: int, completion: int) -> float:
        """Price of these tokens; 0 if unknown."""
        price = self.prices[model]
        return 0.0 if price is None else price.usd(prompt, completion)

    def _lacking(self, wanted: Reservation) -> str:
        total, limit = self._sum([row for row in self._rows.values() if row.model not in self.free]), self.budget
        tokens = total.prompt_tokens + total.completion_tokens + total.unconfirmed_tokens
        if limit.tokens is not None:
            after = tokens + sum(r.tokens for r in self._open) + wanted.tokens
            if after > limit.tokens:
                return (
                    f"the budget is spent: {tokens:,} of {limit.tokens:,} tokens, and the next call may take "
                    f"{wanted.tokens:,}"
                )
        if limit.usd is not None:
            paid = (total.usd or 0.0) + total.unconfirmed_usd
            if paid + sum(r.usd for r in self._open) + wanted.usd > limit.usd:
                return (
                    f"the budget is spent: {paid:.4f} of {limit.usd:g} USD, and the next call may cost {wanted.usd:.4f}"
                )
        return ""

    def settle(self, reserved: Reservation, prompt: int, completion: int) -> float | None:
        """Books a reply. Returns its cost in USD, None if unknown."""
        with self._changed:
            self._close(reserved)
            return self._book(reserved.model, prompt, completion)

    def lose(self, reserved: Reservation, said: tuple[int, int] | None = None) -> tuple[int, float]:
        """Books an attempt that may have been billed without a usable reply: its largest cost, or that of the tokens
        that the server reported. Returns the booked tokens and USD."""
        lost = (reserved.tokens, reserved.usd) if said is None else (sum(said), self.usd(reserved.model, *said))
        with self._changed:
            self._close(reserved)
            self._book_unconfirmed(reserved.model, *lost)
        return lost

    def release(self, reserved: Reservation) -> None:
        """Releases the reservation of an attempt that cost nothing."""
        with self._changed:
            self._close(reserved)

    def book(self, model: str, prompt: int, completion: int) -> float | None:
        """Books a reply without a reservation: a recording's, or one that was received earlier. Returns its cost in
        USD, None if unknown."""
        with self._changed:
            return self._book(model, prompt, completion)

    def restore(self, model: str, prompt: int, completion: int, usd: float | None) -> None:
        """Books a reply of an earlier session; usd: its cost then, used if the price is unknown now. Raises ChatError
        if a budget in USD needs an unknown price.
        """
        with self._changed:
            if self._earlier(model):
                self._check_price(model, usd is not None)
                row = self._rows[model]
                row.usd = None if row.usd is None or usd is None else row.usd + usd
            self._book(model, prompt, completion)

    def restore_unconfirmed(self, model: str, tokens: int, usd: float) -> None:
        """Books attempts of an earlier session that may have been billed."""
        with self._changed:
            self._earlier(model)
            self._book_unconfirmed(model, tokens, usd)

    def settle_unconfirmed(self, model: str, tokens: int, usd: float) -> None:
        """Takes back what was booked for an attempt whose reply is booked now."""
        with self._changed:
            self._earlier(model)
            self._book_unconfirmed(model, -tokens, -usd)

    def _earlier(self, model: str) -> bool:
        """True if only earlier sessions used this model; it still gets a row."""
        if model not in self.prices:
            self._rows.setdefault(model, LedgerRow(model))
        return model not in self.prices

    def _close(self, reserved: Reservation) -> None:
        self._open.remove(reserved)
        self._changed.notify_all()

    def _book(self, model: str, prompt: int, completion: int) -> float | None:
        row, price = self._rows[model], self.prices.get(model)
        row.calls += 1
        row.prompt_tokens += prompt
        row.completion_tokens += completion
        if price is None or row.usd is None:
            return None
        usd = price.usd(prompt, completion)
        row.usd += usd
        return usd

    def _book_unconfirmed(self, model: str, tokens: int, usd: float) -> None:
        self._rows[model].unconfirmed_tokens += tokens
        self._rows[model].unconfirmed_usd += usd

    def total(self) -> LedgerRow:
        with self._changed:  # a Condition's lock is re-entrant
            return self._sum(list(self._rows.values()))

    @staticmethod
    def _sum(rows: list[LedgerRow]) -> LedgerRow:
        paid = [row.usd for row in rows if row.calls]
        return LedgerRow(
            "total",
            sum(row.calls for row in rows),
            sum(row.prompt_tokens for row in rows),
            sum(row.completion_tokens for row in rows),
            None if None in paid else sum(usd for usd in paid if usd is not None),
            sum(row.unconfirmed_tokens for row in rows),
            sum(row.unconfirmed_usd for row in rows),
        )

    def rows(self) -> list[LedgerRow]:
        """Rows by model, in the order of the models, then the total. Copies."""
        with self._changed:
            return [*(LedgerRow(**asdict(row)) for row in self._rows.values()), self.total()]

    def values(self) -> dict[str, Any]:
        """Content of ledger.json."""
        *models, total = [asdict(row) for row in self.rows()]
        return {"models": models, "total": total, "budget": asdict(self.budget)}
