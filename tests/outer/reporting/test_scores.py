"""scores.csv: the same bytes, however often the run was stopped."""

from __future__ import annotations

import csv
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.outer.reporting.scores import ScoreRow, ScoresCSV, read_curve
from tests.examples import examples

NAN = float("nan")


def generation(g: int) -> list[ScoreRow]:
    return [
        ScoreRow(0, "orig", g + 0.1, g + 0.1, 812, 14.0),
        ScoreRow(1, "plus", g + 1 / 3, g + 1 / 3, 900, 15),
        ScoreRow(1, "minus", NAN, NAN, 7, 1, 'the world\'s output,\nit says "NaN", is not finite'),
    ]


def write(path: Path, generations: range) -> bytes:
    with ScoresCSV(path) as scores:
        for g in generations:
            scores.write(g, generation(g))
    return path.read_bytes()


def test_columns_and_cells(tmp_path: Path) -> None:
    data = write(tmp_path / "scores.csv", range(1, 2)).decode()
    assert data == (
        "generation,member,role,score,mean_return,train_steps,episodes,reason\n"
        "1,0,orig,1.1,1.1,812,14,\n"
        "1,1,plus,1.3333333333333333,1.3333333333333333,900,15,\n"
        '1,1,minus,nan,nan,7,1,"the world\'s output, it says ""NaN"", is not finite"\n'
    )


@settings(max_examples=examples(50))
@given(st.floats(allow_nan=False), st.sampled_from([float, np.float64]))
def test_floats_read_back_as_the_same_bits(value: float, kind: type) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.csv"
        with ScoresCSV(path) as scores:
            scores.write(1, [ScoreRow(0, "orig", kind(value), 0.0, 0, 0)])
        with open(path, newline="") as f:
            back = float(next(csv.DictReader(f))["score"])
    assert back == value and math.copysign(1, back) == math.copysign(1, value)


@settings(max_examples=examples(40))
@given(cut=st.integers(0, 600), resume=st.integers(1, 4))
def test_a_file_cut_anywhere_resumes_to_the_same_bytes(cut: int, resume: int) -> None:
    """The checkpoint of generation resume - 1 follows its rows, so those are whole; anything after may be torn."""
    with tempfile.TemporaryDirectory() as folder:
        whole = write(Path(folder) / "whole.csv", range(1, 5))
        safe = len(write(Path(folder) / "safe.csv", range(1, resume)))
        path = Path(folder) / "scores.csv"
        path.write_bytes(whole[: safe + cut])
        with ScoresCSV(path, resume_generation=resume) as scores:
            for g in range(resume, 5):
                scores.write(g, generation(g))
        assert path.read_bytes() == whole


def test_each_generation_is_on_the_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    with ScoresCSV(path) as scores:
        scores.write(1, generation(1))
        assert path.read_bytes().count(b"\n") == 4


def test_missing_generations_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "scores.csv"
    write(path, range(1, 3))
    ScoresCSV(path, resume_generation=3).close()
    assert not caplog.records
    ScoresCSV(path, resume_generation=9).close()
    assert "ends at generation 2, the run resumes at 9" in caplog.text
    ScoresCSV(tmp_path / "gone.csv", resume_generation=2).close()
    assert "ends at generation 0, the run resumes at 2" in caplog.text


def test_a_finished_file_is_never_overwritten(tmp_path: Path) -> None:
    data = write(tmp_path / "scores.csv", range(1, 3))
    with pytest.raises(FileExistsError):
        ScoresCSV(tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_bytes() == data


@pytest.mark.parametrize(
    "content, message", [(b"a,b,c\n1,2,3\n", "first line"), (None, "line 3: expected a generation, found b'x1'")]
)
def test_a_foreign_file_is_refused_and_left_alone(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    if content is None:
        header, first, rest = write(path, range(1, 3)).split(b"\n", 2)
        content = b"\n".join([header, first, b"x" + rest])
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"scores.csv.*{message}"):
        ScoresCSV(path, resume_generation=2)
    assert path.read_bytes() == content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").symlink_to("/dev/full")
    scores = ScoresCSV.__new__(ScoresCSV)
    scores.path = tmp_path / "scores.csv"
    scores._file = open(scores.path, "wb")
    with pytest.raises(OSError, match="No space left on device: .*scores.csv"):
        scores.write(1, generation(1))
    scores.close()  # said once, with the name of the file


def test_curve_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    with ScoresCSV(path) as scores:
        rows = [ScoreRow(i, "orig", s, 2 * s, 1, 1) for i, s in enumerate([1.0, 3.0])]
        rows += [ScoreRow(i, ("plus", "minus")[i % 2], float(i), 2.0 * i, 1, 1) for i in range(11)]
        rows += [ScoreRow(11, "plus", NAN, NAN, 1, 1, "x"), ScoreRow(0, "confirm", 1e9, 1e9, 1, 1)]
        scores.write(1, rows)
        scores.write(2, [ScoreRow(0, "plus", NAN, NAN, 1, 1, "x")])
    first, second = read_curve(path)
    assert (first.generation, first.mean, first.low, first.high, first.failed) == (1, 2.0, 1.0, 9.0, 1)
    assert math.isnan(second.mean) and math.isnan(second.low) and second.failed == 1
    assert read_curve(path, "mean_return")[0].mean == 4.0
