"""MuJoCo on CPU threads against one mujoco.MjData per environment, separately compiled models, and laws of motion."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from envolve.envs.sim.mujoco_cpu import MuJoCoCPU
from envolve.envs.sim.rotations import from_wxyz, multiply, rotate
from envolve.envs.sim.simulator import (
    BODY_STATE,
    CONTACT_FORCE,
    ENGINES,
    FRICTION_SCALE,
    GRAVITY,
    MASS_SCALE,
    MODELS,
    SimulatorError,
    make_simulator,
)

CRAWLER = Path(__file__).parent / "crawler.xml"
CPU = torch.device("cpu")


def simulator(num_envs=4, outputs=(), threads=1, path=CRAWLER) -> MuJoCoCPU:
    return MuJoCoCPU(path, num_envs, outputs, threads, CPU)


def efforts(num_envs, steps, actuators=3, seed=0):
    """[steps, N, U]; environment i's depend on i alone."""
    rows = [torch.randn(steps, actuators, generator=torch.Generator().manual_seed(seed + i)) for i in range(num_envs)]
    return 8 * torch.stack(rows, 1)


def random_pose(sim, count, seed=0):
    g = torch.Generator().manual_seed(seed)
    root, joints, speed = (x.expand(count, *x.shape).clone() for x in sim.rest_state())
    root[..., :3] += 0.2 * torch.rand(root[..., :3].shape, generator=g, dtype=root.dtype)
    root[..., 3:7] = torch.randn(root[..., 3:7].shape, generator=g, dtype=root.dtype)
    root[..., 3:7] /= root[..., 3:7].norm(dim=-1, keepdim=True)
    root[..., 7:] = torch.randn(root[..., 7:].shape, generator=g, dtype=root.dtype)
    joints += 0.3 * torch.randn(joints.shape, generator=g, dtype=root.dtype)
    speed += torch.randn(speed.shape, generator=g, dtype=root.dtype)
    return root, joints, speed


def everything(sim):
    return [sim.root_state, sim.joint_position, sim.joint_velocity, sim.unstable, *map(sim.output, sim._outputs)]


def rollout(sim, effort, ids=None):
    """What an observer sees after every step, for environments ids."""
    ids, seen = slice(None) if ids is None else ids, []
    for u in effort:
        sim.set_effort(u)
        sim.step(2)
        seen.append([x[ids].clone() for x in everything(sim)])
    return seen


def assert_same(a, b):
    for step, (x, y) in enumerate(zip(a, b, strict=True)):
        for part, (u, v) in enumerate(zip(x, y, strict=True)):
            assert torch.equal(u, v), f"step {step}, part {part}: {u} {v}"


def test_names_are_the_models():
    sim = simulator()
    assert sim.free_bodies == ("torso", "ball")
    assert sim.joints == ("front_hip", "front_knee", "back_hip", "post_slide")
    assert sim.bodies == ("torso", "front", "body3", "back", "ball", "post")
    assert sim.actuators == ("back_hip", "front_hip", "post_slide")
    assert sim.effort_limit.tolist() == [20.0, 5.0, float("inf")]
    assert (sim.joints.index("back_hip"), sim.body_index("ball"), sim.timestep) == (2, 4, 0.005)


def test_two_threads_give_the_same_bits_as_one():
    outputs, u = (BODY_STATE, CONTACT_FORCE), efforts(9, 30)
    assert_same(rollout(simulator(9, outputs, 1), u), rollout(simulator(9, outputs, 2), u))


def test_an_environment_is_the_same_bits_in_a_batch_of_any_size():
    outputs, u = (BODY_STATE, CONTACT_FORCE), efforts(9, 30)
    assert_same(rollout(simulator(9, outputs), u, slice(0, 3)), rollout(simulator(3, outputs), u[:, :3]))
    assert_same(rollout(simulator(9, outputs), u, slice(7, 8)), rollout(simulator(1, outputs), u[:, 7:8]))


