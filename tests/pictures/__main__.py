"""Draws every picture, or those whose names are given, into a folder, and says what is wrong with each."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.pictures.drawn import DRAWN
from tests.pictures.rules import figure_of, problems, unit_problems


def main(words: Sequence[str]) -> int:
    if not words:
        print("expected: python -m tests.pictures DIR [PART OF A NAME ...]", file=sys.stderr)
        return 2
    folder, names = Path(words[0]), words[1:]
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name, draw in DRAWN.items():
        if not names or any(n in name for n in names):
            path = folder / f"{name}.png"
            draw(path)
            with tempfile.TemporaryDirectory() as aside:
                figure = figure_of(draw, Path(aside) / "check.png")
            found = [*dict.fromkeys(problems(figure) + unit_problems(figure))]
            wrong += bool(found)
            print(path, *(f"\n    {p[:160]}" for p in found))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
