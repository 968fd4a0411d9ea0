"""Graph files: candidates without code, ``<name>.graph.json``.

{"envolve_graph": 1, "task": "Ant", "action_size": null,
 "params": [{"name": "forward_weight", "value": 1.0, "scale": 1.0}],
 "functions": {"compute_reward": graph},
 "source": "the Python that it was traced from: for people, never run"}
"""

from __future__ import annotations

import copy
import json
import math
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from envolve.core.files import UnfitFileError, read_plain
from envolve.envs.graph.check import Parsed, parse
from envolve.envs.graph.ir import GraphFunction, graph_function
from envolve.envs.graph.values import MOST_PARAMS, GraphError, Ref, check_keys, check_name, shown
from envolve.envs.physics.task import SHAPER_TYPES
from envolve.envs.shaping.candidate import Candidate, Shaper, candidate_name

VERSION = 1
MOST_BYTES = 2**20
MOST_NESTED = 50  # brackets within brackets
_STRING, _BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL), re.compile(r"[\[\]{}]")


def _nested(text: str) -> bool:
    """Returns whether brackets outside of strings are nested deeper than MOST_NESTED. Linear in the text."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MOST_NESTED:
            return True
    return False


class GraphFile(Mapping[str, Any]):
    """Content of a graph file: a mapping that was parsed and checked once, when it was made. It is never changed."""

    __slots__ = ("data", "parsed")

    def __init__(self, data: Any) -> None:
        """data: JSON of anybody's. Raises GraphError."""
        self.data: Dict[str, Any] = _head(data)
        self.parsed: Dict[str, Parsed] = {
            kind: parse(graph, kind, len(data["params"])) for kind, graph in data["functions"].items()
        }

    @classmethod
    def of(
        cls,
        task: str,
        functions: Mapping[str, Any],
        params: Sequence[Mapping[str, Any]] = (),
        action_size: Optional[int] = None,
        source: str = "",
    ) -> GraphFile:
        """Raises GraphError."""
        return cls({
            "envolve_graph": VERSION, "task": task, "action_size": action_size, "params": list(params),
            "functions": dict(functions), "source": source,
        })  # fmt: skip

    @classmethod
    def from_text(cls, text: str) -> GraphFile:
        """Raises GraphError."""
        if len(text.encode(errors="replace")) > MOST_BYTES:
            raise GraphError(f"more than {MOST_BYTES} bytes")
        if _nested(text):  # the parser would end at Python's limit, where a finalizer may fail, too
            raise GraphError(f"not JSON: more than {MOST_NESTED} brackets within each other")
        try:
            data = json.loads(text, parse_constant=_refuse)
        except GraphError:
            raise
        except (ValueError, RecursionError) as e:
            raise GraphError(f"not JSON: {e}") from None
        return cls(data)

    @classmethod
    def read(cls, path: Path) -> GraphFile:
        """Raises GraphError with the file and the key."""
        with _in(str(path)):
            try:
                return cls.from_text(read_plain(path, MOST_BYTES).decode(errors="replace"))
            except UnfitFileError as e:
                raise GraphError(str(e.strerror)) from None

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"GraphFile({self.data!r})"

    def text(self) -> str:
        """What a file holds. Raises GraphError for content that could not be read again."""
        try:
            text = json.dumps(self.data, allow_nan=False) + "\n"
        except (TypeError, ValueError, RecursionError) as e:
            raise GraphError(f"not JSON: {e}") from None
        if len(text) > MOST_BYTES:
            raise GraphError(f"more than {MOST_BYTES} bytes")
        return text

    def with_values(self, values: Sequence[float]) -> GraphFile:
        """The same graphs with other parameter values, [D]. Raises GraphError."""
        params = [{**p, "value": value} for p, value in zip(self["params"], values)]
        _check_params(params)
        other = copy.copy(self)
        other.data = {**self.data, "params": params}
        return other

    def without_source(self) -> GraphFile:
        """The same for machines: the source is for people."""
        other = copy.copy(self)
        other.data = {**self.data, "source": ""}
        return other

    def function(self, kind: str) -> GraphFunction:
        """The graph of this kind with the file's numbers in their places."""
        found = GraphFunction(self["functions"][kind], kind, self.parsed[kind])
        return found.bind([float(p["value"]) for p in self["params"]])

    def candidate(self, name: str = "graph", types: Sequence[str] = tuple(SHAPER_TYPES)) -> Candidate:
        """Candidate with the functions among ``types``. Raises GraphError if there is none."""
        kinds = [kind for kind in self["functions"] if kind in types]
        if not kinds:
            raise GraphError(f"it defines {', '.join(self['functions'])}, expected some of {', '.join(types)}")
        params = self["params"]
        return Candidate(
            name,
            {kind: _shaper(self["functions"][kind], kind, self.parsed[kind]) for kind in kinds},
            self["action_size"],
            torch.tensor([float(p["value"]) for p in params]) if params else None,
            tuple(p["name"] for p in params),
            scales=torch.tensor([float(p["scale"]) for p in params]) if params else None,
        )


