"""PPO over shaped environments: two paths that agree, and candidates that do not know of each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.normaliser import Moments
from envolve.agents.common.sections import PPOSection
from envolve.agents.kernels.ppo import update as ppo_update
from envolve.agents.kernels.shaped import ppo as shaped_ppo
from envolve.agents.ppo.rate import adapted
from envolve.agents.shaped.ppo import ShapedPPO, defaults
from envolve.agents.shaped.ppo_policy import STD_FLOOR
from tests.agents.fake_shaped import PointMasses
from tests.agents.humans import train_humans

WIDTHS = [(4, 2), (7, 2), (2, 1), (4, 2), (6, 3)]
SCALES = [1.0, 1000.0, 0.01, 1.0, 3.0]
SMALL = dict(rollout_steps=16, hidden_size=16, ppo_epochs=2)


def run(rows=range(5), backend="compiled", iterations=5, threads=1, fails=(), nan_reward=(), **settings):
    """Learner after training of candidates ``rows``; a candidate's scale, widths and keys are its own."""
    rows = list(rows)
    envs = PointMasses(
        [WIDTHS[i] for i in rows],
        8,
        20,
        [SCALES[i] for i in rows],
        [i + 5 for i in rows],
        {rows.index(i): 37 for i in fails},
        [rows.index(i) for i in nan_reward],
    )
    learner = ShapedPPO(envs, defaults(**{**SMALL, **settings}), np.array(rows) + 3, backend, threads)
    for _ in range(iterations):
        learner.iteration()
    return learner


def blob(learner, i):
    """Candidate i's policy, in bytes."""
    return b"".join(part.numpy().tobytes() for part in learner.policy(i).values())


