"""What a graph costs is known from shapes: nothing is allocated to find it out, and nothing is overlooked."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from envolve.envs.graph.check import GraphError, Node, Ref
from envolve.envs.graph.cost import COUNTS, LOSSES, NUMBERS, paired
from envolve.envs.graph.ir import GraphFunction
from envolve.envs.graph.ops import OPS
from envolve.envs.graph.plan import MOST_RESULTS, MOST_TENSORS, Planner
from tests.envs.graph.test_ir import arguments
from tests.envs.graphs import Graph, state_of

HUGE, LARGE = 2**15, 64  # by what every size of the plainest arguments is multiplied
SIZES = {"size", "shape", "repeats", "end", "n", "m", "steps", "split_sizes", "pad"}  # arguments that grow with it
KEPT = {"aten.index_put.default": 2, "aten.linalg_cross.default": 3}  # a size that means something


def allocated(work: Callable[[], Any]) -> int:
    """Bytes that torch asked for meanwhile."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = record.profiler.kineto_results.events()  # type: ignore[union-attr]
    return sum(max(0, e.nbytes()) for e in events if e.name() == "[memory]")


def scaled(name: str, by: int, device: str) -> tuple[list[Any], dict[str, Any]]:
    """The plainest arguments of an operation with larger sizes; constants of integers stay as they are."""
    op = OPS[name]
    args, kwargs = arguments(name)

    def larger(value: Any) -> Any:
        if isinstance(value, list):
            return [larger(v) for v in value]
        if not isinstance(value, Tensor) or value.dtype == torch.int64 or not value.dim():
            return value
        shape = [k * by if k > 1 and (i == 0 or k != KEPT.get(name)) else k for i, k in enumerate(value.shape)]
        return torch.ones(shape, dtype=value.dtype, device=device)

    positional = [a for a in op.arguments if not a.by_name]
    for i, a in enumerate(positional[: len(args)]):
        if a.name in SIZES and isinstance(args[i], (int, list)):
            args[i] = [by * k for k in args[i]] if isinstance(args[i], list) else by * args[i]
            if a.name == "repeats":
                args[i] = [1, by]
        else:
            args[i] = larger(args[i])
    return args, kwargs


def planned(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[Planner, Callable[[], None]]:
    """A planner to which the tensors are results of nodes before, and what lets it try the operation."""
    planner = Planner("compute_goal", [], 64, True)

    def ref(value: Any) -> Any:
        if isinstance(value, list):
            return [ref(v) for v in value]
        if not isinstance(value, Tensor):
            return value
        planner.results.append(value.to("meta"))
        return Ref("node", len(planner.results) - 1)

    node = Node(OPS[name], tuple(ref(a) for a in args), tuple(kwargs.items()))
    return planner, lambda: planner.add(node)


@pytest.fixture(scope="module", autouse=True)
def what_torch_loads_late() -> None:
    """Its modules for the meta device, when they are first needed."""
    for name in ("aten._log_softmax.default", "aten.mul.Tensor", "aten.sum.default"):
        planned(name, *scaled(name, 1, "meta"))[1]()


@pytest.mark.parametrize("name", sorted(OPS))
def test_what_would_be_huge_is_refused_before_there_is_anything(name: str) -> None:
    args, kwargs = scaled(name, HUGE, "meta")
    planner, add = planned(name, args, kwargs)
    said: list[str] = []

    def work() -> None:
        try:
            add()
        except GraphError as e:
            said.append(str(e))

    tracemalloc.start()
    try:
        taken = allocated(work)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 2**16 and peak < 2**22, said  # of the profiler, mostly
    tensors = [t for a in args for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)]
    if said:
        assert re.search(r"(too large: \S+ bytes and \S+ numbers|\d+ results).* allowed are \S+ and \d", said[0]), said
    else:
        assert planner.bytes <= planner.most_bytes and planner.work <= planner.most_work
        assert all(t.numel() < 2**20 for t in tensors)  # one column is not huge


