"""When two results are the same."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from agents.result import TrainResult


def assert_same_bytes(a: TrainResult, b: TrainResult, rows_a=slice(None), rows_b=slice(None)):
    """Bit for bit, in every field; of these members."""
    for field in fields(a):
        x, y = getattr(a, field.name)[rows_a], getattr(b, field.name)[rows_b]
        if field.name == "weights":  # zero-padded to the largest member of the call
            width = min(x.shape[1], y.shape[1])
            assert not x[:, width:].any() and not y[:, width:].any()
            x, y = x[:, :width], y[:, :width]
        assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), field.name
