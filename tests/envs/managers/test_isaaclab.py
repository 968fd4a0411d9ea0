"""Candidates in one environment of Isaac Lab's kind, with a stand-in for Isaac Lab."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.managers.draws import Draws
from envolve.envs.managers.envs import ManagedEnvs, make_managed_envs
from envolve.envs.managers.isaaclab import ISAACLAB
from envolve.envs.physics.task import Pose
from envolve.envs.shaping.candidate import Candidate, Shaper
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments import describe_tasks
from envolve.outer.config.load import load_config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.evaluate.shapers import evaluate_shapers
from envolve.outer.shapers.plan import task_and_engine
from tests.envs.managers import fake_lab
from tests.envs.managers.test_envs import MISTAKES, N, mistaken, numbers, play, same
from tests.outer.small import ROOT

NAME = "isaaclab:" + fake_lab.TASK


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_lab.install(monkeypatch)


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without random numbers."""

    def configuration() -> Any:
        cfg = fake_lab.configuration()
        cfg.noise, cfg.events.put.params["position"], cfg.events.push.params["speed"] = 0.0, (0.3, 0.3), 0.0
        cfg.commands.goal.ranges.target, cfg.commands.goal.resampling_time_range = (0.5, 0.5), (9.0, 9.0)
        return cfg

    monkeypatch.setitem(fake_lab.gymnasium.registry[fake_lab.TASK].kwargs, "env_cfg_entry_point", configuration)


def make(candidates: list[Candidate], keys: list[int] | None = None, n: int = N) -> ManagedEnvs:
    return make_managed_envs(NAME, candidates, n, keys or [7] * len(candidates))


def played(candidates: list[Candidate], keys: list[int] | None = None, steps: int = 40) -> dict[str, Tensor]:
    envs = make(candidates, keys)
    try:
        return play(envs, steps)
    finally:
        envs.task.sim.close()


def test_a_candidate_has_the_same_bits_alone_and_among_others() -> None:
    together = played([Candidate("a"), Candidate("b"), Candidate("c")], [7, 8, 7])
    alone = played([Candidate("b")], [8])
    assert (together["terminated"] | together["truncated"]).any(0).all(), "every environment began anew"
    assert same(together, together, 0, 2) and same(together, alone, 1, 0) and not same(together, together, 0, 1)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_one_candidate_does_changes_no_bit_of_the_others(mistake: str) -> None:
    middle = mistaken(mistake)
    good = played([Candidate("a"), Candidate("b"), Candidate("c")])
    other = played([Candidate("a"), middle, Candidate("c")])
    assert same(good, other, 0, 0) and same(good, other, 2, 2) and not same(good, other, 1, 1)


