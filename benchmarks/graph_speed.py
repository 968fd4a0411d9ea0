#!/usr/bin/env python3
"""What a graph costs beside the Python that it was traced from: microseconds per call, median of many, and the ratio.

    python3 benchmarks/graph_speed.py [--device cuda] [--rows 64 4096 65536] [--seconds 1]

eager: the function as it is written; bound: the graph with its numbers; params: the graph with a column for each
number, as neighbours with one graph and other numbers are called. On a CPU it is processor time of one thread. The
functions are those of the project's own candidates and of a tracking reward as language models write it; the
environment's state is random. Equal says whether eager, bound and params had the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from envolve.envs.graph.ir import GraphFunction  # noqa: E402
from envolve.envs.graph.params import lift  # noqa: E402
from envolve.envs.shaping.candidate import load_candidate  # noqa: E402
from envolve.llm.vetting.probe import make_probe  # noqa: E402
from envolve.llm.vetting.trace.tracer import trace_candidate  # noqa: E402

HEAD = "import torch\n\n\n"
ANYMAL = """def compute_reward(state):
    command = state["commands"]
    linear = torch.exp(-torch.sum((command[:, :2] - state["base_lin_vel"][:, :2]) ** 2, dim=1) / 0.25)
    yaw = torch.exp(-torch.square(command[:, 2] - state["base_ang_vel"][:, 2]) / 0.25)
    torque = torch.sum(torch.square(state["torque"]), dim=1)
    height = torch.square(state["root_states"][:, 2] - 0.52)
    rate = torch.sum((state["action"] - state["previous_action"]) ** 2, dim=1)
    feet = torch.zeros_like(linear)
    for foot in (3, 6, 9, 12):
        force = torch.norm(state["contact_forces"][:, foot], dim=-1)
        feet = feet + torch.where(force > 1.0, torch.ones_like(force), torch.zeros_like(force)) * 0.1
    knees = torch.any(torch.norm(state["contact_forces"][:, [2, 5, 8, 11]], dim=-1) > 1.0, dim=1).float()
    tilt = torch.sum(torch.square(state["projected_gravity"][:, :2]), dim=1)
    parts = {
        "linear": 1.0 * linear, "yaw": 0.5 * yaw, "torque": -2.5e-5 * torque, "height": -0.5 * height,
        "rate": -0.01 * rate, "feet": 0.3 * feet, "knees": -0.25 * knees, "tilt": -0.2 * tilt,
    }
    total = sum(parts.values())
    return torch.clamp(total, min=0.0) * 0.02, parts
"""
ANT = """def compute_reward(state):
    control = state["torque"] / 150.0
    wrench = state["contact_wrench"].flatten(1).clamp(-1, 1)
    height = state["torso_position"][:, 2]
    alive = ((height > 0.2) & (height < 1.0)).float()
    parts = {
        "forward": state["forward_velocity"] * 1.0, "survive": alive,
        "control": -0.5 * control.square().sum(1), "contact": -5e-4 * wrench.square().sum(1),
    }
    return torch.stack(list(parts.values())).sum(0), parts
"""
CARTPOLE = """def compute_reward(state):
    upright = torch.cos(3 * state["pole_angle"])
    middle = 1 - (state["cart_position"] / 2.4).abs()
    bonus = torch.where(state["pole_angle"].abs() < 0.2, 1.0, -1.0)
    return upright + 0.1 * middle - 0.001 * state["torque"][:, 0] ** 2 + bonus, {"upright": upright}
"""
OBSERVATION = """def compute_observation(state):
    return torch.cat((
        state["base_lin_vel"] * 2.0, state["base_ang_vel"] * 0.25, state["projected_gravity"], state["commands"] * 2.0,
        state["dof_pos"] - state["default_dof_pos"], state["dof_vel"] * 0.05, state["action"],
        state["previous_action"], torch.clamp(state["root_states"][:, 2:3] - 0.5, -1, 1) * 5.0,
        torch.norm(state["contact_forces"], dim=-1).clamp(max=100.0) * 0.01,
    ), dim=-1)
"""
CASES = {
    "Anymal reward": ("Anymal", "compute_reward", ANYMAL),
    "Ant reward": ("Ant", "compute_reward", ANT),
    "Cartpole reward": ("Cartpole", "compute_reward", CARTPOLE),
    "Anymal observation": ("Anymal", "compute_observation", OBSERVATION),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 4096, 65536], help="environments per call")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring, for each figure")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<20}{'nodes':>6}{'n':>8}{'eager us':>11}{'bound us':>11}{'params us':>11}{'ratio':>7}{'':>7}  equal")
    for name, (task, kind, body) in CASES.items():
        probe = make_probe(task)
        graph = trace_candidate(HEAD + body, [kind], probe)["functions"][kind]
        lifted, params = lift({kind: graph}, example=probe.state)
        function, values = GraphFunction(lifted[kind], kind), [p["value"] for p in params]
        bound, eager = function.bind(values), as_code(HEAD + body, kind)
        for n in args.rows:
            state = random_state(probe.state, n, args.device)
            columns = torch.tensor(values, device=args.device).repeat(n, 1)
            calls = [partial(eager, state), partial(bound, state), partial(function, state, columns)]
            outs = [flat(call()) for call in calls]
            equal = all(torch.equal(a, b) for out in outs[1:] for a, b in zip(outs[0], out))
            took = [microseconds(call, args.seconds, args.device) for call in calls]
            print(
                f"{name:<20}{len(graph['nodes']):>6}{n:>8}{took[0]:>11.1f}{took[1]:>11.1f}{took[2]:>11.1f}"
                f"{took[1] / took[0]:>7.2f}{took[2] / took[0]:>7.2f}  {equal}",
                flush=True,
            )


def as_code(code: str, kind: str) -> Callable[[Any], Any]:
    """The function as any candidate's file has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "eager.py")
        path.write_text(code)
        return load_candidate(path).shapers[kind].function


def random_state(example: dict[str, Tensor], n: int, device: str) -> dict[str, Tensor]:
    """State like a task's: columns of one buffer, and actions."""
    sizes = [part[0].numel() for part in example.values()]
    buffer = torch.randn(n, sum(sizes), generator=torch.Generator().manual_seed(0)).to(device)
    parts = buffer.split(sizes, dim=1)
    return {
        name: part[:, 0] if like.dim() == 1 else part.unflatten(1, like.shape[1:])
        for (name, like), part in zip(example.items(), parts)
    }


def flat(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else [out[0], *out[1].values()]


def microseconds(call: Callable[[], Any], seconds: float, device: str) -> float:
    """Median over repeats that take so long together."""
    gpu = device != "cpu"
    clock = time.perf_counter if gpu else time.process_time  # others may use the machine, too
    for _ in range(5):
        call()
    took: list[float] = []
    while sum(took) < seconds:
        began, repeats = clock(), 20 if gpu else 1
        for _ in range(repeats):
            call()
        if gpu:
            torch.cuda.synchronize()
        took += [(clock() - began) / repeats] * repeats
    return 1e6 * statistics.median(took)


if __name__ == "__main__":
    main()
