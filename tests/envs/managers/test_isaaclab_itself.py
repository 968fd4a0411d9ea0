"""With the task's own terms, every candidate's environments are those of Isaac Lab's own managers and resets; a bad
candidate changes nothing for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.envs.managers.envs import make_managed_envs
from envolve.envs.physics.task import Pose
from envolve.envs.shaping.candidate import Candidate, Shaper
from envolve.experiments import eval_shapers
from tests.envs.managers.real_lab import CARTPOLE, PlainEnvironment, needs_isaaclab, use_own_model
from tests.envs.managers.test_envs import numbers
from tests.envs.managers.test_equality import late

N = 2
NAME = "isaaclab:" + CARTPOLE
pytestmark = needs_isaaclab


def actions(steps: int) -> list[Tensor]:
    return [torch.randn(N, 1, generator=torch.Generator().manual_seed(k)) for k in range(steps)]


def played(candidates: list[Candidate], keys: list[int], steps: int) -> dict[str, Tensor]:
    """Everything that candidates saw, [steps, P, ...]."""
    envs = make_managed_envs(NAME, candidates, N, keys)
    envs.begin(staggered=True)
    found: dict[str, list[Tensor]] = {}
    for action in actions(steps):
        for name, value in envs.step(action.repeat(len(candidates), 1, 1))._asdict().items():
            found.setdefault(name, []).append(value.clone())
    envs.task.sim.close()
    return {name: torch.stack(values) for name, values in found.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor], i: int, j: int) -> bool:
    return all(torch.equal(a[name][:, i], b[name][:, j]) for name in a)


def test_candidates_have_the_environments_of_isaac_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_own_model(monkeypatch, tmp_path / "cartpole.usda")
    steps = 330
    candidates = [Candidate("a"), late("raises"), Candidate("c"), numbers(rewards__pole_pos__weight=-5.0)]
    found = played(candidates, [7, 8, 7, 7], steps)
    ended = 0
    for k, (obs, reward, terminated, time_outs) in enumerate(PlainEnvironment(7, N).run(actions(steps), True)):
        for i in (0, 2):
            torch.testing.assert_close(found["obs"][k, i], obs, rtol=0, atol=1e-6, msg=f"step {k}")
            torch.testing.assert_close(found["reward"][k, i], reward, rtol=0, atol=1e-6, msg=f"step {k}")
            assert torch.equal(found["terminated"][k, i], terminated), k
            assert torch.equal(found["truncated"][k, i], time_outs & ~terminated), k
        torch.testing.assert_close(found["score"][k, 3], 60 * reward.double(), rtol=0, atol=1e-5, msg=f"step {k}")
        ended += int((terminated | time_outs).sum())
    assert ended >= N, "no reset was compared"
    assert not torch.equal(found["reward"][:, 3], found["reward"][:, 0])


def test_a_candidate_has_the_same_bits_alone_and_beside_a_bad_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_own_model(monkeypatch, tmp_path / "cartpole.usda", noise=0.01, push=0.3)
    changed = numbers(
        rewards__pole_pos__weight=-5.0,
        rewards__pole_pos__target=0.1,
        terminations__cart_out_of_bounds__bounds__1=1.0,
        events__reset_pole_position__position_range__0=-0.1,
        events__push__position_range__1=0.1,
        commands__velocity__ranges__lin_vel_x__1=0.2,
        actions__joint_effort__scale=50.0,
    )
    good = played([Candidate("a"), Candidate("b"), Candidate("c"), changed], [7, 8, 9, 7], 100)
    assert not same(good, good, 0, 1) and not same(good, good, 0, 3)
    assert good["terminated"][:, 3].any(), "the changed bounds were never reached"
    for kind in ("raises", "nan", "shape", "changes"):
        beside = played([Candidate("a"), late(kind), Candidate("c"), changed], [7, 8, 9, 7], 100)
        assert all(same(good, beside, i, i) for i in (0, 2, 3)) and not same(good, beside, 1, 1), kind
    assert same(good, played([changed], [7], 100), 3, 0)


def test_a_simulation_that_blows_up_is_kept_and_leaves_others_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_own_model(monkeypatch, tmp_path / "cartpole.usda")

    def begin(state: Any, random: Any, rest: Pose) -> Pose:
        return Pose(rest.root_state, rest.joint_position, rest.joint_velocity + 1e6)

    wild = Candidate("wild", {"compute_initial_state": Shaper(begin, False)})
    good = played([Candidate("a"), Candidate("b"), Candidate("c")], [7, 8, 7], 20)
    envs = make_managed_envs(NAME, [Candidate("a"), wild, Candidate("c")], N, [7, 8, 7])
    envs.begin(staggered=True)
    for k, action in enumerate(actions(20)):
        step = envs.step(action.repeat(3, 1, 1))
        assert torch.equal(step.obs[[0, 2]], good["obs"][k, [0, 2]]), k
    assert [dump.candidate for dump in envs.dumps] == ["wild"] and not envs.failures
    assert step.terminated[1].all() and (step.score[1] == 0).all()
    envs.task.sim.close()


def test_a_candidate_places_and_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_own_model(monkeypatch, tmp_path / "cartpole.usda")

    def begin(state: Any, random: Any, rest: Pose) -> Pose:
        root = rest.root_state.clone()
        root[:, 0, 3:7] = torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=root.dtype)  # half a turn about z
        root[:, 0, 7] = 2.0
        return Pose(root, rest.joint_position + 0.25, rest.joint_velocity)

    goal = Shaper(lambda state, random: 0 * random.uniform[:, :3] + 0.75, False)
    own = Candidate("c", {"compute_initial_state": Shaper(begin, False), "compute_goal": goal})
    envs = make_managed_envs(NAME, [own, Candidate("o")], N, 7)
    envs.begin()
    state, mine = envs.task.state, slice(0, N)
    assert not envs.failures
    torch.testing.assert_close(state["robot_joint_pos"][mine], torch.full((N, 2), 0.25))
    torch.testing.assert_close(state["box_root_link_quat_w"][mine].abs(), torch.eye(4)[2].repeat(N, 1))
    torch.testing.assert_close(state["box_root_link_lin_vel_w"][mine, 0], torch.full((N,), 2.0))
    torch.testing.assert_close(state["box_root_link_lin_vel_b"][mine, 0], torch.full((N,), -2.0))
    for _ in range(3):
        envs.step(torch.zeros(2, N, 1))
        assert (state["command_velocity"][mine] == 0.75).all() and not (state["command_velocity"][N:] == 0.75).any()
    envs.task.sim.close()


def test_candidates_are_trained_and_ranked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_own_model(monkeypatch, tmp_path / "cartpole.usda")
    shapers = tmp_path / "shapers"
    shapers.mkdir()
    (shapers / "upright.py").write_text(
        "def compute_reward(state):\n    return state['robot_joint_pos'][:, 1].cos()\n", encoding="utf-8"
    )
    given = ["--task", NAME, "--shapers", str(shapers), "--num-envs-per-shaper", "8", "--iterations", "2"]
    assert eval_shapers.main([*given, "--run-dir", str(tmp_path / "run")]) == 0
    assert "upright" in capsys.readouterr().out
