"""What a ranking's plan accepts."""

from __future__ import annotations

from pathlib import Path

from envolve.outer.shapers.plan import unwritable


def test_a_file_may_lie_in_the_run_folder_that_is_made_later(tmp_path: Path) -> None:
    later = tmp_path / "run"
    assert not unwritable("--json", later / "scores.json", later) and not unwritable("--json", None, later)
    for path, folder in ((later / "scores.json", None), (later / "deep" / "scores.json", later), (tmp_path, later)):
        assert unwritable("--json", path, folder) == [
            f"--json: cannot write {path}, expected a file in a folder that exists"
        ]
