"""Two records of a function, at two numbers of environments -> one graph for any number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envolve.llm.vetting.text.extract import VetError
from envolve.llm.vetting.trace.code_errors import with_source
from envolve.llm.vetting.trace.recorder import Recorder

SIZES = 5, 7  # environments of the two records: small, and unlike what a candidate writes
Record = tuple[Recorder, list[str], list[Any]]  # what was recorded, names of the outputs, references to them


def merge(kind: str, records: Sequence[Record], code: str) -> dict[str, Any]:
    """Graph of two records at ``SIZES`` environments, without unneeded nodes."""
    (a, names, outputs), (b, other_names, other_outputs) = records
    same = [x.get("op") for x in a.nodes] == [x.get("op") for x in b.nodes]
    if names != other_names or outputs != other_outputs or not same:
        pairs = zip(a.nodes, b.nodes, a.lines)
        line = next((line for x, y, line in pairs if x.get("op") != y.get("op")), 0)
        text = f"line {line}: what is computed depends on the number of environments, or on earlier calls"
        raise VetError("trace", with_source(text, code))
    nodes = [_batch(x, y, line, code) for x, y, line in zip(a.nodes, b.nodes, a.lines)]
    used, order = sorted(_inputs_of([nodes[k] for k in needed(nodes, outputs)] + outputs)), needed(nodes, outputs)
    place = {"node": {k: i for i, k in enumerate(order)}, "in": {k: i for i, k in enumerate(used)}}
    return {
        "inputs": [a.input_names[i] for i in used],
        "nodes": [_moved(nodes[k], place) for k in order],
        "outputs": [_moved(out, place) for out in outputs],
        "names": names,
    }


def live(graph: dict[str, Any], first: Record) -> tuple[list[dict[str, Any]], list[int]]:
    """Nodes of the first record that are in the graph, and their lines."""
    recorder, _, outputs = first
    order = needed(recorder.nodes, outputs)
    return [recorder.nodes[k] for k in order], [recorder.lines[k] for k in order]


def _batch(a: Any, b: Any, line: int, code: str) -> Any:
    """a where a and b agree; {"batch": m} where they are m times the number of environments."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {key: _batch(a[key], b[key], line, code) for key in a}
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [_batch(x, y, line, code) for x, y in zip(a, b)]
    if type(a) is type(b) and a == b and not isinstance(a, (dict, list)):
        return a
    if type(a) is int and type(b) is int and a * SIZES[1] == b * SIZES[0] and a > 0 and not a % SIZES[0]:
        return {"batch": a // SIZES[0]}
    raise VetError(
        "trace",
        with_source(
            f"line {line}: a number that is computed from the number of environments, or changes from call to call, "
            "cannot be used here; use x.mean(dim=0), torch.zeros_like(x), x.shape[0] itself",
            code,
        ),
    )


def _references(value: Any) -> set[int]:
    if isinstance(value, dict):
        if "node" in value:
            return {value["node"]}
        if "item" in value:
            return {value["item"][0]}
        return set().union(*(_references(v) for v in value.values()))
    return set().union(*(_references(v) for v in value)) if isinstance(value, list) else set()


def _inputs_of(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {value["in"]} if "in" in value else set().union(*(_inputs_of(v) for v in value.values()))
    return set().union(*(_inputs_of(v) for v in value)) if isinstance(value, list) else set()


def needed(nodes: Sequence[dict[str, Any]], outputs: list[Any]) -> list[int]:
    """Nodes that the outputs depend on, in order."""
    needed = _references(outputs)
    for k in reversed(range(len(nodes))):
        if k in needed and "constant" not in nodes[k]:
            needed |= _references([nodes[k]["args"], nodes[k].get("kwargs", {})])
    return sorted(needed)


def _moved(value: Any, place: dict[str, dict[int, int]]) -> Any:
    """References to the new positions of their nodes and inputs."""
    if isinstance(value, dict):
        if "node" in value:
            return {"node": place["node"][value["node"]]}
        if "item" in value:
            return {"item": [place["node"][value["item"][0]], value["item"][1]]}
        if "in" in value:
            return {"in": place["in"][value["in"]]}
        return value if "constant" in value else {key: _moved(v, place) for key, v in value.items()}
    return [_moved(v, place) for v in value] if isinstance(value, list) else value
