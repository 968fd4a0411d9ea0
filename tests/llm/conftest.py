"""For the tests of what asks models: all servers are on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envolve.agents.shaped.halving import Training
from envolve.envs.shaping.candidate import Candidate
from envolve.llm import finals, fitness
from envolve.llm.search.individual import Individual


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the certificates of the whole world costs each client thirty milliseconds, and no test needs one."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(Path(__file__).parent))


_known: dict[object, object] = {}


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that a test of this process has made, of the same graphs with the same random numbers, is not made
    again. For tests of what is trained and what becomes of it; that a training repeats itself is tested elsewhere."""
    keys: dict[int, tuple[Candidate, str]] = {}  # id -> the candidate, which keeps its id, and its graphs

    def candidate_of(individual: Individual) -> Candidate:
        candidate = fitness_candidate(individual)
        keys[id(candidate)] = candidate, "" if individual.graph_file is None else individual.graph_file.text()
        return candidate

    def judge(training: Training, candidates: Sequence[Candidate], seed: int, *rest: Any) -> object:
        *numbers, report = rest if len(rest) == 3 else (*rest, None)
        graphs = [(c.name, keys[id(c)][1]) for c in candidates]
        key = repr((training, graphs, seed, numbers))
        if key not in _known:
            _known[key] = fitness_judge(training, candidates, seed, *numbers, report=report)
        return _known[key]

    fitness_candidate, fitness_judge = fitness.candidate_of, fitness.judge
    for module in (fitness, finals):
        monkeypatch.setattr(module, "candidate_of", candidate_of)
        monkeypatch.setattr(module, "judge", judge)
