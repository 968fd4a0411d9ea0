"""ShinkaEvolve's evaluate.py: the program is a shaper, `envolve serve` is the judge (docs/evaluator.md).

ShinkaEvolve calls this file with --program_path and --results_dir and reads metrics.json and correct.json there.
ENVOLVE_EVALUATOR and ENVOLVE_EVALUATOR_TOKEN name the evaluator.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from envolve.llm.evaluator.client import score

WORST = -1e9  # of a program without a score: some tasks count distances below 0


def main(program_path: str, results_dir: str) -> dict[str, Any]:
    """Writes what ShinkaEvolve reads -> the metrics."""
    found = score(Path(program_path).read_text(encoding="utf-8"))
    scored = found["status"] == "scored"
    metrics = {
        "combined_score": float(found["score"]) if scored else WORST,
        "public": {"interval": found["interval"], "status": found["status"]},
        "private": {"id": found["id"]},
        "text_feedback": found["reason"] or found["feedback"],
    }
    folder = Path(results_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    error = None if scored else found["reason"]
    (folder / "correct.json").write_text(json.dumps({"correct": scored, "error": error}), encoding="utf-8")
    return metrics


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path", required=True)
    parser.add_argument("--results_dir", required=True)
    args = parser.parse_args()
    main(args.program_path, args.results_dir)
