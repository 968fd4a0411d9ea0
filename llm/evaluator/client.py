"""Asks an evaluator over HTTP, by the standard library alone: what other engines' evaluators call."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any


class EvaluatorError(RuntimeError):
    """Raised if an evaluator cannot be reached or refuses a request."""


def score(code: str, url: str | None = None, token: str | None = None, wait: float = 3600.0) -> dict[str, Any]:
    """Result of a candidate: "status", "score", "interval", "reason", "feedback", "curves". url and token: by default
    those of ENVOLVE_EVALUATOR and ENVOLVE_EVALUATOR_TOKEN. Raises EvaluatorError."""
    url = url or os.environ.get("ENVOLVE_EVALUATOR", "http://127.0.0.1:8765")
    token = token or os.environ.get("ENVOLVE_EVALUATOR_TOKEN", "")
    request = urllib.request.Request(
        f"{url}/evaluate?wait={wait:g}",
        json.dumps({"code": code}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=wait + 60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
    except urllib.error.HTTPError as e:
        raise EvaluatorError(f"{url}: {e.code}: {e.read(1000).decode(errors='replace')}") from None
    except (OSError, ValueError) as e:
        raise EvaluatorError(f"{url}: {e}") from None
    if found.get("status") == "waiting":
        raise EvaluatorError(f"{url}: no result after {wait:g} s")
    return found
