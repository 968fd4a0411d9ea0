"""ANYmal: the robot's figures, that it stands, walks and falls as it should, and every equation of the task."""

from __future__ import annotations

import math

import pytest
import torch

from envolve.envs.physics.anymal import BASE, DEFAULT_POSITION, SHANKS, THIGHS, Anymal
from envolve.envs.physics.task import Pose, Random, State
from envolve.envs.shaping.candidate import Candidate, Shaper
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import CONTACT_FORCE, make_simulator
from tests.envs.physics.shaped_by_the_task import make_envs, make_task, place

WEIGHT = 30.4754 * 9.81  # N


def standing_root(**changes: list[float]) -> torch.Tensor:
    root = torch.zeros(13, dtype=torch.float64)
    root[2], root[6] = 0.62, 1.0
    at = {"position": 0, "quaternion": 3, "linear": 7, "angular": 10}
    for name, values in changes.items():
        root[at[name] : at[name] + len(values)] = torch.tensor(values, dtype=torch.float64)
    return root


def test_the_robot_has_the_published_joints_bodies_and_mass() -> None:
    sim = make_task(Anymal, 1).sim
    legs = ("LF", "RF", "LH", "RH")
    assert sim.joints == tuple(f"{leg}_{joint}" for leg in legs for joint in ("HAA", "HFE", "KFE"))
    assert sim.actuators == sim.joints
    assert sim.effort_limit.tolist() == [80.0] * 12
    assert sim.timestep * Anymal.substeps == pytest.approx(0.02)
    assert sim.bodies[BASE] == "base"
    assert [sim.bodies[i] for i in THIGHS] == [f"{leg}_THIGH" for leg in legs]
    assert [sim.bodies[i] for i in SHANKS] == [f"{leg}_SHANK" for leg in legs]
    assert sim.model.body_mass.sum() == pytest.approx(WEIGHT / 9.81, rel=1e-4)


def test_with_action_zero_it_lands_and_stands_on_its_four_feet() -> None:
    envs = make_envs(Anymal, 16)
    envs.begin()
    action = torch.zeros(1, 16, 12)
    for _ in range(200):  # 4 s
        step = envs.step(action)
        assert not step.terminated.any()
    force = envs.task.sim.output(CONTACT_FORCE)
    assert torch.allclose(force.sum(1)[:, 2], torch.tensor(WEIGHT).double(), rtol=0.05)
    assert (force[:, list(SHANKS), 2] > 1).all(), "every foot carries"
    carried = [b for b in range(13) if b not in SHANKS]
    assert force[:, carried].abs().max() == 0, "nothing else touches the ground"
    assert envs.task.state["projected_gravity"][:, 2].max() < -0.95, "level"
    assert envs.task.state["base_lin_vel"].abs().max() < 0.3


def test_a_leg_in_the_air_settles_under_the_controller_although_torque_is_held_for_a_control_step() -> None:
    task = make_task(Anymal, 1)
    task.sim.set_property("gravity", torch.tensor([0]), torch.zeros(1, 3))
    place(task, standing_root(position=[0, 0, 5]), torch.tensor(DEFAULT_POSITION))
    target = torch.full((1, 12), 0.5)
    for _ in range(150):
        task.sim.set_effort(Anymal.compute_torque(target, task.state))
        task.sim.step(task.substeps)
        task.measure()
    assert torch.allclose(task.state["dof_pos"], 0.25 + torch.tensor(DEFAULT_POSITION), atol=1e-3)
    assert task.state["dof_vel"].abs().max() < 0.01


def test_full_torque_to_and_fro_does_not_make_the_simulation_diverge() -> None:
    task = make_task(Anymal, 32)
    place(task, standing_root(position=[0, 0, 0.48]), torch.tensor(DEFAULT_POSITION))
    generator = torch.Generator().manual_seed(0)
    for t in range(150):
        if t % 3 == 0:
            torque = 80 * torch.randn(32, 12, generator=generator).sign()
        task.sim.set_effort(torque)
        task.sim.step(task.substeps)
        assert not task.sim.unstable.any()
        assert task.sim.joint_velocity.abs().max() < 250  # rad/s


