"""outer/config/load.py: what loads, what is refused and in which words, and what is written back."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import DDQNSection, ICMSection, TabularSection, VarySection
from envolve.envs.classic.gridworld import Cliff
from envolve.envs.section import EnvSection
from envolve.envs.task import TASKS, make_task
from envolve.outer.config import legacy, problem, schema, yaml_lines
from envolve.outer.config.load import (
    Config,
    ConfigError,
    TaskChoice,
    config_of,
    describe,
    dump_config,
    environment_info,
    load_config,
    read_kwargs,
)
from envolve.outer.config.section import GTNSection
from envolve.outer.plugins import forget, register_task
from envolve.outer.search.target import NetworkTarget
from tests.examples import examples

ROOT = Path(__file__).resolve().parents[3]
ORIGINALS = Path(__file__).resolve().parents[2] / "fixtures" / "original_configs"
SHIPPED = sorted(ROOT.glob("default_config_*.yaml"))
ZOO = sorted((ROOT / "configs" / "zoo").glob("*.yaml"))
GOOD: dict[str, Any] = {
    "env_name": "CartPole-v0",
    "device": "cpu",
    "seed": 3,
    "agents": {
        "gtn": {"agent_name": "DDQN_vary", "num_workers": 4, "noise_std": 0.05, "quit_when_solved": True},
        "ddqn": {"lr": 0.001, "batch_size": 64, "activation_fn": "tanh"},
        "ddqn_vary": {"vary_hp": True},
        "ql": {"alpha": 0.5},
    },
    "envs": {"CartPole-v0": {"max_steps": 100, "hidden_size": 8}, "Cliff": {"reward_env_type": 2}},
}
any_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def load(tmp_path: Path, content: object, *overrides: str) -> Config:
    path = tmp_path / "c.yaml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return load_config(path, overrides)


def problems(tmp_path: Path, content: object, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, content, *overrides)
    assert caught.value.problems and all(p in str(caught.value) for p in caught.value.problems)
    return [p.replace(str(tmp_path / "c.yaml"), "FILE") for p in caught.value.problems]


def changed(path: str, value: object) -> dict:
    """GOOD with one dotted key set."""
    out = yaml.safe_load(yaml.safe_dump(GOOD))
    *sections, key = path.split("/")
    at = out
    for section in sections:
        at = at[section]
    at[key] = value
    return out


def text_with(section_line: str, extra: str) -> str:
    """GOOD as text with one line added below another."""
    text = yaml.safe_dump(GOOD, sort_keys=False)
    assert section_line in text
    return text.replace(section_line, f"{section_line}\n{extra}", 1)


# -------------------------------------------------------------------------------- what loads


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_files_load_without_a_warning_and_every_line_is_commented(path: Path) -> None:
    config = load_config(path)
    assert config.warnings == []
    assert all("#" in line for line in path.read_text().splitlines() if line.strip())
    assert 5 <= len(describe(config).splitlines()) <= 15


def test_shipped_files_are_all_there() -> None:
    names = ["cartpole_syn_env", "cartpole_syn_env_paper", "acrobot_syn_env", "gridworld", "gridworld_reward_env"]
    names.append("cartpole_reward_env")
    assert {p.name for p in SHIPPED} >= {f"default_config_{name}.yaml" for name in names}


def test_published_cartpole_values() -> None:
    data = load_config(ROOT / "default_config_cartpole_syn_env_paper.yaml").data
    gtn, (name, ddqn, vary) = problem.gtn_section(data), problem.learner(data)
    assert (gtn.noise_std, gtn.step_size, gtn.score_transform_type) == (0.0124, 0.148, 3)
    assert (gtn.max_iterations, gtn.num_workers, gtn.estimator, gtn.num_orig_evals) == (200, 16, "published", 0)
    assert (name, vary) == ("ddqn", None) and isinstance(ddqn, DDQNSection)
    assert (ddqn.hidden_size, ddqn.batch_size, ddqn.activation_fn, ddqn.lr) == (57, 199, "tanh", 3.04e-4)
    assert (problem.env_section(data).hidden_size, problem.env_section(data).activation_fn) == (83, "leakyrelu")


def test_original_file_loads_as_it_is_and_equals_the_shipped_paper_file() -> None:
    config = load_config(ORIGINALS / "default_config_cartpole_syn_env.yaml")
    paper = load_config(ROOT / "default_config_cartpole_syn_env_paper.yaml").data
    assert paper["envs"]["CartPole-v0"].pop("raw_done") is True  # the original's raw done is an option here, off ...
    assert config.data["envs"]["CartPole-v0"].pop("raw_done") is False  # ... unless a file asks for it
    assert paper["agents"]["ddqn"].pop("bootstrap_time_limit") is False  # and so is the end at a time limit
    assert config.data["agents"]["ddqn"].pop("bootstrap_time_limit") is True
    others = {
        name: config.data["agents"].pop(name) for name in list(config.data["agents"]) if name not in paper["agents"]
    }
    assert config.data == paper
    assert {"td3", "td3_discrete", "td3_discrete_vary", "duelingddqn", "icm"} <= set(others)
    assert (others["td3_discrete"]["hidden_size"], others["td3_discrete_vary"]["vary_hp"]) == (510, False)
    text = "\n".join(config.warnings)
    for ignored in ("render_env", "time_max", "time_sleep_worker", "print_rate"):
        assert ignored in text
    assert "train_steps is the budget here" in text


def test_original_gridworld_file_loads() -> None:
    config = load_config(ORIGINALS / "default_config_gridworld_reward_env.yaml")
    name, section, vary = problem.learner(config.data)
    assert (name, section.rb_size, vary) == ("ql", 1, None) and isinstance(section, TabularSection)
    assert set(config.data["envs"]) >= {"Cliff", "HoleRoomLargeShifted"}
    assert problem.env_section(config.data).solved_reward == -20.0
    assert problem.gtn_section(config.data).synthetic_env_type == 1


def test_original_default_config_loads_for_a_task_that_exists() -> None:
    config = load_config(ORIGINALS / "default_config.yaml", ["env_name=EmptyRoom22"])
    text = "\n".join(config.warnings)
    for name in ("reptile", "env_matcher", "HalfCheetah-v2", "num_test_envs"):
        assert name in text
    assert config.data["agents"]["ddqn"]["test_episodes"] == 100  # a section that agent_name does not use
    assert config.data["envs"]["Pendulum-v0"]["max_steps"] == 200 and "Bandit" in config.data["envs"]
    with pytest.raises(ConfigError, match="found QL, expected a learner for Pendulum-v0, which has continuous actions"):
        load_config(ORIGINALS / "default_config.yaml")


def test_original_file_of_an_agent_alone_says_what_is_missing() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(ORIGINALS / "default_config_halfcheetah_td3_opt.yaml")
    assert len(caught.value.problems) == 1 and "agents.gtn: found nothing" in caught.value.problems[0]


def test_original_halfcheetah_reward_file_loads_as_it_is_and_equals_the_shipped_paper_file() -> None:
    config = load_config(ORIGINALS / "default_config_halfcheetah_reward_env.yaml")
    paper = load_config(ROOT / "default_config_halfcheetah_reward_env_paper.yaml").data
    gtn, (name, td3, vary) = problem.gtn_section(config.data), problem.learner(config.data)
    assert (gtn.synthetic_env_type, gtn.noise_std, gtn.step_size, gtn.score_transform_type) == (1, 0.1, 0.5, 3)
    assert (name, vary, td3.train_episodes, td3.batch_size, td3.lr) == ("td3", None, 100, 192, 0.003)  # type: ignore[attr-defined]
    assert paper["agents"]["td3"].pop("bootstrap_time_limit") is False  # an end at a time limit, as published
    assert config.data["agents"]["td3"].pop("bootstrap_time_limit") is True
    assert paper["agents"]["gtn"].pop("evolve_prelu") is False  # which NES left alone
    assert config.data["agents"]["gtn"].pop("evolve_prelu") is True
    assert config.data["agents"].pop("td3_vary")["vary_hp"] is True  # which agent_name does not use
    assert config.data == paper


def test_every_default_is_filled_in_from_the_dataclasses_and_the_task(tmp_path: Path) -> None:
    data = load(tmp_path, {"env_name": "Cliff", "agents": {"gtn": {"agent_name": "QL"}}, "envs": {"Cliff": {}}}).data
    assert data["seed"] == 0 and data["device"] == "cpu"
    assert problem.gtn_section(data) == GTNSection(agent_name="QL")
    assert problem.learner(data) == ("ql", TabularSection(), None)
    task = TASKS["Cliff"]()
    expected = EnvSection(max_steps=task.max_steps, solved_reward=task.solved_reward)
    assert problem.env_section(data) == expected


def test_a_missing_learner_section_is_said(tmp_path: Path) -> None:
    raw = yaml.safe_load(yaml.safe_dump(GOOD))
    del raw["agents"]["ddqn"], raw["agents"]["ddqn_vary"]
    config = load(tmp_path, raw)
    assert [w for w in config.warnings if "agents.ddqn is missing" in w]
    assert [w for w in config.warnings if "agents.ddqn_vary is missing" in w]
    assert problem.learner(config.data) == ("ddqn", DDQNSection(), VarySection())


@pytest.mark.parametrize("text, value", [("1e-4", 1e-4), ("5E-2", 0.05), ("!!float 1e-4", 1e-4), ("1", 1.0)])
def test_numbers_as_people_write_them(tmp_path: Path, text: str, value: float) -> None:
    config = load(tmp_path, GOOD, f"agents.ddqn.lr={text}")
    assert config.data["agents"]["ddqn"]["lr"] == value
    assert isinstance(config.data["agents"]["ddqn"]["lr"], float)


@pytest.mark.parametrize("text", ["!!float 20", "20.0", "2e1", "20"])
def test_integral_numbers_are_integers(tmp_path: Path, text: str) -> None:
    value = load(tmp_path, GOOD, f"agents.ddqn.batch_size={text}").data["agents"]["ddqn"]["batch_size"]
    assert value == 20 and type(value) is int


def test_range_syntax_uses_the_middle_with_a_warning(tmp_path: Path) -> None:
    config = load(tmp_path, changed("envs/CartPole-v0/max_steps", [50, 70, 90]))
    assert config.data["envs"]["CartPole-v0"]["max_steps"] == 70
    assert any("envs.CartPole-v0.max_steps is a range" in w for w in config.warnings)


def test_agent_names(tmp_path: Path) -> None:
    def learner(name: str) -> tuple:
        return problem.learner(load(tmp_path, GOOD, f"agents.gtn.agent_name={name}", "env_name=Cliff").data)

    assert learner("ddqn")[0::2] == ("ddqn", None)
    assert learner("DdQn_VARY")[0::2] == ("ddqn", VarySection())
    assert learner("QL_cb") == ("ql_cb", TabularSection(alpha=0.5), None)  # reads agents.ql, as the original
    assert learner("sarsa") == ("sarsa", TabularSection(), None)


def test_count_based_learner_prefers_its_own_section(tmp_path: Path) -> None:
    raw = changed("agents/ql_cb", {"alpha": 0.25})
    data = load(tmp_path, raw, "agents.gtn.agent_name=ql_cb", "env_name=Cliff").data
    assert problem.learner(data)[1] == TabularSection(alpha=0.25)


def test_curious_agents_read_the_learners_sections_and_their_own(tmp_path: Path) -> None:
    raw = changed("agents/icm", {"eta": 0.25})
    data = load(tmp_path, raw, "agents.gtn.agent_name=DDQN_icm_vary").data
    name, section, vary = problem.learner(data)
    assert name == "ddqn" and section.batch_size == 64 and vary is not None
    assert problem.curiosity(data) == ICMSection(eta=0.25)
    assert problem.curiosity(load(tmp_path, raw).data) is None
    text = problems(tmp_path, changed("agents/gtn/agent_name", "SAC_icm"))
    assert len(text) == 1 and "expected an agent that exists" in text[0]


def test_discrete_td3_of_the_original_is_one_section(tmp_path: Path) -> None:
    raw = changed("agents/td3_discrete_vary", {"batch_size": 7, "sigmoid_last_layer": True, "vary_hp": False})
    data = load(tmp_path, raw, "agents.gtn.agent_name=TD3_discrete_vary").data
    name, section, vary = problem.learner(data)
    assert (name, section.batch_size, vary.vary_hp) == ("td3_discrete", 7, False)
    raw["agents"]["td3_discrete"] = {"batch_size": 8}
    found = problems(tmp_path, raw)
    assert any("agents.td3_discrete_vary.batch_size: found an unknown key" in text for text in found)
    del raw["agents"]["td3_discrete"]
    raw["agents"]["td3_discrete_vary"]["batch_size"] = 0
    assert "agents.td3_discrete_vary.batch_size: found 0, expected an integer >= 1" in problems(tmp_path, raw)[0]


def test_named_learner_refuses_what_does_not_exist() -> None:
    with pytest.raises(KeyError, match="learner: found 'reptile', expected one of ql, "):
        problem.named_learner({"agents": {}}, "REPTILE")


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("agents/gtn/noise_std", "abc", "found 'abc', expected a number > 0 (standard deviation"),
        ("agents/gtn/noise_std", 0, "found 0, expected a number > 0"),
        ("agents/gtn/noise_std", math.nan, "found nan, expected a number > 0"),
        ("agents/gtn/noise_std", math.inf, "found inf"),
        ("agents/gtn/noise_std", True, "found true, expected a number"),
        ("agents/gtn/noise_std", 10**400, "expected a number"),
        ("agents/gtn/noise_std", None, "found nothing, expected a number"),
        ("agents/gtn/num_workers", 1.5, "found 1.5, expected an integer >= 1"),
        ("agents/gtn/num_workers", True, "found true, expected an integer"),
        ("agents/gtn/num_workers", 2**64, "expected an integer"),
        ("agents/gtn/num_workers", [4], "found [4], expected an integer"),
        ("agents/gtn/num_workers", {"a": 1}, "found a mapping, expected an integer"),
        ("agents/gtn/quit_when_solved", 1, "found 1, expected true or false"),
        ("agents/gtn/quit_when_solved", "False", "found 'False', expected true or false"),
        ("agents/gtn/score_transform_type", 8, "expected an integer >= 0 and <= 7"),
        ("agents/gtn/synthetic_env_type", 3, "expected one of 0, 1, 2"),
        ("agents/gtn/agent_name", 5, "found 5, expected text"),
        ("agents/gtn/agent_name", "DDQM", "did you mean ddqn"),
        ("agents/gtn/agent_name", "REPTILE", "this agent of the original does not exist here yet"),
        ("agents/gtn", None, "found nothing, expected a mapping"),
        ("agents/gtn", [1], "found [1], expected a mapping"),
        ("agents/ddqn/lr", -0.001, "found -0.001, expected a number > 0 (Adam learning rate)"),
        ("agents/ddqn/activation_fn", "leaky_relu", "did you mean leakyrelu"),
        ("agents/ql/gamma", 1.5, "expected a number >= 0 and <= 1"),  # checked although agent_name does not use it
        ("agents", "x", "found 'x', expected a mapping"),
        ("envs", None, "found nothing, expected a mapping"),
        ("envs/CartPole-v0/reward_env_type", 9, "expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 101, 102"),
        ("envs/CartPole-v0/reward_env_type", "two", "found 'two', expected one of 0, 1, 2, 3, 4, 5"),
        ("envs/CartPole-v0/max_steps", [1, 2], "found [1, 2], expected an integer >= 1 and <= 1000000 or nothing"),
        ("env_name", "CartPole-v1", "did you mean CartPole-v0"),
        ("env_name", "Acrobot-v1", "envs.Acrobot-v1: found nothing, expected the section of the task"),
        ("env_name", 7, "found 7, expected text"),
        ("seed", -1, "expected an integer >= 0"),
        ("seed", "x", "found 'x', expected an integer"),
        ("device", "gpu", "found 'gpu', expected cpu, cuda or cuda:<index>"),
    ],
)
def test_impossible_values(tmp_path: Path, path: str, value: object, words: str) -> None:
    found = problems(tmp_path, changed(path, value))
    assert len(found) == 1 and words in found[0], found
    if "found nothing, expected the section" not in words:
        assert re.match(rf"FILE:\d+ {re.escape(path.replace('/', '.'))}: found ", found[0])


@pytest.mark.parametrize(
    "line, extra, number, words",
    [
        ("  gtn:", "    nose_std: 0.1", 6, "an unknown key, expected a key of agents.gtn, did you mean noise_std"),
        ("device: cpu", "envname: x", 3, "found an unknown key, expected a top-level key, did you mean env_name"),
        ("agents:", "  ddqqn: {}", 5, "found an unknown key, expected the name of an agent, did you mean ddqn"),
        ("envs:", "  Clif: {}", 19, "found an unknown key, expected the name of a task, did you mean Cliff"),
        ("  ddqn:", "    lr: 0.1", 12, "found this key again (first in line 11), expected it once"),
        ("  gtn:", "    zzzzzz: 1", 6, "agents.gtn.zzzzzz: found an unknown key, expected a key of agents.gtn: one of"),
        ("agents:", "  1: 2", 5, "agents.1: found a key that is not text, expected a name"),
        ("agents:", "  <<: {a: 1}", 5, "agents.<<: found a merge key, expected a name"),
        ("  ddqn:", "    tau: !!bool maybe", 11, "agents.ddqn.tau: found 'maybe', expected what its tag '!!bool' says"),
        ("  ddqn:", "    tau: !!float x", 11, "agents.ddqn.tau: found 'x', expected what its tag '!!float' says"),
        ("  ddqn:", "    tau: !!python/object:os.system x", 11, "agents.ddqn.tau: found 'x', expected what its tag"),
    ],
)
def test_unknown_and_repeated_keys_name_line_and_nearest(
    tmp_path: Path, line: str, extra: str, number: int, words: str
) -> None:
    found = problems(tmp_path, text_with(line, extra))
    assert len(found) == 1 and found[0].startswith(f"FILE:{number} ") and words in found[0], found


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    raw = changed("agents/gtn/noise_std", -1)
    raw["agents"]["ddqn"]["batchsize"] = 3
    raw["agents"]["gtn"]["agent_name"] = "nobody"
    raw["env_name"] = "Nowhere"
    found = problems(tmp_path, raw, "agents.gtn.num_workers=0", "agents.gtn.nosuch=1")
    keys = {re.search(r"(?:FILE:\d+|--set) '?([\w.]+)'?: found", p).group(1) for p in found}  # type: ignore[union-attr]
    assert keys == {
        "agents.gtn.noise_std",
        "agents.ddqn.batchsize",
        "agents.gtn.agent_name",
        "env_name",
        "agents.gtn.num_workers",
        "agents.gtn.nosuch",
    }


@pytest.mark.parametrize(
    "overrides, words",
    [
        (
            ["agents.gtn.synthetic_env_type=1"],
            "envs.CartPole-v0.reward_env_type: found 0, expected one of 1, 2, 5, 6: ",
        ),
        (["agents.gtn.agent_name=QL"], "agents.gtn.agent_name: found QL, expected a learner for CartPole-v0"),
        (
            ["agents.gtn.agent_name=SARSA_cb"],
            "expected a learner for CartPole-v0, which has discrete actions and no finite set of states: ddqn",
        ),
        (
            ["env_name=Pendulum-v0", "envs.Pendulum-v0.max_steps=9"],
            "agents.gtn.agent_name: found DDQN_vary, expected a learner for Pendulum-v0, which has continuous actions",
        ),
        (
            ["agents.gtn.estimator=antithetic", "agents.gtn.mirrored_sampling=false"],
            "expected true: estimator antithetic",
        ),
        (["agents.ddqn_vary.train_steps_factor=2"], "agents.ddqn.train_steps: found 0 (no limit), expected a budget"),
        (["agents.ddqn.batch_size=30000"], "agents.ddqn.batch_size: found 30000, expected at most 21845"),
        (
            ["envs.CartPole-v0.hidden_size=16384", "envs.CartPole-v0.hidden_layer=2"],
            "envs.CartPole-v0.hidden_size: found a network of 80",
        ),
        (
            ["agents.ddqn.hidden_size=16384", "agents.ddqn.hidden_layer=2"],
            "agents.ddqn.hidden_size: found a network of",
        ),
        (
            ["agents.gtn.backend=torch_compile", "agents.gtn.agent_name=PPO"],
            "agents.gtn.backend: found torch_compile, expected another: it compiles the updates of off-policy learners",
        ),
        (
            ["agents.gtn.backend=torch_compile", "device=cuda"],
            "agents.gtn.backend: found torch_compile, expected another: it is for the CPU, and the device is cuda",
        ),
    ],
)
def test_values_that_are_impossible_together(tmp_path: Path, overrides: list[str], words: str) -> None:
    found = problems(tmp_path, GOOD, *overrides)
    assert len(found) == 1 and words in found[0], found


@pytest.mark.parametrize(
    "env_name, values, words",
    [
        (
            "CartPole-v0",
            {"reward_env_type": 3, "info_dim": 4},
            "envs.CartPole-v0.reward_env_type: found 3, expected one of 0, 1, 2, 5, 6: CartPole-v0 has no info vector, "
            "which type 3 reads; tasks that have: HalfCheetah-v3",
        ),
        (
            "HalfCheetah-v3",
            {"reward_env_type": 102},
            "envs.HalfCheetah-v3.info_dim: found 0, expected 4, the length of HalfCheetah-v3's info vector",
        ),
        ("HalfCheetah-v3", {}, "reward_env_type: found 0, expected one of 1, 2, 3, 4, 5, 6, 7, 8, 101, 102: "),
    ],
)
def test_info_vectors_that_do_not_fit(tmp_path: Path, env_name: str, values: dict, words: str) -> None:
    agent = "TD3" if env_name == "HalfCheetah-v3" else "DDQN"
    raw = {"env_name": env_name, "agents": {"gtn": {"agent_name": agent}}, "envs": {env_name: values}}
    found = problems(tmp_path, raw, "agents.gtn.synthetic_env_type=1")
    assert len(found) == 1 and words in found[0], found
    assert load(tmp_path, raw, "agents.gtn.synthetic_env_type=0").data["env_name"] == env_name  # an SE reads none


@pytest.mark.parametrize("name", ["Cliff", "Bandit", "MountainCar-v0"])
def test_ddqn_on_any_discrete_task_is_fine(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, GOOD, f"env_name={name}", f"envs.{name}.hidden_size=4").data["env_name"] == name


def test_agent_that_never_learns_is_warned_of(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD, "agents.ddqn.init_episodes=1000")
    assert any("agents.ddqn: the agent never learns" in w for w in config.warnings)


@pytest.mark.parametrize(
    "override, words",
    [
        ("agents.gtn.max_iteration=3", "did you mean agents.gtn.max_iterations"),
        ("gtn.max_iterations=3", "did you mean agents.gtn.max_iterations"),
        ("agents.gtn.seed=1", "expected a dotted key, did you mean seed"),
        ("envs.Cliff.device=cpu", "expected a dotted key, did you mean device"),
        ("envs.Cliff.env_kwargs={}", "found an unknown key"),
        ("agents.gtn=3", "expected a dotted key, did you mean agents.gtn."),
        ("agents.gtn.time_max=3", "a key of the original that is ignored here (wall-clock limits"),
        ("agents.gtn.max_iterations", "found no '=', expected key=value"),
        ("agents.gtn.max_iterations=[", "--set agents.gtn.max_iterations:1:2: found malformed YAML"),
        ("agents.gtn.max_iterations=x", "--set agents.gtn.max_iterations: found 'x', expected an integer >= 1"),
        ("=", "--set '': found an unknown key"),
        ("seed=\udcff", "--set seed:1: found bytes that are not YAML text"),
    ],
)
def test_overrides_are_checked_like_the_file(tmp_path: Path, override: str, words: str) -> None:
    found = problems(tmp_path, GOOD, override)
    assert len(found) == 1 and words in found[0], found


def test_an_override_may_give_the_arguments_of_a_task_of_ones_own() -> None:
    class Grid(Cliff):
        name = "OverriddenGrid"

        def __init__(self, *args: Any, far: int = 1, **others: Any) -> None:
            super().__init__(*args, **others)
            self.far = far

    register_task("OverriddenGrid", Grid)
    try:
        values = {**GOOD, "env_name": "OverriddenGrid", "envs": {"OverriddenGrid": {}}}
        config = config_of(values, ["envs.OverriddenGrid.env_kwargs={far: 4}"])
        assert config.data["envs"]["OverriddenGrid"]["env_kwargs"] == {"far": 4}
        assert make_task("OverriddenGrid").far == 4  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="envs.OverriddenGrid.env_kwargs: .*'near'"):
            config_of(values, ["envs.OverriddenGrid.env_kwargs={near: 4}"])
    finally:
        forget("task", "OverriddenGrid")


def test_overrides_apply_in_order_and_may_add_sections(tmp_path: Path) -> None:
    data = load(tmp_path, GOOD, "seed=5", "seed=6", "envs.WallRoom.max_steps=9", "agents.sarsa.alpha=1").data
    assert (data["seed"], data["envs"]["WallRoom"]["max_steps"]) == (6, 9)
    assert data["agents"]["sarsa"]["alpha"] == 1.0


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "default_config_cartpole_syn_env.yaml").write_text("a: 1")
    (tmp_path / "default_config_gridworld.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match="did you mean .*default_config_cartpole_syn_env.yaml"):
        load_config(tmp_path / "default_config_cartpole.yaml")
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "nowhere" / "x.yaml")
    with pytest.raises(ConfigError, match="found a folder"):
        load_config(tmp_path)  # a folder
    with pytest.raises(ConfigError, match="found no readable file"):
        load_config("a\0b")


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", ":1: found an empty file, expected a mapping"),
        (b"# only a comment\n", "found an empty file"),
        (b"- a\n- b\n", "found ['a', 'b'], expected a mapping with env_name, agents and envs"),
        (b"just text", "found 'just text', expected a mapping"),
        (b"a: b\n c: d\n", "c.yaml:2:3: found malformed YAML: mapping values are not allowed here"),
        (b"a: [1, 2\nb: 3\n", "c.yaml:2:2: found malformed YAML"),
        (b"a: \xff\n", "c.yaml:1: found bytes that are not YAML text"),
        (b"a: 1\nb: \x00\n", "c.yaml:2: found bytes that are not YAML text"),
        (b"a: 1\n---\nb: 2\n", "c.yaml:2:1: found malformed YAML: expected a single document"),
        (b"a: *nowhere\n", "c.yaml:1:4: found malformed YAML: found undefined alias"),
        (b"a: &x [*x]\n", "too deeply nested values"),
        (b"[" * 5000, "too deeply nested values"),
        (b'a: "\\UFFFFFFFF"\n', "found malformed YAML"),
        (b"#" * 1_000_001, "found 1,000,001 bytes"),
        (b"a: &a [1,1,1,1,1,1,1,1,1]\n" + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(ord("b"), ord("k"))
        ), "too many or too deeply nested values"),
    ],
)  # fmt: skip
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert words in str(caught.value)


# -------------------------------------------------------------------------------- nothing else is raised


def loads_or_config_error(tmp_path: Path, content: object, *overrides: str) -> None:
    try:
        config = load(tmp_path, content, *overrides)
    except ConfigError as e:
        assert e.problems and all(isinstance(p, str) and "\n" not in p for p in e.problems)
    else:
        assert load(tmp_path, dump_config(config)).data == config.data


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.dates(),
    st.sampled_from(["ddqn", "QL", "CartPole-v0", "Cliff", "tanh", 1, 2, 0.5, "1e-3", 10**30]),
)
names = st.one_of(st.text(max_size=8), st.sampled_from(["agents", "envs", "gtn", "ddqn", "lr", "env_name", "Cliff"]))
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@any_directory
@given(st.binary(max_size=200))
def test_arbitrary_bytes(tmp_path: Path, raw: bytes) -> None:
    loads_or_config_error(tmp_path, raw)


@any_directory
@given(st.text(st.sampled_from(list("ab:-?[]{},&*!|>'\"%@`# \n\t\\0123456789eE.+<=~U")), max_size=60))
def test_arbitrary_yaml_like_text(tmp_path: Path, text: str) -> None:
    loads_or_config_error(tmp_path, text)


@any_directory
@given(st.dictionaries(names, nested, max_size=5))
def test_arbitrary_structures(tmp_path: Path, raw: dict) -> None:
    loads_or_config_error(tmp_path, raw)


AGENT_KEYS = {f"agents/{name}": schema.defaults(schema.agent_sections()[name][0]) for name in GOOD["agents"]}
ENV_KEYS = {f"envs/{name}": schema.defaults(EnvSection) for name in GOOD["envs"]}
SECTIONS = {**AGENT_KEYS, **ENV_KEYS}
PATHS = [*GOOD, *SECTIONS, *[f"{section}/{key}" for section, keys in SECTIONS.items() for key in keys]]


@settings(parent=any_directory, max_examples=examples(300))
@given(st.sampled_from(PATHS), nested)
def test_one_mutation_of_a_good_file(tmp_path: Path, path: str, value: object) -> None:
    loads_or_config_error(tmp_path, changed(path, value))


@any_directory
@given(st.text(max_size=30), st.sampled_from(["", "seed=", "agents.gtn.noise_std=", "envs.CartPole-v0.max_steps="]))
def test_arbitrary_overrides(tmp_path: Path, text: str, prefix: str) -> None:
    loads_or_config_error(tmp_path, GOOD, prefix + text)


def test_messages_stay_on_one_printable_line(tmp_path: Path) -> None:
    found = problems(tmp_path, {"a\nb\x1b[31m": 1, **GOOD, "seed": "x\n\x1b[31m" * 100})
    assert len(found) == 2
    assert all(p.isprintable() and len(p) < 300 for p in found)


# -------------------------------------------------------------------------------- one declaration per key


def test_every_declared_option_has_a_model_field_with_its_default() -> None:
    learners = {entry.section for entry in LEARNERS.values()}
    for cls in (GTNSection, EnvSection, VarySection, problem.RunSection, *learners):
        assert schema.section_model(cls)().model_dump() == {f.name: f.default for f in dataclasses.fields(cls)}
        for field in dataclasses.fields(cls):
            assert field.metadata["help"] in schema.expected(cls, field.name)


def test_no_ignored_name_is_one_that_works() -> None:
    sections = {"run": problem.RunSection, "gtn": GTNSection, "vary": VarySection, "env": EnvSection}
    for kind, cls in sections.items():
        assert not set(legacy.LEGACY_KEYS[kind]) & set(schema.defaults(cls))
    for learner in LEARNERS.values():
        assert not set(legacy.LEGACY_KEYS["learner"]) & set(schema.defaults(learner.section))
    assert not set(legacy.LEGACY_TASKS) & set(TASKS)
    assert not set(legacy.LEGACY_AGENTS) & set(schema.agent_sections())


@pytest.mark.slow
def test_worker_side_needs_neither_pydantic_nor_yaml() -> None:
    code = "import sys; sys.modules['pydantic'] = sys.modules['yaml'] = None; import envolve.outer.config.problem"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# -------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    "path", [*SHIPPED, ORIGINALS / "default_config_gridworld_reward_env.yaml"], ids=lambda p: p.name
)
def test_dump_reads_back_to_the_same_data_without_warnings(tmp_path: Path, path: Path) -> None:
    config = load_config(path)
    back = load(tmp_path, dump_config(config, {"run_id": "x\ny: z", "note": None}))
    assert back.data == config.data and back.warnings == []


def test_dump_header_names_versions_and_seed(tmp_path: Path) -> None:
    text = dump_config(load(tmp_path, GOOD), {"run_id": "abc"})
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert "# seed: 3" in header and "# run_id: abc" in header
    for key, value in environment_info().items():
        assert f"# {key}: {value}" in header


def test_environment_info() -> None:
    info = environment_info()
    assert set(info) == {"python", "torch", "numpy", "numba", "gymnasium", "mujoco", "git"}
    assert re.fullmatch(r"[0-9a-f]{40}(\+dirty)?|unknown", info["git"])


def test_environment_info_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert environment_info()["git"] == "unknown"


def test_describe_says_what_would_run(tmp_path: Path) -> None:
    text = describe(load_config(ROOT / "default_config_cartpole_syn_env_paper.yaml"))
    assert "state 6-83-4, reward 6-83-1, done 6-83-1, leakyrelu, 2,247 parameters" in text
    assert "network 4-57-2 tanh" in text and "curiosity" not in text
    other = ["agents.gtn.agent_name=DuelingDDQN_icm", "agents.duelingddqn.feature_dim=9"]
    text = describe(load_config(ROOT / "default_config_cartpole_syn_env_paper.yaml", other))
    assert "network 4-128-128-9, 9-9-1, 9-9-2 relu" in text and "curiosity    eta 0.5" in text
    assert "16 mirrored pairs x 1 + 16 unperturbed = 48 agents in 6 chunks of 8" in text
    assert "at most 200 generations" in text and "published estimator (transform 3)" in text
    text = describe(
        load_config(ROOT / "default_config_gridworld_reward_env.yaml", ["agents.gtn.agent_name=QL_cb_vary"])
    )
    assert "reward network, type 2: phi 48-32-1" in text and "alpha and gamma in [0.1, 1]" in text
    assert "beta 0.005" in text and "reward_threshold" in text
    pendulum = {**GOOD, "env_name": "Pendulum-v0", "envs": {"Pendulum-v0": {"hidden_size": 8}}}
    pendulum["agents"] = {"gtn": {"agent_name": "SAC"}}
    text = describe(load(tmp_path, pendulum))
    assert "Pendulum-v0: 3 observations, actions of 1 number in [-2, 2], at most 200 steps" in text
    assert "state 4-8-3, reward 4-8-1, done 4-8-1" in text


@pytest.mark.parametrize("path", ZOO, ids=lambda p: p.name)
def test_configurations_of_the_zoo_can_be_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a first world is named from there
    if path.name == "lunar_lander.yaml":
        pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'envolve[box2d]'")
    config = load_config(path)
    assert config.warnings == [] and "contextual bandit" in describe(config)
    gtn = problem.gtn_section(config.data)
    assert (gtn.init == "distilled") != bool(gtn.first_world)
    if gtn.first_world:
        first = NetworkTarget(config.data, gtn).given(gtn.first_world)
        assert first.kind == "se" and first.score > 0


def test_describe_says_what_learners_in_turn_are() -> None:
    words = [
        "agents.gtn.agent_name=PPO_vary",
        "agents.gtn.other_agents=TD3",
        "agents.td3.test_episodes=1",
        "agents.ppo_vary.vary_layers=false",
    ]
    text = describe(load_config(ROOT / "configs" / "zoo" / "half_cheetah.yaml", words))
    lines = [line.split(None, 1) for line in text.splitlines()]
    assert ["varied", "drawn anew for every agent: lr, hidden_size within a factor of 3"] in lines  # PPO has no batches
    where = lines.index(["varied", "nothing: every agent has these hyperparameters"])
    assert lines[where - 1][1].startswith("turn ") and "td3: lr " in lines[where - 1][1]


def test_only_a_bandit_has_a_best_paid_action(tmp_path: Path) -> None:
    share = "agents.gtn.best_paid_share=0.5"
    with pytest.raises(ConfigError, match="best_paid_share: found 0.5, expected 0: only a bandit pays at once"):
        load(tmp_path, GOOD, share)
    text = describe(load(tmp_path, GOOD, share, "envs.CartPole-v0.contextual_bandit=true"))
    assert "0.5 x the agent's return + 0.5 x that of the action that the world pays most for" in text
    with pytest.raises(ConfigError, match="best_paid_share: found 1.0, expected a number >= 0 and < 1"):
        load(tmp_path, GOOD, "agents.gtn.best_paid_share=1.0", "envs.CartPole-v0.contextual_bandit=true")


def test_describe_says_that_a_task_has_no_mark(tmp_path: Path) -> None:
    """1e9 stands for it in configurations, and nothing ever reached it."""
    gtn = ["agents.gtn.quit_when_solved=true", "agents.gtn.confirm_agents=4"]
    text = describe(load(tmp_path, GOOD, *gtn))
    assert "solved at 195" in text and "generations, ends when solved and confirmed by 4 more agents" in text
    text = describe(load(tmp_path, GOOD, *gtn, "envs.CartPole-v0.solved_reward=1e9"))
    assert "at most 100 steps, no solved mark\n" in text and "e+09" not in text
    assert "generations, all of them" in text and "confirmed" not in text
    rewards = ["envs.CartPole-v0.solved_reward=1e9", "agents.gtn.synthetic_env_type=1"]
    rewards += ["envs.CartPole-v0.reward_env_type=2", "agents.gtn.quit_when_solved=false"]
    assert "early out    none: the task has no solved mark" in describe(load(tmp_path, GOOD, *rewards))


def test_show_is_short_and_printable() -> None:
    assert yaml_lines.show("x" * 100).endswith("...") and len(yaml_lines.show("x" * 100)) == 60
    assert yaml_lines.show(10**5000) == "a very long integer"
    assert yaml_lines.show(False) == "false"


# ------------------------------------------------------------------------------------------------------- another task

BANDIT = "default_config_cartpole_contextual_bandit.yaml"


def test_another_task_keeps_the_world_and_the_agents_and_drops_what_was_the_old_tasks_own() -> None:
    ours, theirs = load_config(BANDIT).data, load_config(BANDIT, (), TaskChoice("Acrobot-v1")).data
    assert theirs["env_name"] == "Acrobot-v1" and theirs["agents"] == ours["agents"]
    old, new = ours["envs"]["CartPole-v0"], theirs["envs"]["Acrobot-v1"]
    assert new["contextual_bandit"] and new["hidden_size"] == old["hidden_size"]
    assert (new["max_steps"], new["solved_reward"]) == (500, -100.0)


def test_another_task_has_its_own_section_if_the_file_has_one() -> None:
    data = load_config("default_config_gridworld_reward_env.yaml", (), TaskChoice("Cliff")).data
    assert data == load_config("default_config_gridworld_reward_env.yaml", ["env_name=Cliff"]).data


@pytest.mark.parametrize(
    "task, words",
    [
        (TaskChoice("CartPol-v0"), "--task env_name: found 'CartPol-v0', .* did you mean CartPole-v0"),
        (TaskChoice("gymnasium:CartPole-v7"), "--task env_name: .*found no environment of this id"),
        (TaskChoice("Acrobot-v1", ["TimeLimit"]), "--task.*envs.Acrobot-v1.wrappers: found an unknown key"),
    ],
)
@pytest.mark.usefixtures("warm")
def test_a_task_that_does_not_exist_is_refused_by_the_flag_that_named_it(task: TaskChoice, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(BANDIT, (), task)


def test_arguments_of_an_environment_are_values_of_yaml() -> None:
    assert read_kwargs(["size=5", "name=x", "deep={a: [1, 2]}"]) == {"size": 5, "name": "x", "deep": {"a": [1, 2]}}
    for text in ("size", "=5", "a b=5", "x=[1"):
        with pytest.raises(ConfigError, match="--env-kwargs: found"):
            read_kwargs([text])
