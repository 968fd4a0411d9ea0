from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.distributed.files.curriculum import Curriculum, apply, check, curriculum_from
from envolve.outer.config.yaml_lines import ConfigError

README = {
    "mass": {"iters": [0, 20000, 30000, 40000, 50000], "range": [0.0, 10.0]},
    "friction": {"iters": [50000, 60000, 70000, 90000, 120000], "range": [0.1, 0.5]},
}  # the seed's example


def queue_of(spec: dict[str, Any]) -> deque[tuple[int, Any]]:
    """The seed's pseudo-code, as the queue it begins with."""
    low, high = spec["range"]
    values = [type(low)(v) for v in np.linspace(low, high, len(spec["iters"]))]
    return deque(zip(sorted(spec["iters"]), values))


def popped(queue: deque[tuple[int, Any]], itr: int) -> list[Any]:
    out = []
    while queue and itr >= queue[0][0]:
        out.append(queue.popleft()[1])
    return out


courses = st.tuples(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.one_of(
        st.tuples(st.integers(-20, 20), st.integers(-20, 20)),
        st.tuples(st.floats(-5, 5), st.floats(-5, 5)),
    ),
).map(lambda t: {"iters": t[0], "range": list(t[1])})


def test_the_readmes_mass_and_friction() -> None:
    c = curriculum_from({"curriculum": README})
    assert c.changes(None, 0) == {"mass": 0.0}
    assert c.changes(0, 19999) == {}
    assert c.changes(19999, 20000) == {"mass": 2.5}
    assert [c.changes(i - 1, i)["mass"] for i in (30000, 40000, 50000)] == [5.0, 7.5, 10.0]
    assert c.changes(49999, 50000) == {"mass": 10.0, "friction": 0.1}
    assert c.courses["friction"].value(49999) is None  # that of the constructor
    levels = [c.changes(i - 1, i)["friction"] for i in (60000, 70000, 90000, 120000)]
    assert levels == pytest.approx([0.2, 0.3, 0.4, 0.5], abs=1e-12)
    assert c.changes(120000, 10**9) == {} and c.at_reset(10**9) == {}


@given(st.dictionaries(st.sampled_from("abc"), courses, max_size=3), st.lists(st.integers(1, 30), max_size=10))
def test_steps_are_the_seeds_pseudo_code(section: dict[str, Any], strides: list[int]) -> None:
    """Whatever iterations a collector sees: it takes what the queue's loop would have set, to the last bit."""
    c = curriculum_from({"curriculum": section})
    queues = {name: queue_of(spec) for name, spec in section.items()}
    last: int | None = None
    itr = 0
    for stride in strides:
        expected = {name: values[-1] for name, queue in queues.items() if (values := popped(queue, itr))}
        found = c.changes(last, itr)
        assert found == expected and [type(v) for v in found.values()] == [type(v) for v in expected.values()]
        last, itr = itr, itr + stride


@given(st.dictionaries(st.sampled_from("abc"), courses, max_size=3), st.integers(0, 80))
def test_a_restart_catches_up(section: dict[str, Any], itr: int) -> None:
    """One that begins at itr has the values of one that went through all iterations."""
    c = curriculum_from({"curriculum": section})
    state: dict[str, Any] = {}
    for i in range(itr + 1):
        state.update(c.changes(i - 1 if i else None, i))
    assert c.changes(None, itr) == state
    assert all(c.courses[name].value(itr) == state.get(name) for name in section)


def test_integers_cut_fractions_and_lists_are_sorted() -> None:
    c = curriculum_from({"curriculum": {"steps": {"iters": [100, 0, 50, 150, 200], "range": [1, 10]}}})
    values = [c.changes(None, i)["steps"] for i in (0, 50, 100, 150, 200)]
    assert values == [1, 3, 5, 7, 10] and all(type(v) is int for v in values)


def test_a_level_like_the_one_before_is_a_change() -> None:
    """As in the seed's loop, which drops the episode under way whenever it takes a level out of its queue."""
    c = curriculum_from({"curriculum": {"steps": {"iters": [0, 5], "range": [1, 1]}}})
    assert c.changes(4, 5) == {"steps": 1}


