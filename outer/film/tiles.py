"""Several pictures as one: rows and columns, lines of text below a picture, and a heading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envolve.core.cleaning import printable

GAP, PAPER, INK = 6, (250, 250, 251), (24, 28, 34)
DARK, LIGHT = (24, 28, 34), (235, 238, 242)
HEADING, LETTERS, LINE = 15, 13, 19  # px: letters of a heading and of a caption, a line of it
BLOCK = 16  # px: most players want sides that are a multiple of it


def below(picture: np.ndarray, *lines: str) -> np.ndarray:
    """The picture, uint8 [h, w, 3], above lines of text on dark ground; its height becomes a multiple of ``BLOCK``.
    A line that is too long is cut."""
    from PIL import Image, ImageDraw, ImageFont

    h, w, _ = picture.shape
    strip = len(lines) * LINE + GAP
    image = Image.new("RGB", (w, h + strip + -(h + strip) % BLOCK), DARK)
    image.paste(Image.fromarray(picture), (0, 0))
    font, pen = ImageFont.load_default(LETTERS), ImageDraw.Draw(image)
    for k, line in enumerate(lines):
        text = printable(line)
        while len(text) > 4 and font.getlength(text) > w - 2 * GAP:
            text = f"{text[:-4]}..."
        pen.text((GAP, h + GAP // 2 + k * LINE), text, fill=LIGHT, font=font)
    return np.asarray(image)


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
