"""mujoco_warp against MuJoCo itself, on the CPU in float32; on a GPU where there is one.

The first run compiles kernels for about a minute; they are kept in ~/.cache/warp.
"""

from __future__ import annotations

import mujoco
import pytest
import torch

import envolve.envs.physics  # noqa: F401  the tasks register themselves
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim import mujoco_cpu
from envolve.envs.sim.mujoco_cpu import MuJoCoCPU
from envolve.envs.sim.mujoco_model import load_model
from envolve.envs.sim.simulator import (
    BODY_STATE,
    CONTACT_FORCE,
    FRICTION_SCALE,
    GRAVITY,
    MASS_SCALE,
    MODELS,
    SimulatorError,
)
from tests.envs.sim.test_mujoco_cpu import CPU, CRAWLER, assert_same, broken_state, efforts, everything, rollout
from tests.envs.sim.test_mujoco_cpu import random_pose as any_pose

pytest.importorskip("mujoco_warp", reason="mujoco_warp is not installed: pip install mujoco-warp")
pytestmark = pytest.mark.slow  # kernels
from envolve.envs.sim import mujoco_warp  # noqa: E402
from envolve.envs.sim.mujoco_warp import MuJoCoWarp  # noqa: E402

OUTPUTS = (BODY_STATE, CONTACT_FORCE)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
BOXES = MODELS / "allegro_hand.xml"
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def simulator(num_envs=4, outputs=OUTPUTS, device="cpu", path=CRAWLER) -> MuJoCoWarp:
    return MuJoCoWarp(path, num_envs, outputs, 1, torch.device(device))


def random_pose(sim, count, seed=0):
    return tuple(x.to(sim.device) for x in any_pose(MuJoCoCPU(CRAWLER, 1, (), 1, CPU), count, seed))


def copy_state(source, target):
    pose = source.root_state, source.joint_position, source.joint_velocity
    target.set_state(torch.arange(source.num_envs, device=target.device), *(x.to(target.device) for x in pose))


def steps_of_both(twin, sim):
    """Forty control steps of four environments, from the twin's state each time: contacts amplify roundings."""
    for u in efforts(4, 40, len(sim.actuators)):
        copy_state(twin, sim)
        copy_state(twin, twin)
        for engine in (sim, twin):
            engine.set_effort(u.to(engine.device))
            engine.step(2)
        yield


def assert_close(found, expected, **tolerance):
    torch.testing.assert_close(found.cpu().double(), expected, **tolerance)


