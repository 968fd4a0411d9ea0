"""evaluate(): the score of every objective, what a member's result depends on, and what a bad world does to others."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch

import envolve.outer.evaluate.networks
from envolve.agents.common.result import AGENT_DIVERGED, OK, REASONS, WORLD_DIVERGED, TrainResult
from envolve.agents.train import train
from envolve.envs.task import make_task
from envolve.envs.worlds.best_paid import greedy
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.envs.worlds.world import init_world
from envolve.outer.config import problem
from envolve.outer.distil.policy import play
from envolve.outer.evaluate.networks import (
    BUDGET,
    EARLY_OUT,
    MODES,
    PROXY,
    REAL,
    REAL_BUDGET,
    evaluate,
    scores,
    solved_steps,
)
from envolve.outer.search.nes import member_seeds
from tests.outer.small import cartpole, cliff

KEYS = ("score", "mean_return", "train_steps", "episodes", "updates", "real_steps", "test_returns")


def members(config, p, first=0):
    """p worlds of torch's default initialisation and p member seeds."""
    data = config.data
    kind = "rn" if problem.gtn_section(data).synthetic_env_type else "se"
    section = problem.env_section(data)
    task = make_task(data["env_name"], section.max_steps, section.solved_reward)
    return init_world(kind, task, section, torch.arange(first, first + p)), torch.from_numpy(
        member_seeds(0, 99, first, p)
    )


def bandit(*overrides):
    """A CartPole bandit, whose best-paid action has a share in the score."""
    return cartpole("envs.CartPole-v0.contextual_bandit=true", "agents.gtn.best_paid_share=0.25", *overrides)


def same(a, b, theirs=None):
    """a is b, or b's members ``theirs``, bit for bit."""
    for key in KEYS:
        wanted = b[key] if theirs is None else b[key][theirs]
        assert a[key].numpy().tobytes() == wanted.numpy().tobytes(), key
    assert a["reason"] == (b["reason"] if theirs is None else [b["reason"][i] for i in theirs])


# -------------------------------------------------------------------------------- scores (spec 2.2)


def hand_made() -> TrainResult:
    """Two agents on Cliff (solved: -20). The first trains 3 episodes of 50, 20 and 14 steps, the second one of 50."""
    return TrainResult(
        test_return=np.array([[-12.0, -14.0], [-50.0, -30.0]]),
        train_steps=np.array([84, 50]),
        updates=np.array([84, 50]),
        episodes=np.array([3, 1]),
        real_steps=np.array([0, 0]),
        episode_return=np.array([[-50.0, -20.0, -13.0], [-50.0, np.nan, np.nan]], np.float32),
        episode_length=np.array([[50, 20, 14], [50, 0, 0]], np.int32),
        status=np.array([OK, OK], np.int8),
        weights=np.zeros((2, 1), np.float32),
    )


@pytest.mark.parametrize(
    "objective,expected",
    [
        ("mean_return", [-13.0, -40.0]),
        ("reward_threshold", [-84.0, -50.0 - 100.0 * 20.0]),  # the second misses -20 by 20
        ("auc", [-50.0 * 50 - 20.0 * 20 - 13.0 * 14, -50.0 * 50]),
    ],
)
def test_objectives_by_hand(objective, expected):
    gtn = problem.gtn_section(cliff(f"agents.gtn.rn_objective={objective}", "agents.gtn.unsolved_weight=100").data)
    result, task = hand_made(), make_task("Cliff", 50, -20.0)
    assert scores(result, gtn, task, result.test_return.mean(1)).tolist() == expected


def test_a_failed_test_is_not_worth_more_than_a_bad_one():
    """As a zero it was the best return of a task whose returns are negative."""
    gtn, result = problem.gtn_section(cliff("agents.gtn.rn_objective=auc").data), hand_made()
    result.episode_return[0, 1] = np.nan
    found = scores(result, gtn, make_task("Cliff", 50, -20.0), result.test_return.mean(1))
    assert math.isnan(found[0]) and found[1] == -50.0 * 50


def test_a_mark_out_of_reach_leaves_the_return():
    """solved_reward >= 1e9 says that there is none (spec 2.2)."""
    gtn, result = problem.gtn_section(cliff().data), hand_made()
    task = make_task("Cliff", 50, 1e9)
    assert scores(result, gtn, task, result.test_return.mean(1)).tolist() == [-13.0, -40.0]


def test_an_se_is_scored_by_its_test_return_whatever_the_objective():
    gtn = problem.gtn_section(cartpole("agents.gtn.rn_objective=auc").data)
    result = hand_made()
    assert scores(result, gtn, make_task("CartPole-v0"), result.test_return.mean(1)).tolist() == [-13.0, -40.0]