def trot(sign: float, seconds: float = 4.0) -> tuple[float, bool]:
    """An open-loop trot -> (mean forward velocity m/s over the second half, whether it fell)."""
    envs = make_envs(Anymal, 1)
    envs.begin()
    place(envs.task, standing_root(position=[0, 0, 0.48]), torch.tensor(DEFAULT_POSITION))
    velocity, steps, fell = 0.0, int(seconds / 0.02), False
    for t in range(steps):
        phase = 2 * math.pi * 1.25 * t * 0.02
        action = torch.zeros(4, 3)
        for leg, (fore, shift) in enumerate(((1, 0), (1, math.pi), (-1, math.pi), (-1, 0))):
            lift = max(0.0, math.sin(phase + shift))  # in the air in the first half of its period
            action[leg, 1] = sign * 0.4 * math.cos(phase + shift) + 0.6 * fore * lift
            action[leg, 2] = -1.2 * fore * lift
        fell |= bool(envs.step(action.view(1, 1, 12)).terminated.any())
        if t >= steps // 2:
            velocity += float(envs.task.state["base_lin_vel"][0, 0]) / (steps - steps // 2)
    return velocity, fell


def test_an_open_loop_trot_walks_forwards_and_its_reverse_backwards() -> None:
    forwards, fell = trot(1.0)
    backwards, fell_too = trot(-1.0)
    assert not fell and not fell_too
    assert forwards > 0.1 and backwards < -0.1


def test_velocities_and_gravity_are_measured_in_the_frame_of_the_base() -> None:
    task = make_task(Anymal, 1)
    half = math.sqrt(0.5)
    # Turned by 90 degrees to the left, moving along the world's y and turning left: forwards, as the robot sees it.
    place(task, standing_root(position=[0, 0, 5], quaternion=[0, 0, half, half], linear=[0, 1.5, 0], angular=[0, 0, 2]))
    assert torch.allclose(task.state["base_lin_vel"], torch.tensor([[1.5, 0, 0]]), atol=1e-6)
    assert torch.allclose(task.state["base_ang_vel"], torch.tensor([[0, 0, 2.0]]), atol=1e-6)
    assert torch.allclose(task.state["projected_gravity"], torch.tensor([[0, 0, -1.0]]), atol=1e-6)
    # Rolled onto its right side: down is to its right, which is -y; a world rotation about x stays one about x.
    place(task, standing_root(position=[0, 0, 5], quaternion=[half, 0, 0, half], linear=[0, 0, 1], angular=[3, 0, 0]))
    assert torch.allclose(task.state["projected_gravity"], torch.tensor([[0, -1.0, 0]]), atol=1e-6)
    assert torch.allclose(task.state["base_lin_vel"], torch.tensor([[0, 1.0, 0]]), atol=1e-6)
    assert torch.allclose(task.state["base_ang_vel"], torch.tensor([[3.0, 0, 0]]), atol=1e-6)


def test_a_robot_on_its_belly_or_its_knees_has_fallen_and_one_in_the_air_has_not() -> None:
    task = make_task(Anymal, 3)
    place(task, standing_root(position=[0, 0, 0.48]), torch.tensor(DEFAULT_POSITION))
    root = task.sim.root_state.clone()
    root[0, 0, 2] = 0.12  # the belly is 0.125 m below the base's frame
    root[1, 0, 2] = 0.30  # a thigh that hangs down reaches to 0.25 + 0.06 m below it
    root[2, 0, 2] = 1.0
    joints = torch.tensor(DEFAULT_POSITION).double().repeat(3, 1)
    joints[0] = torch.tensor([0, math.pi / 2, 0] * 2 + [0, -math.pi / 2, 0] * 2)  # legs stretched out
    joints[1] = torch.tensor([0, 0, -3.0] * 2 + [0, 0, 3.0] * 2)  # shanks folded up
    task.sim.set_state(torch.arange(3), root, joints, torch.zeros(3, 12).double())
    task.sim.step(task.substeps)
    task.measure()
    assert Anymal.compute_terminal(task.state).tolist() == [True, True, False]


def test_the_reward_is_that_of_isaacgymenvs() -> None:
    state = {
        "goal": torch.tensor([[1.0, -0.5, 0.3], [2.0, 1.0, 1.0]]),
        "base_lin_vel": torch.tensor([[0.8, -0.1, 9.0], [0.0, 0.0, 0.0]]),
        "base_ang_vel": torch.tensor([[9.0, 9.0, -0.1], [0.0, 0.0, 0.0]]),
        "torque": torch.tensor([[10.0] * 12, [60.0] * 12]),
    }
    reward, parts = Anymal.compute_reward(state)
    linear = math.exp(-(0.2**2 + 0.4**2) / 0.25) * 0.02
    yaw = 0.5 * math.exp(-(0.4**2) / 0.25) * 0.02
    torque = -2.5e-5 * 1200 * 0.02
    assert parts["linear"][0] == pytest.approx(linear) and parts["yaw"][0] == pytest.approx(yaw)
    assert parts["torque"][0] == pytest.approx(torque)
    assert reward[0] == pytest.approx(linear + yaw + torque)
    assert reward[1] == 0, "a sum below zero counts as zero"


def test_the_observation_has_48_numbers_in_isaacgymenvs_order_and_scale() -> None:
    task = make_task(Anymal, 1)
    place(task, standing_root(position=[0, 0, 5], linear=[1, 2, 3], angular=[4, 5, 6]), torch.arange(12) * 0.1)
    task.state["goal"][:] = torch.tensor([1.0, -1.0, 2.0])
    action = torch.linspace(-1, 1, 12).view(1, 12)
    obs = Anymal.compute_observation({**task.state, "action": action})[0]
    expected = [2, 4, 6, 1, 1.25, 1.5, 0, 0, -1, 2, -2, 0.5]
    expected += [0.1 * i - q for i, q in enumerate(DEFAULT_POSITION)] + [0.0] * 12 + action[0].tolist()
    assert obs.shape == (48,)
    assert torch.allclose(obs, torch.tensor(expected), atol=1e-5)


def test_torque_is_that_of_a_spring_and_a_damper_towards_the_action_within_the_limit() -> None:
    state = {
        "dof_pos": torch.tensor([[0.1] * 12]),
        "dof_vel": torch.tensor([[0.5] * 12]),
        "default_dof_pos": torch.tensor([DEFAULT_POSITION]),
    }
    torque = Anymal.compute_torque(torch.full((1, 12), 0.2), state)[0]
    assert torch.allclose(torque, 85 * (0.1 + torch.tensor(DEFAULT_POSITION) - 0.1) - 1.0)
    assert Anymal.compute_torque(torch.full((1, 12), 9.0), state).abs().max() == 80


def test_the_score_is_the_tracking_error_in_physical_units_and_no_change_of_the_state_moves_it() -> None:
    envs = make_envs(Anymal, 2)
    envs.begin()
    task = envs.task
    task.state["goal"][:] = torch.tensor([[1.0, 0.0, 0.5], [0.3, -0.4, 0.0]])
    place(task, standing_root(position=[0, 0, 5], linear=[1, 0, 0], angular=[0, 0, 0.5]))
    error = math.hypot(0.7, 0.4) + 0.5
    assert torch.allclose(task.score(), torch.tensor([0.0, -error]).double(), atol=1e-6)
    # After a fall the robot counts as standing still: |v*| + |w*|.
    assert torch.allclose(task.score_after_end(), torch.tensor([-1.5, -0.5]).double(), atol=1e-6)
    task.buffer.zero_()  # as a candidate might
    assert torch.allclose(task.score(), torch.tensor([0.0, -error]).double(), atol=1e-6)


def test_episodes_begin_near_the_standing_pose_with_commands_from_the_whole_range() -> None:
    envs = make_envs(Anymal, 512)
    envs.begin()
    state = envs.task.state
    ratio = state["dof_pos"] / torch.tensor(DEFAULT_POSITION)
    assert 0.5 <= ratio.min() < 0.51 and 1.49 < ratio.max() <= 1.5
    assert 0.09 < state["dof_vel"].abs().max() <= 0.1
    limits = torch.tensor([2.0, 1.0, 1.0])
    assert (state["commands"].abs() <= limits).all()
    assert (state["commands"].min(0).values < -0.95 * limits).all()
    assert (state["commands"].max(0).values > 0.95 * limits).all()
    assert torch.equal(state["commands"], state["goal"])


def test_every_part_of_the_state_is_described() -> None:
    task = make_task(Anymal, 1)
    assert set(task.state) == set(Anymal.described(12))
    assert all(q.meaning for q in Anymal.described(12).values())


def test_a_new_episodes_goal_has_both_its_names_when_its_pose_is_chosen() -> None:
    seen = []

    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        seen.append((state["goal"].clone(), state["commands"].clone()))
        return rest

    shaper = Candidate("mine", {"compute_initial_state": Shaper(compute_initial_state, False)})
    sim = make_simulator("mujoco", Anymal.model, 4, Anymal.outputs)
    envs = ShapedEnvs(Anymal(sim), [shaper], 0)
    envs.begin()
    assert not envs.failures and torch.equal(*seen[-1]) and seen[-1][0].abs().sum() > 0
    assert torch.equal(seen[-1][0], envs.task.state["goal"])
