"""Folders of runs that begin in the same second."""

import pytest

from envolve.outer.reporting.folders import claimed, new_folder


def test_a_second_run_has_a_folder_of_its_own(tmp_path):
    with claimed(tmp_path / "runs" / "run") as first, claimed(tmp_path / "runs" / "run") as second:
        assert (first.name, second.name) == ("run", "run_2")
        assert first.is_dir() and second.is_dir()
        (second / "result").write_text("1")
    assert not first.exists()  # nothing was written
    assert (second / "result").read_text() == "1"


def test_a_failed_run_keeps_what_it_wrote(tmp_path):
    with pytest.raises(KeyError), claimed(tmp_path / "run") as folder:
        (folder / "result").write_text("1")
        raise KeyError
    assert (tmp_path / "run" / "result").exists()


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(FileExistsError):
        new_folder(tmp_path / "run")
