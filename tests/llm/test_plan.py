"""Checks of ``envolve write``'s arguments."""

from __future__ import annotations

import pytest

from envolve.llm.models.prices import Price
from envolve.llm.plan import read_prices
from envolve.outer.config.yaml_lines import ConfigError


@pytest.mark.parametrize(
    "models", [["gpt-4o"], ["o3", "gpt-4o-2024-08-06"], [], ["replay:calls.jsonl"]], ids=lambda models: " ".join(models)
)
def test_prices_of_models_that_may_be_asked(models):
    assert read_prices(["gpt-4o=1,2"], models) == {"gpt-4o": Price(1, 2)}


@pytest.mark.parametrize("models", [["gpt-4o"], ["gpt-4o-2024-08-06", "o3"]])
def test_a_price_of_a_model_that_nobody_asks_is_refused(models):
    found = f"--price: found 'gpt-4p', expected one of {models[0]}.*nearest: '{models[0]}'"
    with pytest.raises(ConfigError, match=found):
        read_prices(["gpt-4p=1,2"], models)
