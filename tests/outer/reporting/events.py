"""TensorBoard events, read back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> (step, value) of every event of one folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(e.step, round(e.value, 4)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
