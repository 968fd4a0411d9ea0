"""--workers-on: what it may be, and what is missing."""

from __future__ import annotations

import pytest

from envolve.outer.ray import address
from envolve.outer.ray.address import address_of, problem


@pytest.mark.parametrize(
    "text, found", [("ray", None), ("ray:auto", "auto"), ("ray:h:6379", "h:6379"), ("ray:[::1]:6379", "[::1]:6379")]
)
def test_address(text, found, monkeypatch):
    monkeypatch.setattr(address, "installed", lambda: True)
    assert address_of(text) == found and problem(text) == "" and problem("files") == ""


WRONG = ["", "rya", "ray:", "ray:h", "ray:h:x", "ray:h:0", "ray:h:70000", "ray:ray://h:1x", "dask"]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_address(text):
    assert problem(text) == f"found {text!r}, expected files, ray, ray:auto or ray:HOST:PORT"


def test_no_package(monkeypatch):
    monkeypatch.setattr(address, "installed", lambda: False)
    assert problem("ray") == "found no package ray, which ray needs; pip install 'envolve[ray]'"
    assert problem("files") == ""
