from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envolve.distributed.files.curriculum import Course, Curriculum, curriculum_from
from envolve.distributed.files.curriculum_code import CourseCode, CurriculumCode
from envolve.outer.config.section import GTNSection
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.search import make_search
from envolve.outer.search.nes import NES

LIMITS = {"mass": (0.0, 20.0), "steps": (1, 10)}


@st.composite
def coded(draw: st.DrawFn) -> tuple[CourseCode, Course]:
    iters = draw(st.integers(8, 150_000))
    knots = sorted(draw(st.sets(st.integers(0, iters), min_size=1, max_size=6)))
    mode = draw(st.sampled_from(["step", "linear"]))
    if draw(st.booleans()):
        low, high = 1, 10
        first, last = draw(st.integers(1, 10)), draw(st.integers(1, 10))
        return CourseCode(len(knots), iters, low, high, mode), Course(tuple(knots), first, last, mode)
    ends = [draw(st.floats(0, 20)) for _ in range(2)]
    return CourseCode(len(knots), iters, 0.0, 20.0, mode), Course(tuple(knots), *ends, mode)


@given(coded())
def test_what_is_encoded_comes_back(pair: tuple[CourseCode, Course]) -> None:
    """Also in the float32 that NES works with: iterations and integers exactly, other levels to rounding."""
    code, course = pair
    for vector in (code.encode(course), code.encode(course).astype(np.float32)):
        back = code.decode(vector)
        assert vector.shape == (code.size,)
        assert (back.iters, back.mode, back.kind) == (course.iters, course.mode, course.kind)
        assert (back.low, back.high) == pytest.approx((course.low, course.high), abs=1e-5)


@given(coded(), st.data())
def test_any_finite_vector_is_a_course(pair: tuple[CourseCode, Course], data: st.DataObject) -> None:
    code, _ = pair
    numbers = st.floats(-1e30, 1e30)
    course = code.decode(np.array(data.draw(st.lists(numbers, min_size=code.size, max_size=code.size))))
    assert len(course.iters) == code.knots and all(b > a for a, b in zip(course.iters, course.iters[1:]))
    assert 0 <= course.iters[0] <= code.iters and code.low <= min(course.low, course.high)
    assert max(course.low, course.high) <= code.high and course.kind is type(code.low)
    assert curriculum_from({"curriculum": {"x": course.written()}}).courses["x"] == course


def test_iterations_that_round_to_one_come_one_later() -> None:
    """1.5 and 2.5 are both 2 when rounded to even."""
    course = CourseCode(3, 100, 0.0, 1.0).decode(np.array([0.015, -99.0, -99.0, 0.0, 1.0]))
    assert course.iters == (2, 3, 4)


@pytest.mark.parametrize("mode", ["step", "linear"])
def test_nes_finds_a_curriculum(mode: str) -> None:
    """The score is how near the values at every tenth iteration are to those of a hidden curriculum."""
    code = CurriculumCode({"mass": CourseCode(3, 100, 0.0, 20.0, mode), "steps": CourseCode(2, 100, 1, 10, mode)})
    hidden = Curriculum({"mass": Course((0, 30, 60), 2.0, 15.0, mode), "steps": Course((10, 50), 2, 9, mode)})

    def score(c: Curriculum) -> float:
        clock = range(0, 101, 10)
        errors = [
            abs((c.courses[n].value(i) or low) - (hidden.courses[n].value(i) or low)) / (high - low)
            for n, (low, high) in LIMITS.items()
            for i in clock
        ]
        return -float(np.mean(errors))

    start = Curriculum({"mass": Course((50, 70, 90), 10.0, 10.0, mode), "steps": Course((60, 80), 5, 5, mode)})
    section = GTNSection(num_workers=16, noise_std=0.1, step_size=0.05, estimator="antithetic", num_orig_evals=1)
    nes = NES(section, 3, lambda seed: torch.from_numpy(code.encode(start)).float(), torch.ones(code.size))
    for _ in range(60):
        nes.tell(np.array([score(code.decode(w.numpy())) for w in nes.ask().worlds]))
    assert score(start) < -0.2 and score(code.decode(nes.state.psi.numpy())) > -0.08


def test_bohb_searches_the_same_numbers() -> None:
    pytest.importorskip("hpbandster")
    code = CurriculumCode({"mass": CourseCode(3, 1000, 0.0, 20.0), "steps": CourseCode(2, 1000, 1, 10, "linear")})
    search = make_search("bohb", code.space.config_space, (1, 9, 3), bracket="hyperband", seed=1, random_fraction=1 / 3)
    losses = []
    for _ in range(40):
        trial = search.ask()
        c = code.from_values(trial.values)
        assert len(c.courses["mass"].iters) == 3 and type(c.courses["steps"].low) is int
        losses.append(abs(c.courses["mass"].high - 15.0) + c.courses["mass"].iters[0] / 1000)
        search.tell(trial.id, losses[-1])
    assert min(losses[20:]) < np.median(losses[:9])


def test_values_of_a_trial_are_those_of_the_vector() -> None:
    code = CurriculumCode({"mass": CourseCode(2, 1000, 0.0, 20.0)})
    names = ["first_knot", "gap_1", "first_level", "last_level"]
    values: dict[str, Any] = dict(zip([f"curriculum.mass.{n}" for n in names], [0.1, 0.25, 0.0, 0.5]))
    assert code.from_values(values) == Curriculum({"mass": Course((100, 350), 0.0, 10.0)})
    del values["curriculum.mass.gap_1"]
    with pytest.raises(ConfigError, match="curriculum.mass.gap_1 a number from 0.001 to 1.0"):
        code.from_values(values)


def test_what_has_no_code() -> None:
    code = CourseCode(2, 100, 0.0, 1.0)
    for course in (Course((1, 2, 3), 0.0, 1.0), Course((1, 1), 0.0, 1.0), Course((1, 2), 0.0, 1.0, "linear")):
        with pytest.raises(ValueError, match="found the iterations"):
            code.encode(course)
    for vector in (np.zeros(3), np.array([0.0, np.nan, 0.0, 1.0])):
        with pytest.raises(ValueError, match="expected 4 finite numbers"):
            code.decode(vector)
    with pytest.raises(ValueError, match="expected one knot or more"):
        CourseCode(0, 100, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"expected \['mass'\]"):
        CurriculumCode({"mass": code}).encode(Curriculum({}))