CONES = {  # the engines lay the axes of the friction pyramid differently under a steep capsule; a cone has no axes
    mujoco.mjtCone.mjCONE_ELLIPTIC: 1,
    mujoco.mjtCone.mjCONE_PYRAMIDAL: 100,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cone", CONES, ids=["elliptic", "pyramidal"])
@pytest.mark.parametrize(
    "path", [CRAWLER, *(p for p in sorted(MODELS.glob("*.xml")) if p != BOXES)], ids=lambda p: p.stem
)
def test_every_step_is_mujocos_in_float32(path, cone, device, monkeypatch):
    def with_cone(*args):
        model = load_model(*args)
        model.opt.cone = cone
        return model

    monkeypatch.setattr(mujoco_cpu, "load_model", with_cone)
    monkeypatch.setattr(mujoco_warp, "load_model", with_cone)
    twin, sim, loose = MuJoCoCPU(path, 4, OUTPUTS, 1, CPU), simulator(path=path, device=device), CONES[cone]
    assert (sim.free_bodies, sim.joints, sim.bodies, sim.actuators) == (
        twin.free_bodies,
        twin.joints,
        twin.bodies,
        twin.actuators,
    )
    assert sim.timestep == twin.timestep
    assert_close(sim.effort_limit, twin.effort_limit)
    for _ in steps_of_both(twin, sim):
        assert_close(sim.root_state, twin.root_state, rtol=0, atol=loose * 5e-3)
        assert_close(sim.joint_position, twin.joint_position, rtol=0, atol=loose * 1e-4)
        assert_close(sim.joint_velocity, twin.joint_velocity, rtol=0, atol=loose * 5e-3)
        assert_close(sim.output(BODY_STATE), twin.output(BODY_STATE), rtol=0, atol=loose * 5e-3)
    assert not sim.unstable.any()


@pytest.mark.parametrize("device", DEVICES)
def test_boxes_that_touch_have_contacts_at_other_points(device):
    """In mujoco_warp, up to a third more of them. The hand moves as in MuJoCo until its object lands."""
    twin, sim = MuJoCoCPU(BOXES, 4, OUTPUTS, 1, CPU), simulator(path=BOXES, device=device)
    errors = []
    for _ in steps_of_both(twin, sim):
        errors.append((sim.root_state.cpu() - twin.root_state).abs().amax().item())
    falling, landed = errors[:7], errors[7:]
    assert max(falling) < 1e-4 and 0.01 < torch.tensor(landed).median() < 0.2 and max(landed) < 2
    assert not sim.unstable.any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("task", ["Anymal", "HalfCheetah", "Quadcopter"])
def test_a_task_scores_what_it_scores_on_mujoco(task, device):
    cls, scores = physics_task(task), []
    for engine, on in ((MuJoCoWarp, device), (MuJoCoCPU, "cpu")):
        sim = engine(MODELS / cls.model, 4, cls.outputs, 1, torch.device(on))
        envs = ShapedEnvs(cls(sim), [Candidate("a"), Candidate("b")], 7)
        envs.begin()
        actions = 2 * torch.rand(5, 2, 2, cls.action_size, generator=torch.Generator().manual_seed(0)) - 1
        scores.append(sum(envs.step(action.to(on)).score.clone() for action in actions).cpu())
        assert not envs.failures
    torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_contact_forces_are_mujocos(device):
    twin, sim = MuJoCoCPU(CRAWLER, 1, OUTPUTS, 1, CPU), simulator(1, device=device)
    twin.step(300)
    copy_state(twin, sim)
    for engine in (twin, sim):
        engine.step(100)
    assert twin.output(CONTACT_FORCE)[0, 4, 2] > 5
    assert_close(sim.output(CONTACT_FORCE), twin.output(CONTACT_FORCE), rtol=0.02, atol=0.05)


@pytest.mark.parametrize("device", DEVICES)
def test_a_state_that_is_set_is_the_state_that_is_read_and_the_others_keep_theirs(device):
    sim = simulator(6, device=device)
    rollout(sim, efforts(6, 5).to(device))
    untouched = [x[[0, 4]].clone() for x in everything(sim)]
    ids, pose = torch.tensor([5, 1, 3, 2], device=device), random_pose(sim, 4)
    sim.set_state(ids, *pose)
    for found, put in zip((sim.root_state, sim.joint_position, sim.joint_velocity), pose, strict=True):
        torch.testing.assert_close(found[ids], put.float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(sim.output(BODY_STATE)[ids][:, [0, 4]], pose[0].float(), rtol=0, atol=1e-5)
    assert_same([untouched], [[x[[0, 4]] for x in everything(sim)]])


@pytest.mark.parametrize("device", DEVICES)
def test_resets_of_others_change_no_bit_of_what_follows(device):
    sim, twin, u, others = simulator(4, device=device), simulator(4, device=device), efforts(4, 20).to(device), [0, 2]
    expected = rollout(twin, u, others)
    seen = rollout(sim, u[:10], others)
    sim.set_state(torch.tensor([3, 1], device=device), *random_pose(sim, 2))
    assert_same(expected, seen + rollout(sim, u[10:], others))


def test_an_environment_is_the_same_bits_in_a_batch_of_any_size():
    u = efforts(9, 20)
    assert_same(rollout(simulator(9), u, slice(0, 3)), rollout(simulator(3), u[:, :3]))
    assert_same(rollout(simulator(9), u, slice(7, 8)), rollout(simulator(1), u[:, 7:8]))


def test_what_follows_a_set_state_does_not_depend_on_what_came_before():
    seen = []
    for steps in (0, 7):
        sim = simulator()
        rollout(sim, efforts(4, steps))
        sim.set_state(torch.tensor([3, 1]), *random_pose(sim, 2))
        sim.step(1)
        seen.append([[x[[3, 1]].clone() for x in everything(sim)]])
    assert_same(*seen)


def test_a_captured_graph_is_what_it_was_captured_from(monkeypatch):
    u = efforts(3, 10)
    expected = rollout(simulator(3), u)

    def eager(self, substeps):
        with self._on_stream():
            for _ in range(substeps):
                mujoco_warp.mjw.step(self._m, self._d)
            if not substeps:
                mujoco_warp.mjw.forward(self._m, self._d)

    monkeypatch.setattr(MuJoCoWarp, "_run", eager)
    assert_same(expected, rollout(simulator(3), u))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("what", ["position", "velocity", "effort"])
def test_a_diverged_environment_is_unstable_and_the_others_do_not_notice(what, device):
    u, others = efforts(5, 12).to(device), [0, 1, 3, 4]
    healthy = rollout(simulator(5, device=device), u, others)
    sim = simulator(5, device=device)
    seen = rollout(sim, u[:4], others)
    broken, ids = u[4:].clone(), torch.tensor([2], device=device)
    if what == "effort":
        broken[0, 2, 1] = float("nan")
    else:
        sim.set_state(ids, *broken_state(sim, what))
        assert sim.unstable.tolist() == [False, False, True, False, False]
    for t in range(3):  # and stays so
        seen += rollout(sim, broken[t : t + 1], others)
        assert sim.unstable.tolist() == [False, False, True, False, False]
        assert all(x.isfinite().all() for x in everything(sim))
    sim.set_state(ids, *(x[None] for x in sim.rest_state()))
    seen += rollout(sim, broken[3:], others)
    assert_same(healthy, seen)
    assert not sim.unstable.any()


CASES = {MASS_SCALE: [2.5, 0.5], FRICTION_SCALE: [0.1, 2.0], GRAVITY: [[1.0, 0.5, -3.7], [0.0, 0.0, 0.0]]}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_a_property_is_mujocos_and_of_its_own_environment(name, device):
    twin, sim = MuJoCoCPU(CRAWLER, 4, (), 1, CPU), simulator(outputs=(), device=device)
    ids = torch.tensor([3, 1])
    for values in (CASES[name][::-1], CASES[name]):  # set again, the arrays are written in place
        for engine in (twin, sim):
            engine.set_property(name, ids.to(engine.device), torch.tensor(values, device=engine.device))
        for u in efforts(4, 40):
            copy_state(twin, sim)
            copy_state(twin, twin)
            for engine in (sim, twin):
                engine.set_effort(u[:1].expand(4, 3).to(engine.device))
                engine.step(2)
            assert_close(sim.joint_velocity, twin.joint_velocity, rtol=5e-3, atol=5e-3)
            assert_close(sim.root_state, twin.root_state, rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(sim.root_state[0], sim.root_state[2])
    assert (twin.root_state[1] - twin.root_state[0]).abs().max() > 1e-2
    assert (twin.root_state[3] - twin.root_state[1]).abs().max() > 1e-2


@pytest.mark.parametrize("name", CASES)
def test_a_property_of_one_changes_no_bit_of_the_others(name):
    u, others = efforts(4, 15), [0, 2]
    expected = rollout(simulator(), u, others)
    sim = simulator()
    seen = rollout(sim, u[:5], others)
    sim.set_property(name, torch.tensor([3, 1]), torch.tensor(CASES[name]))
    assert_same(expected, seen + rollout(sim, u[5:], others))


def test_without_friction_the_numbers_stay_finite():
    sim = simulator(2, ())
    sim.set_property(FRICTION_SCALE, torch.tensor([0]), torch.tensor([0.0]))
    sim.step(300)
    assert not sim.unstable.any() and sim.root_state.isfinite().all()


def test_more_constraints_than_provided_for_make_an_environment_unstable(monkeypatch):
    monkeypatch.setattr(mujoco_warp, "buffer_sizes", lambda model, pairs: (48, 3))
    sim = simulator(2, ())
    root, joints, speed = (x.expand(2, *x.shape).clone() for x in sim.rest_state())
    root[1, :, 2] += 100.0  # that one touches nothing
    joints[1, sim.joints.index("post_slide")] += 100.0
    sim.set_state(torch.arange(2), root, joints, speed)
    sim.step(200)
    assert sim.unstable.tolist() == [True, False]


def test_a_full_pool_of_contacts_is_an_error(monkeypatch):
    monkeypatch.setattr(mujoco_warp, "buffer_sizes", lambda model, pairs: (1, 100))
    sim = simulator(2, ())
    with pytest.raises(SimulatorError, match="pool of 2 contacts for 2 environments is full"):
        sim.step(300)


def test_engine_fields_and_errors():
    sim = simulator(2, ("qfrc_actuator", "cfrc_ext"))
    sim.set_effort(torch.tensor([[4.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))
    sim.step(1)
    twin = MuJoCoCPU(CRAWLER, 2, ("qfrc_actuator",), 1, CPU)
    twin.set_effort(torch.tensor([[4.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))
    twin.step(1)
    assert_close(sim.output("qfrc_actuator"), twin.output("qfrc_actuator"))
    sim.step(600)
    weight = sim.model.body("ball").mass[0] * 9.81
    ball = 1 + sim.body_index("ball")  # MuJoCo counts the world
    torch.testing.assert_close(sim.output("cfrc_ext")[0, ball, 5].item(), weight, rtol=0.02, atol=0)
    with pytest.raises(SimulatorError, match="'xpos' was not asked for"):
        sim.output("xpos")
    with pytest.raises(SimulatorError, match="no output 'colour'"):
        simulator(1, ("colour",))
    with pytest.raises(SimulatorError, match="mass_scale, friction_scale, gravity"):
        sim.set_property("colour", torch.tensor([0]), torch.tensor([1.0]))
    if not torch.cuda.is_available():
        with pytest.raises(SimulatorError, match="PyTorch sees no GPU"):
            simulator(device="cuda")
