"""The hand that turns a cube: IsaacGymEnvs' reward and observation in float64, targets in turn, progress."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from envolve.envs.physics.allegro_hand import CURLED, HIGHEST, LOWEST, PALM, TARGETS, AllegroHand
from tests.envs.physics.shaped_by_the_task import make_envs, make_task


def about(axis: int, angle: float) -> list[float]:
    """The quaternion (x, y, z, w) of a turn about one axis."""
    q = [0.0, 0.0, 0.0, math.cos(angle / 2)]
    q[axis] = math.sin(angle / 2)
    return q


def put(task: AllegroHand, position: tuple[float, ...], rotation: list[float]) -> None:
    """The cube here and at rest, the fingers curled, and measured; the targets stay."""
    root = task.rest.root_state.clone()
    root[0, :3], root[0, 3:7] = torch.tensor(position), torch.tensor(rotation)
    ids = torch.arange(task.num_envs)
    joints = torch.tensor(CURLED, dtype=torch.float64)
    many = [x.double().expand(task.num_envs, *x.shape) for x in (root, joints, torch.zeros(16))]
    task.sim.set_state(ids, *many)
    task.measure()


def made(targets: list[list[float]]) -> AllegroHand:
    task = make_task(AllegroHand, 1)
    task.state["goal"].copy_(torch.tensor((targets * TARGETS)[:TARGETS]).flatten())
    task.state["action"] = torch.zeros(1, 16)  # as the environments set it
    put(task, PALM, about(0, 0.0))
    task.after_reset(torch.arange(1))
    return task


def matrix(q: np.ndarray) -> np.ndarray:
    x, y, z, w = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_reward_is_isaacgymenvs() -> None:
    task = made([about(2, 1.0)])
    for position, rotation in ((PALM, about(0, 0.7)), ((0.05, 0.02, 0.6), about(1, -2.0)), (PALM, about(2, 0.95))):
        put(task, position, rotation)
        task.state["action"] = torch.linspace(-1, 1, 16)[None]
        reward, components = AllegroHand.compute_reward(task.state)
        # the angle of R R_target^T by its trace: another way than the quaternions'
        turned = matrix(np.array(rotation)) @ matrix(np.array(about(2, 1.0))).T
        angle = math.acos(np.clip((np.trace(turned) - 1) / 2, -1, 1))
        distance = np.linalg.norm(np.array(position) - np.array(PALM))
        expected = -10 * distance + 1 / (angle + 0.1) - 0.0002 * float(np.square(np.linspace(-1, 1, 16)).sum())
        expected += 250.0 if angle <= 0.1 else 0.0
        assert abs(float(reward) - expected) < 1e-3 * max(1, abs(expected))
        assert abs(float(sum(components.values())) - float(reward)) < 1e-4


def test_the_observation_has_isaacgymenvs_88_numbers_in_its_order() -> None:
    task = made([about(2, 1.0)])
    put(task, (0.01, 0.02, 0.57), about(0, 0.3))
    task.state["action"] = torch.full((1, 16), 0.25)
    seen = AllegroHand.compute_observation(task.state)[0]
    lowest, highest, curled = (np.array(x) for x in (LOWEST, HIGHEST, CURLED))
    assert len(seen) == 88
    assert np.allclose(seen[:16], (2 * curled - lowest - highest) / (highest - lowest), atol=1e-6)
    assert np.allclose(seen[48:55], [0.01, 0.02, 0.57, *about(0, 0.3)], atol=1e-6)
    assert np.allclose(seen[61:68], [*PALM, *about(2, 1.0)], atol=1e-6)
    left = matrix(seen[68:72].double().numpy())
    assert np.allclose(left, matrix(np.array(about(0, 0.3))) @ matrix(np.array(about(2, 1.0))).T, atol=1e-6)
    assert (seen[72:] == 0.25).all()


def test_a_target_that_is_reached_gives_way_to_the_next_and_progress_counts_no_change_of_target() -> None:
    task = made([about(2, 1.0), about(2, -1.0)])

    def step(rotation: list[float]) -> float:
        task.before_step()
        put(task, PALM, rotation)
        task.after_step()
        return float(task.score()) / AllegroHand.max_steps

    assert abs(step(about(2, 0.5)) - 0.5) < 1e-6
    assert abs(step(about(2, 0.3)) + 0.2) < 1e-6  # back
    assert abs(step(about(2, 0.95)) - 0.65) < 1e-6  # reached: within 0.1 rad
    assert float(task.state["targets_reached"]) == 0  # the reward of this step still sees the target that was reached
    assert float(AllegroHand.compute_reward(task.state)[1]["reached"]) == 250.0
    assert abs(step(about(2, 0.95))) < 1e-6  # the cube rests, the target is another one
    assert float(task.state["targets_reached"]) == 1
    assert np.allclose(task.state["target_rotation"][0], about(2, -1.0), atol=1e-6)
    assert abs(step(about(2, 0.0)) - 0.95) < 1e-6
    score = task.score()
    task.buffer.zero_()  # as a candidate might
    assert torch.equal(task.score(), score)


def test_a_new_episode_begins_with_its_first_target_and_no_progress() -> None:
    envs = make_envs(AllegroHand, 8)
    envs.begin()
    task = envs.task
    assert isinstance(task, AllegroHand)
    task.count += 3
    task.after_reset(torch.tensor([2, 5]))
    assert task.count.tolist() == [3, 3, 0, 3, 3, 0, 3, 3]
    first = task.state["goal"].view(8, TARGETS, 4)
    assert torch.equal(task.state["target_rotation"][[2, 5]], first[[2, 5], 0])
    assert torch.allclose(first.norm(dim=2), torch.ones(8, TARGETS), atol=1e-6)


def test_it_ends_when_the_cube_has_left_the_hand() -> None:
    task = made([about(2, 1.0)])
    for height, left in ((0.5, False), (0.32, False), (0.3, True)):
        put(task, (0.0, 0.0, height), about(0, 0.0))
        assert bool(AllegroHand.compute_terminal(task.state)) == left


def played(action: Tensor, n: int = 32, steps: int = 150) -> tuple[Tensor, Tensor]:
    """-> who still holds the cube [n], the cubes' speed [n]."""
    envs = make_envs(AllegroHand, n)
    envs.begin(evaluation=True)
    held = torch.ones(n, dtype=torch.bool)
    for _ in range(steps):
        held &= ~envs.step(action.expand(1, n, 16)).terminated[0]
    return held, envs.task.state["object_velocity"].norm(dim=1)


def test_a_hand_that_does_nothing_holds_nearly_every_cube() -> None:
    held, speed = played(torch.zeros(16))
    assert held.float().mean() > 0.85 and speed[held].median() < 0.01
    torque = AllegroHand.compute_torque(torch.ones(1, 16), {"joint_position": torch.zeros(1, 16)})
    assert torch.allclose(torque, 3 * torch.tensor([HIGHEST]))


def test_episodes_begin_above_the_palm_turned_anyhow() -> None:
    envs = make_envs(AllegroHand, 512)
    envs.begin()
    state = envs.task.state
    off = state["object_position"] - torch.tensor(PALM) - torch.tensor([0, 0, 0.03])
    assert 0.009 < off.abs().max() <= 0.01 + 1e-6
    angle = 2 * torch.acos(state["object_rotation"][:, 3].abs().clamp(max=1))
    assert angle.min() < 0.5 and angle.max() > 3.0
    low, high = torch.tensor(LOWEST), torch.tensor(HIGHEST)
    assert ((state["joint_position"] >= low - 1e-6) & (state["joint_position"] <= high + 1e-6)).all()
