"""What was asked for and is missing is said, with the right advice."""

from __future__ import annotations

import json

import pytest

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.physics.task import SHAPER_TYPES, physics_task
from envolve.llm.search.individual import Individual
from envolve.llm.search.prompts import Brief
from envolve.llm.search.reflection import reflect
from envolve.llm.vetting.text.extract import VetError, extract
from envolve.llm.vetting.text.naming import meant, signature
from tests.llm.individuals import individual

REWARD = "def compute_reward(state):\n    return state['x']\n"


def function(name: str, arguments: str = "state") -> str:
    return f"\ndef {name}({arguments}):\n    return state['y']\n"


@pytest.mark.parametrize(
    ("name", "arguments", "asked", "kind"),
    [
        ("compute_done", 1, SHAPER_TYPES, "compute_terminal"),
        ("compute_done", 1, ["compute_reward", "compute_torque"], None),
        ("is_done", 1, ["compute_terminal"], "compute_terminal"),
        ("check_termination", 1, SHAPER_TYPES, "compute_terminal"),
        ("compute_reset", 1, SHAPER_TYPES, "compute_terminal"),
        ("reset_state", 3, SHAPER_TYPES, "compute_initial_state"),
        ("get_obs", 1, SHAPER_TYPES, "compute_observation"),
        ("computeObservations", 1, SHAPER_TYPES, "compute_observation"),
        ("reward_fn", 1, SHAPER_TYPES, "compute_reward"),
        ("compute_rewrad", 1, SHAPER_TYPES, "compute_reward"),
        ("apply_action", 2, SHAPER_TYPES, "compute_torque"),
        ("compute_torques", 2, SHAPER_TYPES, "compute_torque"),
        ("compute_torques", 2, ["compute_reward", "compute_goal"], None),
        ("sample_command", 2, SHAPER_TYPES, "compute_goal"),
        ("quat_rotate", 2, SHAPER_TYPES, None),
        ("helper", 1, SHAPER_TYPES, None),
        ("x" * 40_000, 1, SHAPER_TYPES, None),
        ("_", 0, SHAPER_TYPES, None),
    ],
)
def test_which_function_was_meant(name: str, arguments: int, asked: list[str], kind: str | None) -> None:
    assert meant(name, arguments, asked) == kind


def test_a_name_of_the_kind_itself_is_always_meant() -> None:
    for kind in SHAPER_TYPES:
        count = signature(kind).count(",") + 1
        assert meant(kind, count, SHAPER_TYPES) == kind
        for other in SHAPER_TYPES:
            assert meant(kind, count, [other]) == (kind if other == kind else None)


def test_what_is_missing_is_noted_and_what_stands_in_for_it() -> None:
    asked = ("compute_reward", "compute_terminal", "compute_torque")
    twice = function("compute_done") + function("is_done")  # which of them is meant is not clear
    code, notes = extract(REWARD + twice + function("plot") + function("main", ""), asked)
    assert "compute_done" not in code
    assert notes == (
        "compute_terminal was asked for and is missing, so the task's own is used; did you mean it by compute_done? "
        "Under that name it is left out: call it compute_terminal",
        "compute_torque was asked for and is missing, so the task's own is used",
        "left out, as nothing that was asked for uses it: is_done, plot, main",
    )


@pytest.mark.parametrize("reply", [REWARD, REWARD + "\nX = 3\n", f"```\n{REWARD}```\n```\n{REWARD}```"])
def test_nothing_is_noted_where_all_is_there(reply: str) -> None:
    assert extract(reply, ("compute_reward",)).notes == ()


def test_helpers_are_not_left_out_and_many_are_counted() -> None:
    used = "def half(x):\n    return x / 2\n\ndef compute_reward(state):\n    return half(state['x'])\n"
    assert extract(used, ("compute_reward",)).notes == ()
    ((note,),) = [extract(used + "".join(function(f"f{i}") for i in range(9)), ("compute_reward",)).notes]
    assert note.endswith(": f0, f1, f2, f3, f4 and 4 more")


@pytest.mark.parametrize(
    ("code", "asked", "said"),
    [
        (function("compute_done"), ("compute_torque",), "defines compute_done, expected compute_torque; write def "
         "compute_torque(action, state)"),
        (function("compute_done") + function("is_done"), ("compute_reward", "compute_terminal"),
         "rename compute_done to compute_terminal"),
        (function("get_observation") + function("get_obs"), ("compute_reward", "compute_observation"),
         "expected compute_reward and compute_observation; rename get_observation to compute_observation"),
        (REWARD + function("compute_termnals"), ("compute_reward", "compute_terminal"),
         "line 4: the code defines compute_termnals; rename it to compute_terminal"),
        (function("quat_rotate", "q, v"), ("compute_goal",), "write def compute_goal(state, random)"),
    ],
)  # fmt: skip
def test_renaming_is_advised_within_what_was_asked_for(code: str, asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(VetError) as e:
        extract(code, asked)
    assert said in e.value.message


def test_a_function_that_an_example_uses_is_no_slip_of_the_pen() -> None:
    code = REWARD + function("compute_terminals") + "print(compute_terminals({}))\n"
    assert "compute_terminal was asked for" in extract(code, ("compute_reward", "compute_terminal")).notes[0]


def test_the_model_is_told_and_the_archive_keeps_it() -> None:
    notes = ("compute_terminal was asked for and is missing, so the task's own is used",)
    trained = individual(score=1.0, notes=notes)
    assert f"Note: {notes[0]}." in reflect(trained, None)
    refused = individual(rejection=("trace", "line 3: no"), notes=notes)
    assert f"Note: {notes[0]}." in reflect(refused, None)
    brief = Brief(physics_task("Cartpole"), "balance", ("compute_reward", "compute_terminal"))
    for messages in (brief.repair(refused), brief.improve(trained, None), brief.crossover([trained] * 2, None)):
        assert notes[0] in messages[-1][1]
    content = json.loads(json.dumps(trained.to_json()))
    assert content["notes"] == list(notes) and Individual.from_json(content).notes == notes
    del content["notes"]  # of a run before there were notes
    assert Individual.from_json(content).notes == () and "notes" not in individual().to_json()