def linear(**spec: Any) -> Curriculum:
    return curriculum_from({"curriculum": {"x": {**spec, "mode": "linear"}}})


def test_lines_join_the_levels() -> None:
    c = linear(iters=[10, 20, 40], range=[0.0, 1.0])
    assert c.at_reset(9) == {} and c.changes(None, 30) == {}
    assert [c.at_reset(i)["x"] for i in (10, 15, 20, 30, 40, 99)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    whole = linear(iters=[0, 10], range=[1, 4])
    assert [whole.at_reset(i)["x"] for i in (0, 3, 4, 9, 10)] == [1, 1, 2, 3, 4]
    down = linear(iters=[0, 10], range=[4.0, 0.0])
    assert down.at_reset(5) == {"x": 2.0}


@given(courses, st.integers(0, 80))
def test_lines_pass_through_the_steps(spec: dict[str, Any], itr: int) -> None:
    step, line = curriculum_from({"curriculum": {"x": spec}}).courses["x"], linear(**spec).courses["x"]
    for i in spec["iters"]:
        assert line.value(i) == pytest.approx(step.value(i), abs=1e-12)
    value, (low, high) = line.value(itr), sorted(spec["range"])
    assert value is None if itr < min(spec["iters"]) else low - 1e-9 <= value <= high + 1e-9


def test_what_it_writes_it_reads() -> None:
    section = {**README, "x": {"iters": [1, 2], "range": [1, 2], "mode": "linear"}}
    c = curriculum_from({"curriculum": section})
    assert c.written() == section and curriculum_from({"curriculum": c.written()}) == c


@pytest.mark.parametrize(
    "section, said",
    [
        (3, "curriculum: found 3"),
        ({"m": [1]}, r"curriculum.m: found \[1\]"),
        ({"m": {"iters": [], "range": [0, 1]}}, r"curriculum.m.iters: found \[\], expected iterations"),
        ({"m": {"iters": [0.5], "range": [0, 1]}}, "m.iters"),
        ({"m": {"iters": [True], "range": [0, 1]}}, "m.iters"),
        ({"m": {"iters": [-1], "range": [0, 1]}}, "m.iters"),
        ({"m": {"iters": [0]}}, "m.range: found nothing"),
        ({"m": {"iters": [0], "range": [0, float("inf")]}}, "m.range"),
        ({"m": {"iters": [0], "range": [0, 1], "mode": "liner"}}, "m.mode: found 'liner', expected step or linear"),
        ({"m": {"iter": [0], "range": [0, 1]}}, "m.iter: found an unknown key.*nearest: iters"),
    ],
)
def test_what_is_no_curriculum_is_refused(section: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        curriculum_from({"curriculum": section})


def test_integers_that_cut_a_fraction_of_the_range_are_said(caplog: Any) -> None:
    curriculum_from({"curriculum": {"m": {"iters": [0, 1], "range": [0, 0.5]}}})
    assert "as the first is an integer, so are all levels" in caplog.text


# ----------------------------------------------------------------------------------------------------- environments


class Env(gymnasium.Env[Any, Any]):
    def __init__(self) -> None:
        self.mass, self.config, self._hidden = 1.0, {"wind": 0.0}, 3.0

    def shove(self) -> None: ...


def test_values_become_attributes_or_keys() -> None:
    env = gymnasium.wrappers.TimeLimit(Env(), 5)
    apply(env, {"mass": 2.0, "wind": 3.0})
    inner: Any = env.unwrapped
    assert inner.mass == 2.0 and inner.config == {"wind": 3.0} and not hasattr(inner, "wind")
    check(env, ["mass", "wind"])


@pytest.mark.parametrize(
    "name, said",
    [("mas", "nearest: mass"), ("wint", "nearest: wind"), ("shove", "found a method"), ("_hidden", "found none")],
)
def test_a_name_that_the_environment_has_not(name: str, said: str) -> None:
    env = gymnasium.wrappers.TimeLimit(Env(), 5)
    with pytest.raises(ConfigError, match=f"curriculum.{name}: .*{said}"):
        apply(env, {"mass": 2.0, name: 1})
    assert env.unwrapped.mass == 1.0  # type: ignore[attr-defined]
