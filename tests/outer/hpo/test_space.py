"""outer/hpo/space*.py: what varies, under which conditions, and that all that can be drawn is a configuration."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envolve.outer.config.load import load_config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.search import check_space, values_of
from envolve.outer.hpo.study import Study, dump_study, read_study
from envolve.outer.plugins import forget
from tests.examples import examples
from tests.outer.hpo.test_study import GOOD, ROOT, read, write

any_directory = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(25)
)
MIRRORED, TRANSFORM, LR = "agents.gtn.mirrored_sampling", "agents.gtn.score_transform_type", "agents.ddqn.lr"
ICM = "agents.icm.lr"


def with_space(space: dict[str, Any], **fixed: Any) -> dict[str, Any]:
    return {**copy.deepcopy(GOOD), "space": space, "set": {"agents.gtn.quit_when_solved": True, **fixed}}


def samples(study: Study, count: int, seed: int = 0) -> list[dict[str, Any]]:
    space = study.space.config_space
    space.seed(seed)
    return [values_of(space.sample_configuration()) for _ in range(count)]


# ------------------------------------------------------------------------------------------------ what is drawn


def test_values_have_the_types_of_their_keys(tmp_path: Path) -> None:
    space = {
        LR: {"range": [1e-4, 1], "log": True},  # 1 is written as an integer
        "agents.ddqn.hidden_size": {"range": [8.0, 64.0], "log": True},  # and an integer as a number
        "agents.ddqn.eps_decay": {"one_minus": [0.01, 0.2]},
        "agents.ddqn.eps_min": {"choices": [0, 0.5]},
        "agents.ddqn.hidden_layer": {"choices": [1, 2]},
        "agents.ddqn.activation_fn": {"choices": ["tanh", "relu"]},
        MIRRORED: {"choices": [False, True]},
    }
    study = read(tmp_path, with_space(space))
    for values in samples(study, 20):
        ddqn = study.member_config(values).data["agents"]["ddqn"]
        types = {key: type(ddqn[key]) for key in ("lr", "hidden_size", "eps_decay", "eps_min", "hidden_layer")}
        assert types == {"lr": float, "hidden_size": int, "eps_decay": float, "eps_min": float, "hidden_layer": int}
        assert 0.8 <= ddqn["eps_decay"] <= 0.99 and 8 <= ddqn["hidden_size"] <= 64 and ddqn["eps_min"] in (0.0, 0.5)
        assert 0.01 <= values["1-agents.ddqn.eps_decay"] <= 0.2
        assert ddqn["eps_decay"] == 1 - values["1-agents.ddqn.eps_decay"]


def test_logarithmic_ranges_are_drawn_logarithmically(tmp_path: Path) -> None:
    space = {LR: {"range": [1e-4, 1], "log": True}, "agents.ddqn.tau": {"range": [1e-4, 1]}}
    drawn = samples(read(tmp_path, with_space(space)), 400)
    assert 160 < sum(values[LR] < 1e-2 for values in drawn) < 240  # the middle in orders of magnitude
    assert sum(values["agents.ddqn.tau"] < 1e-2 for values in drawn) < 20


def test_the_order_of_the_file_decides_no_draw(tmp_path: Path) -> None:
    space = {LR: {"range": [1e-4, 1]}, MIRRORED: {"choices": [False, True]}, TRANSFORM: {"range": [0, 7]}}
    forth, back = (read(tmp_path, with_space(s)) for s in (space, dict(reversed(space.items()))))
    assert [p.key for p in back.space.parameters] == [p.key for p in forth.space.parameters][::-1]
    assert samples(forth, 10) == samples(back, 10)


def test_an_end_that_rounding_leads_over_is_the_end(tmp_path: Path) -> None:
    study = read(tmp_path, with_space({"agents.ddqn.gamma": {"one_minus": [0.001, 0.1], "log": True}}))
    gamma = study.member_config({"1-agents.ddqn.gamma": 0.1 + 1e-13}).data["agents"]["ddqn"]["gamma"]
    assert gamma == 0.9
    with pytest.raises(ConfigError, match="expected a number from 0.001 to 0.1"):
        study.member_config({"1-agents.ddqn.gamma": 0.1001})


# ------------------------------------------------------------------------------------------------ conditions

CONDITIONAL = {
    MIRRORED: {"choices": [True, False]},
    TRANSFORM: {"range": [0, 3], "when": {MIRRORED: [True]}},
    LR: {"range": [1e-4, 1e-2], "when": {TRANSFORM: [0, 2], MIRRORED: [True]}},
    "agents.ddqn.tau": {"range": [0.1, 0.2], "when": {LR.replace("lr", "hidden_layer"): [1]}},
    "agents.ddqn.hidden_layer": {"choices": [1, 2], "when": {TRANSFORM: [2, 3]}},
}


def test_conditional_parameters_are_there_where_all_conditions_hold(tmp_path: Path) -> None:
    study = read(tmp_path, with_space(CONDITIONAL))
    seen = set()
    for values in samples(study, 100):
        mirrored, transform = values[MIRRORED], values.get(TRANSFORM)
        layers = values.get("agents.ddqn.hidden_layer")
        assert (transform is not None) == mirrored
        assert (LR in values) == (transform in (0, 2))
        assert (layers is not None) == (transform in (2, 3))
        assert ("agents.ddqn.tau" in values) == (layers == 1)
        assert study.space.active(values) == set(values)
        ddqn, base = (c.data["agents"]["ddqn"] for c in (study.member_config(values), study.config))
        assert ddqn["lr"] == values.get(LR, base["lr"])  # where it is not there: the base's
        seen.add(tuple(sorted(values)))
    assert len(seen) == 7


def test_values_that_conditions_exclude_are_not_read(tmp_path: Path) -> None:
    study = read(tmp_path, with_space(CONDITIONAL))
    assert study.member_config({MIRRORED: False}).data["agents"]["gtn"]["mirrored_sampling"] is False
    with pytest.raises(ConfigError, match=f"{TRANSFORM}: found nothing, expected a value"):
        study.member_config({MIRRORED: True})
    without, beside = study.member_config({MIRRORED: False}), study.member_config({MIRRORED: False, LR: 1e-3})
    assert without.data == beside.data  # ConfigSpace proposes such values: they are not read


def test_curiosity_on_condition(tmp_path: Path) -> None:
    space = {"agents.gtn.agent_name": {"choices": ["DDQN", "DDQN_icm"]}, ICM: {"range": [1e-5, 1e-3], "log": True}}
    space[ICM]["when"] = {"agents.gtn.agent_name": ["DDQN_icm"]}
    study = read(tmp_path, with_space(space))
    assert study.config.warnings == []
    drawn = samples(study, 20)
    assert {(v["agents.gtn.agent_name"], ICM in v) for v in drawn} == {("DDQN", False), ("DDQN_icm", True)}


SEARCH, SIGMA = "agents.gtn.search", "agents.snes.lr_sigma"


def test_settings_of_the_search_that_is_set(tmp_path: Path) -> None:
    fixed = {SEARCH: "snes", "agents.snes.lr_mean": 0.9}
    study = read(tmp_path, with_space({SIGMA: {"range": [0.1, 1.0]}}, **fixed))
    data = study.member_config({SIGMA: 0.5}).data
    assert data["agents"]["gtn"]["search"] == "snes"
    assert data["agents"]["snes"] == {"lr_mean": 0.9, "lr_sigma": 0.5}
    assert "a key that this configuration does not read" in refusals(tmp_path, {SIGMA: {"range": [0.1, 1.0]}})[0]


def test_agents_alone_read_no_settings_of_a_search(tmp_path: Path) -> None:
    content = {**with_space({SIGMA: {"range": [0.1, 1.0]}}, **{SEARCH: "snes"}), "evaluate": "agent", "loss": "return"}
    del content["repeats"]
    content["budget"] = {"unit": "agents", "least": 1, "most": 9, "eta": 3}
    with pytest.raises(ConfigError, match="found a key that this configuration does not read"):
        read(tmp_path, content)


def test_settings_of_searches_on_condition(tmp_path: Path) -> None:
    mean = "agents.openai_es.lr"
    space: dict[str, Any] = {
        SEARCH: {"choices": ["nes", "snes", "openai_es"]},
        SIGMA: {"range": [0.1, 1.0], "when": {SEARCH: ["snes"]}},
        mean: {"range": [0.01, 0.1], "when": {SEARCH: ["openai_es"]}},
    }
    study = read(tmp_path, with_space(space))
    seen = {(v[SEARCH], SIGMA in v, mean in v) for v in samples(study, 30)}
    assert seen == {("nes", False, False), ("snes", True, False), ("openai_es", False, True)}
    assert study.member_config({SEARCH: "snes", SIGMA: 0.5}).data["agents"]["snes"]["lr_sigma"] == 0.5
    assert study.member_config({SEARCH: "nes"}).data["agents"]["gtn"]["search"] == "nes"


def test_settings_of_a_search_of_the_users_own(tmp_path: Path) -> None:
    own = """
