"""All pictures by name: each is drawn by ``draw(path)``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from envolve.experiments.paper.common.drawing import save_drawing
from tests.pictures.others import PICTURES
from tests.pictures.paper import data_of, figures


def _paper(module: Any, variant: str) -> Callable[[Path], None]:
    name = module.__name__.rpartition(".")[2]
    return lambda path: void(save_drawing(module.draw(variant, data_of(name, variant)), path, False))


def void(_: Any) -> None:
    return None


DRAWN: dict[str, Callable[[Path], None]] = {
    **{name: _paper(module, variant) for name, (module, variant) in figures().items()},
    **PICTURES,
}
