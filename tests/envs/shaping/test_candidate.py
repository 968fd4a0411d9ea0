"""Candidate files: what is accepted, and what the error says of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.envs.physics.task import SHAPER_TYPES
from envolve.envs.shaping.candidate import (
    WrongOutput,
    candidate_files,
    check_reward,
    check_tensor,
    check_terminal,
    load_candidate,
)


def write(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def test_a_file_replaces_the_types_it_defines_and_no_others(tmp_path: Path) -> None:
    path = write(
        tmp_path, "def compute_reward(state): return state['x']\ndef compute_terminal(state): return state['x'] > 0\n"
    )
    assert set(load_candidate(path).shapers) == {"compute_reward", "compute_terminal"}
    assert set(load_candidate(path, ["compute_reward"]).shapers) == {"compute_reward"}


def test_functions_may_take_the_numbers_of_params(tmp_path: Path) -> None:
    path = write(tmp_path, "PARAMS = {'a': 1, 'b': 0.5}\ndef compute_reward(state, params): return params[:, 0]\n")
    candidate = load_candidate(path)
    assert candidate.shapers["compute_reward"].takes_params
    assert candidate.params is not None and candidate.params.tolist() == [1.0, 0.5]
    assert candidate.with_params(torch.tensor([2.0, 3.0])).shapers == candidate.shapers


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("def compute_reward(: pass", "SyntaxError", "in line 1 of "),
        ("import nowhere_to_be_found", "ModuleNotFoundError", "nowhere_to_be_found"),
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("exit('no')", "SystemExit", "no"),
        ("def compute_rewards(state): pass", "CannotLoad", "defines none of compute_reward"),
        ("def compute_reward(): pass", "CannotLoad", "expected compute_reward(state[, params])"),
        ("def compute_torque(state): pass", "CannotLoad", "expected compute_torque(action, state[, params])"),
        ("compute_reward = 3", "CannotLoad", "compute_reward is int, expected a function"),
        ("def compute_reward(state, params): pass", "CannotLoad", "there is no PARAMS"),
        ("ACTION_SIZE = 0\ndef compute_reward(state): pass", "CannotLoad", "found ACTION_SIZE = 0"),
        ("PARAMS = [1]\ndef compute_reward(state): pass", "CannotLoad", "found PARAMS = [1]"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, kind: str, said: str) -> None:
    failure = load_candidate(write(tmp_path, text)).failure
    assert failure is not None and failure.kind == kind
    assert said in failure.reason or said in failure.traceback


def test_the_traceback_of_an_import_is_the_files_own(tmp_path: Path) -> None:
    failure = load_candidate(write(tmp_path, "x = 1\nraise KeyError('here')")).failure
    assert failure is not None and "line 2" in failure.traceback and "importlib" not in failure.traceback


def test_a_file_with_other_types_is_told_which(tmp_path: Path) -> None:
    failure = load_candidate(write(tmp_path, "def compute_reward(state): pass"), ["compute_terminal"]).failure
    assert failure is not None and "it defines compute_reward" in failure.reason


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'compute_rewards': expected some of compute_reward"):
        load_candidate(write(tmp_path, ""), ["compute_rewards"])


def test_a_folder_is_read_by_name_without_helpers(tmp_path: Path) -> None:
    for name in ("b", "a", "_shared"):
        write(tmp_path, "def compute_reward(state): return state['x']", name)
    assert [p.stem for p in candidate_files(tmp_path)] == ["a", "b"]
    assert candidate_files(tmp_path / "b.py") == [tmp_path / "b.py"]
    with pytest.raises(FileNotFoundError, match="with one file per candidate"):
        candidate_files(tmp_path / "none")


def test_a_reward_may_come_with_components() -> None:
    parts = {"speed": torch.ones(3)}
    reward, components = check_reward((torch.zeros(3), parts), 3)
    assert reward.shape == (3,) and components is parts
    assert check_reward(torch.zeros(3), 3)[1] == {}
    with pytest.raises(WrongOutput, match=r"component 'speed' returned shape \[2\], expected \[3\]"):
        check_reward((torch.zeros(3), {"speed": torch.zeros(2)}), 3)
    with pytest.raises(WrongOutput, match="a tuple with a Tensor, expected a dict"):
        check_reward((torch.zeros(3), torch.zeros(3)), 3)


def test_ends_may_be_bool_or_numbers() -> None:
    assert check_terminal(torch.tensor([True, False]), 2).tolist() == [True, False]
    assert check_terminal(torch.tensor([0.0, 2.0]), 2).tolist() == [False, True]
    assert check_terminal(torch.tensor([0, 1]), 2).tolist() == [False, True]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_tensor_passes_if_and_only_if_its_shape_is_the_expected_one(have: list[int], want: list[int]) -> None:
    if have == want:
        assert check_tensor("f", torch.zeros(have), tuple(want)).shape == tuple(have)
    else:
        with pytest.raises(WrongOutput, match="returned shape"):
            check_tensor("f", torch.zeros(have), tuple(want))


def test_wrong_types_are_named() -> None:
    with pytest.raises(WrongOutput, match="returned list, expected a tensor"):
        check_tensor("f", [1.0], (1,))
    with pytest.raises(WrongOutput, match="torch.int64, expected a floating-point tensor"):
        check_tensor("f", torch.zeros(2, dtype=torch.int64), (2,))
    with pytest.raises(WrongOutput, match=r"shape \[2, 0\], expected \[2, any\]"):
        check_tensor("f", torch.zeros(2, 0), (2, None))


def test_the_types_are_those_of_the_task() -> None:
    assert SHAPER_TYPES[:4] == ["compute_reward", "compute_observation", "compute_torque", "compute_terminal"]
