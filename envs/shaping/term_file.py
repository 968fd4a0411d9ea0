"""Candidates that are numbers alone, ``<name>.terms.json``: weights and parameters of the terms of a task of mjlab or
Isaac Lab.

{"envolve_terms": 1, "task": "mjlab:Mjlab-Cartpole-Balance", "numbers": {"rewards.smooth_reward.weight": 1.0}}

A Python candidate may have the same in ``TERMS = {path: number}``. The numbers are the last of its parameters, so an
outer loop moves them. docs/mjlab.md lists the paths.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict

import torch

from envolve.core.files import UnfitFileError, read_text
from envolve.envs.shaping.candidate import Candidate, WrongOutput, candidate_name

VERSION = 1
KEYS = {"envolve_terms", "task", "numbers"}
MOST_NUMBERS, MOST_LETTERS = 1024, 200


def load_term_file(path: Path) -> Candidate:
    """Raises WrongOutput with the file and the key."""
    try:
        data = json.loads(read_text(path), parse_constant=_refuse)
    except UnfitFileError as e:
        raise WrongOutput(f"{path}: {e.strerror}") from None
    except (ValueError, RecursionError) as e:
        raise WrongOutput(f"{path}: not JSON: {e}") from None
    if not isinstance(data, dict) or set(data) != KEYS:
        found = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise WrongOutput(f"{path}: found {found}, expected the keys {', '.join(sorted(KEYS))}")
    if type(data["envolve_terms"]) is not int or data["envolve_terms"] != VERSION:
        raise WrongOutput(f"{path}: envolve_terms: found {data['envolve_terms']!r}, expected {VERSION}")
    task = data["task"]
    if not isinstance(task, str) or not task.isprintable() or not 1 <= len(task) <= MOST_LETTERS:
        raise WrongOutput(f"{path}: task: found {task!r:.60}, expected the name of a task")
    numbers = check_numbers(data["numbers"], f"{path}: numbers")
    return Candidate(
        candidate_name(path),
        {},
        params=torch.tensor(list(numbers.values())),
        param_names=tuple(numbers),
        term_names=tuple(numbers),
        made_for=(str(path), task),
    )


def term_text(task: str, numbers: Dict[str, float]) -> str:
    """Content of a file with these numbers."""
    return json.dumps({"envolve_terms": VERSION, "task": task, "numbers": numbers}, indent=1) + "\n"


def check_numbers(numbers: Any, where: str) -> Dict[str, float]:
    """Numbers by path. Raises WrongOutput."""
    if not isinstance(numbers, dict) or not 1 <= len(numbers) <= MOST_NUMBERS:
        raise WrongOutput(
            f"{where}: found {str(numbers)[:60]}, expected {{path: number}} with 1 to {MOST_NUMBERS} of them"
        )
    for path, value in numbers.items():
        good = isinstance(path, str) and isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or abs(value) > 1e30:
            raise WrongOutput(f"{where}: {str(path)[:80]}: found {str(value)[:60]}, expected a finite number")
    return {path: float(value) for path, value in numbers.items()}


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number")
