"""SAC and TD3 over shaped environments: what is remembered and learned from, and candidates that harm nobody."""

from __future__ import annotations

import functools
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from envolve.agents.common.normaliser import CLIP
from envolve.agents.common.replay import FIRST_ROWS, Replay
from envolve.agents.shaped import off_policy as shaped_off_policy
from envolve.agents.shaped.off_policy import ShapedSAC, ShapedTD3, sac_defaults, td3_defaults
from envolve.agents.shaped.training import make_envs, make_learner, train_shaped
from envolve.core import rng
from envolve.envs.shaping.candidate import Candidate, Shaper
from tests.agents import fake_shaped
from tests.agents.fake_shaped import PointMasses
from tests.agents.humans import train_humans
from tests.examples import some_slow

WIDTHS = [(4, 2), (7, 2), (2, 1), (4, 2), (6, 3)]
SCALES = [1.0, 1000.0, 0.01, 1.0, 3.0]
LEARNERS = {"sac": (ShapedSAC, sac_defaults), "td3": (ShapedTD3, td3_defaults)}
SMALL = dict(hidden_size=16, batch_size=32, init_episodes=1, updates_per_decision=1)
MAX_STEPS, N, DECISIONS = 20, 8, 8
CLOSE = dict(rtol=1e-4, atol=1e-4)

both = pytest.mark.parametrize("name", LEARNERS)


@pytest.fixture(autouse=True)
def short_iterations(monkeypatch, request):
    if "slow" not in request.keywords:
        monkeypatch.setattr(shaped_off_policy, "DECISIONS", DECISIONS)


def point_masses(*args, **kwargs):
    envs = PointMasses(*args, **kwargs)
    envs.task = SimpleNamespace(max_steps=envs.max_steps)
    return envs


def run(name, rows=range(5), iterations=4, fails=(), nan_reward=(), backend="auto", **settings):
    """Learner after training of candidates ``rows``; a candidate's scale, widths and keys are its own."""
    rows = list(rows)
    envs = point_masses(
        [WIDTHS[i] for i in rows],
        N,
        MAX_STEPS,
        [SCALES[i] for i in rows],
        [i + 5 for i in rows],
        {rows.index(i): 21 for i in fails},
        [rows.index(i) for i in nan_reward],
    )
    cls, defaults = LEARNERS[name]
    learner = cls(envs, defaults(**{**SMALL, **settings}), np.array(rows) + 3, backend)
    for _ in range(iterations):
        learner.iteration()
    return learner


@functools.lru_cache(maxsize=None)
def trained(name):
    """What ``run(name)`` returns, trained once for all tests that train it no further."""
    return run(name)


def spy(learner):
    """Every later step: (obs, action, Step), copied."""
    seen, step = [], learner.envs.step

    def watched(action):
        before = learner.obs.clone()
        result = step(action)
        seen.append((before, action.clone(), type(result)(*(x.clone() for x in result))))
        return result

    learner.envs.step = watched
    return seen


@pytest.mark.parametrize("name", some_slow(LEARNERS, fast=("sac",)))
def test_compiled_updates_equal_pytorchs(name):
    """Of batches that lose a member, and one of them all its members."""
    twins = [run(name, fails=[1, 3], backend=backend) for backend in ("auto", "torch")]
    assert [[batch.agents.compiled for batch in t.batches] for t in twins] == [[True] * 3, [False] * 3]
    for i in range(5):
        torch.testing.assert_close(*(t.policy(i) for t in twins), **CLOSE)


# -------------------------------------------------------------------------------------- candidates and their neighbours


@both
def test_a_candidate_alone_is_to_rounding_what_it_is_among_five(name):
    together, untrained = trained(name), run(name, iterations=0)
    for i in range(5):
        assert (together.policy(i)["weights"] - untrained.policy(i)["weights"]).abs().max() > 0.01
        torch.testing.assert_close(together.policy(i), run(name, [i]).policy(0), **CLOSE)
    torch.testing.assert_close(together.policy(0)["sizes"], torch.tensor([4, 2, 16, 2]))


