"""Individuals for tests: one with defaults, and any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from envolve.core.cleaning import printable
from envolve.envs.graph.file import GraphFile
from envolve.llm.search.individual import HUMAN, OPERATORS, Individual, Messages


def individual(id: int = 0, **fields: Any) -> Individual:
    """One that a model wrote, without a score unless ``fields`` have one."""
    defaults: dict[str, Any] = {
        "iteration": 0, "island": 0, "operator": "initial", "parents": (), "model": "m", "call": id,
        "reply": f"reply {id}", "code": f"def compute_reward(state):\n    return {id} * state['speed']\n",
    }  # fmt: skip
    return Individual(id, **{**defaults, **fields})


def human(score: float = 1.0, **fields: Any) -> Individual:
    return individual(**{"id": 10_000, "operator": HUMAN, "call": -1, "score": score, "model": "", **fields})


class PlainPrompts:
    """Messages that say only whose code they show."""

    def initial(self) -> Messages:
        return (("user", "initial"),)

    def improve(self, parent: Individual, human: Individual | None, refused: Sequence[Individual] = ()) -> Messages:
        return (("user", f"improve {parent.id} beside {human and human.id}"),)

    def edit(self, parent: Individual, human: Individual | None, refused: Sequence[Individual] = ()) -> Messages:
        return (("user", f"edit {parent.id} beside {human and human.id}"),)

    def crossover(self, parents: Any, human: Individual | None) -> Messages:
        return (("user", f"cross {[p.id for p in parents]} beside {human and human.id}"),)

    def repair(self, broken: Individual) -> Messages:
        return (("user", f"repair {broken.id}: {broken.rejection or broken.failure}"),)


numbers = st.floats(allow_infinity=False)
texts = st.text(max_size=30).map(printable)


def weighted_speed(value: float, task: str, source: str) -> GraphFile:
    nodes = [{"op": "aten.mul.Tensor", "args": [{"in": 0}, {"param": 0}]}]
    graph = {"inputs": ["speed"], "nodes": nodes, "outputs": [{"node": 0}], "names": ["total"]}
    params = [{"name": "weight", "value": value, "scale": 1.0}]
    return GraphFile.of(task, {"compute_reward": graph}, params, source=source)


graph_files = st.builds(weighted_speed, st.floats(-1e9, 1e9), st.sampled_from(["Ant", "Cartpole"]), texts)
individuals = st.builds(
    Individual,
    id=st.integers(0, 10**6),
    iteration=st.integers(0, 1000),
    island=st.integers(0, 10),
    operator=st.sampled_from(OPERATORS),
    parents=st.lists(st.integers(0, 10**6), max_size=3).map(tuple),
    model=texts,
    call=st.integers(-1, 10**6),
    reply=texts,
    code=texts,
    graph_file=st.none() | graph_files,
    rejection=st.none() | st.tuples(texts, texts),
    failure=st.none() | texts,
    score=numbers,
    interval=st.none() | st.tuples(numbers, numbers),
    agent_scores=st.lists(numbers, max_size=4),
    curves=st.dictionaries(texts, st.lists(numbers, max_size=4), max_size=4),
    steps=st.integers(0, 10**12),
    notes=st.lists(texts, max_size=2).map(tuple),
    tuned=st.none() | st.dictionaries(texts, numbers, max_size=3),
)


def same(a: Any, b: Any) -> bool:
    """Equal, NaN being equal to NaN."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, Individual):
        return isinstance(b, Individual) and same(vars(a), vars(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return bool(a == b)
