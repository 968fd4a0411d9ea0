"""The prompts: whatever a model must know is in them, and they stay bounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.physics.task import PHYSICS_TASKS, SHAPER_TYPES, Pose, Random, physics_task
from envolve.envs.shaping.candidate import load_candidate
from envolve.llm.search.individual import Individual, Messages, curves_of
from envolve.llm.search.prompts import Brief
from envolve.llm.search.signatures import example
from envolve.llm.search.task_facts import human_source, limits_text, task_facts
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.text.extract import extract_code
from tests.llm.individuals import human, individual

# The longest that any attempt's messages can be beside those of the first: code of two parents and two reflections.
BOUND = 2 * 12_000 + 2 * 6_000 + 2_000


def brief(task: str = "Anymal", types: tuple[str, ...] = ("compute_reward",), **more: object) -> Brief:
    return Brief(physics_task(task), "Make it run as fast as possible", types, **more)  # type: ignore[arg-type]


def text(messages: Messages) -> str:
    return "\n".join(content for _, content in messages)


@pytest.mark.parametrize("name", sorted(PHYSICS_TASKS))
def test_every_state_name_with_unit_and_every_figure_is_there(name: str) -> None:
    cls = physics_task(name)
    types = tuple(t for t in SHAPER_TYPES if t != "compute_goal" or cls.goal_size)
    b = brief(name, types)
    all_text, facts = text(b.initial()), task_facts(cls)
    for quantity, q in cls.described(facts.efforts).items():
        line = re.search(rf'^- state\["{quantity}"\] \[n.*$', all_text, re.MULTILINE)
        assert line and q.unit in line[0] and q.meaning in line[0], quantity
        assert f"[{', '.join(['n', *map(str, q.shape)])}]" in line[0]
    for t in types:
        assert f"def {t}(" in b.system()
    episode = f"{cls.max_steps} control steps of {facts.dt:g} s"
    for part in (cls.score_meaning, cls.score_unit, episode, f"effort [n, {facts.efforts}]", b.description, "[n, A]"):
        assert part in all_text, part
    assert limits_text(facts.effort_limits) in all_text


def test_the_figures_of_a_task_are_measured() -> None:
    facts = task_facts(physics_task("Anymal"))
    assert (facts.dt, facts.efforts, facts.features, facts.bodies, facts.joints) == (0.02, 12, 48, 1, 12)
    assert limits_text(facts.effort_limits) == "+- 80" and limits_text((1.0, 2.0)) == "+- (1, 2)"
    assert limits_text((float("inf"),)) == "" and limits_text((1.0, float("inf"))) == "+- (1, none)"


def test_parameters_have_their_ranges() -> None:
    all_text = text(brief().initial())
    assert 'state["gravity"] [n], m/s^2: downwards (constant, 9.81)\n' in all_text
    assert "forward velocity asked for (drawn from [-2, 2] for every episode)\n" in all_text


def test_only_what_is_asked_for_is_asked_for() -> None:
    all_text = text(brief().initial())
    assert "def compute_observation" not in all_text and "ACTION_SIZE" not in all_text and "Pose" not in all_text
    assert "You do not write compute_observation, compute_torque" in all_text
    assert 'state["action"] [n, 12]' in all_text
    assert "all 2 functions" in text(brief(types=("compute_reward", "compute_terminal")).initial())
    assert "compute_goal" not in text(brief("Ant").initial())  # Ant has none


def test_the_humans_reward_is_shown_where_that_is_wanted() -> None:
    assert "2.5e-5" not in text(brief().initial())
    shown = text(brief(show_human_reward=True).initial())
    assert "2.5e-5" in shown and "# DT = 0.02" in shown and "@staticmethod" not in shown
    assert "type: ignore" not in shown
    ant = human_source(physics_task("Ant").compute_reward)
    assert "def _fallen" in ant and "# HEALTHY = (0.2, 1.0)" in ant


@pytest.mark.parametrize("types, found", [((), "none"), (("compute_rewards",), "'compute_rewards'")])
def test_an_unknown_type_is_refused(types: tuple[str, ...], found: str) -> None:
    with pytest.raises(ValueError, match=f"found {found}, expected some of compute_reward, "):
        brief(types=types)


def test_roles_alternate_and_history_is_one() -> None:
    b, parent = brief(), individual(7, score=1.0)
    roles = [[role for role, _ in messages] for messages in (b.initial(), b.improve(parent, None), b.repair(parent))]
    assert roles == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert [role for role, _ in b.crossover([parent, parent], None)] == ["system", "user"]
    assert b.improve(parent, None)[:2] == b.initial()


def test_parents_come_with_code_and_reflection() -> None:
    b = brief()
    one = individual(1, score=1.5, code="first = 1", curves=curves_of([1.0], [1.0], {"forward": [1.0]}))
    two = individual(2, score=2.5, code="second = 2")
    improved, crossed = text(b.improve(one, human(9.0))), text(b.crossover([one, two], human(9.0)))
    for part in ("first = 1", "score of 1.5 m/s + rad/s", "component 'forward'", "human's shaping, 9 m/s"):
        assert part in improved and part in crossed
    assert "second = 2" in crossed and "score of 2.5" in crossed and "Version 1:" in crossed and "Version 2:" in crossed


def test_a_repair_has_the_code_and_the_reason() -> None:
    b = brief()
    refused = b.repair(individual(code="x = 1", rejection=("allowlist", "line 3: open: not allowed")))
    assert "x = 1" in refused[2][1] and "line 3: open: not allowed" in refused[3][1] and "refused" in refused[3][1]
    failed = b.repair(individual(failure="KeyError: 'speed' in line 2"))
    assert "KeyError: 'speed' in line 2" in failed[3][1] and "in training" in failed[3][1]
    empty = b.repair(individual(code="", reply="I cannot do that.", rejection=("extract", "no code")))
    assert empty[2][1] == "I cannot do that."
    assert b.repair(individual(code="", reply="", rejection=("extract", "no code")))[2][1]
    copied = text(b.repair(individual(rejection=("novelty", "This has the structure of attempt 4"))))
    assert "attempt 4" in copied and "built differently" in copied and "refused" not in copied.split("attempt 4")[1]


def test_messages_stay_bounded() -> None:
    b = brief("Humanoid", tuple(SHAPER_TYPES[:5]), show_human_reward=True)
    components = {f"{k}" + "x" * 1000: [1.0] * 100 for k in range(300)}
    huge = individual(score=1.0, code="y" * 10**6, reply="z" * 10**6, curves=curves_of([1.0], [1.0], components))
    broken: list[Individual] = [
        individual(code="y" * 10**6, failure="e" * 10**6),
        individual(code="", reply="z" * 10**6, rejection=("extract", "e" * 10**6)),
    ]
    longest = max(
        len(text(m))
        for m in [b.improve(huge, huge), *(b.crossover([huge] * n, huge) for n in (2, 3, 8)), *map(b.repair, broken)]
    )
    assert longest <= len(text(b.initial())) + BOUND
    assert len(text(b.initial())) < 20_000


def test_no_sentence_of_the_prompts_that_others_published() -> None:
    all_text = " ".join(text(brief(types=tuple(SHAPER_TYPES)).improve(individual(score=1.0), None)).split()).lower()
    for phrase in (
        "reward engineer trying",
        "tensors you created are on the same device",
        "please carefully analyze",
        "analyze each existing reward component",
        "the input variables must not contain",
        "most importantly, the reward code",
    ):
        assert phrase not in all_text


@pytest.mark.parametrize("types", [SHAPER_TYPES, *([t] for t in SHAPER_TYPES)])
def test_the_example_would_be_let_through(types: list[str]) -> None:
    code = extract_code(f"As asked:\n```python\n{example(types)}```\n", types)
    check_source(code, types)


def test_the_example_does_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "blimp.py"
    header = "import torch\nfrom envolve.envs.physics.task import Pose\n\n\n"
    path.write_text(header + example(SHAPER_TYPES), encoding="utf-8")
    candidate = load_candidate(path)
    assert candidate.failure is None and set(candidate.shapers) == set(SHAPER_TYPES) and candidate.action_size == 1
    n = 5
    state = {name: torch.rand(n) for name in ("height", "target_height", "climb_rate")}
    random = Random(torch.rand(n, 32), torch.randn(n, 32))
    rest = Pose(torch.zeros(n, 1, 13, dtype=torch.float64), *[torch.zeros(n, 0, dtype=torch.float64)] * 2)
    call = {kind: shaper.function for kind, shaper in candidate.shapers.items()}
    total, components = call["compute_reward"](state)
    assert total.shape == (n,) and torch.allclose(total, sum(components.values()))
    assert call["compute_observation"](state).shape == (n, 2)
    assert call["compute_torque"](torch.rand(n, 1), state).shape == (n, 2)
    assert call["compute_terminal"](state).dtype == torch.bool
    assert call["compute_initial_state"](state, random, rest).root_state.shape == (n, 1, 13)
    assert call["compute_goal"](state, random).shape == (n, 1)
