"""Cards of the zoo: the command that made a world, for any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envolve.outer.config.load import CONFIG_FILE
from envolve.outer.zoo.card import best_agent, command_of, text_of


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


def made_with(learner: str, **returns: float) -> dict[str, Any]:
    """A card of a world that was evolved with this learner."""
    unseen = {name: {"mean_return": r, "interval": None, "train_steps": 8, "agents": 3} for name, r in returns.items()}
    return {
        "name": "X-v0-bandit", "task": "X-v0", "about": "A world.", "real_steps": 1, "seed": 0, "licence": "MIT",
        "library": "stable-baselines3", "learner": learner, "unseen": unseen, "random": {}, "command": "",
    }  # fmt: skip


def test_an_agent_of_the_evolutions_family_is_marked_and_not_the_best_unseen_one() -> None:
    card = made_with("DDQN_vary", ppo=1.0, dqn=2.0)
    text = text_of(card)
    assert best_agent(card)[0] == "ppo"
    assert (
        "dqn *" in text and "ppo *" not in text and "of the family of DDQN_vary" in text and "never saw (" not in text
    )
    card = made_with("PPO_vary", ppo_normalised=3.0, td3=1.0)
    assert best_agent(card)[0] == "td3" and "ppo_normalised *" in text_of(card)


def test_agents_of_other_families_are_all_unseen() -> None:
    for learner in ("", "TD3_vary"):
        card = made_with(learner, ppo=1.0, dqn=2.0)
        assert best_agent(card)[0] == "dqn" and "Agents that it never saw (" in text_of(card)
        assert "*" not in text_of(card)


def test_a_world_may_have_seen_all() -> None:
    assert best_agent(made_with("PPO", ppo=1.0)) == ("-", "-")
