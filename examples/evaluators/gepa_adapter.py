"""GEPA's adapter: the text that it evolves is a shaper, `envolve serve` is the judge (docs/evaluator.md).

    from gepa import optimize
    optimize(seed_candidate={"code": REWARD}, trainset=[{}], valset=[{}], adapter=ShaperAdapter(), reflection_lm=...)

There is one data instance: the task itself. ENVOLVE_EVALUATOR and ENVOLVE_EVALUATOR_TOKEN name the evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from envolve.llm.evaluator.client import score

try:
    from gepa.core.adapter import EvaluationBatch
except ImportError:  # what the adapter returns has these fields
    EvaluationBatch = SimpleNamespace

WORST = -1e9  # of a shaper without a score: some tasks count distances below 0


class ShaperAdapter:
    """Scores candidates {"code": text}. component: the name of the text that is evolved."""

    propose_new_texts = None

    def __init__(self, component: str = "code") -> None:
        self.component = component

    def evaluate(self, batch: Sequence[Any], candidate: Mapping[str, str], capture_traces: bool = False) -> Any:
        """One result for every instance; the evaluator trains the same code once."""
        found = [score(_plain(candidate[self.component])) for _ in batch]
        scores = [WORST if f["score"] is None else float(f["score"]) for f in found]
        return EvaluationBatch(outputs=found, scores=scores, trajectories=found if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], eval_batch: Any, components_to_update: Sequence[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """What the model that reflects is shown."""
        shown = [
            {"Inputs": "", "Generated Outputs": f["code"], "Feedback": f["reason"] or f["feedback"]}
            for f in eval_batch.trajectories or eval_batch.outputs
        ]
        return dict.fromkeys(components_to_update, shown)


def _plain(text: str) -> str:
    """Code without the fence around it."""
    found = re.search(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    return found[1] if found else text
