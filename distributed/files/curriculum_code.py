"""Encodes a curriculum as numbers for an outer loop: a vector for NES, a search space for BOHB, and back.

A course with K iterations t_1 < ... < t_K and levels from v_1 to v_K is K + 2 numbers, whatever its mode:

    t_1 / T,  ln((t_2 - t_1) / T), ..., ln((t_K - t_{K-1}) / T),  (v_1 - low) / (high - low), (v_K - low) / (high - low)

with T iterations of a whole run and the limits ``low`` and ``high`` of values: all of order one, so that one noise_std
fits them, and whatever noise does to the logarithms of the gaps, iterations keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envolve.distributed.files.curriculum import SECTION, Course, Curriculum
from envolve.outer.config.yaml_lines import ConfigError, show
from envolve.outer.hpo.space import Parameter, Space
from envolve.outer.hpo.trial import Plain


@dataclass(frozen=True)
class CourseCode:
    """Fixed part of one parameter's schedule. ``low`` and ``high`` bound all levels; levels are integers if both
    are."""

    knots: int  # K
    iters: int  # T
    low: float
    high: float
    mode: str = "step"

    def __post_init__(self) -> None:
        if self.knots < 1 or self.iters < self.knots or not self.low < self.high:
            raise ValueError(
                f"found {self.knots} knots in {self.iters} iterations, values from {self.low} to {self.high}; "
                "expected one knot or more, an iteration for each, and low < high"
            )

    @property
    def size(self) -> int:
        return self.knots + 2

    def encode(self, course: Course) -> np.ndarray:
        """Encodes a schedule as float64 [K + 2]. Raises ValueError for a schedule that does not fit."""
        gaps = np.diff(course.iters)
        if len(course.iters) != self.knots or course.mode != self.mode or (gaps <= 0).any():
            expected = f"{self.knots} different ones, {self.mode}"
            raise ValueError(f"found the iterations {list(course.iters)}, {course.mode}; expected {expected}")
        levels = (np.array([course.low, course.high]) - self.low) / (self.high - self.low)
        return np.concatenate([[course.iters[0] / self.iters], np.log(gaps / self.iters), levels])

    def decode(self, vector: np.ndarray) -> Course:
        """Decodes a vector [K + 2] of any finite numbers; values out of range are clipped. Raises ValueError."""
        vector = np.asarray(vector, dtype=np.float64)
        if vector.shape != (self.size,) or not np.isfinite(vector).all():
            raise ValueError(f"found {vector}, expected {self.size} finite numbers")
        gaps = self.iters * np.exp(np.clip(vector[1 : self.knots], math.log(1 / self.iters), 0.0))
        at = self.iters * min(max(float(vector[0]), 0.0), 1.0)
        iters = [round(at)]
        for gap in gaps:
            at += gap
            iters.append(max(round(at), iters[-1] + 1))  # what rounds to the same iteration comes one later
        kind = type(self.low) if type(self.low) is type(self.high) else float
        values = np.clip(self.low + (self.high - self.low) * vector[-2:], self.low, self.high)
        first, last = (kind(round(v)) if kind is int else kind(v) for v in values)
        return Course(tuple(iters), first, last, self.mode)

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """Search axes of the same numbers; gaps are on a logarithmic axis."""
        key = f"{SECTION}.{name}"
        gaps = [
            Parameter(f"{key}.gap_{k}", float, low=1 / self.iters, high=1.0, log=True) for k in range(1, self.knots)
        ]
        levels = [Parameter(f"{key}.{end}_level", float, low=0.0, high=1.0) for end in ("first", "last")]
        return (Parameter(f"{key}.first_knot", float, low=0.0, high=1.0), *gaps, *levels)


@dataclass(frozen=True)
class CurriculumCode:
    """Codes of all parameters of a curriculum, in sequence."""

    courses: Mapping[str, CourseCode]

    @property
    def size(self) -> int:
        """Number of entries of the vector."""
        return sum(code.size for code in self.courses.values())

    @cached_property
    def space(self) -> Space:
        """Search space; ``space.config_space`` is the ConfigSpace."""
        return Space(tuple(p for name, code in self.courses.items() for p in code.parameters(name)))

    def encode(self, curriculum: Curriculum) -> np.ndarray:
        """Encodes a curriculum as float64 [size]. Raises ValueError."""
        if set(curriculum.courses) != set(self.courses):
            raise ValueError(f"found a curriculum of {sorted(curriculum.courses)}, expected {sorted(self.courses)}")
        parts = [code.encode(curriculum.courses[name]) for name, code in self.courses.items()]
        return np.concatenate([np.zeros(0), *parts])

    def decode(self, vector: np.ndarray) -> Curriculum:
        """Decodes a vector [size]. Raises ValueError."""
        if np.shape(vector) != (self.size,):
            raise ValueError(f"found a vector of shape {np.shape(vector)}, expected {self.size} numbers")
        ends = np.cumsum([code.size for code in self.courses.values()])
        parts = np.split(np.asarray(vector, dtype=np.float64), ends[:-1]) if self.courses else []
        return Curriculum({n: code.decode(part) for (n, code), part in zip(self.courses.items(), parts)})

    def from_values(self, values: Mapping[str, Plain]) -> Curriculum:
        """Decodes a trial of a search over ``space``. Raises ConfigError."""
        missing = [p.name for p in self.space.parameters if p.name not in values]
        if missing or any(not self.space.by_name[name].allows(v) for name, v in values.items()):
            expected = ", ".join(f"{p.name} {p}" for p in self.space.parameters)
            raise ConfigError([f"{SECTION}: found {show(dict(values))}, expected {expected}"])
        vector = [math.log(float(values[p.name])) if p.log else float(values[p.name]) for p in self.space.parameters]
        return self.decode(np.array(vector))
