"""Title, colour and line of a series, the same in all pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envolve.outer.names import CURIOUS_SUFFIX, VARY_SUFFIX
from envolve.outer.reporting.style import BLUE, COLOURS, GREEN, GREY, ORANGE

PINK, SKY, AMBER = COLOURS[3:6]


@dataclass(frozen=True)
class Style:
    name: str
    colour: str
    line: str = "-"


STYLES = {
    "mode -1": Style("no RN, curious agent", GREY, "--"),
    "mode 0": Style("no RN", "#000000"),
    "mode 1": Style("exclusive potential RN", BLUE),
    "mode 2": Style("additive potential RN", ORANGE),
    "mode 3": Style("augmented exclusive potential RN", BLUE, "--"),
    "mode 4": Style("augmented additive potential RN", ORANGE, "--"),
    "mode 5": Style("exclusive non-potential RN", GREEN),
    "mode 6": Style("additive non-potential RN", PINK),
    "mode 7": Style("augmented exclusive non-potential RN", GREEN, "--"),
    "mode 8": Style("augmented additive non-potential RN", PINK, "--"),
    "mode 101": Style("exclusive weighted info vector", SKY, ":"),
    "mode 102": Style("additive weighted info vector", AMBER, ":"),
    "real": Style("real task", ORANGE),
    "varied": Style("SE, hyperparameters varied", BLUE),
    "fixed": Style("SE, hyperparameters fixed", GREEN),
}


LEARNERS = {  # as a configuration names them -> as a text does
    "ddqn": "DDQN", "duelingddqn": "Dueling DDQN", "td3_discrete": "discrete TD3", "td3": "TD3", "sac": "SAC",
    "ppo": "PPO", "ql": "Q-learning", "sarsa": "SARSA", "sb3_dqn": "SB3 DQN", "sb3_dqn_target": "SB3 DQN, target 100",
    "sb3_ppo": "SB3 PPO", "sb3_a2c": "SB3 A2C",
}  # fmt: skip


def learner(name: Any) -> str:
    """Name of a learner in a text: Dueling DDQN; with _vary and _icm said in words."""
    own, plain = str(name or ""), str(name or "").lower()
    plain, curious = plain.removesuffix(VARY_SUFFIX), plain.removesuffix(VARY_SUFFIX).endswith(CURIOUS_SUFFIX)
    return LEARNERS.get(plain.removesuffix(CURIOUS_SUFFIX), own) + ", curious" * curious


def series_name(label: str) -> str:
    """Name of a series in a text: additive potential RN for mode 2, DDQN, real task for ddqn real."""
    first, _, last = label.rpartition(" ")
    if label in STYLES:
        return STYLES[label].name
    return f"{learner(first)}, {STYLES[last].name}" if first and last in STYLES else label


def style(label: str, place: int) -> Style:
    """Style of an unknown series: its own label; ``place`` in its file gives the colour."""
    return STYLES.get(label) or Style(label, COLOURS[place % len(COLOURS)], ("-", "--", ":")[place // len(COLOURS) % 3])
