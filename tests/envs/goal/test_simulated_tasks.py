"""What all goal tasks in a physics engine have in common, against the table of the published ones."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.simulated import SimulatedEpisodes, SimulatedTask
from envolve.envs.goal.task import Beginnings, Random, make_goal_task
from tests.envs.goal.plain_loop import follow, model_of

TABLE: dict[str, tuple[int, tuple[int, ...], int, float, float]] = {
    # name: state, goal indices, actions, m near enough, s of a decision
    "ant": (29, (0, 1), 8, 0.5, 0.05),
    "ant_u_maze": (29, (0, 1), 8, 0.5, 0.05),
    "ant_big_maze": (29, (0, 1), 8, 0.5, 0.05),
    "ant_hardest_maze": (29, (0, 1), 8, 0.5, 0.05),
    "ant_u_maze_eval": (29, (0, 1), 8, 0.5, 0.05),
    "ant_big_maze_eval": (29, (0, 1), 8, 0.5, 0.05),
    "ant_random_start": (29, (0, 1), 8, 0.5, 0.05),
    "ant_ball": (31, (29, 30), 8, 0.5, 0.05),
    "ant_push": (31, (0, 1), 8, 0.5, 0.05),
    "cheetah": (18, (0,), 6, 0.5, 0.05),
    "pusher_easy": (20, (10, 11, 12), 7, 0.1, 0.05),
    "pusher_hard": (20, (10, 11, 12), 7, 0.1, 0.05),
    # the published 268 without what tells the target: 2 positions, 2 velocities, 10 + 6 of its body, 2 torques
    "arm_reach": (13, (7, 8, 9), 4, 0.1, 0.05),
    "humanoid": (268 - 22, (0, 1, 2), 17, 0.5, 0.015),
}


def expected_features(task: SimulatedTask, data: Any) -> np.ndarray:
    """From MuJoCo's own fields, after a decision."""
    q, v, model = data.qpos, data.qvel, model_of(task)
    now = mujoco.MjData(model)  # MuJoCo itself leaves positions as they were before its last step
    now.qpos[:] = q
    mujoco.mj_kinematics(model, now)
    if task.name.startswith("pusher"):
        return np.concatenate((q[:7], data.body("tips_arm").xpos, now.body("object").xpos, v[:7]))
    if task.name in ("ant_ball", "ant_push"):
        return np.concatenate((q[:15], v[:14], now.body("object").xpos[:2]))
    if task.name == "arm_reach":
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, model.body("link7").id, velocity, 0)
        return np.concatenate((q, data.body("link7").xpos, velocity[3:]))
    if task.name == "humanoid":
        return np.concatenate((q, v, links_of_humanoid(data), data.qfrc_actuator))
    return np.concatenate((q, v))


def links_of_humanoid(data: Any) -> np.ndarray:
    """Inertias, then velocities: the feet are one with the shins."""
    names = [f"{side}_{part}" for side in ("right", "left") for part in ("thigh", "shin")]
    names = [
        "torso",
        "lwaist",
        "pelvis",
        *names,
        "right_upper_arm",
        "right_lower_arm",
        "left_upper_arm",
        "left_lower_arm",
    ]
    inertia = [data.body(n).cinert + (data.body(n[:-4] + "foot").cinert if "shin" in n else 0) for n in names]
    return np.concatenate((*inertia, *(data.body(n).cvel for n in names)))


class AtGoal(Beginnings):
    """The goal is what the first features achieve, so that an episode begins where it should end."""

    def __init__(self, task: SimulatedTask, away: float) -> None:
        """away: m, from there to the goal."""
        self.task, self.away = task, away

    def start(self, random: Random, members: torch.Tensor) -> torch.Tensor:
        return self.task.start(random, members)

    def goal(self, random: Random, start: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
        K = len(start)
        sim = SimulatedEpisodes(self.task, torch.arange(1), K).sim
        sim.set_state(torch.arange(K), *self.task.place(start.double(), sim))
        goal = self.task.achieved(self.task.measure(sim).float())
        goal[:, 0] += self.away
        return goal


def random_actions(seed: int, *shape: int) -> torch.Tensor:
    return 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) - 1


def episodes_of(name: str, P: int, N: int, **options: Any) -> SimulatedEpisodes:
    episodes = make_episodes(make_goal_task(name), torch.arange(P) + 3, N, **options)
    assert isinstance(episodes, SimulatedEpisodes)
    return episodes


@pytest.mark.parametrize("name", TABLE)
def test_sizes_and_thresholds_are_the_published_ones(name: str) -> None:
    task, e = make_goal_task(name), episodes_of(name, 1, 2)
    state, indices, actions, threshold, dt = TABLE[name]
    assert (task.state_size, task.goal_indices, task.action_size) == (state, indices, actions)
    assert task.threshold == threshold
    assert task.name == name and task.episode_length == (100 if name == "arm_reach" else 1000) and task.dt == dt
    assert e.sim.timestep * e.task.substeps == pytest.approx(dt)
    assert e.features.shape == (1, 2, state) and e.goal.shape == (1, 2, len(indices))
    assert len(e.sim.actuators) == actions or name == "arm_reach"


@pytest.mark.parametrize("name", TABLE)
def test_dynamics_are_mujocos_bit_for_bit(name: str) -> None:
    e = episodes_of(name, 1, 2)
    copies = follow(e, random_actions(0, 12, 1, 2, e.task.action_size))
    for i, data in enumerate(copies):
        np.testing.assert_allclose(e.features[0, i], expected_features(e.task, data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TABLE)
def test_goals_are_drawn_at_every_reset_or_as_published_once(name: str) -> None:
    if name == "cheetah":
        pytest.skip("its goal is always the same")
    for resample in ("reset", "fixed"):
        e, goals = episodes_of(name, 1, 20, resample=resample, episode_length=1), []
        for _ in range(4):
            goals.append(e.goal[0].clone())
            e.step(torch.zeros(1, 20, e.task.action_size))
        same = [torch.equal(goals[0], g) for g in goals[1:]]
        assert same == [True] * 3 if resample == "fixed" else not any(same)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("away", [0.0, 0.9, 1.1])
def test_success_where_the_goal_is(name: str, away: float) -> None:
    """away: as a part of the threshold."""
    task = make_goal_task(name)
    assert isinstance(task, SimulatedTask)
    e = episodes_of(name, 1, 3, beginnings=AtGoal(task, away * task.threshold))
    assert torch.equal(task.success(e.features, e.goal), torch.full((1, 3), away < 1))
    if away == 0:  # a moment later it is still there
        assert e.advance(torch.zeros(1, 3, task.action_size)).success.all()


@pytest.mark.parametrize("name", TABLE)
def test_stored_and_going_on_bit_by_bit(name: str) -> None:
    e = episodes_of(name, 2, 2, episode_length=15)
    actions = random_actions(1, 24, 2, 2, e.task.action_size)
    for action in actions[:10]:
        e.step(action)
    other = episodes_of(name, 2, 2, episode_length=15)
    other.load_state_dict(e.state_dict())
    assert torch.equal(e.features, other.features) and torch.equal(e.goal, other.goal)
    for action in actions[10:]:
        a, b = e.step(action), other.step(action)
        assert all(torch.equal(x, y) for x, y in zip(a, b)) and torch.equal(e.goal, other.goal)
