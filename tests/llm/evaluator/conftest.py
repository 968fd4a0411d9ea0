"""For the tests of the evaluator's server."""

from __future__ import annotations

import functools

import pytest

from envolve.llm.evaluator.web import Server


@pytest.fixture(autouse=True)
def ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server looks every half second whether it is to end; no test need wait for that."""
    monkeypatch.setattr(Server, "serve_forever", functools.partialmethod(Server.serve_forever, 0.01))
