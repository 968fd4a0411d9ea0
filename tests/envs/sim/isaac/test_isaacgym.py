"""The adapter for Isaac Gym against a fake of the engine that MuJoCo computes: the same model, the same numbers."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

import envolve.envs.physics  # noqa: F401  the tasks register themselves
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import Candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.isaac import isaacgym
from envolve.envs.sim.isaac.assets import load_assets
from envolve.envs.sim.isaac.isaacgym import IsaacGym
from envolve.envs.sim.simulator import (
    BODY_STATE,
    CONTACT_FORCE,
    FRICTION_SCALE,
    GRAVITY,
    MASS_SCALE,
    MODELS,
    SimulatorError,
)
from tests.envs.sim.isaac.fake_isaacgym import install

CRAWLER = Path(__file__).parents[1] / "crawler.xml"
CPU = torch.device("cpu")
SETTERS = {
    "set_dof_actuation_force_tensor",
    "apply_rigid_body_force_tensors",
    "set_actor_root_state_tensor_indexed",
    "set_dof_state_tensor_indexed",
}


@pytest.fixture
def gym(monkeypatch):
    return install(monkeypatch)


def simulator(num_envs=3, outputs=(BODY_STATE, CONTACT_FORCE), path=CRAWLER) -> IsaacGym:
    return IsaacGym(path, num_envs, outputs, 1, CPU)


def mujoco_twin(num_envs=3, path=CRAWLER, outputs=()):
    pytest.importorskip("mujoco.batch", reason="it is newer than Python 3.8's MuJoCo")
    from envolve.envs.sim import mujoco_cpu

    return mujoco_cpu.MuJoCoCPU(path, num_envs, outputs, 1, CPU)


def efforts(num_envs, steps, actuators=3):
    return 8 * torch.randn(steps, num_envs, actuators, generator=torch.Generator().manual_seed(0))


def random_pose(sim, count, seed=0):
    g = torch.Generator().manual_seed(seed)
    root, joints, speed = (x.expand(count, *x.shape).clone() for x in sim.rest_state())
    root[..., :3] += 0.2 * torch.rand(root[..., :3].shape, generator=g, dtype=root.dtype)
    root[..., 3:7] = torch.randn(root[..., 3:7].shape, generator=g, dtype=root.dtype)
    root[..., 3:7] /= root[..., 3:7].norm(dim=-1, keepdim=True)
    root[..., 7:] = torch.randn(root[..., 7:].shape, generator=g, dtype=root.dtype)
    return root, joints + 0.2, speed + torch.randn(speed.shape, generator=g, dtype=root.dtype)


def assert_states_close(sim, twin, **tolerance):
    for found, expected in (
        (sim.root_state, twin.root_state),
        (sim.joint_position, twin.joint_position),
        (sim.joint_velocity, twin.joint_velocity),
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected.double(), **tolerance)


# the floors of these touch everything, as Isaac Gym's ground does
@pytest.mark.parametrize(
    "path",
    [CRAWLER, *(MODELS / f"{m}.xml" for m in ("cartpole", "ant", "anymal", "half_cheetah", "quadcopter", "reacher"))],
    ids=lambda p: p.stem,
)
def test_names_efforts_states_and_resets_are_those_of_mujoco(gym, path):
    sim, twin = simulator(path=path), mujoco_twin(path=path)
    for name in ("free_bodies", "joints", "bodies", "actuators", "timestep"):
        assert getattr(sim, name) == getattr(twin, name)
    torch.testing.assert_close(sim.effort_limit.double(), twin.effort_limit)
    for x, y in zip(sim.rest_state(), twin.rest_state()):
        assert torch.equal(x, y)
    # each from where the last one was left, so that roundings do not add up
    for t, u in enumerate(efforts(3, 6, len(sim.actuators))):
        pose = random_pose(twin, 2, t) if t % 2 else [x.expand(2, *x.shape) for x in twin.rest_state()]
        for engine in (sim, twin):
            engine.set_state(torch.tensor([2, 0]), *pose)
            engine.set_effort(u)
            engine.step(2)
        assert_states_close(sim, twin, rtol=2e-3, atol=2e-3)


def test_every_setter_is_called_once_a_simulated_step_and_states_after_the_step_are_fresh(gym):
    sim = simulator()
    sim.set_state(torch.tensor([0]), *random_pose(sim, 1))
    sim.set_state(torch.tensor([2, 1]), *random_pose(sim, 2))  # the setters would keep the last call alone
    sim.set_effort(efforts(3, 1)[0])
    gym.calls.clear()
    sim.step(2)
    assert [c for c in gym.calls if c in SETTERS or c in ("simulate", "fetch_results")] == [
        "set_actor_root_state_tensor_indexed",
        "set_dof_state_tensor_indexed",
        "set_dof_actuation_force_tensor",
        "simulate",
        "fetch_results",
        "set_dof_actuation_force_tensor",
        "simulate",
        "fetch_results",
    ]
    refreshed = [c for c in gym.calls if c.startswith("refresh")]
    assert refreshed == [
        "refresh_actor_root_state_tensor",
        "refresh_dof_state_tensor",
        "refresh_rigid_body_state_tensor",
        "refresh_net_contact_force_tensor",
    ]
    gym.calls.clear()
    sim.step(1)
    assert "set_dof_state_tensor_indexed" not in gym.calls and "set_actor_root_state_tensor_indexed" not in gym.calls


def test_a_second_set_state_before_the_step_loses_nothing_of_the_first(gym):
    sim, twin = simulator(), mujoco_twin()
    for ids in ([0, 1], [1, 2]):
        pose = random_pose(twin, 2, seed=len(ids) + ids[0])
        for engine in (sim, twin):
            engine.set_state(torch.tensor(ids), *pose)
    assert_states_close(sim, twin, rtol=0, atol=1e-6)
    for engine in (sim, twin):
        engine.step(1)
    assert_states_close(sim, twin, rtol=2e-3, atol=2e-3)


def test_a_reset_clears_the_effort_and_leaves_the_others_alone(gym):
    sim, twin, u = simulator(), mujoco_twin(), efforts(3, 1)[0]
    for engine in (sim, twin):
        engine.set_effort(u)
        engine.set_state(torch.tensor([1]), *random_pose(twin, 1))
        engine.step(2)
    assert_states_close(sim, twin, rtol=2e-3, atol=2e-3)


def test_body_states_and_contact_forces_are_in_the_models_order(gym):
    sim, twin = simulator(1), mujoco_twin(1, outputs=(BODY_STATE,))
    sim.step(1)
    for engine in (sim, twin):
        engine.set_state(torch.tensor([0]), *random_pose(twin, 1))
    # at once, and not when the engine comes to it
    torch.testing.assert_close(sim.output(BODY_STATE).double(), twin.output(BODY_STATE), rtol=0, atol=1e-5)
    assert not sim.output(CONTACT_FORCE).any()
    sim.step(1)
    twin.step(1)
    twin.batch.forward()  # the engine's bodies are where they are after the step, MuJoCo's where they were before it
    torch.testing.assert_close(sim.output(BODY_STATE).double(), twin.output(BODY_STATE), rtol=2e-3, atol=2e-3)
    sim.step(600)
    force, model = sim.output(CONTACT_FORCE)[0], sim.assets.model
    weight = 9.81 * float(model.body("ball").mass[0])
    torch.testing.assert_close(force[sim.body_index("ball"), 2].item(), weight, rtol=2e-2, atol=0.0)


@pytest.mark.parametrize("name, values", [(MASS_SCALE, [2.5, 0.5]), (FRICTION_SCALE, [0.1, 2.0])])
def test_properties_are_set_for_their_own_environment_and_move_nobody(gym, name, values):
    sim, twin = simulator(), mujoco_twin()
    for engine in (sim, twin):
        engine.set_state(torch.arange(3), *random_pose(twin, 3))
        engine.step(1)
        engine.set_property(name, torch.tensor([2, 0]), torch.tensor(values))
        for u in efforts(3, 4):
            engine.set_effort(u)
            engine.step(2)
    if name == MASS_SCALE:
        assert_states_close(sim, twin, rtol=1e-2, atol=1e-2)
        masses = [model.body("ball").mass[0] for model in gym.models]
        np.testing.assert_allclose(masses, np.array([0.5, 1, 2.5]) * sim.assets.model.body("ball").mass[0])
    else:  # the ground of the engine has its own friction
        ball = [float(model.geom_friction[model.ngeom - 2, 0]) for model in gym.models]
        np.testing.assert_allclose(ball, [1.6, 0.8, 0.08], rtol=1e-6)


def test_masses_at_creation_are_those_of_mujoco_not_of_the_importer(gym):
    sim = simulator(2, path=MODELS / "half_cheetah.xml")
    for model in gym.models:
        for body in sim.bodies:
            b, c = model.body(body).id, sim.assets.model.body(body).id
            np.testing.assert_allclose(model.body_mass[b], sim.assets.model.body_mass[c], rtol=1e-6)
            np.testing.assert_allclose(model.body_ipos[b], sim.assets.model.body_ipos[c], atol=1e-6)
            found = [np.sort(m.body_inertia[i]) for m, i in ((model, b), (sim.assets.model, c))]
            np.testing.assert_allclose(*found, rtol=1e-4)
    assert gym.models[0].body_mass.sum() == pytest.approx(14 + 1.7)  # and the mount, as the fake imports it


def test_an_environment_whose_numbers_are_not_finite_is_unstable_until_its_state_is_set(gym):
    sim = simulator()
    gym_rows = sim._dofs  # as the engine would leave them
    sim.step(1)
    refresh = gym.refresh_dof_state_tensor

    def broken(handle):
        refresh(handle)
        gym_rows[1, 0, 1] = float("nan")
        return True

    gym.refresh_dof_state_tensor = broken
    sim.step(1)
    gym.refresh_dof_state_tensor = refresh
    assert sim.unstable.tolist() == [False, True, False]
    sim.step(1)
    assert sim.unstable.tolist() == [False, True, False]
    rest = [x[None] for x in sim.rest_state()]
    sim.set_state(torch.tensor([1]), *rest)
    assert not sim.unstable.any()
    rest[1] = rest[1] * float("nan")
    sim.set_state(torch.tensor([1]), *rest)
    assert sim.unstable.tolist() == [False, True, False]


def test_the_whole_population_is_in_one_simulator(gym):
    sim = simulator(2)
    with pytest.raises(SimulatorError, match="one simulator per process"):
        simulator(2)
    sim.close()
    assert gym.calls.count("create_sim") == 1 and gym.calls[-1] == "destroy_sim"
    assert gym.params.dt == 0.005 and gym.params.gravity.z == -9.81 and gym.params.use_gpu_pipeline is False


def test_actors_touch_each_other_but_not_themselves_unless_the_model_says_so(gym):
    simulator(1)
    assert gym.filters == [0, 2, 4]  # parts of the crawler that touch: torso and its grandchild
    assert [p.touches_itself for p in load_assets(MODELS / "ant.xml").parts] == [False]
    assert [p.touches_itself for p in load_assets(MODELS / "humanoid.xml").parts] == [True]


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.xml")), ids=lambda p: p.stem)
def test_every_model_is_split_into_trees_that_compile_with_its_masses(path):
    assets = load_assets(path)
    total = 0.0
    for part in assets.parts:
        model = mujoco.MjModel.from_xml_string(part.xml)
        total += model.body_mass.sum() - (not part.free)
        assert {model.joint(j).name for j in range(model.njnt)} >= set(part.joints)
        assert model.nbody == 1 + len(part.bodies) + (not part.free)
    assert total == pytest.approx(assets.model.body_mass.sum(), rel=1e-6)


@pytest.mark.parametrize(
    "task", ["Anymal", "HalfCheetah", "Cartpole", "Quadcopter", "BallBalance", "Reacher", "Pusher"]
)
def test_a_task_scores_what_it_scores_on_mujoco(gym, task):
    scores = []
    for engine in (IsaacGym, type(mujoco_twin())):
        cls = physics_task(task)
        envs = ShapedEnvs(cls(engine(MODELS / cls.model, 4, cls.outputs, 1, CPU)), [Candidate("a"), Candidate("b")], 7)
        envs.begin()
        actions = 2 * torch.rand(5, 2, 2, cls.action_size, generator=torch.Generator().manual_seed(0)) - 1
        scores.append(sum(envs.step(action).score.clone() for action in actions))
        assert not envs.failures
    torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3)


def test_what_it_cannot_do_is_an_error(gym):
    with pytest.raises(SimulatorError, match="no output subtree_com; known: body_state, contact_force"):
        simulator(1, ("subtree_com",))
    sim = simulator(1, ())
    assert sim.capabilities == {MASS_SCALE, FRICTION_SCALE}
    with pytest.raises(SimulatorError, match="no property 'gravity' of single environments"):
        sim.set_property(GRAVITY, torch.tensor([0]), torch.zeros(1, 3))
    with pytest.raises(SimulatorError, match="'body_state' was not asked for"):
        sim.output(BODY_STATE)
    with pytest.raises(SimulatorError, match="cannot render"):
        sim.render(0, 64, 48)


def test_a_joint_that_the_importer_lost_is_an_error(gym, monkeypatch):
    monkeypatch.setattr(type(gym), "get_asset_dof_names", lambda self, asset: asset.joints[1:])
    with pytest.raises(SimulatorError, match="importer lost back_hip, post_slide of crawler.xml"):
        simulator(1)


def test_without_isaacgym_or_after_torch_the_error_says_what_to_do(monkeypatch):
    monkeypatch.delitem(isaacgym.sys.modules, "isaacgym", raising=False)
    monkeypatch.setattr(isaacgym, "find_spec", lambda name: None)
    with pytest.raises(SimulatorError, match="not installed.*docs/isaacgym.md"):
        simulator()
    monkeypatch.setattr(isaacgym, "find_spec", lambda name: "there")
    with pytest.raises(SimulatorError, match="imported before isaacgym(.|\n)*import isaacgym, runpy"):
        simulator()
