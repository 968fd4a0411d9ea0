"""Plans of many environments: each is a configuration that is accepted, and fits into its time."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import yaml

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import VarySection
from envolve.core.option import option  # noqa: F401  sections are declared with it
from envolve.envs.section import EnvSection
from envolve.outer.auto.choice import Choice
from envolve.outer.auto.configuration import LEAST_HIDDEN, STORED, two_digits
from envolve.outer.auto.facts import Facts, facts_of
from envolve.outer.auto.plan import EvolvePlan, plan
from envolve.outer.auto.report_plan import REPORT_SHARES, episodes_of
from envolve.outer.auto.unseen import CONTINUOUS, DISCRETE
from envolve.outer.config.load import config_of
from envolve.outer.config.section import ARSSection, ExpertSection, GTNSection
from envolve.worlds.shelf import ZOO_BYTES, path_of
from envolve.worlds.tensors import read_tensors, tensor_bytes

BASE = {"seed": 0, "agents": {"gtn": {"agent_name": "DDQN", "comparison_agents": 0}}}
SLOW = {"ppo": 1e-3, "a2c": 1e-3, "dqn": 1e-3, "sac": 1e-2, "td3": 8e-3}


def facts(**values: Any) -> Facts:
    usual = dict(
        env="gymnasium:X-v0",
        features=4,
        num_actions=2,
        action_size=0,
        max_steps=500,
        solved_reward=475.0,
        random_return=22.0,
        random_length=22.0,
        measured_steps=3000,
        deterministic=True,
        cores=2,
    )
    return Facts(**{**usual, **values})


def made(of: Facts, learners: list[str] | None = None, **choice: Any) -> EvolvePlan:
    fitting = list(CONTINUOUS if of.continuous else DISCRETE)
    return plan(of, Choice(**{"seconds": 1800.0, "workers": 2, **choice}), learners or fitting, True)


MANY = [
    facts(),
    facts(max_steps=200, num_actions=0, action_size=1, solved_reward=None),
    facts(features=8, num_actions=4, max_steps=1000, random_length=100.0, step_seconds=6e-5),
    facts(features=376, num_actions=0, action_size=17, max_steps=1000, step_seconds=3e-4, random_length=25.0),
    facts(features=16, num_actions=4, max_steps=100, early_signal=False),
    facts(features=512, num_actions=64, max_steps=1, random_length=1.0),
    facts(features=1, num_actions=0, action_size=1, max_steps=10**6, random_length=1e6, step_seconds=0.05),
]


@pytest.mark.parametrize("of", MANY, ids=lambda f: f"{f.features} {f.num_actions} {f.max_steps}")
@pytest.mark.parametrize("world", ["auto", "se", "rn"])
def test_every_key_of_a_plan_exists_and_is_within_its_limits(of: Facts, world: str) -> None:
    data = yaml.safe_load(made(of, world=world).text())
    assert data == made(of, world=world).config
    for name, values in data["agents"].items():
        cls: Any = {"gtn": GTNSection, "expert": ExpertSection, "ars_expert": ARSSection}.get(name)
        cls = cls or (VarySection if name.endswith("_vary") else LEARNERS[name.removesuffix("_expert")].section)
        fields = {f.name: f for f in dataclasses.fields(cls)}
        assert set(values) <= set(fields), (name, set(values) - set(fields))
    assert set(data["envs"][of.env]) <= {f.name for f in dataclasses.fields(EnvSection)}
    gtn = data["agents"]["gtn"]
    assert gtn["max_iterations"] >= 3 and gtn["synthetic_env_type"] == (1 if world == "rn" else 0)
    assert gtn.get("horizon_start", 1) <= of.max_steps
    assert gtn.get("horizon_generations", 0) <= gtn["max_iterations"]


@pytest.mark.parametrize("of", MANY[:5], ids=lambda f: f"{f.features} {f.num_actions} {f.max_steps}")
@pytest.mark.parametrize("minutes", [5, 10, 30, 120])
def test_a_plan_fits_into_its_time(of: Facts, minutes: int) -> None:
    p = made(of, seconds=60.0 * minutes)
    whole = 60 * minutes
    assert p.evolution_seconds + p.report_seconds <= whole + 1 and p.report_seconds <= REPORT_SHARES[-1] * whole
    more = made(of, seconds=120.0 * minutes)
    assert more.config["agents"]["gtn"]["max_iterations"] >= p.config["agents"]["gtn"]["max_iterations"]
    assert p.report.agents >= 3 and min(p.report.steps) >= 4_096
    assert dict(zip(p.report.learners, p.report.steps))["ppo"] >= 6_144, "one rollout of 2,048 teaches PPO nothing"


@pytest.mark.parametrize("learner", ["DDQN_vary", "PPO_vary", "ppo"])
def test_reward_networks_take_any_learner(learner: str) -> None:
    assert made(facts(), world="rn", learner=learner).config["agents"]["gtn"]["agent_name"] == learner


def test_small_differences_of_speed_leave_the_experts_alone() -> None:
    assert [two_digits(n) for n in (3000, 9_999, 12_491, 12_432, 7)] == [3000, 9_900, 12_000, 12_000, 7]
    a, b = (made(facts(expert_seconds=s)).config["agents"]["ddqn_expert"] for s in (4.00e-3, 4.02e-3))
    assert a == b and a["train_steps"] < 150_000


def test_a_bandit_begins_with_what_experts_know_unless_it_is_told_not_to() -> None:
    agents = made(facts()).config["agents"]
    assert agents["gtn"]["init"] == "distilled" and agents["expert"] == {
        "learner": "ddqn ppo", "agents": 4, "chosen_by": "pupils",
    }  # fmt: skip
    assert 3_000 <= agents["ddqn_expert"]["train_steps"] <= 150_000
    exploring = agents["ddqn_expert"]
    episodes = exploring["train_steps"] / ((22.0 + 500) / 2)
    assert abs(exploring["eps_decay"] ** (0.3 * episodes) - exploring["eps_min"]) < 5e-3
    both = made(facts(num_actions=0, action_size=2)).config["agents"]
    assert both["expert"]["learner"] == "sac ppo ars" and both["expert"]["agents"] == 6
    steps = {name: both[f"{name}_expert"]["train_steps"] for name in ("sac", "ppo", "ars")}
    assert steps["sac"] < steps["ppo"] < steps["ars"], "where a step costs less, there are more"
    for choice in ({"init": "random"}, {"world": "se"}, {"world": "rn"}):
        assert "expert" not in made(facts(), **choice).config["agents"]
    dear = made(facts(expert_seconds=1e-2)).config["agents"]["ddqn_expert"]["train_steps"]
    assert dear < made(facts(expert_seconds=2e-3)).config["agents"]["ddqn_expert"]["train_steps"]


def test_actions_choose_the_learner_and_what_never_saw_the_world() -> None:
    assert made(facts()).learner == "DDQN_vary"
    assert made(facts(num_actions=0, action_size=2)).learner == "TD3_vary"
    assert made(facts(), learner="PPO").config["agents"]["ppo"]["rollout_steps"] > 0
    assert made(facts(), world="se").config["envs"]["gymnasium:X-v0"].get("contextual_bandit") is None


def test_the_horizon_grows_only_where_short_episodes_tell_something() -> None:
    assert "horizon_start" in made(facts(max_steps=1000)).config["agents"]["gtn"]
    assert "horizon_start" not in made(facts(max_steps=1000, early_signal=False)).config["agents"]["gtn"]
    assert "horizon_start" not in made(facts(max_steps=200)).config["agents"]["gtn"]


def test_dear_learners_are_left_out_of_a_short_report_and_only_there() -> None:
    of = facts(num_actions=0, action_size=1, max_steps=200, agent_seconds=SLOW)
    assert set(made(of, ["ppo", "sac", "a2c"], seconds=960.0).report.learners) == {"ppo", "a2c"}
    assert set(made(of, ["ppo", "sac", "a2c"], seconds=3600.0).report.learners) == {"ppo", "sac", "a2c"}
    kinds = ("ppo", "sac", "a2c")
    asked = plan(of, Choice(960.0, workers=2, learners=kinds), list(kinds), True)
    assert asked.report.learners == kinds, "those that were asked for are not cut"


def test_cheap_learners_train_for_whole_rollouts_and_dear_ones_for_fewer_steps() -> None:
    of = facts(num_actions=0, action_size=1, max_steps=200)
    report = made(of, ["ppo", "sac", "a2c"]).report
    steps = dict(zip(report.learners, report.steps))
    assert steps["ppo"] == 10_240 and 4_096 <= steps["sac"] <= 8_192 and report.agents >= 3
    assert report.steps_at("sac", "real_10x") == 10 * steps["sac"]
    text = made(of, ["ppo", "sac", "a2c"]).text()
    assert f"10,240 (ppo) and {steps['sac']:,} (sac)" in text or "10,240 (ppo, a2c)" in text
    short = made(facts(agent_seconds=SLOW), seconds=600.0).report
    assert min(short.steps) >= 6_144 and short.ten
    shorter = made(facts(agent_seconds=SLOW), seconds=60.0).report
    assert min(shorter.steps) >= 6_144 and not shorter.ten, "ten times the steps go first"


def test_short_episodes_are_tested_more_often() -> None:
    tests = {n: made(facts(max_steps=n)).report.tests for n in (1, 100, 200, 500, 1000, 10**6)}
    assert tests == {1: 200, 100: 100, 200: 50, 500: 20, 1000: 10, 10**6: 10}
    game = facts(max_steps=1000, random_length=1.4)  # Blackjack: no time limit of its own
    assert made(game).report.tests == 142 and game.likely_length < 40


def test_one_dear_agent_alone_trains_for_ten_times_the_steps() -> None:
    of = facts(num_actions=0, action_size=1, max_steps=200, agent_seconds={"ppo": 1e-3, "sac": 0.012, "a2c": 5e-4})
    report = made(of, ["ppo", "sac", "a2c"]).report
    assert report.alone == ("sac",) and "(one sac)" in made(of, ["ppo", "sac", "a2c"]).text()
    counts = [report.agents_at(kind, where) for kind in ("ppo", "sac") for where in ("world", "real", "real_10x")]
    assert counts == [report.agents] * 5 + [1]


@pytest.mark.parametrize("longest, quick, tests", [(100, 200, 100), (1, 200, 200), (5000, 200, 10), (100, 30, 30)])
def test_short_episodes_are_tested_often(longest: int, quick: int, tests: int) -> None:
    assert episodes_of(longest, quick) == tests


def test_what_is_asked_for_is_planned_even_if_it_takes_longer() -> None:
    p = made(facts(), agents=7, steps=5000, seconds=120.0)
    assert (p.report.agents, set(p.report.steps), p.report.steps_at("ppo", "real_10x")) == (7, {5000}, 50_000)
    assert set(p.report.learners) == {"ppo", "dqn", "a2c"} or len(p.report.learners) == 1


def slow(seconds: float) -> Facts:
    """Facts of an environment, a step of which takes ``seconds``."""
    return facts(max_steps=30, random_length=11.0, step_seconds=seconds, agent_seconds=dict.fromkeys(DISCRETE, seconds))


def test_a_slow_environment_gets_no_ten_times_the_steps_and_says_so() -> None:
    p = made(slow(0.039), seconds=1200.0)
    assert not p.report.ten and p.report.places == ("world", "real") and p.report.agents >= 3
    assert p.report_seconds <= REPORT_SHARES[-1] * 1200 and "there is no time" in p.text()
    assert p.report.tests < made(slow(0.001), seconds=1200.0).report.tests, "a slow episode is tested less often"
    assert made(slow(0.001), seconds=1200.0).report.ten
    assert made(slow(0.039), seconds=1200.0, agents=3).report.ten, "what is asked for is planned"


def test_a_plan_that_takes_longer_than_asked_for_says_so_first() -> None:
    lines = made(slow(0.5), seconds=1200.0).reasons
    assert "NOT the 20.0 minutes" in lines[1] and "500 ms" in lines[1] and "the least plan" in lines[1]
    asked = made(slow(0.5), seconds=1200.0, agents=5, steps=4096).reasons[1]
    assert "this is the least that --agents and --steps take; " in asked
    quick = made(slow(0.5), seconds=90.0, agents=2, steps=2048, quick=("agents", "steps")).reasons[1]
    assert "this is the least that --quick takes; " in quick
    some = made(slow(0.5), seconds=90.0, agents=9, steps=2048, quick=("steps",)).reasons[1]
    assert "this is the least that --quick and --agents take; " in some
    assert not any(line.startswith("time:") for line in made(facts(), seconds=1200.0).reasons)


@pytest.mark.parametrize(
    ("of", "choice", "part"),
    [
        ({}, {"agents": 10, "steps": 8192}, "the report"),
        ({"expert_seconds": 0.02}, {"agents": 1, "steps": 64}, "the experts"),
        ({"member_seconds": 5.0}, {"agents": 1, "steps": 64}, "the evolution"),
    ],
)
def test_a_plan_that_takes_longer_names_its_largest_part_and_no_fast_environment(
    of: dict[str, Any], choice: dict[str, Any], part: str
) -> None:
    p = made(facts(**of), seconds=60.0, **choice)
    assert "NOT the 60 s" in p.reasons[1] and f"; its largest part is {part}, about " in p.reasons[1]
    assert "a step of the environment" not in p.reasons[1]
    said = p.reasons[1].rpartition("about ")[2]
    seconds = float(said.split()[0]) * (60 if said.endswith("minutes") else 1)
    whole = p.evolution_seconds + p.report_seconds
    assert whole / 3 <= seconds + 5 and seconds <= whole + 5


def test_the_same_facts_give_the_same_plan_and_slower_machines_fewer_generations() -> None:
    assert made(facts()) == made(facts())
    slow = made(facts(step_seconds=1e-3, member_seconds=1.0)).config["agents"]["gtn"]["max_iterations"]
    assert slow < made(facts()).config["agents"]["gtn"]["max_iterations"]


@pytest.mark.parametrize("features", range(1, 90))
@pytest.mark.parametrize("actions", [{"num_actions": 4}, {"num_actions": 0, "action_size": 17}])
def test_a_bandit_is_as_wide_as_the_zoo_allows(features: int, actions: dict[str, int]) -> None:
    of, like = facts(features=features, **actions), read_tensors(path_of("CartPole-v1-bandit"))[1]
    n = sum(actions.values())

    def size(units: int) -> int:
        shapes = {
            "env.init_net.0.weight": (units, features), "env.init_net.0.bias": (units,),
            "env.init_net.2.weight": (features, units), "env.init_net.2.bias": (features,),
            "env.reward_net.0.weight": (units, features + n), "env.reward_net.0.bias": (units,),
            "env.reward_net.2.weight": (1, units), "env.reward_net.2.bias": (1,),
            "observation_mean": (features,), "observation_scale": (features,),
        }  # fmt: skip
        return len(tensor_bytes({k: np.zeros(s, np.float32) for k, s in shapes.items()}, like))

    units = made(of).config["envs"][of.env]["hidden_size"]
    assert size(units) <= ZOO_BYTES or size(LEAST_HIDDEN) > ZOO_BYTES - 1_000
    assert units == 32 or size(units + 4) > ZOO_BYTES - 1_000


def test_integers_are_stored_and_not_drawn() -> None:
    assert "stored_contexts" not in made(facts()).config["envs"]["gymnasium:X-v0"]
    assert made(facts(whole=True)).config["envs"]["gymnasium:X-v0"]["stored_contexts"] == STORED
    assert made(facts(whole=True, features=500)).config["envs"]["gymnasium:X-v0"]["stored_contexts"] == 300
    for combinations, stored in ((4, 64), (100, 100), (10_000, STORED)):
        own = made(facts(whole=True, combinations=combinations)).config["envs"]["gymnasium:X-v0"]
        assert own["stored_contexts"] == stored
    random = made(facts(whole=True), init="random").config["envs"]["gymnasium:X-v0"]
    assert "stored_contexts" not in random, "an expert's states are what is stored"


def test_many_features_are_searched_with_less_noise() -> None:
    few, many = (made(facts(features=n), init="random").config["agents"]["gtn"] for n in (16, 64))
    assert (few["noise_std"], few["step_size"]) == (0.05, 0.02)
    assert (many["noise_std"], many["step_size"]) == (0.025, 0.01)


def test_a_distilled_world_is_searched_with_less_noise() -> None:
    few, many = (made(facts(features=n)).config["agents"]["gtn"] for n in (16, 64))
    assert (few["init"], few["noise_std"], few["step_size"]) == ("distilled", 0.02, 0.01)
    assert (many["noise_std"], many["step_size"]) == (0.01, 0.005)
    other = made(facts(), search="sep_cma").config["agents"]["gtn"]
    assert other["noise_std"] == 0.02 and "step_size" not in other


def test_a_feature_that_default_learners_cannot_see_is_named() -> None:
    """MountainCar's velocity, 0.07 at most. A world is in the environment's own units, as its task is."""
    assert not any("narrower" in line for line in made(facts()).reasons)
    (line,) = [line for line in made(facts(tiny=(1, 3))).reasons if "narrower" in line]
    assert line.startswith("observation 1, 3: ") and "RescaleObservation" in line


@functools.cache  # it takes seconds
def measured(env_id: str) -> dict[str, Any]:
    name = f"gymnasium:{env_id}"
    section: dict[str, Any] = config_of({**BASE, "env_name": name, "envs": {name: {}}}, (), name).data["envs"][name]
    return dict(section["measured"])


@pytest.mark.parametrize("env_id, tiny", [("MountainCar-v0", (1,)), ("CartPole-v1", ()), ("FrozenLake-v1", ())])
def test_which_features_are_tiny_is_read_from_the_space(env_id: str, tiny: tuple[int, ...]) -> None:
    assert facts_of(f"gymnasium:{env_id}", measured(env_id), 1).tiny == tiny


def test_whether_observations_are_integers_or_codes_is_read_from_the_space() -> None:
    def seen(env_id: str, **other: str) -> Facts:
        of = measured(env_id)
        return facts_of(f"gymnasium:{env_id}", {**of, "observation": {**of["observation"], **other}}, 1)

    assert not seen("CartPole-v1").whole and seen("CartPole-v1", dtype="uint8").whole
    for env_id, combinations in (("FrozenLake-v1", 16), ("Blackjack-v1", 32 * 11 * 2)):
        assert seen(env_id).whole and seen(env_id).combinations == combinations
