"""Cards of the zoo: the command that made a world, for any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from envolve.outer.config.load import CONFIG_FILE
from envolve.outer.zoo.card import command_of


@pytest.mark.parametrize(
    "command, said",
    [
        (
            "envolve run /home/me/envolve/configs/zoo/acrobot.yaml --seed 1",
            "envolve run configs/zoo/acrobot.yaml --seed 1",
        ),
        ("GTN_master.py /a/default_config_cartpole_syn_env.yaml", "GTN_master.py default_config_cartpole_syn_env.yaml"),
        ("envolve run configs/zoo/acrobot.yaml --results-dir /tmp/x", "envolve run configs/zoo/acrobot.yaml"),
        ("envolve evolve gymnasium:LunarLander-v3 --minutes 5", "envolve evolve gymnasium:LunarLander-v3 --minutes 5"),
    ],
)
def test_a_command_names_no_folder_of_the_machine(tmp_path: Path, command: str, said: str) -> None:
    (tmp_path / CONFIG_FILE).write_text(f"# seed: 0\n# command: {command}\n\nseed: 0\n")
    assert command_of(tmp_path) == said


def test_a_run_may_not_say_how_it_was_started(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text("seed: 0\n")
    assert command_of(tmp_path) == ""