@pytest.mark.parametrize("path", [CRAWLER, *sorted(MODELS.glob("*.xml"))], ids=lambda p: p.stem)
def test_states_equal_a_loop_over_mujoco_data(path):
    sim, model = simulator(3, path=path), mujoco.MjModel.from_xml_path(str(path))
    u, gear = efforts(3, 20, model.nu), model.actuator_gear[:, :3].sum(1)  # along the joint, or a site's one axis
    data = [mujoco.MjData(model) for _ in range(3)]
    joints = [j for j in range(model.njnt) if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    for t in range(20):
        sim.set_effort(u[t])
        sim.step(2)
        for i, d in enumerate(data):
            d.ctrl[:] = u[t, i].double().clamp(-sim.effort_limit, sim.effort_limit).numpy() / gear
            mujoco.mj_step(model, d, 2)
            assert np.array_equal(sim.joint_position[i], d.qpos[model.jnt_qposadr[joints]])
            assert np.array_equal(sim.joint_velocity[i], d.qvel[model.jnt_dofadr[joints]])
            for a, name in enumerate(sim.free_bodies):
                free = d.joint(model.body(name).jntadr[0])
                assert np.array_equal(sim.root_state[i, a, :3], free.qpos[:3])
                assert np.array_equal(sim.root_state[i, a, 3:7], free.qpos[[4, 5, 6, 3]])
                assert np.array_equal(sim.root_state[i, a, 7:10], free.qvel[:3])


def test_a_state_that_is_set_is_the_state_that_is_read():
    sim = simulator(6, (BODY_STATE,))
    rollout(sim, efforts(6, 5))
    untouched = [x[[0, 4]].clone() for x in everything(sim)]
    ids, pose = torch.tensor([5, 1, 3, 2]), random_pose(sim, 4)
    sim.set_state(ids, *pose)
    for found, put in zip((sim.root_state, sim.joint_position, sim.joint_velocity), pose, strict=True):
        torch.testing.assert_close(found[ids], put, rtol=0, atol=1e-12)
    torch.testing.assert_close(sim.output(BODY_STATE)[ids][:, [0, 4]], pose[0], rtol=0, atol=1e-12)
    assert_same([untouched], [[x[[0, 4]] for x in everything(sim)]])


def test_what_follows_a_set_state_does_not_depend_on_what_came_before():
    pose = random_pose(simulator(), 2)
    seen = []
    for steps in (0, 7):
        sim = simulator(4, (BODY_STATE, CONTACT_FORCE))
        rollout(sim, efforts(4, steps))
        sim.set_state(torch.tensor([3, 1]), *pose)
        sim.step(1)  # with no effort: the old one is gone
        seen.append([[x[[3, 1]].clone() for x in everything(sim)]])
    assert_same(*seen)


@pytest.mark.parametrize("path", [CRAWLER, MODELS / "cartpole.xml"], ids=lambda p: p.stem)
def test_a_state_may_be_set_from_the_simulators_own_tensors(path):
    sim = simulator(path=path)
    rollout(sim, efforts(4, 5, len(sim.actuators)))
    before = [x.clone() for x in (sim.root_state, sim.joint_position, sim.joint_velocity)]
    sim.set_state(torch.arange(4), sim.root_state, sim.joint_position, sim.joint_velocity)
    for x, y in zip(before, (sim.root_state, sim.joint_position, sim.joint_velocity), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


def test_setting_no_environments_changes_nothing():
    sim = simulator()
    rollout(sim, efforts(4, 3))
    before = [x.clone() for x in everything(sim)]
    sim.set_state(torch.tensor([], dtype=torch.int64), *(x[:0] for x in random_pose(sim, 1)))
    assert_same([before], [everything(sim)])


def test_the_rest_state_is_the_models_pose():
    sim = simulator()
    root, joints, speed = sim.rest_state()
    assert root[0].tolist() == [0, 0, 0.4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert root[1, :3].tolist() == [0, 0.6, 0.5]
    assert torch.equal(sim.root_state[2], root) and torch.equal(sim.joint_position[2], joints)
    assert not speed.any()


def test_angular_velocity_is_in_world_coordinates():
    """A body tumbling freely turns its attitude by omega dt from the left: q' = exp(omega dt / 2) q."""
    sim = simulator(1)
    root, joints, speed = random_pose(sim, 1, seed=3)
    root[:, 1, 2] = 5.0  # the ball, far above the floor; a sphere keeps its angular velocity
    sim.set_state(torch.tensor([0]), root, joints, speed)
    before = sim.root_state[0, 1].clone()
    sim.step(1)
    omega, dt = before[10:], sim.timestep
    axis, angle = omega / omega.norm(), omega.norm() * dt
    turn = torch.cat((axis * torch.sin(angle / 2), torch.cos(angle / 2)[None]))
    torch.testing.assert_close(sim.root_state[0, 1, 3:7], multiply(turn, before[3:7]), rtol=0, atol=1e-10)


def test_body_velocities_are_the_change_of_body_positions():
    sim = simulator(3, (BODY_STATE,))
    root, joints, speed = random_pose(sim, 3)
    root[..., 2] += 5.0
    sim.set_state(torch.arange(3), root, joints, speed)
    states = [sim.output(BODY_STATE).clone()]
    data, model = mujoco.MjData(sim.model), sim.model
    for i in range(3):  # the same pose a moment later, by MuJoCo's integrator of positions alone
        data.qpos[:], moment = sim.qpos[i], 1e-6
        mujoco.mj_integratePos(model, data.qpos, sim.qvel[i].numpy(), moment)
        mujoco.mj_kinematics(model, data)
        now = states[0][i]
        linear = (torch.from_numpy(data.xpos[1:]) - now[:, :3]) / moment
        torch.testing.assert_close(now[:, 7:10], linear, rtol=0, atol=1e-4)
        # q' = q + dt/2 (omega, 0) q
        later = from_wxyz(torch.from_numpy(data.xquat[1:].copy()))
        change = (later - now[:, 3:7]) / moment
        omega = torch.cat((now[:, 10:], torch.zeros(len(now), 1)), 1)
        torch.testing.assert_close(change, multiply(omega, now[:, 3:7]) / 2, rtol=0, atol=1e-4)


def test_the_contact_force_of_a_resting_ball_is_its_weight():
    sim = simulator(2, (CONTACT_FORCE,))
    root, joints, speed = (x.expand(2, *x.shape).clone() for x in sim.rest_state())
    root[:, 1, 2] = 0.1
    sim.set_property(MASS_SCALE, torch.tensor([1]), torch.tensor([3.0]))
    sim.set_state(torch.arange(2), root, joints, speed)
    sim.step(600)
    weight = sim.model.body("ball").mass[0] * 9.81
    force = sim.output(CONTACT_FORCE)[:, sim.body_index("ball")]
    torch.testing.assert_close(force[0], torch.tensor([0, 0, weight], dtype=torch.float64), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(force[1], torch.tensor([0, 0, 3 * weight], dtype=torch.float64), rtol=1e-3, atol=1e-3)


def test_contact_forces_of_a_standing_body_sum_to_its_weight():
    sim = simulator(1, (CONTACT_FORCE,))
    sim.step(1)
    assert not sim.output(CONTACT_FORCE).any()  # still in the air
    sim.step(2000)  # it has fallen over and lies still
    force = sim.output(CONTACT_FORCE)[0]
    weight = sim.model.body("torso").subtreemass[0] * 9.81
    torch.testing.assert_close(force[:4].sum(0)[2].item(), weight, rtol=1e-3, atol=0)


def broken_state(sim, what):
    root, joints, speed = (x[None].clone() for x in sim.rest_state())
    if what == "position":
        root[0, 0, 2] = float("nan")
    elif what == "velocity":
        speed[0, 1] = 1e30
    return root, joints, speed


@pytest.mark.parametrize("what", ["position", "velocity", "effort"])
def test_a_diverged_environment_is_unstable_and_the_others_do_not_notice(what):
    outputs, u, others = (BODY_STATE, CONTACT_FORCE), efforts(5, 12), [0, 1, 3, 4]
    healthy = rollout(simulator(5, outputs), u, others)
    sim = simulator(5, outputs, threads=2)
    seen = rollout(sim, u[:4], others)
    broken = u[4:].clone()
    if what == "effort":
        broken[0, 2, 1] = float("nan")
    else:
        sim.set_state(torch.tensor([2]), *broken_state(sim, what))
    seen += rollout(sim, broken[:1], others)
    assert sim.unstable.tolist() == [False, False, True, False, False]
    sim.set_state(torch.tensor([2]), *(x[None] for x in sim.rest_state()))
    assert not sim.unstable.any()
    seen += rollout(sim, broken[1:], others)
    assert_same(healthy, seen)
    assert not sim.unstable.any() and sim.root_state.isfinite().all()


def test_an_environment_stays_unstable_until_its_state_is_set():
    sim = simulator(2)
    sim.qvel[0, 3] = 1e30
    for _ in range(3):  # MuJoCo goes on from the model's pose, which nobody asked for
        sim.step(3)
        assert sim.unstable.tolist() == [True, False]
    sim.set_state(torch.tensor([0]), *(x[None] for x in sim.rest_state()))
    assert not sim.unstable.any()


def test_every_divergence_counts_not_only_the_first():
    sim = simulator(2)
    for _ in range(3):
        sim.set_state(torch.tensor([0]), *(x[None] for x in sim.rest_state()))
        sim.qvel[0, 3] = 1e30
        assert not sim.unstable.any()
        sim.step(2)
        assert sim.unstable.tolist() == [True, False]


@pytest.mark.parametrize("what", ["position", "velocity"])
def test_a_state_that_is_not_finite_is_unstable_at_once(what):
    sim = simulator(2)
    for _ in range(2):
        sim.set_state(torch.tensor([1]), *broken_state(sim, what))
        assert sim.unstable.tolist() == [False, True]
        sim.step(1)
        assert sim.unstable.tolist() == [False, True]


def test_a_divergence_writes_nothing_to_the_terminal_or_to_a_file(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    sim = simulator(1)
    sim.qvel[0, 3] = 1e30
    sim.step(1)
    assert sim.unstable.all()
    out, err = capfd.readouterr()
    assert not out and not err and not list(tmp_path.iterdir())


def compiled_with(change):
    spec = mujoco.MjSpec.from_file(str(CRAWLER))
    model = spec.compile()
    change(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def scale_mass(model):
    model.body_mass[:] *= 2.5
    model.body_inertia[:] *= 2.5


def scale_friction(model):
    model.geom_friction[:] *= 0.1


def turn_gravity(model):
    model.opt.gravity[:] = (1.0, 0.5, -3.7)


PROPERTY_CASES = {
    MASS_SCALE: (2.5, scale_mass),
    FRICTION_SCALE: (0.1, scale_friction),
    GRAVITY: ([1.0, 0.5, -3.7], turn_gravity),
}


@pytest.mark.parametrize("name", PROPERTY_CASES)
def test_a_property_is_that_of_a_model_compiled_with_it(name):
    value, change = PROPERTY_CASES[name]
    sim, ids, u = simulator(5), torch.tensor([4, 1]), efforts(1, 80)
    sim.set_property(name, ids, torch.tensor([value, value], dtype=torch.float64))
    models = {0: compiled_with(lambda model: None), 1: compiled_with(change)}
    data = {i: mujoco.MjData(model) for i, model in models.items()}
    for t in range(80):
        sim.set_effort(u[t].expand(5, 3))
        sim.step(1)
        for i, model in models.items():
            data[i].ctrl[:] = u[t, 0].double().clamp(-sim.effort_limit, sim.effort_limit).numpy() / [20, 10, 2]
            mujoco.mj_step(model, data[i])
    for i, changed in enumerate([0, 1, 0, 0, 1]):
        np.testing.assert_array_equal(sim.qpos[i], data[changed].qpos)
    assert not np.array_equal(data[0].qpos, data[1].qpos)


def test_values_of_a_property_go_to_the_environments_named_in_any_order():
    sim = simulator(4)
    sim.set_property(GRAVITY, torch.tensor([3, 0, 2]), torch.tensor([[0.0, 0, -3], [0, 0, 0], [0, 0, -2]]))
    sim.step(1)
    torch.testing.assert_close(
        sim.root_state[:, 1, 9] / sim.timestep, torch.tensor([0, -9.81, -2, -3], dtype=torch.float64)
    )


def test_a_property_may_be_set_in_the_middle_of_an_episode_without_moving_it():
    sim, twin = simulator(3, threads=2), simulator(3)
    u = efforts(3, 10)
    assert_same(rollout(sim, u), rollout(twin, u))
    sim.set_property(MASS_SCALE, torch.tensor([1]), torch.tensor([4.0]))
    assert torch.equal(sim.qpos, twin.qpos) and torch.equal(sim.qvel, twin.qvel)
    assert_same(rollout(sim, u, [0, 2]), rollout(twin, u, [0, 2]))
    assert not torch.equal(sim.qpos[1], twin.qpos[1])


def test_efforts_are_clipped_and_divided_by_the_gear():
    sim = simulator(1)
    sim.set_effort(torch.tensor([[100.0, -3.0, 7.0]]))
    torch.testing.assert_close(sim.ctrl[0], torch.tensor([1.0, -0.3, 3.5], dtype=torch.float64))


def test_an_engines_own_field_can_be_read():
    sim = simulator(2, ("subtree_com", "qfrc_actuator"))
    sim.step(1)
    data = mujoco.MjData(sim.model)
    mujoco.mj_step(sim.model, data)
    assert np.array_equal(sim.output("subtree_com")[1], data.subtree_com)
    with pytest.raises(SimulatorError, match="'xpos' was not asked for"):
        sim.output("xpos")


def test_unknown_names_are_errors():
    with pytest.raises(SimulatorError, match="expected one of mujoco, mujoco_warp, isaacgym"):
        make_simulator("bullet", "cartpole.xml", 1)
    with pytest.raises(SimulatorError, match="mass_scale, friction_scale, gravity"):
        simulator().set_property("colour", torch.tensor([0]), torch.tensor([1.0]))
    with pytest.raises(SimulatorError, match="choose engine mujoco_warp"):
        MuJoCoCPU(CRAWLER, 1, (), 1, torch.device("cuda"))
    assert make_simulator("mujoco", "cartpole.xml", 2).joint_position.shape == (2, 2)
    assert set(ENGINES) == {"mujoco", "mujoco_warp", "isaacgym"}


def test_a_ball_joint_is_an_error_that_names_it(tmp_path):
    (tmp_path / "m.xml").write_text(
        '<mujoco><worldbody><body><joint name="hip" type="ball"/><geom size="0.1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(SimulatorError, match="joints hip: only free joints"):
        simulator(path=tmp_path / "m.xml")


@pytest.mark.filterwarnings("ignore::glfw.GLFWError")
def test_a_picture_is_of_its_own_environment():
    sim = simulator(2)
    root, joints, speed = (x[None].clone() for x in sim.rest_state())
    try:
        first = sim.render(0, 64, 48)
    except SimulatorError as e:
        pytest.skip(str(e))
    assert first.shape == (48, 64, 3) and first.dtype == np.uint8 and first.std() > 1
    joints[0, 0] += 0.9
    sim.set_state(torch.tensor([1]), root, joints, speed)
    assert not np.array_equal(sim.render(1, 64, 48), first)
    sim.close()


def test_body_velocity_points_where_the_body_turns():
    """The velocity of a leg's tip seen from its hip is omega x arm."""
    sim = simulator(1, (BODY_STATE,))
    root, joints, speed = (x[None].clone() for x in sim.rest_state())
    root[..., 2] += 5.0
    speed[0, 0] = 2.0
    sim.set_state(torch.tensor([0]), root, joints, speed)
    state = sim.output(BODY_STATE)[0]
    arm = rotate(state[1, 3:7], torch.tensor([0.1, 0.0, -0.2], dtype=torch.float64))
    omega = torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(state[1, 10:], omega)
    torch.testing.assert_close(state[2, 7:10], torch.linalg.cross(omega, arm))
