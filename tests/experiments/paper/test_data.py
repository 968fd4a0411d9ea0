"""common/data.py: what is written is read again, and what is no data is refused with its place."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from envolve.experiments.paper.common.data import Data, DataError, data_path, is_full, load, save


def some(**changes):
    series = {
        "mode 2": {
            "return": np.array([-12.0, math.nan]), "train_steps": np.array([150, 170]), "failed": ["", "it broke"],
            "episode_return": np.array([[-50, -12.1], [-1e6, math.nan]], np.float32),
            "episode_length": [[50, 12], [3, 0]], "worlds": ["a", "b"],
        }
    }  # fmt: skip
    return Data(
        **{
            **dict(
                experiment="compare_proxies",
                task="Cliff",
                settings={"seed": 3, "out": Path("x")},
                quick=True,
                series=series,
                seconds=1.5,
            ),
            **changes,
        }
    )


def test_read_as_written(tmp_path):
    path = data_path(tmp_path, "compare_proxies", "Cliff", "auc")
    assert path == tmp_path / "paper" / "compare_proxies" / "Cliff_auc.json"
    assert data_path(tmp_path, "x", "Cliff").name == "Cliff.json"
    save(path, some())
    text = path.read_text()
    assert "NaN" not in text and "-12.1]" in text  # float32 keeps its own digits
    data = load(path)
    assert (data.experiment, data.task, data.quick, data.seconds) == ("compare_proxies", "Cliff", True, 1.5)
    assert data.settings == {"seed": 3, "out": "x"} and "torch" in data.versions
    s = data.series["mode 2"]
    assert s["return"][0] == -12 and math.isnan(s["return"][1]) and s["train_steps"] == [150, 170]
    assert s["episode_return"][0] == [-50, -12.1] and math.isnan(s["episode_return"][1][1])
    assert s["failed"] == ["", "it broke"] and s["worlds"] == ["a", "b"]
    save(tmp_path / "again.json", data)
    assert (tmp_path / "again.json").read_text() == text


def test_full_data_is_known(tmp_path):
    path = tmp_path / "x.json"
    assert not is_full(path)
    save(path, some())
    assert not is_full(path)
    save(path, some(quick=False))
    assert is_full(path)
    path.write_text("{")
    assert not is_full(path)


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ({"a": {"return": [1.0, 2.0], "train_steps": [1]}}, "2 of return, 1 of train_steps"),
        ({"a": {"return": [math.inf]}}, "found inf"),
        ({"a": {"return": ["x"]}}, "series.a'.return: found 'x', expected a number"),
        ({"a": {"return": [True]}}, "found True"),
        ({"a": {"failed": [None]}}, "series.a'.failed: found None, expected a reason"),
        ({"a": {"episode_return": [1.0]}}, "expected [runs][episodes]"),
        ({"a": {"episode_return": [[1.0]], "episode_length": [[1, 2]]}}, "1 returns and 2 lengths"),
        ({"a": {"return": 3}}, "found int, expected a list"),
        ({"a": [1]}, "series.a': found list"),
        ({"a": {"x": [object()]}}, "a value of type object"),
    ],
)
def test_what_is_no_data_is_not_written(tmp_path, series, words):
    with pytest.raises(DataError) as e:
        save(tmp_path / "x.json", some(series=series))
    assert words in str(e.value) and str(tmp_path / "x.json") in str(e.value)
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("quick"), "'quick' is missing"),
        (lambda c: c.update(quick=1), "'quick': found int, expected bool"),
        (lambda c: c.update(seconds="1"), "'seconds': found str, expected number"),
        (lambda c: c.update(seconds=True), "'seconds': found bool, expected number"),
        (lambda c: c.update(more=1), "'more' is not expected"),
        (lambda c: c["series"].update(b=1), "'series.b': found int"),
    ],
)
def test_damaged_files(tmp_path, change, words):
    path = tmp_path / "x.json"
    save(path, some())
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError) as e:
        load(path)
    assert words in str(e.value) and str(path) in str(e.value)


@pytest.mark.parametrize(("text", "words"), [("[1]", "found list"), ("{", "found no JSON"), ("[" * 99999, "no JSON")])
def test_files_of_other_kinds(tmp_path, text, words):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=words):
        load(tmp_path / "x.json")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path / "none.json")
