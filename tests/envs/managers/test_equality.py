"""With the task's own terms, every candidate's environments are those of mjlab's own managers; a bad candidate changes
nothing for the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.envs.managers.envs import ManagedEnvs, make_managed_envs
from envolve.envs.shaping.candidate import Candidate, Shaper
from tests.envs.managers.real import CARTPOLE, G1, GO1, LIFT, PlainEnvironment, needs_mjlab

N = 2
KEYS = [11, 12, 13]
BAD_FROM = 5  # control steps


def late(kind: str) -> Candidate:
    """A candidate that makes its mistake after BAD_FROM steps."""

    def compute_reward(state: dict[str, Tensor]) -> Any:
        if compute_reward.calls < BAD_FROM + 4:  # type: ignore[attr-defined]
            compute_reward.calls += 1  # type: ignore[attr-defined]
            return state["own_reward"] * 1
        if kind == "raises":
            raise ValueError("a mistake")
        if kind == "nan":
            return state["own_reward"] * torch.nan
        if kind == "shape":
            return state["own_reward"][:1]
        state["own_observation"].zero_()
        return state["own_reward"] * 1

    compute_reward.calls = 0  # type: ignore[attr-defined]
    return Candidate("bad", {"compute_reward": Shaper(compute_reward, False)})


def actions(envs: ManagedEnvs, step: int, size: float) -> Tensor:
    """The same for every candidate, different for its environments, float32 [P, N, A]."""
    generator = torch.Generator().manual_seed(step)
    drawn = torch.randn(1, envs.N, envs.action_sizes[0], generator=generator)
    return size * drawn.repeat(envs.P, 1, 1)


def compare(task: str, steps: int, size: float) -> int:
    """Candidates 0 and 2 beside plain environments, with a bad candidate 1 between them -> episodes that ended."""
    envs = make_managed_envs(task, [Candidate("a"), late("raises"), Candidate("c")], N, KEYS)
    origins = envs.world.env.scene.env_origins
    plain = {
        (i, n): PlainEnvironment(task, KEYS[i], n, origins[i * N + n])
        for i, n in ((0, 0), (2, 1))  # each costs as much as all candidates together
    }
    obs = envs.begin(staggered=True)
    expected = {at: env.begin(KEYS[at[0]]) for at, env in plain.items()}
    for (_, n), env in plain.items():
        env.env.episode_length_buf[:] = n * envs.task.max_steps // N
    ended = 0
    for k in range(steps):
        for (i, n), groups in expected.items():
            torch.testing.assert_close(obs[i, n], groups["actor"][0], rtol=0, atol=1e-6)
        action = actions(envs, k, size)
        step = envs.step(action)
        for (i, n), env in plain.items():
            groups, reward, terminated, timed_out = env.step(action[i, n])
            where = f"step {k}, candidate {i}, environment {n}"
            assert bool(step.terminated[i, n]) == terminated, where
            assert bool(step.truncated[i, n]) == (timed_out and not terminated), where
            torch.testing.assert_close(step.reward[i, n : n + 1], reward, rtol=0, atol=1e-6, msg=where)
            torch.testing.assert_close(step.last_obs[i, n], groups["actor"][0], rtol=0, atol=1e-6)
            # not read by learners, but mjlab's; a reset anywhere makes mjlab compute it anew for all
            if "critic" in groups and not bool((step.terminated | step.truncated).any()):
                torch.testing.assert_close(
                    envs.world.env.obs_buf["critic"][i * N + n], groups["critic"][0], rtol=0, atol=1e-6
                )
            expected[i, n] = env.reset() if terminated or timed_out else groups
            ended += terminated or timed_out
        obs = step.obs
    assert set(envs.failures) == {1}
    return ended


@pytest.fixture
def one_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer than seven worlds on a CPU, mujoco_warp's solver sums in an order that depends on their number."""
    from mujoco_warp._src import solver

    monkeypatch.setattr(solver, "_jtdaj_groups_per_world", lambda nworld, njmax: 1)


@needs_mjlab
def test_candidates_have_the_environments_of_mjlab(one_order_of_sums: None) -> None:
    compare(CARTPOLE, 40, 1.0)


@needs_mjlab
@pytest.mark.slow
@pytest.mark.parametrize("task, size, least", [(CARTPOLE, 1.0, 1), (GO1, 2.0, 2), (G1, 2.0, 2), (LIFT, 1.0, 1)])
def test_candidates_have_the_environments_of_mjlab_for_520_steps(
    task: str, size: float, least: int, one_order_of_sums: None
) -> None:
    assert compare(task, 520, size) >= least, "no episode ended, so no reset was compared"


@needs_mjlab
@pytest.mark.parametrize("kind", ["raises", "nan", "shape", "changes"])
def test_a_bad_candidate_changes_no_bit_of_the_others(kind: str) -> None:
    runs = []
    for middle in (Candidate("b"), late(kind)):
        envs = make_managed_envs(CARTPOLE, [Candidate("a"), middle, Candidate("c")], N, KEYS)
        obs = envs.begin(staggered=True)
        found = [obs.clone()]
        for k in range(20):
            step = envs.step(actions(envs, k, 1.0))
            found += [
                step.obs.clone(),
                step.reward.clone()[..., None].expand_as(obs),
                step.score.clone()[..., None].expand_as(obs),
            ]
        runs.append(torch.stack([f.double() for f in found]))
        failed = set(envs.failures)
    assert failed == {1}
    assert torch.equal(runs[0][:, [0, 2]], runs[1][:, [0, 2]])
    assert not torch.equal(runs[0][:, 1], runs[1][:, 1])
