from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.distributed.files.params import ParamsError
from envolve.distributed.programs.cpus import deal, number_of_threads, number_of_worker, number_per_role

MINITAUR = {
    "SAC_NUM_COLLECT_WORKERS": "4",
    "SAC_REVERB_CPUS": "4",
    "SAC_TRAIN_CPUS": "4",
    "SAC_COLLECT_WORKER_CPUS": "1",
}


def test_the_seeds_variables_for_minitaur() -> None:
    assert number_per_role(MINITAUR) == (4, 1)
    shares = deal(4, range(10, 24), MINITAUR)  # and the two more CPUs that its README asks for
    assert [sorted(c.cpus) for c in shares.collectors] == [[10], [11], [12], [13]]
    assert sorted(shares.learner.cpus) == [14, 15, 16, 17] and sorted(shares.replay.cpus) == [18, 19, 20, 21]
    assert sorted(shares.evaluator.cpus) == [22, 23]
    assert shares.learner.environ() == {
        name: "4" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }
    assert shares.collectors[2].environ(2)["SLURM_PROCID"] == "2"


def test_a_program_by_hand_has_threads_and_a_number() -> None:
    found = [number_of_threads({"OMP_NUM_THREADS": text}) for text in ("", "3", "4,2")]  # 4,2: of two levels
    assert found == [1, 3, 4] and number_of_threads({}) == 1
    assert [number_of_worker(environ) for environ in ({}, {"SLURM_PROCID": ""}, {"SLURM_PROCID": "7"})] == [0, 0, 7]
    with pytest.raises(ParamsError, match="OMP_NUM_THREADS: found 'all', expected a positive integer"):
        number_of_threads({"OMP_NUM_THREADS": "all"})
    with pytest.raises(ParamsError, match="SLURM_PROCID: found 'x', expected the number of a collector, or --worker"):
        number_of_worker({"SLURM_PROCID": "x"})


@given(
    st.sets(st.integers(0, 200), min_size=1, max_size=40),
    st.integers(1, 8),
    *[st.one_of(st.none(), st.integers(1, 6))] * 3,
)
def test_cpus_are_dealt_once_or_shared_by_all_or_refused(
    cpus: set[int], collectors: int, each: int | None, learner: int | None, replay: int | None
) -> None:
    asked = {"SAC_COLLECT_WORKER_CPUS": each, "SAC_TRAIN_CPUS": learner, "SAC_REVERB_CPUS": replay}
    environ = {name: str(count) for name, count in asked.items() if count}
    needed = collectors * (each or 1) + (learner or 1) + (replay or 1)
    if needed > len(cpus) and environ:
        with pytest.raises(ParamsError):
            deal(collectors, cpus, environ)
        return
    shares = deal(collectors, cpus, environ)
    parts = [*shares.collectors, shares.learner, shares.replay]
    assert len(shares.collectors) == collectors
    if needed > len(cpus):
        assert all(p.cpus == cpus and p.threads == 1 for p in parts)
        return
    assert sum(len(p.cpus) for p in parts) == len(frozenset().union(*(p.cpus for p in parts)))  # nobody's twice
    assert all(p.cpus <= cpus and p.threads == len(p.cpus) for p in parts)
    assert all(len(c.cpus) == (each or 1) for c in shares.collectors)
    assert (learner or len(shares.learner.cpus)) == len(shares.learner.cpus)
    assert len(shares.replay.cpus) == (replay or 1)


def test_too_few_are_refused_with_words() -> None:
    with pytest.raises(ParamsError, match="found 2 CPUs, expected 12: 4 collectors x 1 [+] 4 .* by SAC_COLLECT_WORKER"):
        deal(4, [0, 1], MINITAUR)


def test_too_few_without_variables_are_shared_with_a_warning(caplog: Any) -> None:
    shares = deal(2, [5], {})
    assert shares.learner.cpus == {5} and "1 CPU for 2 collectors" in caplog.text


def test_by_default_it_is_the_affinity_of_the_job() -> None:
    shares = deal(1, environ={})
    used = frozenset().union(shares.learner.cpus, shares.replay.cpus, shares.collectors[0].cpus)
    assert used <= os.sched_getaffinity(0)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ParamsError, match="SAC_TRAIN_CPUS: found .* expected a positive integer"):
        number_per_role({"SAC_TRAIN_CPUS": text})
    assert number_per_role({}) == (1, 1)
