"""A thousand graphs that nobody meant: refused or run, within limits, and nothing else happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.envs.graph.check import GraphError, parse
from envolve.envs.graph.file import GraphFile
from tests.examples import examples
from tests.warm import processes

ROOT = Path(__file__).parents[3]


FUZZER = "tests.envs.graph_fuzz"


def fuzz(seed: int, count: int) -> dict[str, Any]:
    """In a process of its own, which must survive."""
    command = [sys.executable, "-m", FUZZER, str(seed), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"graph {done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("seed", "count"), [(0, 60), pytest.param(1, 1200, marks=pytest.mark.slow)])
def test_fuzzed_graphs_are_refused_or_run_within_limits(
    seed: int, count: int, warm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MODULES", {FUZZER})
    found = fuzz(seed, count)
    assert found["refused"] + found["ran"] == count
    assert found["refused"] > count / 4 and found["ran"] > count / 5  # both ways are taken
    assert found["slowest"] < 10, f"graph {found['at']} took {found['slowest']:.1f} s"  # of processor time
    assert found["grown_mb"] < 600
    assert found["written"] == []


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["node", "in", "op", "args", "kwargs", "constant", "dtype", "item", "nodes", "inputs", "names"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_like)
@settings(max_examples=examples(200), deadline=None)
def test_anything_else_is_refused(value: Any) -> None:
    for graph in (value, {"inputs": ["x"], "nodes": value, "outputs": value, "names": ["total"]}):
        with pytest.raises(GraphError):
            parse(graph, "compute_reward", 2)
    with pytest.raises(GraphError):
        GraphFile.from_text(json.dumps(value))


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(GraphError):
        GraphFile.from_text(text)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "1" * 10**5, "NaN", '"' + "x" * 2**21 + '"', "[1e999]"])
def test_text_that_breaks_parsers_is_refused(text: str) -> None:
    with pytest.raises(GraphError):
        GraphFile.from_text(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"a\\"]":'])
def test_brackets_are_counted_before_anything_is_parsed(opening: str) -> None:
    """A parser at Python's limit of recursion lets finalizers fail that happen to run there."""
    with pytest.raises(GraphError, match="more than 50 brackets"):
        GraphFile.from_text(opening * 51)
    with pytest.raises(GraphError, match="not JSON: (?!more)"):
        GraphFile.from_text(opening * 50)
    with pytest.raises(GraphError, match="expected") as caught:
        GraphFile.from_text('["' + "[" * 1000 + '"]')  # within a string
    assert "brackets" not in str(caught.value)