def plain_run(size: float, steps: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The stand-in alone, with its own resets: observation, reward, terminated, time outs [N, ...]."""
    cfg = fake_lab.parse_env_cfg(fake_lab.TASK, "cpu", N)
    draws = Draws(rng.fold(torch.tensor([7]), rng.RESET), N, torch.device("cpu"))
    with draws, draws.of(None, shared=True):
        env = fake_lab.ManagerBasedRLEnv(cfg)
    env.reset(torch.arange(N))
    env.episode_length_buf[:] = torch.arange(N) * env.max_episode_length // N
    for k in range(steps):
        action = size * torch.randn(1, N, 1, generator=torch.Generator().manual_seed(k))[0]
        obs, reward, terminated, time_outs, _ = env.step(action)
        yield obs["policy"], reward, terminated.clone(), time_outs.clone()
    env.close()


def test_own_terms_are_those_of_the_library_through_its_own_resets(constant: None) -> None:
    """Histories and delays of observations too: what a reset observes enters only those of the environments that are
    reset."""
    changed = numbers(rewards__near__weight=2.5)  # so that rewards are summed here
    found = played([Candidate("a"), Candidate("b"), changed], steps=60)
    ended = 0
    for k, (obs, reward, terminated, time_outs) in enumerate(plain_run(2.0, 60)):
        for i in range(2):
            assert torch.equal(found["reward"][k, i], reward), k
            assert torch.equal(found["terminated"][k, i], terminated), k
            assert torch.equal(found["truncated"][k, i], time_outs & ~terminated), k
            assert torch.equal(found["obs"][k, i], obs), k
        ended += int((terminated | time_outs).sum())
    assert ended > N


def test_numbers_are_each_candidates_own_and_the_score_is_the_tasks() -> None:
    own, heavy = played([Candidate("own")]), played([numbers(rewards__near__weight=5.0)])
    together = played([numbers(rewards__near__weight=5.0), Candidate("own"), numbers(rewards__near__std=1.0)])
    assert same(together, own, 1, 0) and same(together, heavy, 0, 0)
    for i in (0, 2):
        assert torch.equal(together["score"][:, i], own["score"][:, 0])
        assert not torch.equal(together["reward"][:, i], own["reward"][:, 0])


@pytest.mark.parametrize(
    "path, value",
    [
        ("terminations.far.limit", 0.2),
        ("events.put.position.0", 0.45),
        ("commands.goal.ranges.target.0", 0.9),
        ("actions.force.scale", 3.0),
    ],
)
def test_ends_starts_commands_and_actions_can_be_changed(path: str, value: float) -> None:
    changed = Candidate("n", {}, params=torch.tensor([value]), term_names=(path,))
    found = played([changed, Candidate("own")])
    assert not same(found, found, 0, 1)
    own = played([Candidate("own")])
    assert same(found, own, 1, 0)


def test_quaternions_and_arrays_are_isaac_labs_and_a_candidate_places_and_commands() -> None:
    def begin(state: Any, random: Any, rest: Pose) -> Pose:
        root = rest.root_state.clone()
        root[:, 0, 3:7] = torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=root.dtype)  # half a turn about z
        root[:, 0, 7] = 2.0
        return Pose(root, rest.joint_position + 0.25, rest.joint_velocity)

    goal = Shaper(lambda state, random: 0 * random.uniform[:, :1] + 0.75, False)
    envs = make([Candidate("c", {"compute_initial_state": Shaper(begin, False), "compute_goal": goal}), Candidate("o")])
    envs.begin()
    state = envs.task.state
    assert not envs.failures and "(x, y, z, w)" in envs.task.conventions
    assert (state["robot_joint_pos"][:N] == 0.25).all() and (state["command_goal"][:N] == 0.75).all()
    assert state["ball_root_link_quat_w"][:N].tolist() == [[0.0, 0.0, 1.0, 0.0]] * N
    assert state["ball_root_link_quat_w"][N:].tolist() == [[0.0, 0.0, 0.0, 1.0]] * N
    assert (state["ball_root_link_lin_vel_w"][:N, 0] == 2).all()
    assert state["sensor_contact_force_net_normal_forces_w"].shape == (2 * N, 1, 3)
    envs.task.sim.close()


def test_a_simulation_that_blows_up_is_worth_nothing_and_is_kept() -> None:
    wild = Candidate("wild", {"compute_torque": Shaper(lambda action, state: action * 1e9, False)})
    envs = make([Candidate("a"), wild, Candidate("c")])
    envs.begin(evaluation=True)
    step = envs.step(torch.ones(3, N, 1))
    assert step.terminated[1].all() and not step.terminated[0].any()
    assert (step.score[1] == 0).all() and (step.score[0] != 0).all()
    (dump,) = envs.dumps
    assert (
        dump.candidate == "wild" and dump.task == NAME and dump.qpos.shape[1] == 1 + 7 and dump.qvel.shape[1] == 1 + 6
    )
    envs.task.sim.close()


def test_the_simulation_is_closed_before_its_launcher() -> None:
    envs = make([Candidate("a")])
    assert fake_lab.launched == ["cpu"] and fake_lab.ManagerBasedRLEnv.alive == 1
    envs.task.sim.close()
    assert not fake_lab.launched and fake_lab.ManagerBasedRLEnv.alive == 0


def test_a_second_simulation_is_refused_in_one_line_and_leaves_the_first() -> None:
    envs = make([Candidate("a")])
    with pytest.raises(SimulatorError, match="Isaac Lab cannot make Isaac-Fake-Point: .*already exists") as e:
        make([Candidate("b")])
    assert "\n" not in str(e.value) and fake_lab.launched == ["cpu"]
    play(envs, 2)
    envs.task.sim.close()


def test_a_worker_evaluates_one_generation_after_another(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def compute_reward(state): return state['own_reward']\n", encoding="utf-8")
    text = (ROOT / "default_config_cartpole_shapers.yaml").read_text(encoding="utf-8")
    (tmp_path / "c.yaml").write_text(text.replace("Cartpole", NAME), encoding="utf-8")
    of_task = {"num_envs_per_shaper": 4, "iterations": 1, "shapers": tmp_path}
    small = [f"envs.{NAME}.{key}={value}" for key, value in of_task.items()]
    config = load_config(tmp_path / "c.yaml", [*small, "agents.ppo.rollout_steps=8", "agents.ppo.hidden_size=8"])
    given = torch.zeros(2, 1), torch.tensor([1, 2])
    scores = [evaluate_shapers(config.data, *given, human=False, threads=1)["score"] for _ in range(2)]
    assert torch.equal(*scores) and fake_lab.ManagerBasedRLEnv.alive == 0


def test_names_engines_and_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [task_and_engine(*given)[1] for given in ((NAME, "mujoco"), (fake_lab.TASK, "isaaclab"))] == ["isaaclab"] * 2
    with pytest.raises(SimulatorError, match="no task 'Isaac-Fake-Piont'; nearest: 'Isaac-Fake-Point'"):
        make_managed_envs("isaaclab:Isaac-Fake-Piont", [Candidate("a")], 1, 0)
    with pytest.raises(SimulatorError, match="Isaac Lab has no task 'Isaac-Fake-Direct'"):  # not made of managers
        make_managed_envs("isaaclab:Isaac-Fake-Direct", [Candidate("a")], 1, 0)
    with pytest.raises(ConfigError, match="--engine: found mjlab, expected isaaclab for the task"):
        task_and_engine(NAME, "mjlab")
    fake_lab.install(monkeypatch, "2.3.2")
    with pytest.raises(SimulatorError, match=r"found Isaac Lab 2.3.2, expected 3\.0\.\*: make setup-isaaclab"):
        ISAACLAB.load()


def test_isaac_lab_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if importlib.util.find_spec("isaaclab") is not None:
        pytest.skip("Isaac Lab is installed here")
    with pytest.raises(SimulatorError, match="Isaac Lab is not installed in this Python environment: make setup-isaac"):
        ISAACLAB.load()


def test_the_tasks_command_knows_isaac_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe_tasks.main(["--task", NAME.lower()]) == 0
    out = capsys.readouterr().out
    assert "| `robot_applied_torque` | [n, 1] |" in out and "| `rewards.near.std` | 0.5 |" in out
    assert "quaternion (x, y, z, w)" in out
