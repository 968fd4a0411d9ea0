"""Code to graph: the same bits, and refusals that a model can act on."""

from __future__ import annotations

import ast
import json
import random

import pytest
import torch

from envolve.envs.graph import params as graph_params
from envolve.envs.graph.ir import GraphFunction
from envolve.llm.vetting.text.extract import VetError
from envolve.llm.vetting.trace import calling
from envolve.llm.vetting.trace.tracer import load, same_bits, trace_candidate
from tests.llm.accepted import ACCEPTED
from tests.llm.traced import arguments, code, functions, larger_probe, probe, traced

REWARD = ("compute_reward",)
SIZES = (1, 2, 5, 64, 4096)


@pytest.mark.parametrize("name", ACCEPTED)
def test_graphs_give_the_same_bits_before_and_after_lifting(name: str) -> None:
    task, types, _ = ACCEPTED[name]
    file = json.loads(json.dumps(traced(name), allow_nan=False))
    inputs = calling.make_inputs(larger_probe(task, 4096), file["action_size"])
    eager = functions(name, [k for k in inputs if "." not in k])
    lifted, params = graph_params.lift(file["functions"], example=inputs)
    values = torch.tensor([p["value"] for p in params])
    assert set(file["functions"]) == set(types)
    for kind in types:
        plain, tuned = GraphFunction(file["functions"][kind], kind), GraphFunction(lifted[kind], kind)
        for n in SIZES:
            given = calling.inputs_of(kind, inputs, n)
            with torch.no_grad():
                expected = calling.flat(kind, eager[kind](given))[1]
                out = calling.flat(kind, plain(*arguments(kind, given)))[1]
                extra = [values.expand(n, -1).contiguous()] * tuned.takes_params
                out_of_params = calling.flat(kind, tuned(*arguments(kind, given), *extra))[1]
            assert all(same_bits(a, b) for a, b in zip(out, expected)) and len(out) == len(expected), (kind, n)
            assert all(same_bits(a, b) for a, b in zip(out_of_params, expected)), (kind, n)


def test_what_the_graph_file_holds() -> None:
    file = traced("all_kinds")
    assert file["task"] == "Anymal" and file["action_size"] == 12 and file["params"] == []
    assert file["functions"]["compute_reward"]["names"] == ["total", "tracking", "yaw", "smoothness"]
    assert file["source"] == code("all_kinds")
    assert traced("torque_action_size")["action_size"] == 4
    assert traced("torque_found_by_trying")["action_size"] == 4  # concatenated with its negative: 8
    assert traced("observation")["action_size"] is None


def test_nodes_that_do_not_matter_are_dropped() -> None:
    graph = traced("masks_from_other_tensors")["functions"]["compute_reward"]
    ops = {node.get("op", "constant") for node in graph["nodes"]}
    assert not ops & {"aten.lift_fresh.default", "aten.detach.default", "aten.copy.default", "aten.index_put.default"}
    assert {"aten.where.self"} < ops
    assert set(graph["inputs"]) == {"commands", "base_lin_vel"}


def trace(text: str, task: str = "Ant", types: tuple[str, ...] = REWARD) -> dict:
    return trace_candidate(text, types, probe(task))


def refusal(text: str, task: str = "Ant", types: tuple[str, ...] = REWARD) -> str:
    with pytest.raises(VetError) as e:
        trace(text, task, types)
    return f"{e.value.stage}: {e.value.message}"


def reward(*lines: str) -> str:
    inside = "\n".join(f"    {line}" for line in lines)
    return f'def compute_reward(state):\n    v = state["forward_velocity"]\n    q = state["joint_position"]\n{inside}\n'


