"""The configuration in a world's file is checked as one in a YAML file, with what a command changes in it."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from envolve.outer.config.stored import stored_config
from envolve.outer.config.yaml_lines import ConfigError
from tests.outer.small import cliff


def world(**gtn: Any) -> Any:
    config = copy.deepcopy(cliff().data)
    config["agents"]["gtn"].update(gtn)
    return SimpleNamespace(path="model.pt", config=config)


def test_a_copy_is_checked_and_changed() -> None:
    file = world()
    before = copy.deepcopy(file.config)
    config, warnings = stored_config(file, lambda raw: raw["agents"]["gtn"].update(agent_name="sarsa"))
    assert config["agents"]["gtn"]["agent_name"] == "sarsa" and file.config == before and isinstance(warnings, list)
    assert stored_config(file)[0]["agents"]["gtn"]["agent_name"] == before["agents"]["gtn"]["agent_name"]


def test_messages_name_the_file_or_the_option() -> None:
    with pytest.raises(ConfigError, match=r"model\.pt: config: agents\.gtn\.unheard_of: found an unknown key"):
        stored_config(world(unheard_of=1))
    named = {("agents", "gtn", "agent_name"): "--agent"}
    with pytest.raises(ConfigError, match=r"^--agent: found 'nobody'"):
        stored_config(world(agent_name="nobody"), options=named)
    for config in ({}, {"agents": 3}, {"agents": {"gtn": None}}):
        with pytest.raises(ConfigError, match=r"model\.pt: config: found no section agents\.gtn"):
            stored_config(SimpleNamespace(path="model.pt", config=config))  # type: ignore[arg-type]
