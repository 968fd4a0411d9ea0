"""The candidates that come with the project: those that are meant to be good run, each bad one fails for its reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import candidate_files, load_candidate
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import make_simulator

FOLDER = Path(__file__).parents[3] / "envs" / "user_functions"
BAD_FOLDER = Path(__file__).parents[2] / "fixtures" / "user_functions"
STEPS = 66  # two windows over which slow candidates are looked for, and raising after 50
BAD = {  # task -> file -> kind of the failure, a word of its reason, the step at which it is found
    "anymal": {
        "bad_changes_the_state": ("ChangedState", "clone", -1),
        "bad_infinite_torque": ("NotFinite", "compute_torque", 0),
        "bad_raises_after_50_steps": ("RuntimeError", "gait phase", None),
        "bad_returns_nan": ("NotFinite", "compute_reward returned nan", None),
        "bad_unknown_quantity": ("KeyError", "base_height", None),
        "bad_very_slow": ("TooSlow", "too many operations", -1),
        "bad_wrong_arguments": ("CannotLoad", "expected compute_reward(state", -1),
        "bad_wrong_dtype": ("WrongOutput", "torch.int64", None),
        "bad_wrong_shape": ("WrongOutput", "shape []", None),
    },
    "ant": {
        "bad_returns_nan": ("NotFinite", "compute_reward", None),
        "bad_unknown_quantity": ("KeyError", "base_lin_vel", None),
        "bad_wrong_shape": ("WrongOutput", "expected [16]", None),
    },
    "cartpole": {
        "bad_raises": ("RuntimeError", "", -1),
        "bad_returns_nan": ("NotFinite", "compute_reward returned nan", None),
        "bad_terminal_of_text": ("WrongOutput", "str", None),
        "bad_wrong_shape": ("WrongOutput", "shape", -1),
    },
}


def run(task: str, n: int, files: Sequence[Path]) -> ShapedEnvs:
    """All candidates in these files, n environments each, with random actions."""
    cls = physics_task(task)
    candidates = [load_candidate(path) for path in files]
    envs = ShapedEnvs(cls(make_simulator("mujoco", cls.model, n * len(candidates), cls.outputs)), candidates, key=0)
    envs.begin()
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        step = envs.step(torch.rand(envs.P, n, max(envs.action_sizes), generator=generator) * 2 - 1)
        assert torch.isfinite(step.obs).all() and torch.isfinite(step.reward).all()
    return envs


@pytest.mark.parametrize(("task", "n"), [("anymal", 16), ("ant", 16), ("cartpole", 16)])
def test_good_ones_run_and_bad_ones_fail_for_their_reason(task: str, n: int) -> None:
    bad = candidate_files(BAD_FOLDER / task)
    envs = run(task, n, candidate_files(FOLDER / task) + bad)
    names = [candidate.name for candidate in envs.candidates]
    assert {path.stem for path in bad} == set(BAD[task])
    failed = {names[i]: failure for i, failure in envs.failures.items()}
    assert set(failed) == set(BAD[task])
    for name, (kind, word, step) in BAD[task].items():
        failure = failed[name]
        assert failure.kind == kind, f"{name}: {failure}"
        assert word in failure.reason, f"{name}: {failure}"
        assert step is None or failure.step == step, f"{name}: {failure}"


def test_the_task_is_named_as_its_folder() -> None:
    """Those of mjlab's tasks have names of mjlab's: tests/envs/managers."""
    own = [folder.name for folder in FOLDER.iterdir() if not folder.name.startswith("mjlab-")]
    assert len(own) >= 3 and all(physics_task(name).name.lower() == name for name in own)


def test_there_are_eight_rewards_for_the_ranking_of_ant() -> None:
    assert len(list((FOLDER / "ant").glob("reward_*.py"))) == 8


def test_widths_of_observations_and_actions_are_what_the_files_say() -> None:
    envs = run("anymal", 1, candidate_files(FOLDER / "anymal"))
    widths = {c.name: (envs.observation_sizes[i], envs.action_sizes[i]) for i, c in enumerate(envs.candidates)}
    assert widths["observation_without_velocities"] == (30, 12)
    assert widths["observation_with_contacts"] == (52, 12)
    assert widths["torque_trot"] == (42, 6)
    assert widths["torque_direct"] == (48, 12)
    assert widths["all_five"] == (53, 12)


@pytest.mark.parametrize("task", ["anymal", "cartpole"])
def test_the_numbers_of_a_parametric_reward_change_it(task: str) -> None:
    (candidate,) = (
        c for c in [load_candidate(path) for path in candidate_files(FOLDER / task)] if c.name == "reward_parametric"
    )
    assert candidate.params is not None
    cls = physics_task(task)
    pair = [candidate, candidate.with_params(2 * candidate.params + 0.1)]
    envs = ShapedEnvs(cls(make_simulator("mujoco", cls.model, 8, cls.outputs)), pair, key=0)
    envs.begin()
    step = envs.step(torch.full((2, 4, cls.action_size), 0.3))
    assert torch.equal(step.obs[0], step.obs[1]) and (step.reward[0] != step.reward[1]).all()
