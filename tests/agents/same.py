"""When two results are the same."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from envolve.agents.common.result import TrainResult

FLOATS = ("weights", "episode_return", "test_return")


def assert_same_bytes(a: TrainResult, b: TrainResult, rows_a=slice(None), rows_b=slice(None)):
    """Bit for bit, in every field; of these members."""
    for field in fields(a):
        x, y = getattr(a, field.name)[rows_a], getattr(b, field.name)[rows_b]
        if field.name == "weights":  # zero-padded to the largest member of the call
            width = min(x.shape[1], y.shape[1])
            assert not x[:, width:].any() and not y[:, width:].any()
            x, y = x[:, :width], y[:, :width]
        assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), field.name


def same_run(a: TrainResult, b: TrainResult, tolerance: float = 1e-5) -> None:
    """Every discrete decision is the same, so all counts are; numbers agree up to float32 sums in another order.

    Q values of DDQN's two back ends differ by some 1e-7, and after a few hundred updates the weights by at most 4e-7.
    Far longer runs part at the first near-tie of two Q values.
    """
    for field in fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name in FLOATS:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=field.name)
        else:
            np.testing.assert_array_equal(x, y, err_msg=field.name)


def same_alone(setup: Any, together: TrainResult, tolerance: float = 1e-5) -> None:
    """Each of the setup's five members, trained alone by the PyTorch path, is what it was in the batch, to rounding:
    which kernel a matrix product runs on depends on the batch."""
    for i in range(5):
        alone = setup.torch([i])
        width = alone.weights.shape[1]
        part = type(together)(**{f.name: getattr(together, f.name)[[i]] for f in fields(together)})
        same_run(replace(part, weights=part.weights[:, :width]), alone, tolerance)
