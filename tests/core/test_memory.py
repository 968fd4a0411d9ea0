"""Sizes that no machine has: refused where a limit says so, and one line below that, whoever failed to allocate."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import numpy as np
import pytest
import torch

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import ICMSection
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.goal.off_policy_section import GoalSACSection, GoalTD3Section
from envolve.agents.goal.ppo_section import GoalPPOSection
from envolve.core.memory import amount, shortage
from envolve.distributed.files.params import TrainParamsBase
from envolve.envs.section import EnvSection
from envolve.envs.shaping.section import ShapedSection
from envolve.experiments.command_line import exit_code
from envolve.outer.config.section import GTNSection
from envolve.outer.goals.evolve_sections import EvolveSection, Inner
from envolve.outer.goals.sections import RunSection

SECTIONS = {
    *(entry.section for entry in LEARNERS.values()),
    ICMSection, CRLSection, GoalSACSection, GoalTD3Section, GoalPPOSection, EnvSection, GTNSection,
    ShapedSection, RunSection, EvolveSection, Inner, TrainParamsBase,
}  # fmt: skip


@pytest.mark.parametrize("section", sorted(SECTIONS, key=lambda s: s.__name__), ids=lambda s: s.__name__)
def test_every_whole_number_has_a_most(section: type) -> None:
    hints = typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        if hints[field.name] in (int, typing.Optional[int]) and not field.metadata.get("choices"):
            limits = field.metadata["limits"]
            assert {"le", "lt"} & set(limits), f"{section.__name__}.{field.name}"
            assert field.default is None or field.default <= limits.get("le", field.default)


def numpy_refuses() -> object:
    return np.ones((10**6, 10**9))


def torch_refuses() -> object:
    return torch.ones(10**6, 10**9)


def torch_overflows() -> object:
    return torch.empty(10**10, 10**10)


def cpp_refuses() -> object:
    raise RuntimeError("std::bad_alloc")


@pytest.mark.parametrize("allocate", [numpy_refuses, torch_refuses, torch_overflows, cpp_refuses, lambda: [0] * 2**58])
def test_a_failed_allocation_is_one_line_with_the_values_that_decide(allocate, capsys) -> None:
    assert exit_code("x.py", lambda: 0 * len(str(allocate())), (ValueError,), sizes="--h_dim") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("x.py: not enough memory: ") and line.endswith("; lower --h_dim")
    assert allocate not in (numpy_refuses, torch_refuses) or "iB at once" in line


def test_other_errors_are_not_taken_for_it() -> None:
    assert not shortage(RuntimeError("shape mismatch")) and not shortage(OSError(12, "Cannot allocate memory"))
    assert amount("you tried to allocate 4000000000000 bytes. Error code 12") == "3.64 TiB"
    with pytest.raises(RuntimeError, match="mismatch"):
        exit_code("x.py", lambda: (_ for _ in ()).throw(RuntimeError("mismatch")), (ValueError,))


def test_a_run_that_never_began_leaves_no_folder(tmp_path: Path, monkeypatch, capsys) -> None:
    import envolve.experiments.train_goal as train_goal

    monkeypatch.setattr(train_goal, "GoalRun", lambda *_: torch_refuses())
    assert train_goal.main(["--task", "reacher", "--results_dir", str(tmp_path / "results")]) == 1
    assert "not enough memory" in capsys.readouterr().err
    assert not [*(tmp_path / "results").iterdir()]
