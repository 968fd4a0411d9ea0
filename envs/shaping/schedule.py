"""Schedules of numbers or ranges over training: curricula.

``Schedule`` is a pure function of the clock (iterations), so a resumed run continues correctly. The JSON form
{"iters": [...], "range": [lo, hi]} of the distributed-SAC project is read by ``from_levels``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, Tuple

import numpy as np

MODES = ("step", "linear")


@dataclass(frozen=True)
class Schedule:
    """Ranges (low, high) at knots, for a parameter drawn uniformly from the range. Before the first knot it is the
    first's range, after the last the last's; between two the earlier one's (mode "step") or in between ("linear")."""

    knots: Tuple[int, ...]  # iterations, rising
    ranges: Tuple[Tuple[float, float], ...]
    mode: str = "step"

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.ranges) or not self.knots:
            raise ValueError(
                f"schedule: {len(self.knots)} knots and {len(self.ranges)} values, expected as many, and one"
            )
        if any(b <= a for a, b in zip(self.knots, self.knots[1:])):
            raise ValueError(f"schedule: found knots {list(self.knots)}, expected rising iterations")
        if any(low > high for low, high in self.ranges):
            raise ValueError(f"schedule: found ranges {list(self.ranges)}, expected low <= high in each")
        if self.mode not in MODES:
            raise ValueError(f"schedule: found mode {self.mode!r}, expected {' or '.join(MODES)}")

    def __call__(self, iteration: int) -> Tuple[float, float]:
        """The range (low, high) at this iteration."""
        after = bisect_right(self.knots, iteration)
        if after == 0:
            return self.ranges[0]
        if after == len(self.knots) or self.mode == "step":
            return self.ranges[after - 1]
        # v = v_0 + (v_1 - v_0) (i - k_0) / (k_1 - k_0)
        (l0, h0), (l1, h1) = self.ranges[after - 1 : after + 1]
        share = (iteration - self.knots[after - 1]) / (self.knots[after] - self.knots[after - 1])
        return l0 + (l1 - l0) * share, h0 + (h1 - h0) * share


def schedule_from(spec: Mapping[str, Any]) -> Schedule:
    """From a configuration: {"iters": [0, 100], "values": [0.1, [0.5, 2.0]], "mode": "linear"}. A value is a number or
    a range [low, high]. Raises ValueError."""
    unknown = sorted(set(spec) - {"iters", "values", "mode"})
    if unknown or "iters" not in spec or "values" not in spec:
        raise ValueError(f"schedule: found keys {sorted(spec)}, expected iters, values and perhaps mode")
    ranges = tuple(_range(value) for value in spec["values"])
    return Schedule(tuple(int(i) for i in spec["iters"]), ranges, spec.get("mode", "step"))


def _range(value: Any) -> Tuple[float, float]:
    if isinstance(value, (int, float)):
        return float(value), float(value)
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return float(value[0]), float(value[1])
    raise ValueError(f"schedule: found value {value!r}, expected a number or [low, high]")


def from_levels(iters: Sequence[int], limits: Tuple[float, float], start: float) -> Schedule:
    """{"iters": iters, "range": limits}: at the k-th of the sorted iterations the k-th of as many evenly spaced levels
    begins, cast to the type of limits[0] (integers are cut: [1, 10] in five steps is 1, 3, 5, 7, 10). Before the first
    the value is ``start``, that of the environment's constructor. Of equal iterations the last counts."""
    kind = type(limits[0])
    evenly = np.linspace(*limits, len(iters)).tolist()  # the project's, to the last bit
    levels = {int(i): float(kind(level)) for i, level in zip(sorted(iters), evenly)}
    if min(levels) > 0:
        levels = {0: float(start), **levels}
    return Schedule(tuple(levels), tuple((v, v) for v in levels.values()))
