"""TensorBoard events of series of agents."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.board import check_events, write_series
from tests.outer.reporting.events import scalars

NAN = math.nan


def test_agents_are_steps_and_episodes_are_means(tmp_path: Path) -> None:
    quantities = {
        "return": [1.0, NAN, None, 3.0],
        "episode_return": [[1.0, 2.0, 3.0], [3.0, NAN], []],
        "failed": ["", "it broke", "", ""],
        "empty": [],
    }
    write_series(tmp_path, "mode 2 / ../x", quantities)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "mode_2_.._x", "no name leads out of the folder"
    assert scalars(folder) == {
        "return": [(0, 1.0), (3, 3.0)],
        "episode_return, mean": [(0, 2.0), (1, 2.0), (2, 3.0)],
    }


def test_nothing_finite_leaves_nothing(tmp_path: Path) -> None:
    write_series(tmp_path, "real", {"return": [NAN, None], "other": []})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    check_events(None)
    check_events(tmp_path / "new" / "deeper")
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"--tensorboard: cannot write {wrong}, expected a folder"):
            check_events(wrong)
