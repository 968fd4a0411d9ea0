"""Graphs as functions: the same bits as the code that they stand for, no harm to what they are given."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.envs.graph import program as graph_program
from envolve.envs.graph.check import GraphError, parse
from envolve.envs.graph.ir import GraphFunction, graph_function
from envolve.envs.graph.ops import OPS
from envolve.envs.graph.plan import BYTES_PER_ROW, make_plan
from envolve.envs.physics.task import Pose, Random
from tests.envs.graphs import Graph, flat, plainly, same, state_of

VALUES = [0.25, -0.5, 0.7, 0.3, 2.5e-5, 0.1, 1.5]  # of the params below


def reward(state: dict[str, Tensor]) -> Any:
    """As a person would write it."""
    v, f = state["velocity"], state["forces"]
    track = torch.exp(-((v - 1.0) ** 2).sum(-1) / 0.25)
    bounded = v[:, 1].clamp(-0.5, 0.7)
    force = torch.norm(f[:, [0, 2, 4]], dim=-1)
    touch = torch.where(force > 0.3, torch.ones_like(force), torch.zeros_like(force)).sum(1)
    effort = -2.5e-5 * torch.square(state["torque"]).sum(1)
    q = torch.nn.functional.normalize(state["rotation"], dim=-1)
    lean = torch.cross(q[:, :3], v, dim=-1).norm(dim=-1)
    total = torch.stack((track, bounded, 0.1 * touch, effort, lean), 1).sum(1) + (1.5 - state["speed"])
    return total, {"track": track, "touch": touch}


def twin() -> dict[str, Any]:
    """``reward`` as a graph, with its weights as params."""
    g = Graph()
    v, f = g.input("velocity"), g.input("forces")
    p = [{"param": k} for k in range(len(VALUES))]
    squares = g("pow.Tensor_Scalar", g("sub.Tensor", v, 1.0), 2)
    track = g("exp.default", g("neg.default", g("div.Tensor", g("sum.dim_IntList", squares, [-1]), p[0])))
    bounded = g("clamp.default", g("select.int", g("slice.Tensor", v, 0), 1, 1), p[1], p[2])
    at = g("lift_fresh.default", g.constant([0, 2, 4], "int64"))
    force = g("linalg_vector_norm.default", g("index.Tensor", f, [None, at]), 2, [-1])
    ones, zeros = g("ones_like.default", force), g("zeros_like.default", force)
    touch = g("sum.dim_IntList", g("where.self", g("gt.Scalar", force, p[3]), ones, zeros), [1])
    effort = g("neg.default", g("mul.Tensor", g("sum.dim_IntList", g("square.default", g.input("torque")), [1]), p[4]))
    q = g.input("rotation")
    norm = g("clamp_min.default", g("linalg_vector_norm.default", q, 2.0, [-1], True), 1e-12)
    q = g("div.Tensor", q, g("expand.default", norm, [{"batch": 1}, 4]))
    q = g("slice.Tensor", g("clone.default", g("detach.default", q)), 1, 0, 3)
    lean = g("linalg_vector_norm.default", g("linalg_cross.default", q, v), 2, [-1])
    g("exp.default", g.input("speed"))  # read by nobody
    parts = g("stack.default", [track, bounded, g("mul.Tensor", touch, p[5]), effort, lean], 1)
    total = g("add.Tensor", g("sum.dim_IntList", parts, [1]), g("rsub.Scalar", g.input("speed"), p[6]))
    return g.done("compute_reward", total, track, touch, names=("track", "touch"))


@pytest.mark.parametrize("n", [1, 2, 5, 64, 100, 1000])
def test_the_same_bits_as_the_code_with_numbers_or_columns(n: int) -> None:
    function, state = GraphFunction(twin(), "compute_reward"), state_of(n, n)
    bound = function.bind(VALUES)
    assert function.takes_params and not bound.takes_params
    wanted, params = flat(reward(state)), torch.tensor(VALUES).repeat(n, 1)
    for _ in range(2):
        assert same(flat(bound(state)), wanted)
        assert same(flat(function(state, params)), wanted)
    assert list(bound(state)[1]) == ["track", "touch"]
    assert same(plainly(twin(), "compute_reward", state, VALUES), wanted)


def test_columns_are_those_of_each_row() -> None:
    function, state = GraphFunction(twin(), "compute_reward"), state_of(30)
    values = [[x * (1 + k) for x in VALUES] for k in range(3)]
    together = function(state, torch.tensor(values).repeat_interleave(10, 0))[0]
    for k in range(3):
        part = {name: x[10 * k : 10 * k + 10] for name, x in state.items()}
        assert torch.equal(together[10 * k : 10 * k + 10], function.bind(values[k])(part)[0])


def test_params_are_looked_at_again_when_they_change() -> None:
    function, state = GraphFunction(twin(), "compute_reward"), state_of(4)
    params = torch.tensor(VALUES).repeat(4, 1)
    before = function(state, params)[0]
    params[:, 6] += 1
    assert torch.allclose(function(state, params)[0], before + 1)
    assert torch.allclose(function(state, params.clone())[0], before + 1)


def test_nothing_given_is_changed_and_nothing_returned_is_shared() -> None:
    g = Graph()
    x = g.input("velocity")
    constant = g.constant([[0.0, 1.0, 2.0]])
    total = g("select.int", x, 1, 0)
    graph = g.done(
        "compute_reward",
        total,
        total,
        g("select.int", g("expand.default", constant, [{"batch": 1}, 3]), 1, 1),
        g("zeros.default", [{"batch": 1}]),
        g.input("speed"),
        names=("same", "constant", "zeros", "input"),
    )
    function, state = GraphFunction(graph, "compute_reward"), state_of(6)
    version = state["velocity"]._version
    first = [t.clone() for t in flat(function(state))]
    for out in flat(function(state)):
        out.fill_(7)  # whatever a caller does with it
    assert same(flat(function(state)), first) and state["velocity"]._version == version
    memory = [t.untyped_storage().data_ptr() for t in (*state.values(), *flat(function(state)))]
    assert len(set(memory)) == 1 + 5  # the state's buffer, and each output its own


def sample(kind: str, n: int) -> Any:
    """An argument of the type that a schema asks for, that most operations can work with."""
    kind = kind[9:-1] if kind.startswith("Optional[") else kind
    return {
        "Tensor": torch.rand(n, 4) + 0.5,
        "List[Tensor]": [torch.rand(n, 4), torch.rand(n, 4)],
        "number": 2,
        "float": 1.0,
        "int": 1,
        "List[int]": [1],
        "bool": False,
        "ScalarType": torch.float32,
        "str": "floor",
    }[kind]


rand, AT = torch.rand, torch.tensor([2, 0])
SPECIAL: dict[str, list[Any]] = {
    "view": [rand(3, 4), [4, 3]], "_unsafe_view": [rand(3, 4), [4, 3]], "reshape": [rand(3, 4), [4, 3]],
    "expand": [rand(3, 1), [3, 4]], "repeat": [rand(3, 4), [1, 2]], "permute": [rand(3, 4), [1, 0]],
    "transpose": [rand(3, 4), 0, 1], "roll": [rand(3, 4), [1], [1]], "mm": [rand(3, 4), rand(4, 2)],
    "bmm": [rand(2, 3, 4), rand(2, 4, 3)], "mv": [rand(3, 4), rand(4)],
    "dot": [rand(4), rand(4)], "addmm": [rand(2), rand(3, 4), rand(4, 2)],
    "linalg_cross": [rand(3, 3), rand(3, 3)], "split_with_sizes": [rand(3, 4), [1, 3], 1],
    "constant_pad_nd": [rand(3, 4), [1, 1]], "where": [rand(3, 4) > 0.5, rand(3, 4), rand(3, 4)],
    "masked_fill": [rand(3, 4), rand(3, 4) > 0.5, 2.0], "select_scatter": [rand(3, 4), rand(3), 1, 1],
    "slice_scatter": [rand(3, 4), rand(3, 2), 1, 0, 2], "index": [rand(3, 4), [None, AT]],
    "index_select": [rand(3, 4), 1, AT], "squeeze": [rand(3, 1), 1],
    "index_put": [rand(3, 4), [None, AT], rand(3, 2)], "linspace": [0, 1, 5],
    "eye": [3, 2], "full": [[3], 0.5], "new_full": [rand(3), [3], 0.5], "_softmax": [rand(3, 4), 1, False],
    "_log_softmax": [rand(3, 4), 1, False], "lerp": [rand(3, 4), rand(3, 4), 0.5],
    "clamp": [rand(3, 4), rand(3, 4)], "fill": [rand(3, 4), 0.5], "arange": [0, 5], "logit": [rand(3, 4), 0.1],
    "bitwise_not": [rand(3, 4) > 0.5], "smooth_l1_loss": [rand(3, 4), rand(3, 4), 0],
    "mse_loss": [rand(3, 4), rand(3, 4), 0], "huber_loss": [rand(3, 4), rand(3, 4), 0],
    **{f"bitwise_{op}": [rand(3, 4) > 0.5, rand(3, 4) > 0.5] for op in ("and", "or", "xor")},
}  # fmt: skip


def arguments(name: str) -> tuple[list[Any], dict[str, Any]]:
    op, base = OPS[name], name.split(".")[1]
    needed = [a for a in op.arguments if a.needed]
    args = [sample(a.type, 3) for a in needed if not a.by_name] if base not in SPECIAL else list(SPECIAL[base])
    if name == "aten.clamp.default":
        args[1] = 0.5
    if name in ("aten.squeeze.default", "aten.eye.default", "aten.arange.default"):
        args = args[:1] if base != "arange" else [5]
    if name.endswith(("squeeze.dims", "fill.Tensor", "masked_fill.Tensor", "lerp.Tensor")):
        args[-1] = [1] if base == "squeeze" else torch.tensor(0.5)
    return args, {a.name: sample(a.type, 3) for a in needed if a.by_name}


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_operation_is_torchs_own_and_says_whether_it_shares_memory(name: str) -> None:
    op = OPS[name]
    base, overload = name.split(".")[1:]
    args, kwargs = arguments(name)
    plain = getattr(getattr(torch.ops.aten, base), overload)(*copy.deepcopy(args), **kwargs)
    given = copy.deepcopy(args)
    fast = op.call(*given, **kwargs)
    outs = [[x] if isinstance(x, Tensor) else list(x) for x in (fast, plain)]
    assert same(*outs) and len(outs[0]) == (op.results or len(outs[0]))
    assert [x.stride() for x in outs[0]] == [x.stride() for x in outs[1]]
    tensors = [t for a in given for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)]
    memory = {t.untyped_storage().data_ptr() for t in tensors}
    shares = any(t.untyped_storage().data_ptr() in memory for t in outs[0])
    assert shares == (op.view or (op.identity and base != "clone")) or (base == "repeat" and not shares)
    assert not base.endswith("_") and overload != "out"


@pytest.mark.parametrize("name", sorted(graph_program.IN_PLACE, key=lambda f: f.__name__), ids=lambda f: f.__name__)
def test_overwriting_gives_the_same_bits(name: Callable[..., Tensor]) -> None:
    in_place = graph_program.IN_PLACE[name]
    for shape in ((7,), (64, 3), (1000, 13)):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 2 - 0.5
        extra: list[Any] = []
        if name.__name__ in ("add", "sub", "mul", "div", "atan2", "pow", "clamp", "clamp_min", "clamp_max"):
            extra = [0.5] if name.__name__ in ("pow", "clamp", "clamp_min", "clamp_max") else [torch.rand(shape)]
        assert same([in_place(x.clone(), *extra)], [name(x, *extra)])


def test_what_is_read_later_is_not_overwritten() -> None:
    """Views, outputs and later readers of a value keep it as it was."""
    for read_later in ("view", "output", "node"):
        g = Graph()
        x = g("add.Tensor", g.input("velocity"), 1.0)
        view = g("select.int", x, 1, 0)
        y = g("mul.Tensor", x, 2.0)
        total = g("sum.dim_IntList", y, [1])
        if read_later != "output":
            total = g("add.Tensor", total, view if read_later == "view" else g("select.int", x, 1, 2))
        graph = g.done("compute_reward", total, view, names=("view",))
        function, state = GraphFunction(graph, "compute_reward"), state_of(9)
        assert same(flat(function(state)), plainly(graph, "compute_reward", state))


def test_equal_graphs_are_one_object_and_bound_ones_differ_by_their_numbers() -> None:
    a, b = graph_function(twin(), "compute_reward"), graph_function(copy.deepcopy(twin()), "compute_reward")
    assert a is b and hash(a) == hash(b)
    assert a.bind(VALUES) == b.bind(VALUES) != a.bind([1.0] * 7)
    other = twin()
    other["nodes"][0]["args"][1] = 2.0
    assert graph_function(other, "compute_reward") is not a


def test_the_other_kinds_are_called_as_the_tasks_functions_are() -> None:
    n, state = 8, state_of(8)
    state["action"] = state["torque"] * 0
    random, rest = (
        Random(torch.rand(n, 32), torch.randn(n, 32)),
        Pose(torch.rand(n, 1, 13).double(), torch.rand(n, 2).double(), torch.rand(n, 2).double()),
    )
    g = Graph()
    graph = g.done("compute_torque", g("mul.Tensor", g.input("action"), g.input("torque")))
    action = torch.rand(n, 6)
    assert torch.equal(GraphFunction(graph, "compute_torque")(action, state), action * state["torque"])
    g = Graph()
    drawn = g("slice.Tensor", g.input("random.uniform"), 1, 0, 2)
    moved = g("add.Tensor", g.input("rest.joint_position"), drawn)
    graph = g.done("compute_initial_state", g.input("rest.root_state"), moved, g.input("rest.joint_velocity"))
    pose = GraphFunction(graph, "compute_initial_state")(state, random, rest)
    assert isinstance(pose, Pose) and torch.equal(pose.joint_position, rest.joint_position + random.uniform[:, :2])
    g = Graph()
    graph = g.done("compute_goal", g("slice.Tensor", g.input("random.normal"), 1, 3, 5))
    assert torch.equal(GraphFunction(graph, "compute_goal")(state, random), random.normal[:, 3:5])
    g = Graph()
    graph = g.done("compute_terminal", g("gt.Scalar", g.input("speed"), 0.5))
    assert torch.equal(GraphFunction(graph, "compute_terminal")(state), state["speed"] > 0.5)
    g = Graph()
    graph = g.done("compute_observation", g("full.default", [{"batch": 1}, 3], 0.5))  # of no input at all
    assert torch.equal(GraphFunction(graph, "compute_observation")(state), torch.full((n, 3), 0.5))


@pytest.mark.parametrize(
    ("kind", "op", "args", "said"),
    [
        ("compute_reward", "mean.default", [{"in": 0}], "shape []"),
        ("compute_reward", "sum.dim_IntList", [{"in": 0}, [0]], "shape [3]"),
        ("compute_terminal", "reshape.default", [{"in": 0}, [-1]], "shape [192]"),
        ("compute_observation", "gt.Scalar", [{"in": 0}, 0], "torch.bool"),
        ("compute_reward", "select.int", [{"in": 0}, 1, 3], "node 0 (aten.select.int)"),
        ("compute_reward", "full.default", [[{"batch": 1}, 10**9], 1.0], "too large"),
        ("compute_reward", "matmul.default", [{"in": 0}, {"in": 0}], "aten.matmul.default' is not allowed"),
        ("compute_reward", "select.int", [{"in": 0}, 1, {"param": 0}], "expected a number"),
        ("compute_reward", "sum.dim_IntList", [{"in": 0}, [1], 5], "expected true or false"),
        ("compute_reward", "mul.Tensor", [{"in": 0}], "other is missing"),
        ("compute_reward", "mul.Tensor", [{"in": 1}, 2], "only 1 ins"),
        ("compute_reward", "mul.Tensor", [{"node": 0}, 2], "only 0 nodes"),
    ],
)
def test_what_is_refused_and_why(kind: str, op: str, args: list[Any], said: str) -> None:
    g = Graph()
    g.input("velocity")
    with pytest.raises(GraphError) as e:
        GraphFunction(g.done(kind, g(op, *args)), kind)(state_of(10))
    assert said in str(e.value) and "\n" not in str(e.value)


def test_a_missing_quantity_is_named_with_the_nearest() -> None:
    g = Graph()
    graph = g.done("compute_reward", g("neg.default", g.input("sped")))
    with pytest.raises(GraphError, match="no 'sped'; nearest: 'speed'"):
        GraphFunction(graph, "compute_reward")(state_of(3))


def test_limits_are_of_each_environment() -> None:
    g = Graph()
    x = g("repeat.default", g.input("velocity"), [1, BYTES_PER_ROW // 4 // 3 // 2])
    graph = g.done("compute_observation", x)
    for n in (1, 64, 300):
        assert GraphFunction(graph, "compute_observation")(state_of(n)).shape[0] == n
    g("repeat.default", x, [1, 50])
    graph["outputs"] = [{"node": 1}]
    with pytest.raises(GraphError, match="too large"):
        GraphFunction(graph, "compute_observation")(state_of(300))


def test_indices_are_looked_at_before_the_device_sees_them() -> None:
    for at, fits in (([0, 2], True), ([-3], True), ([3], False), ([-4], False)):
        g = Graph()
        x = g("index.Tensor", g.input("velocity"), [None, g.constant(at, "int64")])
        function = GraphFunction(g.done("compute_observation", x), "compute_observation")
        if fits:
            assert torch.equal(function(state_of(5)), state_of(5)["velocity"][:, at])
        else:
            with pytest.raises(GraphError, match="indices from"):
                function(state_of(5))
    g = Graph()  # rows: as many as there are
    x = g("index_select.default", g.input("velocity"), 0, g.constant([9], "int64"))
    first = g("select.int", g("select.int", x, 0, 0), 0, 0)
    function = GraphFunction(g.done("compute_reward", g("add.Tensor", g.input("speed"), first)), "compute_reward")
    assert function(state_of(10)).shape == (10,)
    with pytest.raises(GraphError, match="indices from 9 to 9"):
        function(state_of(9))


def test_a_plan_holds_for_fewer_environments_and_is_made_again_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("envolve.envs.graph.ir.make_plan", lambda *a: made.append(a[3]) or make_plan(*a))
    function = GraphFunction(twin(), "compute_reward").bind(VALUES)
    for n in (3, 64, 5, 65, 100, 128, 2):
        function(state_of(n))
    assert made == [64, 128]


def test_the_checker_agrees_with_the_schemas() -> None:
    g = Graph()
    parse(g.done("compute_reward", g("clamp.default", g.input("speed"), max=1.0)), "compute_reward", 0)
    assert list(inspect.signature(parse).parameters) == ["graph", "kind", "params"]