from dataclasses import dataclass

from envolve.core.option import option


@dataclass(frozen=True)
class TunedSection:
    speed: float = option(0.5, "how fast", gt=0)


class TunedES(MyES):
    section_class = TunedSection
"""
    for folder in ("base", "run"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tuned_es.py").write_text((ROOT / "examples" / "my_search.py").read_text() + own)
    key, space = "agents.tunedes.speed", {"agents.tunedes.speed": {"range": [0.1, 1.0]}}
    content = with_space(space, **{SEARCH: "tuned_es.py:TunedES"})
    content["config"] = yaml.safe_load(Path(content["config"]).read_text())
    study = read(tmp_path / "base", content)
    assert study.member_config({key: 0.25}).data["agents"]["tunedes"] == {"speed": 0.25}
    forget("search", "TunedES")  # as in another process, which reads what the first one wrote
    assert read(tmp_path / "run", dump_study(study)).digest == study.digest


# ------------------------------------------------------------------------------------------------ what is refused


def refusals(tmp_path: Path, space: Any, **fixed: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, with_space(space, **fixed))
    found = [text.replace(str(tmp_path / "s.yaml"), "FILE") for text in caught.value.problems]
    assert found and all(text.startswith("FILE:") and ": found " in text and ", expected " in text for text in found)
    return found


@pytest.mark.parametrize(
    "key, entry, words",
    [
        (LR, 3, "FILE:19 space.agents.ddqn.lr: found 3, expected a mapping with one of range, one_minus, choices"),
        (LR, {}, "space.agents.ddqn.lr: found none of them, expected one of range, one_minus, choices"),
        (LR, {"range": [1, 2], "choices": [1, 2]}, "found range and choices, expected one of"),
        (LR, {"rang": [1, 2]}, "FILE:20 space.agents.ddqn.lr.rang: found an unknown key, expected a key"),
        (LR, {"range": [1, 2], "lag": True}, "lag: found an unknown key, expected a key of agents.ddqn.lr"),
        (LR, {"range": [1, 2], "log": 1}, "space.agents.ddqn.lr.log: found 1, expected true or false"),
        (LR, {"choices": [1, 2], "log": True}, "log: found true, expected no log, because choices have no order"),
        (LR, {"range": [0, 1]}, "range.0: found 0, expected a number > 0 (Adam learning rate)"),
        (LR, {"range": [2, 1]}, "range: found [2, 1], expected the lower end first"),
        (LR, {"range": [1, 1]}, "range: found [1, 1], expected the lower end first"),
        (LR, {"range": [1]}, "range: found [1], expected a list of two numbers"),
        (LR, {"range": [True, 2]}, "range: found [True, 2], expected a list of two numbers"),
        (LR, {"range": ["a", "b"]}, "found ['a', 'b'], expected a list of two numbers"),
        (LR, {"range": [0.1, float("inf")]}, "expected numbers between -1e+100 and 1e+100"),
        (LR, {"range": [float("nan"), 1.0]}, "expected numbers between"),
        (LR, {"range": [1e-12, 1], "log": True}, "expected a lower end of at least 1e-09, because ConfigSpace rounds"),
        (LR, {"range": [0.5, 0.5 + 1e-12]}, "expected a width of at least 1e-09, because ConfigSpace rounds"),
        (LR, {"one_minus": [0.1, 1.5]}, "one_minus.1: found -0.5, expected a number > 0"),
        (LR, {"one_minus": [0, 0.5], "log": True}, "expected the lower end first, and above 0 because of log"),
        (LR, {"choices": [0.1]}, "choices: found [0.1], expected a list of at least two values"),
        (LR, {"choices": [0.1, "a"]}, "choices.1: found 'a', expected a number > 0"),
        (LR, {"choices": [1, 1.0]}, "choices.1: found 1.0 again, expected each choice once"),
        (LR, {"choices": [0.1, None]}, "choices.1: found nothing, expected a number > 0"),
        ("agents.ddqn.batch_size", {"range": [1.5, 3]}, "range.0: found 1.5, expected an integer >= 1"),
        ("agents.ddqn.batch_size", {"range": [8, 65537]}, "range.1: found 65537, expected an integer >= 1"),
        ("agents.ddqn.batch_size", {"one_minus": [0.1, 0.2]}, "one_minus: found one_minus, expected range for"),
        ("agents.ddqn.rb_size", {"range": [1, 2**60]}, "expected numbers between"),
        (MIRRORED, {"range": [0, 1]}, "range: found range, expected choices for true or false"),
        (MIRRORED, {"choices": [0, 1]}, "choices.0: found 0, expected true or false"),
        ("agents.ddqn.activation_fn", {"choices": ["relu", "tanhh"]}, "choices.1: found 'tanhh', expected one of"),
        ("envs.CartPole-v0.reward_env_type", {"range": [0, 8]}, "found range, expected choices for one of"),
        ("envs.CartPole-v0.max_steps", {"choices": [None, 3]}, "choices.0: found nothing, expected an integer >= 1"),
        ("agents.ddqn.lrr", {"range": [1, 2]}, "space.agents.ddqn.lrr: found an unknown key, expected a dotted"),
        ("lr", {"range": [1, 2]}, "space.lr: found an unknown key"),
        ("agents.gtn.exploration_gain", {"choices": [0, 1]}, "found a key of the original that is ignored here"),
    ],
)
def test_entries_that_are_refused(tmp_path: Path, key: str, entry: object, words: str) -> None:
    found = refusals(tmp_path, {key: entry})
    assert any(words in text for text in found), found


@pytest.mark.parametrize(
    "when, words",
    [
        (3, "when: found 3, expected a mapping: a key of this space and a list of its values"),
        ({}, "when: found a mapping, expected a mapping: a key of this space"),
        ({"agents.gtn.mirored": [True]}, "found a key that is not in this space, expected another key"),
        ({"agents.gtn.step_size": [0.1]}, "found a key that is not in this space, expected another key"),
        ({LR: [0.1]}, "found itself, expected another key of it"),
        ({MIRRORED: True}, "found true, expected a list of its values: one of true, false"),
        ({MIRRORED: []}, "found [], expected a list of its values"),
        ({MIRRORED: [True, 1]}, "mirrored_sampling.1: found 1, expected one of true, false"),
        ({TRANSFORM: [3, 4]}, "score_transform_type.1: found 4, expected an integer from 0 to 3"),
        ({"agents.ddqn.tau": [0.1]}, "found a parameter that is a number from 0.1 to 0.2, expected one of"),
        ({"agents.ddqn.eps_min": [0.2]}, "space.agents.ddqn.lr.when: found a cycle of conditions, expected none"),
    ],
)  # fmt: skip
def test_conditions_that_are_refused(tmp_path: Path, when: object, words: str) -> None:
    space = {
        MIRRORED: {"choices": [True, False]},
        TRANSFORM: {"range": [0, 3]},
        "agents.ddqn.tau": {"range": [0.1, 0.2]},
        LR: {"choices": [0.1, 0.2], "when": when},
        "agents.ddqn.eps_min": {"choices": [0.1, 0.2], "when": {LR: [0.1]}},
    }
    assert any(words in text for text in refusals(tmp_path, space))


def test_a_condition_on_an_entry_with_a_problem_is_reported_once(tmp_path: Path) -> None:
    space = {MIRRORED: {"choices": [True]}, LR: {"range": [0.1, 0.2], "when": {MIRRORED: [True]}}}
    assert len(refusals(tmp_path, space)) == 1


def test_values_that_are_impossible_together_are_found(tmp_path: Path) -> None:
    space = {
        MIRRORED: {"choices": [True, False]},
        "agents.gtn.estimator": {"choices": ["published", "antithetic"]},
        LR: {"range": [1e-4, 1e-2]},
    }
    found = refusals(tmp_path, space)
    words = "expected true: estimator antithetic needs pairs"
    assert found == [f"FILE:19 {MIRRORED}: found false, {words}"]
    del space["agents.gtn.estimator"]
    found = refusals(tmp_path, space, **{"agents.gtn.estimator": "antithetic"})
    assert len(found) == 1 and words in found[0]
    space[MIRRORED] = {"choices": [True, False], "when": {"agents.gtn.estimator": ["published"]}}
    space["agents.gtn.estimator"] = {"choices": ["published", "antithetic"]}
    study = read(tmp_path, with_space(space))  # a condition keeps them apart
    for values in samples(study, 20):
        study.member_config(values)


def test_networks_that_are_too_large_together(tmp_path: Path) -> None:
    space = {"agents.ddqn.hidden_size": {"range": [8, 9000]}, "agents.ddqn.hidden_layer": {"range": [1, 4]}}
    found = refusals(tmp_path, space)
    assert len(found) == 1 and "FILE:19 agents.ddqn.hidden_size: found a network of 2" in found[0]


# ------------------------------------------------------------------------------------------------ any space

NUMBERS = {  # key -> least, most of what its schema takes
    LR: (1e-6, 10.0), "agents.ddqn.tau": (0.0, 1.0), "agents.ddqn.eps_min": (0.0, 1.0),
    "agents.gtn.noise_std": (1e-6, 1e6), "agents.gtn.unsolved_weight": (0.0, 1e9),
    "agents.gtn.weight_decay": (0.0, 0.99),
    "envs.CartPole-v0.done_bias": (-1e6, 1e6), "envs.CartPole-v0.solved_reward": (-1e6, 1e6),
}  # fmt: skip
INTEGERS = {
    "agents.ddqn.batch_size": (1, 20_000), TRANSFORM: (0, 7), "agents.ddqn.rb_size": (1, 10**9), "seed": (0, 2**50),
    "agents.ddqn.init_episodes": (0, 999), "envs.CartPole-v0.hidden_size": (1, 300),
    "agents.gtn.num_grad_evals": (1, 9),
}  # fmt: skip
CHOICES = {
    MIRRORED: [True, False], "agents.ddqn.activation_fn": ["relu", "tanh", "prelu"],
    "agents.gtn.agent_name": ["DDQN", "DDQN_vary", "DuelingDDQN"], "agents.gtn.grad_eval_type": ["mean", "minmax"],
    "envs.CartPole-v0.reward_env_type": [0, 1, 2, 5, 6], "agents.ddqn.gamma": [0, 0.5, 0.99, 1],
}  # fmt: skip


@st.composite
def spaces(draw: Any) -> dict[str, Any]:
    """Any space that a study may have, conditions on earlier parameters among them."""
    space: dict[str, Any] = {}
    kinds = {**dict.fromkeys(NUMBERS, 0), **dict.fromkeys(INTEGERS, 1), **dict.fromkeys(CHOICES, 2)}
    for key in draw(st.lists(st.sampled_from(sorted(kinds)), unique=True, min_size=1, max_size=8)):
        if kinds[key] == 2:
            some = draw(st.lists(st.sampled_from(CHOICES[key]), unique=True, min_size=2))
            entry: dict[str, Any] = {"choices": some}
        else:
            low, high = (NUMBERS | INTEGERS)[key]
            number = st.integers(low, high) if kinds[key] else st.floats(low, high).map(lambda x: round(x, 6))
            ends = sorted(draw(st.lists(number, unique=True, min_size=2, max_size=2)))
            entry = {"range": ends, "log": draw(st.booleans()) and ends[0] > 0}
        parents = {k: e.get("choices", e.get("range")) for k, e in space.items() if k not in NUMBERS}
        when = draw(st.lists(st.sampled_from(sorted(parents)), unique=True, max_size=2)) if parents else []
        if when:
            of = {k: draw(st.lists(st.sampled_from(parents[k]), unique=True, min_size=1)) for k in when}
            entry["when"] = of
        space[key] = entry
    return space


@given(space=spaces(), seed=st.integers(0, 999))
@any_directory
def test_whatever_is_drawn_from_whatever_space_is_a_configuration(tmp_path: Path, space: dict, seed: int) -> None:
    study = read(tmp_path, with_space(space))
    assert [p.key for p in study.space.parameters] == list(space)
    check_space(study.space.config_space, "bohb")  # a search takes every space that a study may have
    for values in samples(study, 5, seed):
        assert study.space.active(values) <= set(values)
        member = study.member_config(values)
    (tmp_path / "member.yaml").write_text(yaml.safe_dump(member.data))
    assert load_config(tmp_path / "member.yaml").data == member.data
    (tmp_path / "copy.yaml").write_text(dump_study(study))
    again = read_study(tmp_path / "copy.yaml")
    assert (again.digest, again.space) == (study.digest, study.space)
    assert samples(again, 3, seed) == samples(study, 3, seed)


# ------------------------------------------------------------------------------------------------ junk

JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.just(2**70),
        st.sampled_from([*GOOD, LR, "range", "choices", "real", "nes", "agent", "/", "..", "*", "\0", 10**400]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*GOOD, LR, MIRRORED, *"range choices when log x".split()]), inner, max_size=3),
    ),
    max_leaves=6,
)


def paths(value: Any, at: tuple = ()) -> list[tuple]:
    """Every place in a nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, inner in items for path in paths(inner, (*at, key)))]


