"""Graph files: candidates without code, ``<name>.graph.json``.

{"envolve_graph": 1, "task": "Ant", "action_size": null,
 "params": [{"name": "forward_weight", "value": 1.0, "scale": 1.0}],
 "functions": {"compute_reward": graph},
 "source": "the Python that it was traced from: for people, never run"}
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from envolve.core.files import UnfitFileError, read_plain
from envolve.envs.graph.check import check_graph
from envolve.envs.graph.ir import graph_function
from envolve.envs.graph.values import MOST_PARAMS, GraphError, check_keys, check_name, shown
from envolve.envs.physics.task import SHAPER_TYPES
from envolve.envs.shaping.candidate import Candidate, Shaper, candidate_name

VERSION = 1
MOST_BYTES = 2**20


def load_graph_file(
    file: Union[Path, str], types: Sequence[str] = tuple(SHAPER_TYPES), name: str = "graph"
) -> Candidate:
    """Candidate in a graph file or in its text, with its functions among ``types``. name: of a candidate without a
    file. Raises GraphError with the file and the key."""
    where, text = name, file
    if isinstance(file, Path):
        where, name = str(file), candidate_name(file)
        try:
            text = read_plain(file, MOST_BYTES).decode(errors="replace")
        except UnfitFileError as e:
            raise GraphError(f"{where}: {e.strerror}") from None
    try:
        data = parse_graph_file(str(text))
        numbers = [float(p["value"]) for p in data["params"]]
        graphs = {kind: graph for kind, graph in data["functions"].items() if kind in types}
        shapers = {kind: _shaper(graph, kind) for kind, graph in graphs.items()}
        if not shapers:
            raise GraphError(f"it defines {', '.join(data['functions'])}, expected some of {', '.join(types)}")
    except GraphError as e:
        raise GraphError(f"{where}: {e}") from None
    return Candidate(
        name, shapers, data["action_size"],
        torch.tensor(numbers) if numbers else None,
        tuple(p["name"] for p in data["params"]),
        scales=torch.tensor([float(p["scale"]) for p in data["params"]]) if numbers else None,
    )  # fmt: skip


def parse_graph_file(text: str) -> Dict[str, Any]:
    """Checked content of a graph file's text. Raises GraphError."""
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise GraphError(f"more than {MOST_BYTES} bytes")
    try:
        data = json.loads(text, parse_constant=_refuse)
    except GraphError:
        raise
    except (ValueError, RecursionError) as e:
        raise GraphError(f"not JSON: {e}") from None
    check_graph_file(data)
    return data


def check_graph_file(data: Any) -> None:
    """Raises GraphError unless data is valid content of a graph file."""
    check_keys(data, ("envolve_graph", "task", "action_size", "params", "functions"), ("source",), "graph file")
    if type(data["envolve_graph"]) is not int or data["envolve_graph"] != VERSION:
        raise GraphError(f"envolve_graph: found {shown(data['envolve_graph'])}, expected {VERSION}")
    check_name(data["task"], "task")
    if not isinstance(data.get("source", ""), str):
        raise GraphError(f"source: found {shown(data['source'])}, expected text")
    size = data["action_size"]
    if size is not None and not (type(size) is int and 1 <= size <= 1024):
        raise GraphError(f"action_size: found {shown(size)}, expected an integer from 1 to 1024, or null")
    params = data["params"]
    if not isinstance(params, list) or len(params) > MOST_PARAMS:
        raise GraphError(f"params: found {shown(params)}, expected a list of at most {MOST_PARAMS}")
    for i, param in enumerate(params):
        check_keys(param, ("name", "value", "scale"), (), f"params[{i}]")
        check_name(param["name"], f"params[{i}]: name")
        for key, least in (("value", -1e30), ("scale", 1e-30)):
            number = param[key]
            if type(number) not in (int, float) or not math.isfinite(number) or not least <= number <= 1e30:
                raise GraphError(f"params[{i}]: {key} is {shown(number)}, expected a number from {least:g} to 1e30")
    if len({p["name"] for p in params}) < len(params):
        raise GraphError("params: a name occurs twice")
    functions = data["functions"]
    if not isinstance(functions, dict) or not functions:
        raise GraphError(f"functions: found {shown(functions)}, expected an object with at least one")
    for kind, graph in functions.items():
        check_graph(graph, kind, len(params))


def dump(
    task: str,
    functions: Mapping[str, Any],
    params: Sequence[Mapping[str, Any]] = (),
    action_size: Optional[int] = None,
    source: str = "",
) -> str:
    """Text of a graph file. Raises GraphError for content that could not be loaded again."""
    data = {
        "envolve_graph": VERSION, "task": task, "action_size": action_size, "params": list(params),
        "functions": dict(functions), "source": source,
    }  # fmt: skip
    try:
        text = json.dumps(data, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as e:
        raise GraphError(f"not JSON: {e}") from None
    parse_graph_file(text)
    return text


def with_values(data: Mapping[str, Any], values: Sequence[float]) -> Dict[str, Any]:
    """Content of a graph file with other parameter values, [D]."""
    return {**data, "params": [{**p, "value": value} for p, value in zip(data["params"], values)]}


def _shaper(graph: Dict[str, Any], kind: str) -> Shaper:
    """Checked graph as a shaper with only the params that it uses: the mapping to the file's params is not part of the
    graph, so files with one function in common share it."""
    used: List[int] = []

    def own(arg: Any) -> Any:
        if isinstance(arg, list):
            return [own(a) for a in arg]
        if not (isinstance(arg, dict) and "param" in arg):
            return arg
        if arg["param"] not in used:
            used.append(arg["param"])
        return {"param": used.index(arg["param"])}

    nodes = []
    for node in graph["nodes"]:
        if "args" in node:
            kwargs = {name: own(value) for name, value in node.get("kwargs", {}).items()}
            node = {"op": node["op"], "args": own(node["args"]), "kwargs": kwargs}
        nodes.append(node)
    function = graph_function({**graph, "nodes": nodes}, kind)
    return Shaper(function, function.takes_params, tuple(used))


def _refuse(text: str) -> Tuple[()]:
    raise GraphError(f"not JSON: {text}")
