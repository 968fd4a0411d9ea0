"""Graphs that nobody meant: random ones, valid ones that were damaged, and hostile ones. Run as a process of its own:

    python3 -m tests.envs.graph_fuzz SEED COUNT [ONLY]

Each is refused with GraphError or runs; what runs equals the plain interpreter, its input stays as it was. Writes one
JSON object; any other exception, a file written or a socket opened ends it with a traceback.
"""

from __future__ import annotations

import copy
import json
import math
import random
import resource
import sys
import time
from typing import Any

import torch

from envolve.envs.graph.check import parse
from envolve.envs.graph.file import load_graph_file
from envolve.envs.graph.ir import GraphError, GraphFunction
from envolve.envs.graph.ops import OPS
from tests.envs.graphs import COLUMNS, OP_NAMES, WIDTHS, Graph, flat, plainly, same, state_of

GIGABYTE = 2**30
HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 7, 255, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, 2**63, -(2**63), 10**400, 1e308,
    -1e308, 5e-324, -0.0, math.nan, math.inf, "", "x", "\x00", "x" * 10**5, [], {}, [[]], [None], [2**40] * 3, [-1] * 9,
    {"node": 0}, {"node": -1}, {"node": 10**9}, {"node": True}, {"node": None}, {"item": [0, 0]}, {"item": [0, 10**9]},
    {"in": 0}, {"in": 99}, {"batch": 1}, {"batch": 10**12}, {"batch": -1}, {"param": 0}, {"param": 10**9},
    {"float": "nan"}, {"float": "inf"}, {"float": []}, {"dtype": "float16"}, {"dtype": "int64"}, {"dtype": ["x"]},
    {"dtype": "bool"}, {"dtype": "float64"}, {"eval": "1"}, {"constant": [1.0], "dtype": "float32"},
]  # fmt: skip
NAMES = """aten.from_file.default aten.as_strided.default aten.add_.Tensor aten.empty.memory_format aten.rand.default
aten.resize_.default aten.view.dtype aten.set_.source_Tensor aten.nonzero.default aten.masked_select.default
aten.gather.default aten.scatter.src aten.item.default aten._local_scalar_dense.default aten.bernoulli.default
aten.bitwise_left_shift.Tensor prims.add.default builtins.eval os.system aten.mul aten..default aten.mul.Tensor.x
torch.ops.aten.mul aten.__class__.default aten._foreach_add.List aten.svd.default aten.inverse.default""".split()


