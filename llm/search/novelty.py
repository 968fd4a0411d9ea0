"""Similarity of two candidates by the structure of their graphs, to skip the simulation of duplicates.

Compared is the normal form of a graph: expressions over named inputs, each counted once, without what does not reach an
output, without copies and casts, operands of commutative operations in one order, numbers left out. Of a reward only
the total counts: its components are recorded, not learned from.

The similarity is that of Weisfeiler and Lehman's graph kernel (Shervashidze et al. 2011,
https://jmlr.org/papers/v12/shervashidze11a.html) with the multiset Jaccard index in place of the scalar product:
expressions seen to a depth of 0, 1, 2, 3, and in full, compared as multisets, and the five averaged. The last makes it
1 for equal normal forms and for no others.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from envolve.llm.search.individual import Individual

DEPTHS = 4  # 0 to 3, and then in full
# Their result is their first argument, for all that matters here.
_COPIES = {"alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "_to_copy", "to"}
_COMMUTATIVE = {
    "add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "logical_xor", "bitwise_and",
    "bitwise_or", "bitwise_xor",
}  # fmt: skip
# Whole numbers among their arguments are numbers of the formula. Elsewhere they say which column, axis or power.
_ARITHMETIC = {
    "add", "sub", "rsub", "mul", "div", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "eq", "ne", "lt", "le",
    "gt", "ge", "where", "fill", "masked_fill", "full", "full_like", "new_full", "scalar_tensor", "remainder", "fmod",
    "lerp", "addcmul", "addcdiv", "hypot", "atan2",
}  # fmt: skip

Features = tuple[Counter[str], ...]  # DEPTHS + 1 multisets


def similarity(a: Mapping[str, Any], b: Mapping[str, Any], numbers: bool = False) -> float:
    """Similarity of two graph files, in [0, 1]; symmetric; 1 if and only if their normal forms are equal. numbers:
    candidates that differ only in a number are not equal."""
    return _alike(features(a, numbers), features(b, numbers))


def _alike(a: Features, b: Features) -> float:
    return sum(_jaccard(x, y) for x, y in zip(a, b)) / len(a)


def most_similar(
    individual: Individual, others: Iterable[Individual], numbers: bool = False
) -> tuple[Individual | None, float]:
    """Most similar other candidate, the earliest among equals, and the similarity; None and 0 if no other has a graph.
    numbers: see ``similarity``; set it for runs without tuning."""
    found: tuple[Individual | None, float] = None, 0.0
    if individual.graph_file is None:
        return found
    own = features(individual.graph_file, numbers)
    for other in sorted(others, key=lambda o: o.id):
        if other.graph_file is not None and other.id != individual.id:
            alike = _alike(own, features(other.graph_file, numbers))
            if found[0] is None or alike > found[1]:
                found = other, alike
    return found


def _jaccard(a: Counter[str], b: Counter[str]) -> float:
    """Multiset Jaccard index, sum min / sum max; two empty multisets are equal."""
    union = (a | b).total()
    return (a & b).total() / union if union else 1.0


# -------------------------------------------------------------------------------------------------------- normal form


def features(graph_file: Mapping[str, Any], numbers: bool = False) -> Features:
    """All expressions of a graph file at every depth. Expressions of different functions are different."""
    values = [p["value"] for p in graph_file.get("params", [])] if numbers else None
    return _features(json.dumps([graph_file["functions"], values, graph_file.get("action_size")]))


@lru_cache(maxsize=1024)  # a run compares every new candidate with all before it
def _features(text: str) -> Features:
    functions, values, action_size = json.loads(text)
    counts: Features = tuple(Counter() for _ in range(DEPTHS + 1))
    for kind, graph in functions.items():
        form = _Form(graph, values)
        labels = form.expressions(graph["outputs"][:1] if kind == "compute_reward" else graph["outputs"])
        if kind == "compute_torque":
            labels.append(_leaf(f"actions {action_size}"))
        for expression in labels:
            for count, label in zip(counts, expression):
                count[f"{kind} {label}"] += 1
    return counts


Labels = tuple[str, ...]  # of one expression, at DEPTHS depths and in full


class _Form:
    """Expressions of one graph. values: of the parameters, None: numbers are left out."""

    def __init__(self, graph: dict[str, Any], values: list[float] | None) -> None:
        self.inputs, self.nodes, self.values = graph["inputs"], graph["nodes"], values
        self.labels: list[Labels] = []  # of each node; those it refers to come before it
        self.children: list[set[int]] = []
        for node in self.nodes:
            self.children.append(set())
            self.labels.append(self._node(node))

    def expressions(self, outputs: list[Any]) -> list[Labels]:
        """Nodes that reach the outputs, each once, and one node for the outputs together."""
        root_children: set[int] = set()
        root = _combine("outputs", [self._argument(o, root_children, False) for o in outputs], False)
        todo, seen = list(root_children), set(root_children)
        while todo:
            new = self.children[todo.pop()] - seen
            seen |= new
            todo += new
        return [root, *{self.labels[k] for k in seen}]

    def _node(self, node: dict[str, Any]) -> Labels:
        children = self.children[-1]
        if "constant" in node:
            exact = self.values is not None or not str(node["dtype"]).startswith("float")
            shown = json.dumps(node["constant"]) if exact else str(_shape(node["constant"]))
            return (_digest(f"constant {node['dtype']} {shown}"),) * (DEPTHS + 1)
        name = node["op"].split(".")[1] if node["op"].count(".") else node["op"]
        arguments, named = node.get("args", []), node.get("kwargs", {})
        if name in _COPIES and arguments:
            return self._argument(arguments[0], children, False)
        free = name in _ARITHMETIC
        if name == "pow":  # a whole exponent may be written as a float
            arguments = [int(a) if isinstance(a, float) and a.is_integer() else a for a in arguments]
        parts = [self._argument(a, children, free) for a in arguments]
        if name in _COMMUTATIVE and not named:
            parts[:2] = sorted(parts[:2], key=lambda labels: labels[-1])
        parts += [_combine(key, [self._argument(named[key], children, free)], False) for key in sorted(named)]
        return _combine(node["op"], parts, True)

    def _argument(self, a: Any, children: set[int], free: bool) -> Labels:
        """free: whole numbers are numbers of the formula."""
        if isinstance(a, list):
            return _combine("list", [self._argument(x, children, free) for x in a], False)
        if isinstance(a, dict):
            if "node" in a or "item" in a:
                k, j = a["item"] if "item" in a else (a["node"], None)
                children.add(k)
                return self.labels[k] if j is None else _combine(f"item {j}", [self.labels[k]], False)
            if "in" in a:
                return _leaf(f"input {self.inputs[a['in']]}")
            if "param" in a:
                return self._number(self.values[a["param"]] if self.values is not None else 0.0)
            return _leaf(json.dumps(a, sort_keys=True))
        if isinstance(a, float) or (free and isinstance(a, int) and not isinstance(a, bool)):
            return self._number(float(a))
        return _leaf(json.dumps(a))

    def _number(self, value: float) -> Labels:
        return _leaf("number" if self.values is None else f"number {value!r}")


def _leaf(text: str) -> Labels:
    return (text,) * (DEPTHS + 1)


def _combine(head: str, parts: list[Labels], deeper: bool) -> Labels:
    """What is seen of head(parts). deeper: it is an operation, so that of its operands one depth less is seen, at depth
    0 none; lists and the like are seen through."""
    out = []
    for depth in range(DEPTHS + 1):
        if deeper and depth == 0:
            out.append(_digest(head))
            continue
        below = depth - 1 if deeper and depth < DEPTHS else depth
        out.append(_digest(f"{head}({','.join(part[below] for part in parts)})"))
    return tuple(out)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=12).hexdigest()


def _shape(constant: Any) -> list[int]:
    return [len(constant), *_shape(constant[0] if constant else 0)] if isinstance(constant, list) else []
