"""What the head of a run's configuration keeps, and what a run that goes on says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.outer.config import versions
from envolve.outer.config.header import header_lines, header_of
from envolve.outer.config.load import CONFIG_FILE, config_of, store_config
from envolve.outer.config.versions import changed_versions
from tests.examples import examples

RAW = {"env_name": "CartPole-v0", "agents": {"gtn": {"agent_name": "DDQN"}, "ddqn": {}}, "envs": {"CartPole-v0": {}}}


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-zA-Z_0-9]+", fullmatch=True), st.text()))
def test_whatever_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "header.yaml"
    path.write_text("\n".join(["# Some words.", *header_lines(values), "", "seed: 1", "# seed: 2"]), encoding="utf-8")
    assert header_of(path) == values
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == {"seed": 1}


def test_a_run_that_goes_on_under_another_version_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = versions.environment_info()
    store_config(tmp_path, config_of(RAW, (), "test"), {"command": "a\nb"})
    path = tmp_path / CONFIG_FILE
    assert header_of(path)["command"] == "a\nb" and header_of(path)["torch"] == now["torch"]
    assert changed_versions(path) == ""
    monkeypatch.setattr(versions, "environment_info", lambda: {**now, "torch": "9.9", "git": "other"})
    words = f"begun with torch {now['torch']}, now 9.9: results may differ in the last digits"
    assert changed_versions(path) == words
    assert changed_versions(tmp_path / "none.yaml") == ""
