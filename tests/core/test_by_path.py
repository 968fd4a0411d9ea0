"""Modules from files that are named by path execute the bytes that were read, and no others."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path

import pytest

from envolve.core.by_path import module_of
from envolve.distributed.files.params_file import load_train_params
from envolve.envs.shaping.candidate import load_candidate

PARAMS = """
from envolve.distributed.files.params import TrainParamsBase

class TrainParams(TrainParamsBase):
    num_iter = 7
"""


def test_the_bytes_are_executed_and_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("x = 2")
    module = module_of("envolve_by_path_mine", str(path), b"x = 1")
    assert module.x == 1 and sys.modules.pop("envolve_by_path_mine") is module and module.__file__ == str(path)


def test_a_module_need_not_be_listed(tmp_path: Path) -> None:
    module_of("envolve_by_path_unlisted", str(tmp_path / "mine.py"), b"", listed=False)
    assert "envolve_by_path_unlisted" not in sys.modules


@pytest.mark.parametrize("text", [b"1 / 0", b"def f(: pass", b"raise SystemExit", b"raise KeyboardInterrupt"])
def test_what_cannot_be_executed_is_not_listed(tmp_path: Path, text: bytes) -> None:
    with pytest.raises((Exception, SystemExit, KeyboardInterrupt)):
        module_of("envolve_by_path_failed", str(tmp_path / "mine.py"), text)
    assert "envolve_by_path_failed" not in sys.modules


def test_tracebacks_have_the_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = module_of("envolve_by_path_f", "mine.py", b"def f(): pass", listed=False).f
    assert function.__code__.co_filename == str(tmp_path / "mine.py")


def stale(path: Path, text: str, other: str) -> None:
    """Writes text, and beside it compiled code of another text that Python's import would take for its own: both have
    the same size and time."""
    assert len(text) == len(other)
    path.write_text(other)
    os.utime(path, (1e9, 1e9))
    py_compile.compile(str(path), doraise=True)
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def test_compiled_code_of_an_earlier_text_is_not_executed(tmp_path: Path) -> None:
    text = "PARAMS = {'a': 1.0}\ndef compute_reward(state, params): return params[:, 0]\n"
    stale(tmp_path / "mine.py", text, text.replace("1.0", "2.0"))
    candidate = load_candidate(tmp_path / "mine.py")
    assert candidate.params is not None and candidate.params.tolist() == [1.0]
    stale(tmp_path / "params.py", PARAMS, PARAMS.replace("7", "8"))
    assert load_train_params(tmp_path / "params.py").num_iter == 7
