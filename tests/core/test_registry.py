"""Tables of names: what is found, what is answered to a wrong name, what users may register."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.agents.common.learners import LEARNERS, curious_learners, off_policy_learners
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.core.registry import LONGEST, Place, Registry, nearest, unknown
from tests.examples import examples


def table() -> Registry[int]:
    return Registry("engine", {"mujoco": 1, "isaacgym": 2}, error=KeyError)


def test_a_registry_is_a_mapping_in_order() -> None:
    entries = table()
    assert list(entries) == ["mujoco", "isaacgym"] and dict(entries.items()) == {"mujoco": 1, "isaacgym": 2}
    assert entries["mujoco"] == entries.find("mujoco") == 1 and "warp" not in entries and entries.get("warp") is None
    with pytest.raises(KeyError):
        entries["warp"]


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    words = "found 'MuJoCoo', expected one of mujoco, isaacgym; nearest: 'mujoco'"
    with pytest.raises(KeyError) as e:
        table().find("MuJoCoo")
    assert e.value.args == (f"engine: {words}",)
    with pytest.raises(KeyError) as e:
        table().find("MuJoCoo", "--engine")
    assert e.value.args == (f"--engine: {words}",)
    with pytest.raises(ValueError, match="^loss: found 'x', expected one of $"):
        Registry("loss").find("x")


def test_users_register_beside_what_is_built_in() -> None:
    entries = table()
    entries.register("mine", 3)
    entries.register("mine", 4)
    assert entries["mine"] == 4 and entries.built_in == {"mujoco", "isaacgym"}
    with pytest.raises(ValueError, match="mujoco is the name of a built-in engine"):
        entries.register("mujoco", 5)
    with pytest.raises(ValueError, match="engine to unregister: found 'mujoco', expected one of mine"):
        entries.unregister("mujoco")
    entries.unregister("mine")
    assert list(entries) == ["mujoco", "isaacgym"]


def test_no_two_built_in_entries_have_one_name() -> None:
    entries: Registry[type] = Registry("task")

    class Pole:
        name = "pole"

    assert entries.named(Pole) is Pole and entries["pole"] is Pole
    with pytest.raises(ValueError, match="task: found 'pole' twice"):
        entries.named(Pole)


def test_a_place_is_imported_when_it_is_needed() -> None:
    assert Place("math", "tau").load() == math.tau
    for name in off_policy_learners():
        place = LEARNERS[name].place
        assert place is not None and issubclass(place.load(), Algorithm)
    assert curious_learners() == ["ddqn", "duelingddqn", "td3", "ppo"]


@settings(max_examples=examples(50))
@given(st.text(max_size=300), st.lists(st.text(max_size=300), max_size=5))
def test_any_name_is_answered(name: str, names: list[str]) -> None:
    near = nearest(name, names, cutoff=0.0)
    assert near in names if names and name else near is None or near in names
    assert len(unknown("key", name, [])) < 2 * LONGEST
    for known in names:
        found = nearest(known, names)
        if 0 < len(known) <= LONGEST and [n.lower() for n in names].count(known.lower()) == 1:
            assert found == known
