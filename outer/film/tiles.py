"""Several pictures as one: rows and columns, a line of text below each, and a heading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

GAP, PAPER, INK = 6, (250, 250, 251), (24, 28, 34)
HEADING = 15  # px, height of its letters
BLOCK = 16  # px: most players want sides that are a multiple of it


def tiled(pictures: Sequence[np.ndarray], columns: int, heading: str = "") -> np.ndarray:
    """pictures: uint8 [h, w, 3], all of one size, row by row -> uint8 [H, W, 3], H and W multiples of
    ``BLOCK``."""
    from PIL import Image, ImageDraw, ImageFont

    h, w, _ = pictures[0].shape
    rows = -(-len(pictures) // columns)
    top = HEADING + 2 * GAP if heading else GAP
    width, height = columns * (w + GAP) + GAP, rows * (h + GAP) + top
    image = Image.new("RGB", (width + -width % BLOCK, height + -height % BLOCK), PAPER)
    if heading:
        font = ImageFont.load_default(HEADING)
        while len(heading) > 4 and font.getlength(heading) > width - 2 * GAP:
            heading = f"{heading[:-4]}..."
        ImageDraw.Draw(image).text((GAP, GAP - 1), heading, fill=INK, font=font)
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        image.paste(Image.fromarray(picture), (GAP + column * (w + GAP), top + row * (h + GAP)))
    return np.asarray(image)
