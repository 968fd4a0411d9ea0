"""The arm that stacks: its Jacobian, its reward beside IsaacGymEnvs' formula in float64, and that it can be done."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from envolve.envs.physics.franka_cube_stack import ARM, NEAREST, FrankaCubeStack
from envolve.envs.physics.task import PhysicsTask
from envolve.envs.sim.rotations import conjugate, multiply, yaw
from tests.envs.physics.shaped_by_the_task import make_envs, make_task


def place(task: PhysicsTask, joints: Tensor, a: tuple[float, ...], b: tuple[float, ...]) -> None:
    """The arm in this pose [9], and the middles of the cubes at a and b."""
    root = task.rest.root_state.clone()
    root[0, :3], root[1, :3] = torch.tensor(a), torch.tensor(b)
    ids = torch.arange(task.num_envs)
    many = [x.double().expand(task.num_envs, *x.shape) for x in (root, joints, torch.zeros(9))]
    task.sim.set_state(ids, *many)
    task.measure()
    task.after_reset(ids)


def pose(finger: float = 0.035) -> Tensor:
    return torch.tensor([*ARM, finger, finger], dtype=torch.float64)


def test_at_rest_the_hand_points_down_and_its_fingers_open_along_its_y() -> None:
    task = make_task(FrankaCubeStack, 1)
    place(task, pose(), (0.2, 0.2, 0.025), (-0.2, 0.2, 0.035))
    state = task.state
    apart = (state["left_finger_position"] - state["right_finger_position"])[0]
    assert abs(float(apart.norm()) - 0.07) < 1e-6
    x, y, z, w = state["hand_rotation"][0].double()
    of_y = torch.stack((2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)))
    assert torch.allclose(of_y * 0.07, apart.double(), atol=1e-6)
    assert 0.1 < state["hand_position"][0, 2] < 0.3  # above the table, in front of the stand
    assert abs(float(state["hand_position"][0, 1])) < 1e-6


def test_the_jacobian_is_that_of_finite_differences() -> None:
    task, step = make_task(FrankaCubeStack, 1), 1e-6
    generator = torch.Generator().manual_seed(0)
    joints = pose()
    joints[:7] += 0.3 * torch.randn(7, generator=generator, dtype=torch.float64)
    place(task, joints, (0.3, 0.3, 0.025), (-0.2, 0.3, 0.035))
    jacobian = task.state["jacobian"][0].double().clone()
    at = task.sim.output("body_state")[0, task.hand, :7].clone()
    for i in range(7):
        moved = joints.clone()
        moved[i] += step
        place(task, moved, (0.3, 0.3, 0.025), (-0.2, 0.3, 0.035))
        now = task.sim.output("body_state")[0, task.hand, :7]
        turn = 2 * multiply(now[None, 3:], conjugate(at[None, 3:]))[0, :3]
        expected = torch.cat((now[:3] - at[:3], turn)) / step
        assert torch.allclose(jacobian[:, i], expected, atol=2e-5), i


def isaac(a: np.ndarray, b: np.ndarray, hand: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[float, bool]:
    """compute_franka_reward of IsaacGymEnvs for one environment, table at 0 -> reward, stacked."""
    d = np.linalg.norm(a - hand)
    dist = 1 - np.tanh(10 * (d + np.linalg.norm(a - left) + np.linalg.norm(a - right)) / 3)
    lifted = float(a[2] - 0.05 > 0.04)
    align = (1 - np.tanh(10 * np.linalg.norm(b - a + np.array([0, 0, 0.06])))) * lifted
    on = abs(a[2] - (0.07 + 0.025)) < 0.02
    stacked = np.linalg.norm((b - a)[:2]) < 0.02 and on and d > 0.04
    return (16.0 if stacked else 0.1 * max(dist, align) + 1.5 * lifted + 2.0 * align), bool(stacked)


def test_reward_end_and_score_are_what_the_task_says() -> None:
    task = make_task(FrankaCubeStack, 1)
    b = (0.1, 0.15, 0.035)
    cases = {
        "on the table": ((0.05, -0.1, 0.025), False),
        "lifted": ((0.05, -0.1, 0.2), False),
        "beside its place": ((0.13, 0.15, 0.095), False),
        "stacked": ((0.11, 0.15, 0.095), True),
    }
    for name, (a, stacked) in cases.items():
        place(task, pose(), a, b)
        state = {k: v[0].double().numpy() for k, v in task.state.items()}
        fingers = state["left_finger_position"], state["right_finger_position"]
        reward, by_the_twin = isaac(np.array(a), np.array(b), state["hand_position"], *fingers)
        found, components = FrankaCubeStack.compute_reward(task.state)
        assert by_the_twin == stacked, name
        assert abs(float(found) - reward) < 1e-5, name
        assert set(components) == {"reach", "lift", "align", "stack"}
        assert bool(FrankaCubeStack.compute_terminal(task.state)) == stacked
        place_of_a = np.array(b) + np.array([0, 0, 0.06])
        near = 0.5 * (1 - np.tanh(5 * np.linalg.norm(np.array(a) - place_of_a)))
        score = task.score()
        assert abs(float(score) - (1.0 if stacked else near)) < 1e-6, name
        assert float(task.score_after_end()) == float(stacked)
        task.buffer.zero_()  # as a candidate might
        assert torch.equal(task.score(), score)


def test_a_cube_in_the_hand_is_not_a_stack() -> None:
    task = make_task(FrankaCubeStack, 1)
    place(task, pose(), (0.3, 0.3, 0.025), (0.3, -0.3, 0.035))
    hand = task.state["hand_position"][0].double()
    x, y, z = hand.tolist()
    place(task, pose(), (x, y, z), (x, y, z - 0.06))
    assert not FrankaCubeStack.compute_terminal(task.state).any()


def test_the_observation_is_isaacgymenvs_in_its_order() -> None:
    task = make_task(FrankaCubeStack, 1)
    place(task, pose(), (0.05, -0.1, 0.025), (0.1, 0.15, 0.035))
    seen = FrankaCubeStack.compute_observation(task.state)[0]
    assert len(seen) == 19
    assert torch.allclose(seen[:10], torch.tensor([0, 0, 0, 1, 0.05, -0.1, 0.025, 0.05, 0.25, 0.01]), atol=1e-6)
    assert torch.equal(seen[10:17], torch.cat((task.state["hand_position"][0], task.state["hand_rotation"][0])))
    assert torch.allclose(seen[17:], torch.tensor([0.035, 0.035]))


def test_episodes_begin_with_the_cubes_apart_and_within_their_range() -> None:
    envs = make_envs(FrankaCubeStack, 1024)
    envs.begin()
    state = envs.task.state
    a, b = state["cube_a_position"], state["cube_b_position"]
    apart = (a - b)[:, :2].norm(dim=1)
    assert apart.min() > NEAREST - 1e-6 and apart.max() > 0.4
    assert max(float(a[:, :2].abs().max()), float(b[:, :2].abs().max())) <= 0.25 + 1e-6
    assert torch.allclose(a[:, 2], torch.tensor(0.025)) and torch.allclose(b[:, 2], torch.tensor(0.035))
    turned = yaw(state["cube_a_rotation"])
    assert 0.7 < turned.abs().max() <= 0.785 + 1e-6
    off = state["joint_position"] - torch.tensor(ARM)
    assert 0.24 < off.abs().max() <= 0.25 + 1e-6


def test_an_arm_that_is_told_nothing_stays_where_it_is() -> None:
    envs = make_envs(FrankaCubeStack, 4)
    envs.begin()
    before = envs.task.state["hand_position"].clone()
    for _ in range(100):
        envs.step(torch.zeros(1, 4, 7))
    assert (envs.task.state["hand_position"] - before).norm(dim=1).max() < 2e-3


class Script:
    """Goes above cube A, down, closes, up, above cube B, down, opens, up: a step further when the last is done."""

    def __init__(self, n: int) -> None:
        self.phase, self.wait = torch.zeros(n, dtype=torch.int64), torch.zeros(n)

    def __call__(self, state: dict[str, Tensor]) -> Tensor:
        hand, a, b = state["hand_position"], state["cube_a_position"], state["cube_b_position"]
        up = torch.tensor([0.0, 0.0, 1.0])
        high = torch.cat((hand[:, :2], torch.full_like(hand[:, 2:], 0.2)), 1)
        over, onto = b + 0.12 * up, b + 0.0625 * up
        wanted = torch.stack((a + 0.12 * up, a, a, high, over, onto, onto, over + 0.05 * up), 1)
        error = wanted[torch.arange(len(a)), self.phase] - hand
        angle = yaw(state["cube_a_rotation"])
        zero = torch.zeros_like(angle)
        turned = torch.stack((zero, zero, torch.sin(angle / 2), torch.cos(angle / 2)), -1)
        left = multiply(turned, conjugate(state["hand_rotation"]))
        turn = 2 * left[:, :3] * left[:, 3:].sign()
        near, phase = error.norm(dim=1), self.phase
        there = (near < 0.008) & (turn.norm(dim=1) < 0.1)
        self.wait += 1
        done = torch.stack((there, there, self.wait > 12, hand[:, 2] > 0.17, near < 0.01, there, self.wait > 10), 1)
        done = torch.cat((done, torch.zeros(len(a), 1, dtype=torch.bool)), 1)[torch.arange(len(a)), phase]
        self.phase, self.wait = phase + done, torch.where(done, 0.0, self.wait)
        grip = torch.where((self.phase >= 2) & (self.phase <= 5), -1.0, 1.0)
        return torch.cat(((error * 15).clamp(-1, 1), (turn / 0.5).clamp(-1, 1), grip[:, None]), 1)


def test_a_script_stacks_most_cubes_and_an_idle_arm_none() -> None:
    n, stacked, scores = 32, {}, {}
    for name in ("script", "idle"):
        envs, script = make_envs(FrankaCubeStack, n), Script(n)
        envs.begin(evaluation=True)
        total, alive = torch.zeros(n).double(), torch.ones(n, dtype=torch.bool)
        for _ in range(FrankaCubeStack.max_steps - 1):
            action = script(envs.task.state) if name == "script" else torch.zeros(n, 7)
            step = envs.step(action[None])
            total += torch.where(alive, step.score[0], 1.0)  # only a stack ends an episode
            alive &= ~step.terminated[0]
        stacked[name], scores[name] = int((~alive).sum()), float(total.mean()) / FrankaCubeStack.max_steps
    assert stacked["script"] >= 0.7 * n and stacked["idle"] == 0
    assert scores["script"] > 0.2 > 0.1 > scores["idle"]
