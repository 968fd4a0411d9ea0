"""For tests of graphs: a way to write them down, states to run them on, and the plainest interpreter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from envolve.envs.graph.check import OUTPUTS, Ref, parse
from envolve.envs.graph.ops import OPS

WIDTHS = {"speed": (), "velocity": (3,), "rotation": (4,), "torque": (6,), "forces": (5, 3)}
COLUMNS = 1 + 3 + 4 + 6 + 15


class Graph:
    """Writes a graph: ``g.input("speed")`` and ``g("mul.Tensor", x, 0.5)`` return what stands for their values."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.nodes: list[dict[str, Any]] = []

    def input(self, name: str) -> dict[str, int]:
        if name not in self.inputs:
            self.inputs.append(name)
        return {"in": self.inputs.index(name)}

    def __call__(self, op: str, *args: Any, **kwargs: Any) -> dict[str, int]:
        self.nodes.append({"op": f"aten.{op}", "args": list(args), **({"kwargs": kwargs} if kwargs else {})})
        return {"node": len(self.nodes) - 1}

    def constant(self, value: Any, dtype: str = "float32") -> dict[str, int]:
        self.nodes.append({"constant": value, "dtype": dtype})
        return {"node": len(self.nodes) - 1}

    def done(self, kind: str, *outputs: Any, names: tuple[str, ...] = ()) -> dict[str, Any]:
        """names: of a reward's components."""
        all_names = [*OUTPUTS[kind], *names]
        return {"inputs": self.inputs, "nodes": self.nodes, "outputs": list(outputs), "names": all_names}


def state_of(n: int, seed: int = 0) -> dict[str, Tensor]:
    """Quantities as a task has them: columns of one buffer."""
    buffer = torch.randn(n, COLUMNS, generator=torch.Generator().manual_seed(seed))
    parts = buffer.split([max(1, torch.Size(shape).numel()) for shape in WIDTHS.values()], dim=1)
    return {name: p[:, 0] if not shape else p.unflatten(1, shape) for (name, shape), p in zip(WIDTHS.items(), parts)}


def plainly(
    graph: dict[str, Any], kind: str, state: dict[str, Tensor], params: list[float] | None = None
) -> list[Tensor]:
    """The graph's outputs, node by node through torch.ops, with numbers for params: what everything else must equal."""
    parsed = parse(graph, kind, len(params or []))
    n = next(iter(state.values())).shape[0]
    results: list[Any] = []

    def value(arg: Any) -> Any:
        if isinstance(arg, list):
            return [value(a) for a in arg]
        if not isinstance(arg, Ref):
            return arg
        if arg.kind == "in":
            return state[parsed.inputs[arg.k]]
        if arg.kind in ("batch", "param"):
            return arg.k * n if arg.kind == "batch" else (params or [])[arg.k]
        result = results[arg.k]
        if isinstance(result, Exception):
            raise result
        return result if arg.item < 0 else result[arg.item]

    for node in parsed.nodes:
        if node.op is None:
            results.append(node.constant)
            continue
        base, overload = node.op.name.split(".")[1:]
        call = getattr(getattr(torch.ops.aten, base), overload)
        if base == "where":  # torch.ops takes no numbers here, Python's does
            call = torch.where
        try:
            results.append(call(*[value(a) for a in node.args], **{name: value(v) for name, v in node.kwargs}))
        except Exception as e:  # matters only if the result is read
            results.append(e)
    return [value(ref) for ref in parsed.outputs]


def flat(out: Any) -> list[Tensor]:
    """What a shaper returned, as a list of tensors."""
    if isinstance(out, Tensor):
        return [out]
    return [out[0], *out[1].values()] if isinstance(out[1], dict) else list(out)


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    """Equal bits, or NaN in the same places."""
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and bool(((x == y) | ((x != x) & (y != y))).all())
        for x, y in zip(a, b)
    )


OP_NAMES = sorted(OPS)