CASES = {
    "defaults": {},
    "nothing normalised": dict(normalise_obs=False, normalise_reward=False),
    "one minibatch": dict(minibatches=1),
    "monte carlo": dict(advantage="monte_carlo", norm_advantage=False),
    "time limit is terminal": dict(bootstrap_time_limit=False),
    "annealed": dict(desired_kl=0.0, anneal_lr=True, train_steps=16 * 8 * 10),
    "annealed to the end": dict(desired_kl=0.0, anneal_lr=True, train_steps=16 * 8 * 2),
    "deep relu": dict(hidden_layer=3, activation_fn="relu", orthogonal_init=False, clip_value_loss=True),
    "left over": dict(rollout_steps=7, minibatches=5),
    "each update adapts": dict(kl_after="update", desired_kl=0.01),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_pytorch_twin(case):
    rows = [0, 3, 4] if case == "nothing normalised" else range(5)  # scales of 1000 and 0.01 would magnify rounding
    ours, twin = (run(rows, backend, iterations=3, **CASES[case]) for backend in ("compiled", "torch"))
    untrained = run(rows, iterations=0, **CASES[case])
    assert ours.steps == twin.steps > 0
    for i in range(len(rows)):
        a, b, first = ours.policy(i), twin.policy(i), untrained.policy(i)
        assert a.keys() == b.keys() and (a["weights"] - first["weights"]).abs().max() > 1e-3
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    obs = ours.envs.begin(evaluation=True)
    torch.testing.assert_close(ours.act(obs), twin.act(obs), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("after", ["iteration", "update"])
def test_the_twins_adapt_the_learning_rate_alike(after):
    ours, twin = (run(backend=name, iterations=4, kl_after=after) for name in ("compiled", "torch"))
    rates = [member.rate for member in ours.backend.members]
    for group in twin.backend.groups:
        np.testing.assert_allclose([rates[i] for i in group.rows], group.m.rate)
    assert len(set(rates)) > 1


def test_a_candidate_alone_is_bit_for_bit_what_it_is_among_five():
    together = run()
    for i in range(5):
        assert blob(together, i) == blob(run([i]), 0)


def test_candidates_in_another_order_have_the_same_bits():
    together, other = run(), run([3, 4, 0])
    assert [blob(other, j) for j in range(3)] == [blob(together, i) for i in (3, 4, 0)]


def test_threads_change_nothing():
    one, two = run(), run(threads=2)
    assert all(blob(one, i) == blob(two, i) for i in range(5))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_leaves_the_others_as_they_are_and_its_own_policy_as_it_was(threads):
    together, failed = run(threads=threads), run(fails=[1], threads=threads)  # in the third of five rollouts
    assert all(blob(together, i) == blob(failed, i) for i in (0, 2, 3, 4))
    assert blob(failed, 1) == blob(run(iterations=2), 1) != blob(together, 1)
    obs = failed.envs.begin(evaluation=True)
    assert not failed.act(obs)[1].any() and failed.act(obs)[0].any()


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_divergence_is_said_and_harms_nobody(backend):
    together, diverged = (run(nan_reward=rows, backend=backend, iterations=3) for rows in ([], [3]))
    assert diverged.diverged.tolist() == [False, False, False, True, False] and not together.diverged.any()
    for i in (0, 1, 2, 4):
        if backend == "compiled":
            assert blob(together, i) == blob(diverged, i)
        else:  # products of fewer matrices are summed in another order
            torch.testing.assert_close(together.policy(i), diverged.policy(i), rtol=1e-4, atol=1e-4)
    assert not torch.isfinite(diverged.policy(3)["weights"]).all()


def test_a_failure_on_the_pytorch_path():
    """In the third of four rollouts, so the policy is that of two iterations."""
    together, failed = (run(backend="torch", fails=rows, iterations=4) for rows in ([], [1, 2]))
    for i in (0, 3, 4):
        torch.testing.assert_close(together.policy(i), failed.policy(i), rtol=1e-4, atol=1e-4)
    before = run(backend="torch", iterations=2)
    for i in (1, 2):
        torch.testing.assert_close(failed.policy(i), before.policy(i))
        assert not torch.equal(failed.policy(i)["weights"], together.policy(i)["weights"])
    assert not failed.act(failed.envs.begin())[1:3].any()


def test_nothing_is_compiled_after_the_first_process():
    run(iterations=2).act(torch.zeros(5, 8, 7))
    for kernel in (shaped_ppo.act, shaped_ppo.record, shaped_ppo.improve, shaped_ppo.mean_action):
        assert len(kernel.signatures) == 1 and not kernel.stats.cache_misses


# ------------------------------------------------------------------------------------------------------- normalisers


def test_the_normaliser_is_the_mean_and_deviation_of_all_observations():
    learner = run(iterations=0)
    seen, step = [], learner.envs.step
    learner.envs.step = lambda action: seen.append(learner.obs.clone()) or step(action)  # learner.obs: what is acted on
    for _ in range(3):
        learner.iteration()
    for i, (F, _) in enumerate(WIDTHS):
        x = torch.stack(seen)[:, i, :, :F].reshape(-1, F).double().numpy()
        policy = learner.policy(i)
        np.testing.assert_allclose(policy["observation_mean"], x.mean(0), rtol=1e-6, atol=1e-7 * SCALES[i])
        np.testing.assert_allclose(policy["observation_scale"], (x.var(0) + 1e-8) ** -0.5, rtol=1e-6)


def test_moments_against_numpy():
    x = np.random.default_rng(0).normal(size=(2, 300, 3)) * [1e-3, 1.0, 1e4] + [5.0, -1.0, 3e5]
    moments = Moments(2, 3, torch.device("cpu"))
    torch.testing.assert_close(moments.scale, torch.ones(2, 3))
    for part in np.split(x, [10, 50, 200], 1):
        for half in np.split(part, 2, 1):
            moments.add(torch.as_tensor(half))
        moments.merge()
    np.testing.assert_allclose(moments.mean, x.mean(1), rtol=1e-12)
    np.testing.assert_allclose(moments.squares / moments.count, x.var(1), rtol=1e-6)
    z = moments.normalise(torch.as_tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(
        z, np.clip((x - x.mean(1)[:, None]) / np.sqrt(x.var(1) + 1e-8)[:, None], -10, 10), atol=0.05
    )  # float32 at 3e5
    assert moments.normalise(torch.full((2, 1, 3), 1e9)).max() == 10


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    """A candidate paid a thousand times as much learns the same, whatever the learning rate would say to it."""
    kw = dict(normalise_obs=False, iterations=3)
    SCALES[3], before = 1.0, SCALES[3]
    learner = run([3], iterations=0, normalise_obs=False)
    paid, step = [], learner.envs.step

    def spy(action):
        result = step(action)
        paid.append((result.reward[0].clone(), (result.terminated | result.truncated)[0].clone()))
        return result

    learner.envs.step = spy
    for _ in range(kw["iterations"]):
        learner.iteration()
    total, all_totals = torch.zeros(8, dtype=torch.float64), []
    for reward, over in paid:
        total = 0.99 * total + reward
        all_totals.append(total.clone())
        total[over] = 0
    variance = torch.stack(all_totals).var(correction=0)
    member = learner.backend.members[0]
    np.testing.assert_allclose(member.memory.paid.scale[0], (variance + 1e-8) ** -0.5, rtol=1e-6)
    last = torch.cat([reward for reward, _ in paid[-16:]])
    np.testing.assert_allclose(member.agent.rollout.reward, last * member.memory.paid.scale[0], rtol=1e-6)
    SCALES[3] = before


def test_the_learning_rate_follows_the_divergence():
    rate = torch.tensor([1e-3, 1e-3, 1e-3, 9e-3, 1.2e-5, 1e-3], dtype=torch.float64)
    moved = torch.tensor([0.03, 0.01, 0.001, 0.001, 1.0, torch.nan], dtype=torch.float64)
    expected = torch.tensor([1e-3 / 1.5, 1e-3, 1.5e-3, 1e-2, 1e-5, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(adapted(rate, moved, 0.01), expected, rtol=1e-12, atol=0)
    twin = [ppo_update.adapted.py_func(*pair, 0.01) for pair in zip(rate.tolist(), moved.tolist())]
    np.testing.assert_allclose(twin, expected, rtol=1e-12)


def test_an_update_sees_how_far_the_updates_before_it_moved_the_policy():
    """The first moved it not at all, so the rate rises; then it falls as often as it takes."""
    small, large = (run([0], kl_after="update", desired_kl=d, iterations=2).backend.members[0] for d in (1e-9, 1e9))
    assert small.rate == pytest.approx(1e-5) and large.rate == pytest.approx(1e-2)


def test_deviations_stay_above_their_floor():
    for backend in ("compiled", "torch"):
        learner = run([0], backend, action_std=0.01, iterations=1)
        assert (learner.policy(0)["weights"][:2] == np.float32(0.01)).all()  # nothing learned yet
        learner.iteration()
        assert (learner.policy(0)["weights"][:2] >= np.float32(STD_FLOOR)).all()


# ------------------------------------------------------------------------------------------------ settings, learning


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(rollout_steps=0), "rollout_steps"),
        (dict(squash=False), "squash: found false"),
        (dict(anneal_lr=True, train_steps=100), "desired_kl"),
        (dict(anneal_lr=True, desired_kl=0.0), "train_steps"),
        (dict(minibatches=100), "at least 2"),
    ],
)
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        run([0], iterations=0, **settings)


def test_names_what_was_expected():
    with pytest.raises(ValueError, match="backend 'numba': expected auto or one of compiled, torch"):
        run([0], "numba")
    with pytest.raises(ValueError, match="2 keys for 1 candidates"):
        ShapedPPO(PointMasses([(4, 2)]), PPOSection(rollout_steps=8), np.zeros(2))


def test_actions_for_any_number_of_environments_and_episodes_begin_anew_after_an_evaluation():
    learner = run()
    obs = learner.envs.begin(evaluation=True)
    many = obs.repeat(1, 3, 1)[:, :19]
    torch.testing.assert_close(learner.act(many)[:, :8], learner.act(obs), rtol=0, atol=0)
    learner.iteration()
    assert not learner.envs.evaluation


@pytest.mark.parametrize("backend", ["compiled", pytest.param("torch", marks=pytest.mark.slow)])
def test_point_masses_reach_their_goal_whatever_their_scale(backend):
    widths, scales = ([(2, 1)] * 2, [1000.0, 0.01]) if backend == "compiled" else ([(2, 1)], [50.0])
    envs = PointMasses(widths, 16, 50, scales)
    learner = ShapedPPO(envs, defaults(hidden_size=32), np.arange(len(widths)), backend)

    def there():
        obs, scores = envs.begin(evaluation=True), []
        for _ in range(49):
            step = envs.step(learner.act(obs))
            obs = step.obs
            scores.append(step.score)
        return torch.stack(scores)[30:].mean((0, 2))

    assert there().max() < 0.2
    for _ in range(60):
        learner.iteration()
    assert there().min() > 0.7  # share of steps within 0.25 m of the origin, from up to 2 m


@pytest.mark.slow
def test_cartpole_is_balanced_within_a_hundred_thousand_steps():
    """By most of 12 agents: 0.95 of 500 steps upright. Measured: 8 on an Intel machine (11 after 198,656 steps), whose
    sums round otherwise than those of the AMD machine on which three of three did it."""
    result = train_humans("ppo", defaults(), "Cartpole", 12, 64, 100_000 // (64 * 32))
    assert result.steps <= 100_000 and (result.score >= 0.95).sum() >= 6, result.score
