"""An engine without workers."""

from __future__ import annotations

import pytest
import torch

from envolve.outer.exchange.in_process import InProcess
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.exchange.messages import Chunk


def test_results_are_checked_and_there_is_no_other_worker() -> None:
    seeds = torch.arange(2)
    chunk = Chunk("here", 3, 0, 0, "proxy", {}, torch.zeros(2, 1), seeds)
    engine = InProcess(lambda config, worlds, seeds, mode: {"score": seeds.double(), "reason": ["", ""]})
    (result,) = engine.evaluate([chunk], lambda result: "")
    assert result.values["score"].tolist() == [0.0, 1.0]
    with pytest.raises(ExchangeError, match="generation 3.*: found no world"):
        engine.evaluate([chunk], lambda result: "found no world")