@pytest.mark.parametrize("name", sorted(OPS))
def test_what_torch_takes_is_what_was_foretold(name: str) -> None:
    """Results, and whatever is made on the way to them: at most a few times what the plan counts."""
    op = OPS[name]
    plainest, kwargs = scaled(name, LARGE // 4 if "bmm" in name else LARGE, "cpu")
    cases = [plainest]
    pair = [a for a in plainest[:2] if isinstance(a, Tensor) and a.dim() == 2]
    if len(pair) == 2 and pair[0].shape == pair[1].shape and not name.startswith("aten.linalg_cross"):
        n = len(pair[0])
        cases.append([pair[0][:, :1], pair[1][:1], *plainest[2:]])  # every row with every column
        if name in LOSSES:
            cases += [[*cases[-1][:2], reduction] for reduction in (1, 2)]
        assert n > 100
    for args in cases:
        planner, add = planned(name, args, kwargs)
        try:
            add()
        except GraphError as e:
            if len(args) > 1 and args is not plainest and "shape" in str(e):
                continue  # it does not broadcast
            raise
        given = [t for a in args for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)]
        read = sum(t.numel() * t.element_size() for t in given)
        taken = allocated(lambda args=args: op.call(*args, **kwargs))  # type: ignore[misc]
        assert taken <= 4 * (planner.bytes + read) + 2**12, (taken, planner.bytes, read)


def test_operations_of_many_results_are_counted_before() -> None:
    assert set(COUNTS) == {name for name, op in OPS.items() if op.results == 0}
    assert set(NUMBERS) | set(LOSSES) <= set(OPS)


@pytest.mark.parametrize(("op", "more"), [("unbind.int", [0]), ("split.Tensor", [1, 0]), ("split.Tensor", [7, 0])])
def test_one_tensor_is_not_taken_apart_into_millions(op: str, more: list[int]) -> None:
    g = Graph()
    parts = g(op, g("zeros.default", [4_000_000]), *more)
    graph = g.done("compute_reward", g("add.Tensor", g.input("speed"), {"item": [parts["node"], 0]}))
    function, state, said = GraphFunction(graph, "compute_reward"), state_of(64), []

    def work() -> None:
        with pytest.raises(GraphError) as e:
            function(state)
        said.append(str(e.value))

    tracemalloc.start()
    taken, peak = allocated(work), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert re.search(rf"node 1 \(aten\.{op}\): \d+ results, .* allowed are {MOST_RESULTS} and {MOST_TENSORS}", said[0])
    assert taken < 2**16 and peak < 2**22


def test_many_operations_of_many_results_are_too_many() -> None:
    g = Graph()
    x = g.constant([0.0] * 500)
    for _ in range(1 + MOST_TENSORS // 500):
        parts = g("unbind.int", x)
    graph = g.done("compute_reward", g("add.Tensor", g.input("speed"), {"item": [parts["node"], 0]}))
    with pytest.raises(
        GraphError, match=f"500 results, 8500 of all operations up to here; allowed are .*{MOST_TENSORS}"
    ):
        GraphFunction(graph, "compute_reward")(state_of(3))


def test_a_loss_over_all_pairs_costs_all_pairs() -> None:
    g = Graph()
    x = g("mul.Tensor", g("full.default", [30_000, 1], 1.0), 2.0)
    loss = g("mse_loss.default", x, g("full.default", [1, 30_000], 1.0))
    graph = g.done("compute_reward", g("add.Tensor", g.input("speed"), loss))
    with pytest.raises(GraphError, match=r"mse_loss.default\): too large: 8\.1e\+09 bytes and .* numbers with 64 env"):
        GraphFunction(graph, "compute_reward")(state_of(3))
    assert paired([3, 1, 5], [4, 1]) == 60 and paired([], [7]) == 7 and paired([0], [1]) == 0


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("zeros.default", [[2**40, 2**40]]),
        ("eye.m", [2**40, 2**40]),
        ("arange.start_step", [0, 1e30, 1e-30]),
        ("linspace.default", [0, 1, 2**40]),
        ("repeat.default", [{"in": 0}, [2**40, 2**40]]),
        ("expand.default", [{"in": 0}, [2**40, 2**40, 64]]),
        ("constant_pad_nd.default", [{"in": 0}, [2**40, 2**40]]),
        ("new_zeros.default", [{"in": 0}, [2**40, 2**40]]),
    ],
)
def test_sizes_that_no_machine_can_count_are_said_as_sizes(op: str, args: list[Any]) -> None:
    g = Graph()
    g.input("speed")
    graph = g.done("compute_reward", g("add.Tensor", {"in": 0}, g("sum.default", g(op, *args))))
    with pytest.raises(GraphError, match=r"too large: \de\+\d+ bytes|too large: \d\.\d+e\+\d+ bytes"):
        GraphFunction(graph, "compute_reward")(state_of(3))