@pytest.mark.parametrize("objective", ["mean_return", "reward_threshold", "auc"])
def test_objectives_of_a_real_training(objective):
    """The formulas once more, member by member, from what the learner returned."""
    config = cliff(f"agents.gtn.rn_objective={objective}")
    gtn, section = problem.gtn_section(config.data), problem.env_section(config.data)
    worlds, seeds = members(config, 4)
    name, hyper, vary = problem.learner(config.data)
    task = make_task("Cliff", section.max_steps, section.solved_reward)
    result = train(name, hyper, vary, task, "rn", section, worlds, seeds.numpy(), test_each=True)
    values = evaluate(config.data, worlds, seeds, PROXY)
    for i in range(4):
        length, logged = result.episode_length[i], result.episode_return[i]
        assert length.sum() == result.train_steps[i] and (length > 0).sum() == result.episodes[i]
        r = sum(result.test_return[i]) / len(result.test_return[i])
        if objective == "mean_return":
            k = r
        elif objective == "reward_threshold":
            k = -float(length.sum()) - gtn.unsolved_weight * max(0.0, -20.0 - r)
        else:
            k = sum(float(a) * int(b) for a, b in zip(logged, length) if b > 0)
        assert values["score"][i] == k and values["mean_return"][i] == r


def test_a_window_that_reaches_the_mark_by_rounding_alone():
    below = np.nextafter(195.0, 0)
    for window in range(2, 40):
        first, fires = solved_steps([below] * 60, [1.0] * 60, 195.0, window)
        assert math.isnan(fires) or first == fires


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_a_lost_test_spoils_its_own_windows_alone(lost):
    """One in the sum made every later window NaN."""
    clean = [9.0] * 3 + [200.0] * 30
    assert solved_steps(clean, [10] * 33, 195, 10) == (40.0, 130.0)
    assert solved_steps([lost] + clean[1:], [10] * 33, 195, 10) == (40.0, 130.0)
    assert solved_steps(clean[:5] + [lost] + clean[6:], [10] * 33, 195, 10) == (70.0, 160.0)
    assert all(math.isnan(x) for x in solved_steps([lost] * 33, [10] * 33, 195, 10))


def test_an_rn_agent_stops_when_the_real_task_is_solved():
    config = cliff("agents.ql.train_episodes=100")
    worlds, seeds = members(config, 8)
    values = evaluate(config.data, worlds, seeds, PROXY)
    solved = values["mean_return"] >= -20
    assert solved.any() and (values["episodes"][solved] < 100).all()
    assert (values["real_steps"] > values["train_steps"]).all(), "training steps are real ones, and tests come on top"


# -------------------------------------------------------------------------------- what a result depends on


@pytest.mark.parametrize("make", [cliff, cartpole, bandit])
@pytest.mark.parametrize("mode", [PROXY, BUDGET])
def test_chunk_mates_do_not_matter(make, mode):
    config = make("agents.gtn.agent_name=" + ("QL_vary" if make is cliff else "DDQN_vary"))
    worlds, seeds = members(config, 7)
    whole = evaluate(config.data, worlds, seeds, mode)
    assert len(set(whole["score"].tolist())) > 1, "members differ, or nothing would be tested"
    order = [5, 1, 6]
    same(evaluate(config.data, worlds[order].contiguous(), seeds[order], mode), whole, theirs=order)
    same(evaluate(config.data, worlds[3:4].contiguous(), seeds[3:4], mode), whole, theirs=[3])
    same(evaluate(config.data, worlds, seeds, mode, threads=3), whole)


def test_the_seed_matters():
    config = cartpole()
    worlds, seeds = members(config, 3)
    a, b = evaluate(config.data, worlds, seeds, PROXY), evaluate(config.data, worlds, seeds + 1, PROXY)
    assert not torch.equal(a["test_returns"], b["test_returns"])


@pytest.mark.parametrize("make", [cliff, cartpole, bandit])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_world_harms_itself_alone(make, bad):
    config = make()
    worlds, seeds = members(config, 5)
    whole = evaluate(config.data, worlds, seeds, PROXY)
    broken = worlds.clone()
    broken[2] = bad
    values = evaluate(config.data, broken, seeds, PROXY)
    assert math.isnan(values["score"][2]) and values["reason"][2] == REASONS[WORLD_DIVERGED]
    others = torch.tensor([0, 1, 3, 4])
    for key in KEYS:
        assert torch.equal(values[key][others], whole[key][others]), key
    assert [r for i, r in enumerate(values["reason"]) if i != 2] == [""] * 4


