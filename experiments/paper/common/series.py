"""Title, colour and line of a series, the same in all pictures."""

from __future__ import annotations

from dataclasses import dataclass

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


def style(label: str, place: int) -> Style:
    """Style of an unknown series: its own label; ``place`` in its file gives the colour."""
    return STYLES.get(label) or Style(label, COLOURS[place % len(COLOURS)], ("-", "--", ":")[place // len(COLOURS) % 3])