def replaced(value: Any, path: tuple, junk: Any) -> Any:
    if not path:
        return junk
    out = copy.copy(value)
    out[path[0]] = replaced(value[path[0]], path[1:], junk)
    return out


BASES = [GOOD, with_space(CONDITIONAL)]


@given(data=st.data())
@settings(any_directory, max_examples=examples(60))
def test_a_study_with_junk_anywhere_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content: Any = data.draw(st.sampled_from(BASES))
    for _ in range(data.draw(st.integers(1, 2))):
        content = replaced(content, data.draw(st.sampled_from(paths(content))), data.draw(JUNK))
    try:
        text = yaml.safe_dump(content, allow_unicode=True)
        study = read_study(write(tmp_path, text.encode("utf-8", "surrogatepass")))
    except ConfigError as e:
        assert e.problems and all("found" in text and "expected" in text for text in e.problems)
    else:
        assert read_study(write(tmp_path, dump_study(study), "copy.yaml")).digest == study.digest


@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace"))))
@any_directory
def test_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError):
        read_study(write(tmp_path, content))


@given(text=st.one_of(st.text(max_size=30), st.tuples(st.sampled_from([*GOOD, "search.seed", LR]), JUNK).map(
    lambda pair: f"{pair[0]}={yaml.safe_dump(pair[1], default_flow_style=True)}"
)))  # fmt: skip
@any_directory
def test_any_override_is_applied_or_refused(tmp_path: Path, text: str) -> None:
    try:
        read(tmp_path, GOOD, text)
    except ConfigError as e:
        assert e.problems