@pytest.mark.parametrize(
    "lines, said",
    [
        (['return state["velocity"]'],
         "trace: line 4 (return state[\"velocity\"]): the state has no 'velocity'; nearest"),
        (['return state.get("velocity")'], "the state has no 'velocity'"),
        (["if v.mean() > 0:", "    return v", "return -v"],
         "trace: line 4 (if v.mean() > 0:): a Python number or a truth"),
        (["if v > 0:", "    return v", "return -v"], "write torch.where(condition, a, b), & | ~ instead of if"),
        (["return max(v, 0 * v)"], "write torch.where"),
        (["return v * float(v.sum())"], "write torch.where"),
        (["return v + q"], "v is [n], q is [n, 8]; to combine [n] with [n, k] write x.unsqueeze(-1)"),
        (["return q[:, 8]"], "trace: line 4 (return q[:, 8]): IndexError: index 8 is out of bounds"),
        (["return v + torch.rand(v.shape[0])"], "trace: line 4 (return v + torch.rand(v.shape[0])): torch.rand draws"),
        (["return v + torch.randn_like(v)"], "draws random numbers"),
        (["return torch.nn.functional.dropout(v)"], "draws random numbers"),
        (["v += 1", "return v"], "trace: line 4 (v += 1): state['forward_velocity'] is changed in place"),
        (["x = q[:, :3]", "x[:, 0] = 1.0", "return x.sum(1)"], "(x[:, 0] = 1.0): the state is changed in place"),
        (["q[v > 0] = 0.0", "return v"], "state['joint_position'] is changed in place"),
        (['state["x"] = v', "return v"], '(state["x"] = v): the state is changed'),
        (["return v[v > 0]"], "smoke: what compute_reward returns has shape"),
        (["r = v * 0", "r[v > 0] = v[v > 0.5]", "return r"], "shape mismatch"),
        (["return v - v[v > 0].mean()"], "how many rows x[mask] has depends on the data: write torch.where"),
        (["return v - q[q > 0].sum()"], "how many rows x[mask] has depends on the data"),
        (["return v * torch.nonzero(v).shape[0]"], "how many rows this gives depends on the data"),
        (["return q.gather(1, (v > 0).long()[:, None])[:, 0]"], "an index is computed from the state"),
        (["return q[torch.arange(v.shape[0]), q.argmax(1)]"], "an index is computed from the state"),
        (["return v * (1.0 / v.shape[0])"], "a number that is computed from the number of environments"),
        (["return torch.tensor([0.5] * v.shape[0]) * v"], "a number that is computed from the number of environments"),
        (["return q.cumsum(1)[:, 0]"], "torch's cumsum (aten.cumsum.default) is not among the operations of a graph"),
        (["x = v", "for i in range(3000):", "    x = x + 1", "return x"], "more than 2000 operations"),
        (["return torch.tensor([0.1] * 5000).sum() + v"], "a constant of 5000 numbers, at most 4096"),
        (["return q"],
         "smoke: what compute_reward returns has shape [n, 8], expected [n]: sum over the last dimension"),
        (["return v[:, None]"], "has shape [n, 1], expected [n]: write .squeeze(-1)"),
        (["return v[:, None] - v"], "has shape [n, n], expected [n]: [n, 1] and [n] were combined"),
        (["return v.mean()"], "has shape [], expected [n]: it has one number for all environments"),
        (["return v > 0"],
         "smoke: what compute_reward returns is True or False, expected numbers of float32: write .float()"),
        (["return (v > 0).long()"], "is of int64, expected numbers of float32"),
        (["return v.half()"], "is of float16"),
        (["return 1.0"], "what compute_reward returns is 1.0, expected a tensor; for one number write torch.full_like"),
        (["v = v"], "is nothing (None), expected a tensor; the function ends without a return"),
        (["return v, v"], "compute_reward returned (Tensor, Tensor), expected a tensor [n], or (total, components)"),
        (["return v, {'a': 0.5}"], "compute_reward's component 'a' is 0.5, expected a tensor"),
        (["return v, {'a': q}"], "compute_reward's component 'a' has shape [n, 8], expected [n]"),
        (["return v, {3: v * 2}"], "by names of at most 64 letters"),
        (["return torch.log(v)"], "smoke: line 4 (return torch.log(v)): compute_reward (total) is NaN or infinite in"),
        (["x = v / 0", "return torch.exp(-x) * 0 + x"], "smoke: line 4 (x = v / 0): compute_reward (total) is NaN"),
        (["return undefined"], "trace: line 4 (return undefined): NameError: name 'undefined' is not defined"),
        (["return v.shape[0] * v if v.shape[0] == 1 else v.shape[0] * v * 2"],
         "graph: compute_reward gives other numbers"),
    ],
)  # fmt: skip
def test_refusals_name_the_line_and_what_to_write(lines: list[str], said: str) -> None:
    assert said in refusal(reward(*lines))