@both
def test_a_failure_leaves_the_others_as_they_are_and_its_own_policy_as_it_was(name):
    together, failed = run(name, init_episodes=0), run(name, fails=[1, 2], init_episodes=0)  # in the third iteration
    for i in (0, 3, 4):
        torch.testing.assert_close(together.policy(i), failed.policy(i), **CLOSE)
    untrained = run(name, iterations=0)
    for i in (1, 2):
        weights = failed.policy(i)["weights"]
        assert (weights - untrained.policy(i)["weights"]).abs().max() > 1e-3
        assert (weights - together.policy(i)["weights"]).abs().max() > 1e-3
        assert torch.isfinite(weights).all()
    assert sorted(i for batch in failed.batches for i in batch.members.tolist()) == [0, 3, 4]
    action = failed.act(failed.envs.begin(evaluation=True))
    assert not action[1:3].any() and action[[0, 3, 4]].any(2).all()


@both
def test_divergence_is_said_and_harms_nobody(name):
    together, diverged = trained(name), run(name, nan_reward=[3])
    assert diverged.diverged.tolist() == [False, False, False, True, False] and not together.diverged.any()
    for i in (0, 1, 2, 4):
        torch.testing.assert_close(together.policy(i), diverged.policy(i), **CLOSE)
    assert not torch.isfinite(diverged.policy(3)["weights"]).all()
    assert not diverged.act(diverged.envs.begin())[3].any()


def test_all_candidates_failing_ends_nothing_with_an_exception():
    learner = run("sac", fails=range(5))
    assert not learner.batches and not learner.act(learner.envs.begin()).any()
    assert len(learner.policy(4)["weights"])


# ------------------------------------------------------------------------------------------------ what is remembered