def load_graph_file(
    file: Union[Path, str], types: Sequence[str] = tuple(SHAPER_TYPES), name: str = "graph"
) -> Candidate:
    """Candidate in a graph file or in its text, with its functions among ``types``. name: of a candidate without a
    file. Raises GraphError with the file and the key."""
    if isinstance(file, str):
        with _in(name):
            return GraphFile.from_text(file).candidate(name, types)
    found = GraphFile.read(file)
    with _in(str(file)):
        return replace(found.candidate(candidate_name(file), types), made_for=(str(file), found["task"]))


@contextmanager
def _in(where: str) -> Iterator[None]:
    """Errors begin with the place."""
    try:
        yield
    except GraphError as e:
        raise GraphError(f"{where}: {e}") from None


def _head(data: Any) -> Dict[str, Any]:
    """Checks everything but the graphs. Raises GraphError."""
    check_keys(data, ("envolve_graph", "task", "action_size", "params", "functions"), ("source",), "graph file")
    if type(data["envolve_graph"]) is not int or data["envolve_graph"] != VERSION:
        raise GraphError(f"envolve_graph: found {shown(data['envolve_graph'])}, expected {VERSION}")
    check_name(data["task"], "task")
    if not isinstance(data.get("source", ""), str):
        raise GraphError(f"source: found {shown(data['source'])}, expected text")
    size = data["action_size"]
    if size is not None and not (type(size) is int and 1 <= size <= 1024):
        raise GraphError(f"action_size: found {shown(size)}, expected an integer from 1 to 1024, or null")
    _check_params(data["params"])
    functions = data["functions"]
    if not isinstance(functions, dict) or not functions:
        raise GraphError(f"functions: found {shown(functions)}, expected an object with at least one")
    checked: Dict[str, Any] = data
    return checked


def _check_params(params: Any) -> None:
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


def _shaper(graph: Dict[str, Any], kind: str, parsed: Parsed) -> Shaper:
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
    function = graph_function({**graph, "nodes": nodes}, kind, _renumbered(parsed, used))
    return Shaper(function, function.takes_params, tuple(used))


def _renumbered(parsed: Parsed, used: Sequence[int]) -> Parsed:
    """What a checked graph says if its params are numbered by their places in ``used``."""

    def own(arg: Any) -> Any:
        if isinstance(arg, Ref):
            return arg._replace(k=used.index(arg.k)) if arg.kind == "param" else arg
        return type(arg)(map(own, arg)) if type(arg) in (list, tuple) else arg

    nodes = [
        node._replace(args=own(node.args), kwargs=tuple((name, own(value)) for name, value in node.kwargs))
        for node in parsed.nodes
    ]
    return parsed._replace(nodes=tuple(nodes))


def _refuse(text: str) -> Tuple[()]:
    raise GraphError(f"not JSON: {text}")