@pytest.mark.parametrize(
    "text, task, kind, said",
    [
        ("def compute_reward(velocity, q):\n    return velocity", "Ant", "compute_reward",
         "there is no 'velocity' to give"),
        ("def compute_reward():\n    return 1", "Ant", "compute_reward", "expected compute_reward(state)"),
        ("def compute_observation(s):\n    return s['torque'][:, 0]", "Ant", "compute_observation",
         "has shape [n], expected [n, any]: write .unsqueeze(-1)"),
        ("def compute_torque(action, state):\n    return action[:, :3] * 2", "Ant", "compute_torque",
         "has shape [n, 3], expected [n, 8]"),
        ("def compute_torque(action, state):\n    return state['nothing']", "Ant", "compute_torque",
         "has no 'nothing'"),
        ("ACTION_SIZE = 'many'\ndef compute_torque(action, state):\n    return action", "Ant", "compute_torque",
         "found ACTION_SIZE = 'many', expected an integer from 1 to 1024"),
        ("ACTION_SIZE = 3\ndef compute_torque(action, state):\n    return action", "Ant", "compute_torque",
         "[n, 3], expected [n, 8]"),
        ("def compute_goal(state, random):\n    return random.uniform", "Ant", "compute_goal", "Ant has no goals"),
        ("def compute_goal(state, random):\n    return random.uniform", "Anymal", "compute_goal", "expected [n, 3]"),
        ("def compute_initial_state(state, random, rest):\n    return rest.root_state", "Ant", "compute_initial_state",
         "compute_initial_state returned Tensor, expected Pose(root_state, joint_position, joint_velocity)"),
        ("def compute_initial_state(state, random, rest):\n    return Pose(rest.root_state[:, 0], *rest[1:])", "Ant",
         "compute_initial_state", "compute_initial_state's root_state has shape [n, 13], expected [n, 1, 13]"),
        ("def compute_reward(state):\n    import os\n    return state['torque']", "Ant", "compute_reward",
         "import os: only"),
        ("x = 1 / 0\ndef compute_reward(state):\n    return 1", "Ant", "compute_reward",
         "trace: line 1 (x = 1 / 0): ZeroDiv"),
        ("N = [0]\ndef compute_reward(state):\n    N[0] += 1\n    return state['progress'] * N[0]", "Ant",
         "compute_reward",
         "compute_reward returns something else when it is called again"),
        ("N = [0]\ndef compute_reward(state):\n    N[0] += 1\n    return state['progress'] * 0 + min(N[0], 2)", "Ant",
         "compute_reward", "something else"),
    ],
)  # fmt: skip
def test_refusals_of_other_kinds(text: str, task: str, kind: str, said: str) -> None:
    assert said in refusal(text, task, (kind,))


@pytest.mark.parametrize(
    "lines",
    [
        ["return q[:, :1].squeeze()"],
        ["return torch.full((v.shape[0],), 0.5)"],
        ["r = v.clone()", "r[v > 0.1] = 0.5", "return r"],
        ["r = q.clone()", "r[v > 0.1] = torch.arange(8.0)", "r[v < 0] = 1", "return r.sum(1)"],
        ["r = q.clone()", "r[q > 0.1] = 0.5", "r[:, [0, -1]] = q[:, :2]", "return r.sum(1)"],
        ["r = v.clone()", "m = v > 0.2", "r[m] = torch.sin(v[m]) * 2 + q[m][:, 1]", "return r"],
        ["r = v.clone()", "r[v > 0.2] -= 0.5", "r[v > 0.5] *= v[v > 0.5]", "return r"],
        ["r = q.clone()", "m = v > 0.2", "r[m, 0] += q[m, 1]", "r[~m] *= 0.5", "return r.mean(-1)"],
        ["z = torch.zeros(v.shape[0], 2)", "z[:, 0] = v", "z[:] += 1", "z[:, 1].fill_(2.0)", "return z.prod(1)"],
        ["z = torch.zeros_like(q)", "z[:] = v[:, None]", "z[:, 0] = (v > 0)", "return z.sum(1)"],
        ["return v * v.shape[0] + torch.full((len(v),), 2 * v.shape[0])"],
        ["return q.t().contiguous().view(8, -1).sum(0)"],
        ["return q.reshape(-1).reshape(v.shape[0] * 4, 2).sum(1).view(v.shape[0], -1).sum(1)"],
        ["a, b = q.max(dim=1), q.min(1)", "return a.values - b[0] + (a.indices == 3) * 0.5"],
        ["return torch.clamp(v, min=torch.tensor(-0.5), max=torch.tensor(0.5)) * torch.tensor(0.1)"],
        ["return torch.nn.functional.normalize(q, dim=1).norm(dim=1) + torch.stack([v, v]).sum(0)"],
        ["return torch.where(v > 0, 1, 0) * v + torch.where(v > 0.5, float('inf'), 1.0).clamp(max=3.0)"],
        ["return (q[:, 1:] - q[:, :-1]).abs().mean(1) + q.flip(1)[:, 0] + q.roll(1, 1)[:, 0]"],
        ["return torch.diff(q, dim=1).abs().sum(1) + torch.cosine_similarity(q, q + 1.0, dim=1)"],
        ["return v, {'total': v, 'v': v}"],
        ["w = {'a': torch.tensor([1.0, 2.0])}", "return (q[:, :2] * w['a']).sum(1)"],
        ["return torch.linalg.cross(q[:, :3], q[:, 3:6]).norm(p=1, dim=1) + q.norm(p=float('inf'), dim=1)"],
        ["return v ** 3 + 2.0 ** v + v % 2 + v // 0.5"],
        ["return q.std(0).sum() * v + q.var(dim=1) + q.amax((0, 1)) + q.mean((0, 1))"],
        ["return (q > 0.1).any(1) * v + (q > 0).all(dim=-1).float() + (q > 0).sum(1)"],
    ],
)
def test_ways_to_write_it_that_are_fine(lines: list[str]) -> None:
    """The tracer itself compares the graph with the function, at 1, 2 and 64 environments."""
    assert trace(reward(*lines))["functions"]["compute_reward"]["nodes"] is not None