@pytest.mark.parametrize("capacities", [[50, 50], [50, 37], [3000, 1700, 8]])
def test_k_rows_at_once_are_as_k_writes_of_one(capacities):
    one, many = (Replay(torch.tensor(capacities), 3) for _ in range(2))
    source = torch.Generator().manual_seed(1)
    for _ in range(1 + 2 * max(capacities) // 8):
        rows = torch.randn(len(capacities), 8, 3, generator=source)
        moved = many.make_room(8)
        assert not moved or many.rows.shape[1] > FIRST_ROWS
        many.write_many(rows)
        for k in range(8):
            one.make_room()
            one.write(rows[:, k])
        assert one.written == many.written and one.rows.shape == many.rows.shape
        for i, capacity in enumerate(capacities):
            stored = min(capacity, int(one.written))
            assert torch.equal(one.rows[i, :stored], many.rows[i, :stored])
    draw = one.draws(torch.arange(len(capacities)), torch.zeros(len(capacities), dtype=torch.int64), 1, 64)[0]
    assert torch.equal(one.sample(draw), many.sample(draw))


def test_room_for_more_rows_than_twice_what_there_is():
    memory = Replay(torch.tensor([10_000]), 1)
    assert memory.make_room(5000) and memory.rows.shape[1] == 5000
    memory.write_many(torch.arange(5000.0)[None, :, None])
    assert memory.make_room(5000) and memory.rows.shape[1] == 10_000
    assert torch.equal(memory.rows[0, :5000, 0], torch.arange(5000.0))


@both
@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_time_limit_is_no_end_and_what_follows_it_is_what_was_seen_before_the_reset(name, bootstrap, monkeypatch):
    monkeypatch.setattr(fake_shaped, "EDGE", 2.5)
    learner = run(name, iterations=0, bootstrap_time_limit=bootstrap)
    seen = spy(learner)
    for _ in range(4):
        learner.iteration()
    cut = torch.stack([step.truncated for _, _, step in seen])
    ended = torch.stack([step.terminated for _, _, step in seen])
    assert cut[:, 0].any() and ended[:, 4].any()  # both happen, the one to candidate 0, the other to candidate 4
    for batch in learner.batches:
        for k, i in enumerate(batch.members.tolist()):
            F, A = WIDTHS[i]
            expected = torch.cat(
                [
                    torch.cat(
                        (
                            obs[i, :, :F],
                            step.last_obs[i, :, :F],
                            action[i, :, :A],
                            step.reward[i, :, None],
                            (step.terminated[i] | (step.truncated[i] & (not bootstrap)))[:, None].float(),
                        ),
                        1,
                    )
                    for obs, action, step in seen
                ]
            )
            assert torch.equal(batch.memory.rows[k, : len(expected)], expected)
            assert batch.memory.written == len(expected) == learner.steps
    after_reset = torch.stack([(step.obs != step.last_obs).any(2) for _, _, step in seen])
    assert torch.equal(after_reset, cut | ended)  # else the test could not tell them apart


@both
def test_first_actions_are_random_by_count_and_nothing_is_learned_from_so_few(name):
    """7 episodes of 20 steps are 140 environment steps, 17.5 of 8 environments: learning begins with iteration 4."""
    learner = run(name, iterations=0, init_episodes=7)
    seen, first = spy(learner), learner.policy(0)["weights"]
    for _ in range(3):
        learner.iteration()
    assert torch.equal(learner.policy(0)["weights"], first)
    key, A = rng.fold(torch.tensor(3), rng.EXPLORE), 2
    stride = {"sac": A, "td3": 2 * A}[name]  # numbers of a decision in one environment
    for d in (0, 1, 17):
        counter = (d * N + torch.arange(N)[:, None]) * stride + torch.arange(A)
        assert torch.equal(seen[d][1][0, :, :A], 2 * rng.uniform(key, counter) - 1)
    counter += N * stride
    assert (seen[18][1][0, :, :A] != 2 * rng.uniform(key, counter) - 1).all()
    learner.iteration()
    assert not torch.equal(learner.policy(0)["weights"], first)
    assert {batch.updates for batch in learner.batches} == {DECISIONS}


# ---------------------------------------------------------------------------------------------- what is learned from


@both
def test_samples_are_normalised_by_all_that_was_seen_until_the_last_iterations_end(name):
    own = {"policy_delay": 2} if name == "td3" else {}
    learner = run(name, iterations=0, updates_per_decision=2, **own)
    seen = spy(learner)
    for _ in range(2):
        learner.iteration()
    for batch in learner.batches:
        got, update = [], batch.agents._update
        batch.agents._update = lambda sample, *rest, got=got, update=update: (
            got.append((sample, rest)) or update(sample, *rest)
        )
        raw, memory_sample = [], batch.memory.sample
        batch.memory.sample = lambda draw, raw=raw, sample=memory_sample: (
            raw.append(sample(draw).clone()) or sample(draw)
        )
        batch.learn(3)
        turns, delay = [rest[4] for _, rest in got], batch.agents.algorithm.policy_delay
        assert turns == [batch.updates % delay == u % 2 or name == "sac" for u in (0, 1, 0)]
        for k, i in enumerate(batch.members.tolist()):
            F, A = WIDTHS[i]
            x = torch.stack([obs[i, :, :F] for obs, _, _ in seen]).view(-1, F).double()
            total, totals = torch.zeros(N, dtype=torch.float64), []
            for _, _, step in seen:
                total = 0.99 * total + step.reward[i]
                totals.append(total)
                total = total.masked_fill((step.terminated | step.truncated)[i], 0)
            paid = torch.stack(totals).std(correction=0)
            mean, std = x.mean(0)[:, None], (x.var(0, correction=0) + 1e-8).sqrt()[:, None]
            for (sample, _), transition in zip(got, raw):
                s, s_next, action, reward, done = sample[k].double().split([F, F, A, 1, 1])
                S, S_next, Action, Reward, Done = transition[k].double().split([F, F, A, 1, 1])
                torch.testing.assert_close(s, ((S - mean) / std).clamp(-CLIP, CLIP), **CLOSE)
                torch.testing.assert_close(s_next, ((S_next - mean) / std).clamp(-CLIP, CLIP), **CLOSE)
                torch.testing.assert_close(reward, (Reward / paid).clamp(-CLIP, CLIP), **CLOSE)
                assert torch.equal(action, Action) and torch.equal(done, Done)


@both
def test_exploring_in_many_environments_is_exploring_in_each(name):
    learner = trained(name)
    batch = learner.batches[0]
    L, A = len(batch.members), batch.A
    obs, (u, normal) = torch.randn(L, N, batch.F), torch.rand(2, L, N, A)
    for episode in (0, 7):
        e = torch.full((L,), episode)
        action, stored = batch.agents.algorithm.explore(obs, e, (u.flatten(1), normal.flatten(1)))
        assert action.shape == (L, N, A) and torch.equal(action.flatten(1), stored)
        for n in range(N):
            alone, _ = batch.agents.algorithm.explore(obs[:, n : n + 1], e, (u[:, n], normal[:, n]))
            torch.testing.assert_close(alone[:, 0], action[:, n])


@both
def test_acting_is_the_stored_policy(name):
    """What ``policy`` gives is all that a user needs: normaliser, actor, tanh."""
    learner = trained(name)
    obs = learner.envs.begin(evaluation=True)
    for i, (F, A) in enumerate(WIDTHS):
        p = learner.policy(i)
        x = ((obs[i, :, :F] - p["observation_mean"]) * p["observation_scale"]).clamp(-10, 10)
        first = 0
        sizes = [F, 16, 16, 2 * A if name == "sac" else A]
        for layer, (k, m) in enumerate(zip(sizes[:-1], sizes[1:])):
            weights = p["weights"][first : first + k * m].view(k, m)
            x = x @ weights + p["weights"][first + k * m : first + k * m + m]
            x = x.relu() if layer < 2 else x
            first += k * m + m
        torch.testing.assert_close(learner.act(obs)[i, :, :A], torch.tanh(x[:, :A]), **CLOSE)
        assert not learner.act(obs)[i, :, A:].any()


def test_actions_for_any_number_of_environments_and_episodes_begin_anew_after_an_evaluation():
    learner = run("td3")
    obs = learner.envs.begin(evaluation=True)
    torch.testing.assert_close(learner.act(obs.repeat(1, 3, 1)[:, :19])[:, :8], learner.act(obs))
    learner.iteration()
    assert not learner.envs.evaluation


# ----------------------------------------------------------------------------------------------- settings, whole runs


def test_names_what_was_expected():
    envs = point_masses([(4, 2)], N)
    with pytest.raises(ValueError, match="backend 'numba': expected one of auto, torch, compiled"):
        ShapedSAC(envs, sac_defaults(), np.zeros(1, np.int64), "numba")
    with pytest.raises(ValueError, match="backend 'compiled': td3: of the learners of shaped tasks only ppo has a"):
        ShapedTD3(envs, td3_defaults(), np.zeros(1, np.int64), "compiled")
    with pytest.raises(ValueError, match="2 keys for 1 candidates"):
        ShapedSAC(envs, sac_defaults(), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="rb_size 7 holds less than one step of 8 environments"):
        ShapedSAC(envs, sac_defaults(rb_size=7), np.zeros(1, np.int64))


def test_auto_says_once_that_it_takes_the_pytorch_path(caplog):
    shaped_off_policy._said.clear()
    with caplog.at_level(logging.WARNING, "envolve"):
        for backend in ("torch", "auto", "auto"):
            ShapedSAC(point_masses([(4, 2)]), sac_defaults(), np.zeros(1, np.int64), backend)
    assert [r.getMessage() for r in caplog.records].count(caplog.messages[0]) == 1 == len(caplog.records)
    assert "sac trains on the PyTorch path, updates compiled: of the" in caplog.messages[0]


def bad_reward(state):
    return state["pole_angle"] / (state["progress"] < 9)  # infinite from step 9 of an episode on


def both_ways(action, state):
    return action[:, :1] * 5 - action[:, 1:] * 5


def angles(state):
    return torch.stack((state["pole_angle"], state["pole_angular_velocity"]), 1)


def cartpoles():
    return [
        Candidate("human"),
        Candidate("bad", {"compute_reward": Shaper(bad_reward, False)}),
        Candidate("two", {"compute_torque": Shaper(both_ways, False)}, action_size=2),
        Candidate("angles", {"compute_observation": Shaper(angles, False)}),
    ]


@pytest.mark.parametrize("name", some_slow(LEARNERS, fast=("sac",)))
def test_candidates_of_the_simulator_of_different_widths_and_one_that_fails(name):
    envs = make_envs("Cartpole", cartpoles(), 4, 0)
    section = LEARNERS[name][1](**SMALL)
    learner = make_learner(name, envs, section, np.arange(4), "torch", 1)
    result = train_shaped(envs, learner, 17)
    assert result.steps == 17 * DECISIONS * 4 == learner.steps
    assert [f is None for f in result.failures] == [True, False, True, True] and "NotFinite" in str(result.failures[1])
    assert np.isnan(result.score).tolist() == [False, True, False, False]
    assert [batch.updates for batch in learner.batches] == [DECISIONS] * 3  # from 500 steps on: the last iteration
    sizes = [(p["sizes"][0].item(), p["sizes"][1].item()) for p in result.policies]
    assert sizes == [(4, 1), (4, 1), (4, 2), (2, 1)]


@pytest.mark.slow
@both
def test_point_masses_reach_their_goal_whatever_their_scale(name):
    """Measured: both at 1.00 from 280 decisions on."""
    envs = point_masses([(2, 1)] * 2, 8, 50, [1000.0, 0.01])
    cls, defaults = LEARNERS[name]
    learner = cls(envs, defaults(hidden_size=32, batch_size=128, gamma=0.9, lr=3e-3), np.arange(2))

    def there():
        obs, scores = envs.begin(evaluation=True), []
        for _ in range(49):
            step = envs.step(learner.act(obs))
            obs = step.obs
            scores.append(step.score)
        return torch.stack(scores)[30:].mean((0, 2))

    assert there().max() < 0.3
    for _ in range(384 // DECISIONS):
        learner.iteration()
    assert there().min() > 0.7  # share of steps within 0.25 m of the origin, from up to 2 m


@pytest.mark.slow
@pytest.mark.parametrize("name, iterations", [("sac", 36), ("td3", 54)])
def test_a_pole_is_balanced(name, iterations):
    """By most of 8 agents. SAC: 18,432 steps each; TD3: 27,648. Measured on an Intel machine: SAC 0.58, 0.77 and six of
    1.00, TD3 0.28 and seven of 1.00; how sums round decides which."""
    result = train_humans(name, LEARNERS[name][1](hidden_size=64), "Cartpole", 8, 16, iterations)
    assert result.steps == iterations * 512 and (result.score >= 0.95).sum() >= 5, result.score


@pytest.mark.slow
@both
def test_half_cheetah_runs(name):
    """2 agents, 36,864 steps each, some 40 s of processor time. Random actions: about -0.1 m/s. Measured:
    SAC 2.67 and 0.36 (agents differ much so early), TD3 1.57 and 1.58."""
    result = train_humans(name, LEARNERS[name][1](), "HalfCheetah", 2, 32, 36)
    assert result.steps == 36_864 and result.score.mean() > 0.8 and result.score.min() > 0.1, result.score
