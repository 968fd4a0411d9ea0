"""Several learners that take turns, and tests that grow longer: who trains what in which generation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError, load_config
from envolve.outer.config.section import GTNSection
from envolve.outer.evaluate.members import evaluate_members
from envolve.outer.evaluate.networks import PROXY, evaluate
from envolve.outer.exchange.messages import result_of
from envolve.outer.search.turns import horizon, inner_agents, turns, variants

ROOT = Path(__file__).resolve().parents[3]
SE = ROOT / "default_config_cartpole_syn_env.yaml"
SMALL = [
    "agents.gtn.chunk_size=3",
    "agents.ddqn.train_steps=40",
    "agents.ddqn.early_out_min_steps=0",
    "agents.ddqn_vary.train_steps_factor=1",
    "agents.ddqn.test_episodes=2",
]
DUELING = {"train_steps": 40, "test_episodes": 2, "init_episodes": 0, "hidden_size": 8, "hidden_layer": 1}


def config(*overrides, others="DuelingDDQN"):
    texts = [f"agents.duelingddqn.{k}={v}" for k, v in DUELING.items()]
    return load_config(SE, [*SMALL, f"agents.gtn.other_agents={others}", *texts, *overrides])


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 300))
def test_every_learner_has_its_share_of_a_role(count, learners, generation):
    shares = np.bincount(turns(count, learners, generation), minlength=learners)
    assert shares.sum() == count and shares.max() - shares.min() <= 1
    assert turns(count, learners, generation).tolist() != turns(count, learners, generation + 1).tolist() or (
        learners == 1 or count == 0
    )


def test_horizon_grows_linearly_to_the_full_length():
    gtn = GTNSection(horizon_start=20, horizon_generations=10)
    assert [horizon(gtn, 200, g) for g in (1, 2, 6, 10, 11, 500)] == [20, 38, 110, 182, 200, 200]
    assert horizon(GTNSection(), 200, 1) == 200


def test_pairs_share_a_learner_and_the_unperturbed_are_tested_in_full():
    data = config("agents.gtn.horizon_start=20", "agents.gtn.horizon_generations=10").data
    for generation in (1, 2):
        configs, which = variants(data, [(5, False), (4, True), (4, True)], generation)
        members = [configs[k] for k in which]
        names = [c["agents"]["gtn"]["agent_name"] for c in members]
        assert names[5:9] == names[9:] and set(names) == {"DDQN_vary", "DuelingDDQN"}
        steps = [c["envs"]["CartPole-v0"]["test_steps"] for c in members]
        assert steps[:5] == [None] * 5 and set(steps[5:]) == {20 if generation == 1 else 38}
    _, which = variants(data, [(5, False), (4, True)], 11)
    assert which.max() < 2  # no shorter tests any more
    assert data == config("agents.gtn.horizon_start=20", "agents.gtn.horizon_generations=10").data  # left as it was


class Inline:
    """A dispatcher that evaluates at once and remembers the chunks."""

    run_id = "run"

    def __init__(self):
        self.chunks = []

    def evaluate(self, chunks, unfit=None):
        self.chunks = chunks
        return [result_of(c, "", evaluate(c.config, c.worlds, c.seeds, c.mode)) for c in chunks]


def test_values_come_back_in_the_members_order():
    """Each member's values are those of an evaluation of it alone, under its own learner."""
    whole = config()
    section = problem.env_section(whole.data)
    worlds = init_world("se", make_task("CartPole-v0"), section, torch.arange(7))
    seeds = torch.arange(7) + 50
    configs, which = variants(whole.data, [(3, False), (2, True), (2, True)], 1)
    dispatcher = Inline()
    values, reasons = evaluate_members(dispatcher, whole, 1, worlds, seeds, PROXY, configs, which)
    assert reasons == [""] * 7
    for i in range(7):
        alone = evaluate(configs[which[i]], worlds[i : i + 1], seeds[i : i + 1], PROXY)
        assert values["score"][i] == alone["score"][0] and values["updates"][i] == alone["updates"][0]
    sizes = Counter(len(chunk.seeds) for chunk in dispatcher.chunks)
    assert max(sizes) <= 3 and [c.chunk_id for c in dispatcher.chunks] == list(range(len(dispatcher.chunks)))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("agents.gtn.other_agents=DuellingDDQN", "other_agents: found 'DuellingDDQN', expected an agent that exists"),
        ("agents.gtn.other_agents=QL", "other_agents: found QL, expected a learner for CartPole-v0"),
        ("agents.duelingddqn.test_episodes=3", "other_agents: found 2 of DDQN_vary, 3 of DuelingDDQN, expected as"),
        ("agents.gtn.synthetic_env_type=1 envs.CartPole-v0.reward_env_type=1 envs.CartPole-v0.contextual_bandit=true",
         "contextual_bandit: found true, expected false: a reward network keeps"),
        ("agents.gtn.horizon_generations=5 agents.gtn.horizon_start=201",
         "horizon_start: found 201, expected at most max_steps, 200"),
        ("agents.gtn.search=snes",
         "num_grad_evals: found 1, expected a multiple of 2, the number of learners: search snes"),
        ("agents.gtn.estimator=published agents.gtn.num_grad_evals=3",
         "num_grad_evals: found 3, expected a multiple of 2, the number of learners: estimator published"),
        ("agents.gtn.search=random agents.gtn.num_grad_evals=2 agents.gtn.horizon_generations=5",
         "horizon_generations: found 5, expected 0: search random compares worlds of all generations"),
        ("agents.gtn.estimator=published agents.gtn.num_grad_evals=2 agents.gtn.horizon_generations=5 "
         "agents.gtn.score_transform_type=7",
         "score_transform_type: found 7, expected 0 to 4 with horizon_generations"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(override, words):
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        config(*override.split(" "))


def test_what_compares_worlds_with_the_same_learners_is_welcome():
    for words in (
        ["agents.gtn.search=sep_cma", "agents.gtn.num_grad_evals=4"],
        ["agents.gtn.estimator=published", "agents.gtn.num_grad_evals=2", "agents.gtn.score_transform_type=3"],
        ["agents.gtn.estimator=antithetic"],
    ):
        warnings = config(*words, "agents.gtn.num_orig_evals=8").warnings
        assert not [text for text in warnings if "learners" in text]
    (warning,) = config("agents.gtn.num_orig_evals=7").warnings
    assert "2 learners share 7 agents of the unperturbed world unevenly" in warning


def test_all_learners():
    assert inner_agents(replace(GTNSection(), agent_name="A", other_agents=" B  C ")) == ["A", "B", "C"]