def test_annotations_are_not_evaluated_and_builtins_are_few() -> None:
    names = load(ast.parse("def f(x: open('a') = 1) -> nothing:\n    return 1"), "")
    assert names["f"]() == 1
    assert "open" not in names["__builtins__"] and "eval" not in names["__builtins__"]


def test_tracing_leaves_the_probe_alone() -> None:
    before = {name: x.clone() for name, x in probe("Ant").state.items()}
    refusal(reward("q *= 2", "return v"))
    trace(reward("q = q.clone()", "q *= 2", "return v + q.sum(1)"))
    assert all(torch.equal(x, before[name]) for name, x in probe("Ant").state.items())


NUMBERS = ["state['forward_velocity']", "state['torso_position'][:, 2]", "(state['progress'] / 1000)"]
VECTORS = ["state['joint_position']", "(state['torque'] / 150)", "state['action']", "state['torso_rotation']"]


def number_of(draw: random.Random, depth: int) -> str:
    """A random expression [n]."""
    if depth == 0:
        return draw.choice(NUMBERS)
    x, y, z, c = *(number_of(draw, depth - 1) for _ in range(3)), round(draw.uniform(-2, 2), 2)
    q = vector_of(draw, depth - 1)
    reduced = draw.choice(["sum", "mean", "amax", "norm", "std", "var"])
    return draw.choice(
        [
            f"({x} + {y})",
            f"({c} * {x})",
            f"torch.tanh({x})",
            f"torch.exp(-{x}.abs() / {abs(c) + 0.1:.2f})",
            f"{q}.{reduced}(dim=-1)",
            f"torch.where({x} > {c}, {y}, {z})",
            f"torch.where({x} > {c}, {c}, {y})",
            f"{x}.clamp({-abs(c)}, {abs(c)})",
            f"torch.minimum({x}, {y})",
            f"(({x} - {y}) ** 2)",
            f"({x} > {c}).float()",
            f"{q}[:, {draw.randrange(3)}]",
            f"torch.sqrt({x}.abs() + 1e-3)",
            f"({q}.max(dim=1).indices * 0.1)",
            f"({x} / ({y}.abs() + 0.5))",
        ]
    )


def vector_of(draw: random.Random, depth: int) -> str:
    """A random expression [n, at least 3]."""
    if depth == 0:
        return draw.choice(VECTORS)
    x, q = number_of(draw, depth - 1), vector_of(draw, depth - 1)
    return draw.choice(
        [
            f"({draw.uniform(-2, 2):.2f} * {q})",
            f"torch.stack([{x}, {number_of(draw, depth - 1)}, {x}], dim=-1)",
            f"torch.cat([{q}, {vector_of(draw, depth - 1)}], dim=1)",
            f"({q} * {x}.unsqueeze(-1))",
            f"torch.sin({q})",
            f"{q}[:, :3]",
            f"torch.softmax({q}, dim=1)",
            f"{q}.flip(1)",
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_code_gives_the_same_bits(seed: int) -> None:
    draw = random.Random(seed)
    changes = ["r[m] = 0.25", "r[m] += b[m]", "r[m] *= 0.5", "r[m] = torch.exp(-b[m].abs()) + a[m]", "r += a"]
    a, b, r = number_of(draw, 3), number_of(draw, 3), number_of(draw, 2)
    lines = [f"a = {a}", f"b = {b}", f"r = {r} * 0.5", f"m = a > {draw.uniform(-1, 1):.2f}", draw.choice(changes)]
    inside = "".join(f"    {line}\n" for line in lines)
    trace(f"def compute_reward(state):\n{inside}    return a + b - r, {{'a': a, 'b': b}}\n")