def test_the_best_paid_action_has_a_share_in_a_bandits_score():
    config = bandit("agents.ddqn.test_episodes=3")
    worlds, seeds = members(config, 4)
    alone = evaluate(bandit("agents.ddqn.test_episodes=3", "agents.gtn.best_paid_share=0").data, worlds, seeds, PROXY)
    values = evaluate(config.data, worlds, seeds, PROXY)
    task = make_task("CartPole-v0")
    policies = [greedy(synthetic_world(task, problem.env_section(config.data), world[None])) for world in worlds]
    played = [play(task, policy, seeds[i : i + 1].numpy(), 3) for i, policy in enumerate(policies)]
    paid = torch.tensor([float(p.returns.mean()) for p in played], dtype=torch.float64)
    assert len(set(paid.tolist())) > 1 and torch.equal(alone["score"], alone["mean_return"])
    assert torch.allclose(values["score"], 0.75 * alone["score"] + 0.25 * paid, rtol=1e-12)
    steps = torch.tensor([int(p.steps.sum()) for p in played])
    assert torch.equal(values["real_steps"], alone["real_steps"] + steps)
    for key in ("mean_return", "test_returns", "train_steps"):
        assert torch.equal(values[key], alone[key])
    on_task = evaluate(config.data, worlds[:1], seeds[:1], REAL_BUDGET)
    assert torch.equal(on_task["score"], on_task["mean_return"])


def test_an_episode_of_the_best_paid_action_may_fail(monkeypatch):
    config = bandit()
    worlds, seeds = members(config, 2)

    def failing(*args):
        played = play(*args)
        played.returns[1, 0] = np.nan
        return played

    monkeypatch.setattr(envolve.outer.evaluate.networks, "play", failing)
    values = evaluate(config.data, worlds, seeds, PROXY)
    assert torch.isfinite(values["score"]).tolist() == [True, False]
    assert values["reason"] == ["", "an episode of the action that the world pays most for failed"]


def test_every_kind_of_failure_has_a_reason(monkeypatch):
    result = hand_made()
    result.status[:] = [OK, AGENT_DIVERGED]
    result.test_return[0, 1] = np.inf
    monkeypatch.setattr(envolve.outer.evaluate.networks, "train", lambda *args: result)
    config = cliff("agents.gtn.rn_objective=mean_return")
    values = evaluate(config.data, *members(config, 2), PROXY)
    assert values["score"].isnan().all()
    assert values["reason"] == ["the score is not finite", "the agent's weights are not finite"]


# -------------------------------------------------------------------------------- modes


def asked(monkeypatch, config, mode):
    """What evaluate asks of train()."""
    seen = {}

    def fake(*args):
        seen.update(inspect.signature(train).bind(*args).arguments)
        return hand_made()

    monkeypatch.setattr(envolve.outer.evaluate.networks, "train", fake)
    evaluate(config.data, *members(config, 2), mode)
    return seen


SE = ("agents.gtn.agent_name=DDQN_vary", "agents.ddqn_vary.train_steps_factor=2.0")


@pytest.mark.parametrize(
    "mode,kind,steps,factor",
    [(PROXY, "se", 60, 2.0), (BUDGET, "se", 60, 1.0), (EARLY_OUT, "se", 0, 1.0), (REAL, "real", 0, 1.0)],
)
def test_modes_of_an_se(monkeypatch, mode, kind, steps, factor):
    seen = asked(monkeypatch, cartpole(*SE), mode)
    assert (seen["kind"], seen["learner"].train_steps, seen["vary"].train_steps_factor) == (kind, steps, factor)
    assert seen["vary"].vary_hp and seen["test_each"] is False


def test_se_test_on_real_is_the_last_commits_rule(monkeypatch):
    config = cartpole("agents.gtn.se_test_on_real=true")
    assert asked(monkeypatch, config, PROXY)["test_each"] is True
    assert asked(monkeypatch, config, REAL)["test_each"] is False


@pytest.mark.parametrize("mode,kind", [(PROXY, "rn"), (BUDGET, "rn"), (EARLY_OUT, "rn"), (REAL, "real")])
def test_modes_of_an_rn(monkeypatch, mode, kind):
    seen = asked(monkeypatch, cliff(), mode)
    assert seen["kind"] == kind and seen["test_each"] is True, "tested after every episode, with and without the RN"


def test_real_mode_ignores_the_world():
    config = cliff()
    worlds, seeds = members(config, 3)
    same(evaluate(config.data, worlds, seeds, REAL), evaluate(config.data, worlds * math.nan, seeds, REAL))


def test_unknown_mode():
    config = cliff()
    with pytest.raises(ValueError, match="mode 'virtual': expected one of proxy, proxy_budget, proxy_early_out, real"):
        evaluate(config.data, *members(config, 1), "virtual")
    assert set(MODES) == {PROXY, BUDGET, EARLY_OUT, REAL, REAL_BUDGET}


def test_agents_on_the_real_task_with_a_budget():
    config = cartpole("agents.ddqn.train_steps=120", "agents.ddqn.train_episodes=30")
    worlds, seeds = members(config, 3)
    short = evaluate(config.data, worlds, seeds, REAL_BUDGET)
    assert ((short["train_steps"] >= 120) & (short["train_steps"] < 120 + 200)).all()
    long = evaluate(config.data, worlds, seeds, REAL)
    assert (long["train_steps"] > short["train_steps"]).all(), "the mode real knows no budget"
    assert torch.equal(short["train_steps"], evaluate(config.data, worlds + 1, seeds, REAL_BUDGET)["train_steps"])
