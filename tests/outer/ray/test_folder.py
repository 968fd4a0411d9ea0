"""A folder that travels: what comes out is what went in, and nothing is written beside it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.outer.exchange.machine import ExchangeError, Rejected
from envolve.outer.ray import folder as folders
from envolve.outer.ray.codec import join
from envolve.outer.ray.folder import folder_bytes, write_folder


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_there_and_back(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    files = {"run_0/checkpoint.pt": b"\0\1\2", "run_0/empty": b"", "agents.json": b"{}"}
    for name, data in files.items():
        (a / name).parent.mkdir(parents=True, exist_ok=True)
        (a / name).write_bytes(data)
    (a / "link").symlink_to("/etc/passwd")
    write_folder(folder_bytes(a), b)
    assert contents(b) == files, "the link did not travel"


def test_checkpoints_are_written_last(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(folders, "write_atomic", lambda path, data: written.append(path.rpartition("/")[2]))
    one = torch.zeros(1, dtype=torch.uint8)
    names = ["a/checkpoint.pt", "a/scores.csv", "a/model.pt"]
    write_folder(join({"names": names}, [one] * 3), tmp_path)
    assert written == ["model.pt", "scores.csv", "checkpoint.pt"]


def test_no_folder_is_no_bytes(tmp_path):
    assert folder_bytes(tmp_path / "absent") == b""
    write_folder(b"", tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MAX_BYTES", 3)
    (tmp_path / "x").write_bytes(b"four")
    with pytest.raises(ExchangeError, match="choose a --run-dir that all nodes see"):
        folder_bytes(tmp_path)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//x", "./x", "", "a\nb", "..\\x", 1, "x" * 600])
def test_names_that_lead_elsewhere(tmp_path, name):
    data = join({"names": [name]}, [torch.zeros(1, dtype=torch.uint8)])
    with pytest.raises(Rejected):
        write_folder(data, tmp_path / "in")
    assert not list(tmp_path.iterdir())


@given(st.binary(min_size=1, max_size=200))
def test_other_bytes_are_refused(tmp_path_factory, data):
    with pytest.raises(Rejected):
        write_folder(data, tmp_path_factory.mktemp("f"))


def test_values_that_are_no_bytes_are_refused(tmp_path):
    for content in (torch.zeros(1), torch.zeros(1, 1, dtype=torch.uint8)):
        with pytest.raises(Rejected, match="not bytes"):
            write_folder(join({"names": ["x"]}, [content]), tmp_path)
