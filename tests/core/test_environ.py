"""Variables that are there for a while."""

from __future__ import annotations

import os

import pytest

from envolve.core.environ import added


def test_the_environment_is_as_it_was_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD", "1")
    before = dict(os.environ)
    with pytest.raises(KeyError), added({"OLD": "2", "NEW": "3"}):
        assert (os.environ["OLD"], os.environ["NEW"]) == ("2", "3")
        os.environ["WITHIN"] = "4"
        raise KeyError
    assert dict(os.environ) == before
