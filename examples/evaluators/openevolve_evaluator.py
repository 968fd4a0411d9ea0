"""OpenEvolve's evaluation file: the program is a shaper, `envolve serve` is the judge (docs/evaluator.md).

    envolve serve --task Cartpole --token secret &
    export ENVOLVE_EVALUATOR=http://127.0.0.1:8765 ENVOLVE_EVALUATOR_TOKEN=secret
    openevolve-run initial_program.py examples/evaluators/openevolve_evaluator.py --config config.yaml

The program never runs in OpenEvolve's process: its text is sent to the evaluator, which jails it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envolve.llm.evaluator.client import score

WORST = -1e9  # of a program without a score: some tasks count distances below 0


def evaluate(program_path: str) -> Any:
    """Metrics with "combined_score", and the reason or the curves as an artifact for the next prompt."""
    found = score(Path(program_path).read_text(encoding="utf-8"))
    value = WORST if found["score"] is None else float(found["score"])
    metrics = {"combined_score": value, "scored": float(found["status"] == "scored")}
    artifacts = {"feedback": found["reason"] or found["feedback"]}
    try:
        from openevolve.evaluation_result import EvaluationResult
    except ImportError:  # versions that know metrics alone
        return metrics
    return EvaluationResult(metrics=metrics, artifacts=artifacts)
