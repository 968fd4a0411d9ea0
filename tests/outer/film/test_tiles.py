"""Pictures beside each other: none overlaps another, and players get sides that they take."""

from __future__ import annotations

import numpy as np

from envolve.outer.film.tiles import BLOCK, DARK, GAP, below, tiled


def test_every_picture_is_there_whole_in_its_place() -> None:
    colours = [(200, 10, 10), (10, 200, 10), (10, 10, 200)]
    pictures = [np.full((20, 30, 3), c, np.uint8) for c in colours]
    out = tiled(pictures, 2)
    assert out.shape[0] % BLOCK == 0 and out.shape[1] % BLOCK == 0
    for i, colour in enumerate(colours):
        row, column = divmod(i, 2)
        y, x = GAP + row * (20 + GAP), GAP + column * (30 + GAP)
        assert (out[y : y + 20, x : x + 30] == colour).all()
        assert (out == colour).all(2).sum() == 600, "and nowhere else"


def test_a_heading_has_room_of_its_own_and_is_cut_if_it_is_long() -> None:
    picture = np.full((20, 30, 3), (200, 10, 10), np.uint8)
    out = tiled([picture], 1, "a heading that is much too long for a picture of thirty pixels")
    assert out.shape[0] > tiled([picture], 1).shape[0] and ((out == (200, 10, 10)).all(2)).sum() == 600


def test_lines_below_a_picture_cover_nothing_of_it() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (100, 200, 3)).astype(np.uint8)
    for lines in (("one",), ("a line that is far too long for the picture " * 4, "two\x1b[31m")):
        made = below(picture, *lines)
        assert made.shape[0] % BLOCK == 0 and made.shape[1] == 200 and (made[:100] == picture).all()
        strip = made[100:].astype(int)
        assert (strip[:, -GAP + 2 :] == DARK).all() and (strip.max(2) > 200).sum() > 20 * len(lines), (
            "text, not beyond it"
        )
