"""Ledger and prices."""

from __future__ import annotations

import pytest

from envolve.llm.models.ledger import Budget, Ledger, LedgerRow, prompt_tokens
from envolve.llm.models.prices import PRICES, Price, find_price, parse_prices
from envolve.llm.models.request import ChatError, Request


def request(model="m", text="x" * 300, max_tokens=100):
    return Request(model, (("user", text),), max_tokens=max_tokens)


def test_rows_and_total() -> None:
    ledger = Ledger({"a": Price(1, 10), "b": None, "r": Price(0, 0)}, Budget(), frozenset({"r"}))
    reserved = ledger.reserve(request("a"))
    assert (reserved.prompt, reserved.completion, reserved.usd) == (108, 100, pytest.approx(1.108e-3))
    assert ledger.settle(reserved, 1_000_000, 100_000) == 2
    ledger.book("r", 7, 8)
    assert ledger.rows()[:3] == [
        LedgerRow("a", 1, 1_000_000, 100_000, 2.0),
        LedgerRow("b", usd=None),
        LedgerRow("r", 1, 7, 8, 0.0),
    ]
    assert ledger.rows()[3] == LedgerRow("total", 2, 1_000_007, 100_008, 2.0)
    assert ledger.settle(ledger.reserve(request("b")), 1, 1) is None
    assert ledger.total().usd is None
    ledger.lose(ledger.reserve(request("a")))
    assert ledger.rows()[0].cells() == ("a", "1", "1,000,000", "100,000", "2.0000 (+ at most 0.0011)")
    assert ledger.values()["budget"] == {"usd": None, "tokens": None}


def test_earlier_sessions_count() -> None:
    ledger = Ledger({"a": Price(1, 1)}, Budget(usd=10))
    ledger.restore("a", 1_000_000, 0, 99.0)  # this session's price goes before what was written
    ledger.restore("gone", 5, 5, 7.5)
    ledger.restore_unconfirmed("lost", 100, 0.25)
    assert ledger.total() == LedgerRow("total", 2, 1_000_005, 5, 8.5, 100, 0.25)
    with pytest.raises(ChatError, match="price of 'free lunch' is unknown"):
        ledger.restore("free lunch", 5, 5, None)


@pytest.mark.parametrize("budget", [{"usd": -1}, {"tokens": float("nan")}, {"usd": float("inf")}])
def test_budgets_are_checked(budget) -> None:
    with pytest.raises(ChatError, match="expected 0 or more"):
        Budget(**budget)


def test_more_tokens_are_estimated_than_there_are() -> None:
    # a tokeniser makes about one token of a Chinese character and of 4 English letters
    assert prompt_tokens(request(text="快跑" * 50)) >= 100
    assert prompt_tokens(request(text="run fast" * 50)) >= 100


def test_prices() -> None:
    assert find_price("gpt-4-turbo-preview") == find_price("gpt-4-turbo-2024-04-09") == PRICES["gpt-4-turbo"]
    assert find_price("gpt-4-1106-preview") == Price(10, 30) and find_price("gpt-4-0613") == Price(30, 60)
    assert find_price("claude-opus-4-20250514") == Price(15, 75) == find_price("claude-opus-4-1-20250805")
    assert find_price("claude-opus-4-5") == Price(5, 25)
    assert find_price("gpt-4o-mini-2024-07-18") == Price(0.15, 0.6)
    assert find_price("gpt-99") is None and find_price("") is None and find_price("latest") is None
    given = parse_prices(["gpt-4o=1,2", "ollama:a=b=0,0.5"])
    assert find_price("gpt-4o-latest", given) == Price(1, 2) and given["ollama:a=b"] == Price(0, 0.5)
    assert all(0 < price.prompt < price.completion for price in PRICES.values())


@pytest.mark.parametrize("word", ["gpt-4o", "gpt-4o=1", "=1,2", "a=1,2,3", "a=-1,2", "a=nan,1", "a=inf,1", "a=b,c"])
def test_prices_that_are_none(word) -> None:
    with pytest.raises(ChatError, match="expected MODEL=IN,OUT"):
        parse_prices([word])
