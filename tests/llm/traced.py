"""Probes and traces that several tests share, each made once."""

from __future__ import annotations

import ast
import functools
from dataclasses import replace
from typing import Any

import torch

from envolve.envs.physics.task import Pose, Random, State
from envolve.envs.shaping.candidate import Candidate
from envolve.llm.vetting.probe import Probe, make_probe
from envolve.llm.vetting.text.extract import extract_code
from envolve.llm.vetting.trace import calling
from envolve.llm.vetting.trace.tracer import load, trace_candidate
from tests.llm.accepted import ACCEPTED


@functools.cache
def probe(task: str) -> Probe:
    return make_probe(task)


@functools.cache
def larger_probe(task: str, n: int) -> Probe:
    """The rows of the probe over and over, all a little different."""
    small, generator = probe(task), torch.Generator().manual_seed(0)

    def more(x: torch.Tensor) -> torch.Tensor:
        rows = x.repeat(n // len(x), *[1] * (x.dim() - 1))
        return rows * (1 + 0.1 * torch.rand(rows.shape, generator=generator, dtype=x.dtype))

    state = {name: more(x) for name, x in small.state.items()}
    random = Random(torch.rand(n, 32, generator=generator), torch.randn(n, 32, generator=generator))
    return replace(small, state=state, random=random, rest=Pose(*(more(x) for x in small.rest)))


def code(name: str) -> str:
    _, types, text = ACCEPTED[name]
    return extract_code(f"```python\n{text}\n```", types)


@functools.cache
def traced(name: str) -> dict[str, Any]:
    """The graph file of an accepted sample."""
    task, types, _ = ACCEPTED[name]
    return trace_candidate(code(name), types, probe(task))


def functions(name: str, quantities: list[str]) -> dict[str, Any]:
    """The sample's functions themselves, as functions of inputs."""
    names = load(ast.parse(code(name)), code(name))
    return {kind: calling.how_to_call(names[kind], kind, quantities) for kind in ACCEPTED[name][1]}


def arguments(kind: str, inputs: calling.Inputs) -> list[Any]:
    """Of a shaper."""
    given = {"state": {k: v for k, v in inputs.items() if "." not in k}, "action": inputs["action"]}
    if kind in ("compute_initial_state", "compute_goal"):
        given["random"] = Random(inputs["random.uniform"], inputs["random.normal"])
    if kind == "compute_initial_state":
        given["rest"] = Pose(*(inputs[f"rest.{part}"] for part in Pose._fields))
    return [given[name] for name in calling.WANTED[kind]]


def outputs(candidate: Candidate, state: State) -> list[torch.Tensor]:
    """Of all its functions of a state [n, ...], total first."""
    assert candidate.failure is None, candidate.failure
    out = []
    for shaper in candidate.shapers.values():
        params = []
        if shaper.takes_params:
            assert candidate.params is not None
            columns = slice(None) if shaper.columns is None else list(shaper.columns)
            params = [candidate.params[columns].expand(len(state["progress"]), -1)]
        result = shaper.function(dict(state), *params)
        out += [result[0], *result[1].values()] if isinstance(result, tuple) else [result]
    return out