def deep(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


def random_argument(rng: random.Random, kind: str, known: list[Any]) -> Any:
    """Of the type that a schema asks for."""
    kind = kind[9:-1] if kind.startswith("Optional[") else kind
    if kind == "Tensor":
        return rng.choice(known)
    if kind == "List[Tensor]":
        return [rng.choice(known) for _ in range(rng.randint(1, 4))]
    if kind in ("number", "float"):
        return rng.choice([0, 1, 2, -1, 3, 0.5, -2.5, 1e-6, 1e3, 0.1, True, {"float": "inf"}, {"batch": 1}])
    if kind == "int":
        return rng.choice([0, 1, 2, -1, -2, 3, 4])
    if kind == "List[int]":
        return [rng.choice([0, 1, -1, 2, 3, {"batch": 1}]) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "str":
        return rng.choice(["floor", "trunc", "none"])
    if kind == "ScalarType":
        return {"dtype": rng.choice(["float32", "float64", "int64", "bool", "int32"])}
    return None


def random_graph(rng: random.Random) -> dict[str, Any]:
    """Of operations whose arguments have the right types; most nodes can be computed."""
    g = Graph()
    known: list[Any] = [g.input(name) for name in WIDTHS]
    state = state_of(5)
    for _ in range(rng.randint(3, 25)):
        if rng.random() < 0.1:
            shape = rng.choice([(), (3,), (2,), (5,), (3, 3)])
            dtype = rng.choice(["float32", "float32", "float64", "int64", "bool"])
            value = torch.randint(0, 2, shape) if dtype in ("int64", "bool") else torch.randn(shape)
            known.append(g.constant((value.bool() if dtype == "bool" else value).tolist(), dtype))
            continue
        for _ in range(8):
            op = OPS[rng.choice(OP_NAMES)]
            args: list[Any] = []
            kwargs = {}
            for a in op.arguments:
                if a.name in ("device", "layout", "pin_memory", "memory_format", "non_blocking"):
                    continue
                if not a.needed and rng.random() < 0.7:
                    break
                value = random_argument(rng, a.type, known[-8:] + known[:5])
                if a.type == "List[Optional[Tensor]]" or (op.indices and a.name == "index"):
                    at = g.constant([rng.randint(0, 2) for _ in range(2)], "int64")
                    value = at if a.name == "index" else [None] * rng.randint(0, 1) + [at]
                if a.by_name:
                    kwargs[a.name] = value
                else:
                    args.append(value)
            made = g(op.name[5:], *args, **kwargs)
            candidate = g.done("compute_goal", *[{"in": 0}])
            try:
                parsed = parse(candidate, "compute_goal", 0)
                plainly(
                    {**candidate, "outputs": [made if op.results == 1 else {"item": [made["node"], 0]}]},
                    "compute_goal",
                    state,
                )
            except Exception:  # kept now and then, to be refused
                if rng.random() > 0.03:
                    g.nodes.pop()
                    continue
                break
            assert parsed
            known += [made] if op.results == 1 else [{"item": [made["node"], j]} for j in range(op.results or 1)]
            break
    total = finish(g, known, state)
    return g.done("compute_reward", total)


def finish(g: Graph, known: list[Any], state: dict[str, Any]) -> dict[str, int]:
    """The last few values as one number per environment."""
    n, total = 5, g("mul.Tensor", g.input("speed"), 0.5)
    for ref in known[-6:]:
        try:
            (value,) = plainly(g.done("compute_goal", ref), "compute_goal", state)
        except Exception:
            continue
        if value.dim() == 0 or value.shape[0] != n or value.numel() == 0:
            continue
        part = ref if value.is_floating_point() else g("_to_copy.default", ref, dtype={"dtype": "float32"})
        if value.dim() > 1:
            part = g("sum.dim_IntList", part, list(range(1, value.dim())))
        total = g("add.Tensor", total, part)
    return g("_to_copy.default", total, dtype={"dtype": "float32"})


def damaged(rng: random.Random, graph: dict[str, Any]) -> Any:
    """A copy with one to three values replaced, removed or repeated, anywhere."""
    graph = copy.deepcopy(graph)
    for _ in range(rng.randint(1, 3)):
        places: list[tuple[Any, Any]] = []
        todo: list[Any] = [graph]
        while todo:
            value = todo.pop()
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in keys]
            todo += [value[key] for key in keys if isinstance(value[key], (dict, list))]
        holder, key = rng.choice(places)
        chance = rng.random()
        if chance < 0.6:
            holder[key] = copy.deepcopy(rng.choice(NAMES if key == "op" and chance < 0.3 else HOSTILE))
        elif chance < 0.7:
            holder[key] = deep(rng.choice([3, 50, 5000]))
        elif chance < 0.8:
            del holder[key]
        elif chance < 0.9 and isinstance(holder, list):
            holder.insert(key, holder[key])
        elif isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([holder[key] + 1, -holder[key], holder[key] * 10**6, holder[key] - 1])
        elif key == "op":
            holder[key] = rng.choice(OP_NAMES)
    return graph


def hostile() -> list[Any]:
    """Graphs that mean harm: to memory, time, or the process."""
    found = []

    def case(*calls: tuple[Any, ...], repeat: int = 1) -> None:
        """Each call on what the one before returned ("@"), or on a constant."""
        g = Graph()
        x, speed, ints = g.input("velocity"), g.input("speed"), g.constant([[0, -1], [-(2**40), 1]], "int64")
        value: Any = x
        for _ in range(repeat):
            for op, *args in calls:
                here = {"@": value, "i": ints, "x": x, "s": speed}
                value = g(op, *[_filled(a, here) for a in args])
        found.append(g.done("compute_reward", g("add.Tensor", speed, g("sum.default", value))))

    big = 2**40
    case(("repeat.default", "@", [1, 10**9]))
    case(("repeat.default", "@", [big, big, big]))
    case(("expand.default", ("unsqueeze",), [big, 1, 1]))
    case(("unsqueeze.default", "@", 0), ("expand.default", "@", [10**12, -1, -1]), ("sum.default", "@"))
    case(("unsqueeze.default", "@", 0), ("expand.default", "@", [10**5, -1, -1]), ("clone.default", "@"))
    case(("constant_pad_nd.default", "@", [0, 10**10]))
    case(("constant_pad_nd.default", "@", [-(2**40), 2**40]))
    case(("full.default", [10**12], 1.0))
    case(("full.default", [2**32, 2**32], 1.0))
    case(("full.default", [-5], 1.0))
    case(("zeros.default", [2**40, 2**24]), ("view.default", "@", [0]))
    case(("zeros.default", [0]), ("view.default", "@", [2**40, 2**24]))
    case(("slice.Tensor", "x", 1, 0, 0), ("repeat.default", "@", [1, 10**12]), ("sum.dim_IntList", "@", [0]))
    case(("arange.default", 1e18))
    case(("arange.start_step", 0, 1, 1e-12))
    case(("arange.start_step", 0, 10, 0))
    case(("linspace.default", 0, 1, 10**10))
    case(("linspace.default", 0, 1, -1))
    case(("eye.default", 10**6))
    case(("eye.m", 2**40, 2**40))
    case(("cat.default", ["@", "@"], 1), repeat=60)
    case(("stack.default", ["@"] * 16, 0), repeat=12)
    case(("add.Tensor", "@", "@"), repeat=1900)  # as an expression it has 2 to the power of 1900 leaves
    case(("add.Tensor", "@", "@"), ("view.default", "@", [{"batch": 1}, 3]), ("detach.default", "@"), repeat=500)
    case(("matmul.default", "@", "@"))
    case(("mm.default", "x", ("t",)), repeat=2)
    case(("expand.default", ("col",), [-1, 4096]), ("mm.default", ("t",), "@"))
    case(*[("exp.default", "@")] * 1900)
    case(("pow.Tensor_Scalar", "i", 2**40))
    case(("pow.Tensor_Scalar", "i", -3))
    case(("pow.Scalar", 2**40, "i"))
    case(("pow.Tensor_Tensor", "i", "i"))
    case(("pow.Tensor_Scalar", "@", 1e308), repeat=50)
    for name in ("floor_divide.default", "remainder.Tensor", "fmod.Tensor"):
        case((name, "i", "i"))
    for name in ("remainder.Scalar", "fmod.Scalar"):
        case((name, "i", 0))
        case((name, "i", -1))
        case((name, "@", 0.0))
    case(("div.Tensor", "i", "i"))
    case(("bitwise_xor.Tensor", "i", "i"))
    case(("index.Tensor", "x", [None, "i"]))
    case(("index_select.default", "x", 1, "i"))
    case(("index_put.default", "x", [None, "i"], "x"))
    case(("roll.default", "x", [2**40], [0]))
    case(("roll.default", "x", [-(2**40)], [1]))
    case(("roll.default", "x", [1, 2, 3], [0]))
    case(("flip.default", "x", [0, 0]))
    case(("select.int", "x", 1, 2**40))
    case(("select.int", "x", 2**40, 0))
    case(("slice.Tensor", "x", 1, -(2**40), 2**40, 2**40))
    case(("slice.Tensor", "x", 1, 0, 3, 0))
    case(("slice.Tensor", "x", 1, 0, 3, -1))
    case(("split.Tensor", "x", 0, 0))
    case(("split.Tensor", "x", -1, 0))
    case(("split_with_sizes.default", "x", [2**40, -(2**40) + 3], 1))
    case(("permute.default", "x", [0] * 16))
    case(("transpose.int", "x", 9, -9))
    case(("squeeze.dims", "x", [0, 0, 5]))
    case(*[("unsqueeze.default", "@", 0)] * 100)
    case(("view.default", "x", [1] * 16))
    case(("sum.dim_IntList", "x", [0, 0, 1]))
    case(("var.correction", "x", [0]))
    case(("linalg_vector_norm.default", "x", 1e308))
    case(("linalg_vector_norm.default", "x", {"float": "nan"}))
    case(("linalg_cross.default", "x", "s"))
    case(("round.decimals", "x"))
    case(("softplus.default", "x", 0, 0))
    case(("huber_loss.default", "x", "x", 9, -1.0))
    case(("smooth_l1_loss.default", "x", "x", 5, -1.0))
    case(("argmax.default", ("slice",)))
    case(("_softmax.default", "x", 7, True))
    case(("_to_copy.default", ("huge",)))
    case(("_to_copy.default", "x"), ("clamp.default", "@", None, None))
    case(("nan_to_num.default", "x", 1e308, -1e308, 0.0))
    case(("where.self", "x", "x", "x"))
    case(("masked_fill.Scalar", "x", "x", 1.0))
    case(("copy.default", "s", "x"))
    case(("slice_scatter.default", "x", "x", 1, 0, 2**40, 1))
    case(("select_scatter.default", "x", "x", 0, 0))
    found += [deep(100_000), [], 5, None, "graph", {"inputs": deep(2000), "nodes": [], "outputs": [], "names": []}]
    many = Graph()
    for _ in range(2001):
        last = many("neg.default", many.input("speed"))
    found.append(many.done("compute_reward", last))
    for constant in ([1.0] * 5000, [[1.0], [1.0, 2.0]], deep(10), deep(5000), [[]] * 3, [10**400], ["x"], [1e999], {}):
        g = Graph()
        found.append(g.done("compute_reward", g("add.Tensor", g.input("speed"), g.constant(constant))))
    for names in (["total", "total"], ["total"], ["total", "a\nb"], ["total", "x" * 65], ["total", 5], ["a", "b"]):
        g = Graph()
        x = g("neg.default", g.input("speed"))
        found.append({**g.done("compute_reward", x, x), "names": names})
    return found


def _filled(arg: Any, here: dict[str, Any]) -> Any:
    if isinstance(arg, tuple):
        return here["@"]
    if isinstance(arg, list):
        return [_filled(a, here) for a in arg]
    return here.get(arg, arg) if isinstance(arg, str) else arg


def attempt(graph: Any) -> str:
    """What became of a graph. Raises what must not be raised."""
    state, before = state_of(64), state_of(64)
    try:
        data = {"envolve_graph": 1, "task": "Ant", "action_size": None, "functions": {"compute_reward": graph}}
        load_graph_file(json.dumps({**data, "params": [{"name": "a", "value": 0.3, "scale": 1.0}]}))
    except (GraphError, RecursionError, ValueError) as e:
        assert isinstance(e, (GraphError, RecursionError, ValueError))  # json.dumps may refuse what is no JSON
        if isinstance(e, GraphError) and len(str(e)) > 2000:
            raise AssertionError("a message of any length") from e
    try:
        function = GraphFunction(graph, "compute_reward")
        bound = function.bind([0.3] * function.params)
        out = flat(bound(state))
        for small in (1, 7):
            flat(bound(state_of(small)))
        if function.params:
            flat(function(state, torch.full((64, function.params), 0.3)))
    except GraphError:
        return "refused"
    finally:
        assert all(same([state[name]], [before[name]]) for name in state), "an input has changed"
    again = flat(bound(state))
    assert same(out, again), "another result for the same input"
    plain = plainly(graph, "compute_reward", state, [0.3] * function.params)
    assert same(out, plain), "not what the plain interpreter says"
    memory = {t.untyped_storage().data_ptr() for t in state.values()}
    assert not any(t.untyped_storage().data_ptr() in memory for t in out), "an input is handed out"
    return "ran"


def main(seed: int, count: int, only: int | None) -> None:
    torch.set_num_threads(1)
    written: list[str] = []

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.fork")):
            written.append(event)
        if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
            written.append(f"open {args[0]}")

    rng = random.Random(seed)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cases, outcomes, slowest, at = hostile(), {"refused": 0, "ran": 0}, 0.0, -1
    assert sum(max(1, torch.Size(s).numel()) for s in WIDTHS.values()) == COLUMNS
    attempt(random_graph(random.Random(0)))  # what torch imports late it imports now
    resource.setrlimit(resource.RLIMIT_AS, (8 * GIGABYTE, 8 * GIGABYTE))
    sys.addaudithook(watch)
    for i in range(count):
        if i >= len(cases):
            torch.manual_seed(rng.randrange(2**31))
            valid = random_graph(rng)
            cases.append(valid if i % 2 else damaged(rng, valid))
        if only is not None and i != only:
            continue
        print(i, file=sys.stderr, flush=True)
        began = time.process_time()
        outcomes[attempt(cases[i])] += 1
        took = time.process_time() - began
        slowest, at = max((slowest, at), (took, i))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**outcomes, "slowest": slowest, "at": at, "grown_mb": (peak - base) / 1024, "written": written}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
