"""Folder of this project's code, in a checkout or installed. Python 3.8."""

from __future__ import annotations

from pathlib import Path

import envolve

CODE = Path(__file__).resolve().parents[1]  # has agents/, envs/, configs/, ...: a checkout, or site-packages/envolve
IMPORTS = Path(envolve.__file__).resolve().parents[1]  # where Python finds the package: a checkout, or site-packages
