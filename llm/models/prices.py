"""Prices of models, in USD per million tokens: standard rate, no cache or batch discount, prompts below 100,000 tokens.

OpenAI: https://developers.openai.com/api/docs/pricing and, for models that it no longer lists, its earlier states.
Anthropic: https://platform.claude.com/docs/en/about-claude/pricing and the model pages beside it. Both as found in
November 2026 through archived copies and dated notes of others, not on the live pages (this project is written without
access to them), so check them before you rely on a figure, and correct it with ``--price MODEL=IN,OUT``.
Claude Haiku 5.5 and GPT-6 Astra cost more for long prompts (from 100,000 and 272,000 tokens); ours have some thousands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from envolve.llm.models.request import ChatError


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    prompt: float
    completion: float

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


PRICES = {
    # OpenAI
    "gpt-6-astra": Price(10, 50),
    "gpt-5.6-sol": Price(4, 20),
    "gpt-5.6-terra": Price(2, 12),
    "gpt-5.6-luna": Price(0.2, 1.2),
    "gpt-5.5": Price(5, 30),
    "gpt-5.5-pro": Price(30, 180),
    "gpt-5.4": Price(2.5, 15),
    "gpt-5.4-pro": Price(30, 180),
    "gpt-5.4-mini": Price(0.75, 4.5),
    "gpt-5.4-nano": Price(0.2, 1.25),
    "gpt-5.1": Price(1.25, 10),
    "gpt-5": Price(1.25, 10),
    "gpt-5-mini": Price(0.25, 2),
    "gpt-5-nano": Price(0.05, 0.4),
    "gpt-4.1": Price(2, 8),
    "gpt-4.1-mini": Price(0.4, 1.6),
    "gpt-4.1-nano": Price(0.1, 0.4),
    "gpt-4o": Price(2.5, 10),
    "gpt-4o-2024-05-13": Price(5, 15),
    "gpt-4o-mini": Price(0.15, 0.6),
    "gpt-4-turbo": Price(10, 30),
    "gpt-4-1106-preview": Price(10, 30),  # GPT-4 Turbo before it had its name
    "gpt-4-0125-preview": Price(10, 30),
    "gpt-4": Price(30, 60),
    "gpt-3.5-turbo": Price(0.5, 1.5),
    "o3": Price(2, 8),
    "o3-mini": Price(1.1, 4.4),
    "o4-mini": Price(1.1, 4.4),
    # Anthropic
    "claude-fable-5-1": Price(10, 50),
    "claude-opus-5-5": Price(4, 20),
    "claude-opus-5": Price(5, 25),
    "claude-opus-4-7": Price(5, 25),
    "claude-opus-4-6": Price(5, 25),
    "claude-opus-4-5": Price(5, 25),
    "claude-opus-4-1": Price(15, 75),
    "claude-opus-4": Price(15, 75),
    "claude-sonnet-5-5": Price(2, 10),
    "claude-sonnet-5": Price(2, 10),
    "claude-sonnet-4-6": Price(3, 15),
    "claude-sonnet-4-5": Price(3, 15),
    "claude-sonnet-4": Price(3, 15),
    "claude-3-7-sonnet": Price(3, 15),
    "claude-3-5-sonnet": Price(3, 15),
    "claude-haiku-5-5": Price(0.1, 0.5),
    "claude-haiku-4-5": Price(1, 5),
    "claude-3-5-haiku": Price(0.8, 4),
    "claude-3-haiku": Price(0.25, 1.25),
}
# a dated or floating version of a model: gpt-4o-2024-08-06, claude-opus-4-20250514, gpt-4-turbo-preview
_VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest|preview)$")


def find_price(model: str, given: Mapping[str, Price] = {}, table: Mapping[str, Price] = PRICES) -> Price | None:
    """Price of a model; ``given`` overrides the table. A dated version costs the same as the model. None: unknown."""
    for prices in (given, table):
        name = model
        while name:
            if name in prices:
                return prices[name]
            shorter = _VERSION.sub("", name)
            name = shorter if shorter != name else ""
    return None


def parse_prices(words: list[str]) -> dict[str, Price]:
    """Parses ["gpt-4o=2.5,10", "ollama:llama3=0,0"]. Raises ChatError."""
    prices = {}
    for word in words:
        model, _, text = word.rpartition("=")
        try:
            prompt, completion = (float(part) for part in text.split(","))
            if not (model and 0 <= prompt < math.inf and 0 <= completion < math.inf):
                raise ValueError
        except ValueError:
            raise ChatError(
                f"--price {word!r}: expected MODEL=IN,OUT in USD per million tokens, such as gpt-4o=2.5,10"
            ) from None
        prices[model] = Price(prompt, completion)
    return prices
