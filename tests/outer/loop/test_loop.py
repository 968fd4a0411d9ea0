"""The loop with a toy target: the order of a generation, failures, hooks, the same bytes after interruptions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.section import GTNSection
from envolve.outer.loop.loop import Evaluated, Generation, Loop
from envolve.outer.search.nes import NES, NESState, Population

PLANTED = torch.tensor([1.5, -1.0, 0.5])
SECTION = GTNSection(num_workers=6, num_orig_evals=2, estimator="antithetic", noise_std=0.3, step_size=0.2)
GENERATIONS = 5


class Sphere:
    """Minus the distance to PLANTED; ``more`` members stand beside those of the search."""

    def __init__(self, more: int = 0) -> None:
        self.more = more

    def begin(self, seed: int) -> Tensor:
        return torch.zeros(3)

    def mask(self) -> Tensor:
        return torch.ones(3)

    def members(self, population: Population) -> Population:
        worlds = torch.cat((population.worlds, torch.zeros(self.more, 3)))
        return replace(population, worlds=worlds, roles=population.roles + ["more"] * self.more)


def sphere(number: int, members: Population) -> Evaluated:
    return Evaluated(-(members.worlds - PLANTED).norm(dim=1).double().numpy(), len(members.worlds))


class Files:
    """A keeper as a run's: a line of scores per generation, then the state. ``crash(place)`` may raise."""

    def __init__(self, folder: Path, crash: Callable[[str], None] = lambda place: None) -> None:
        self.log, self.checkpoint, self.crash = folder / "scores.jsonl", folder / "checkpoint.json", crash
        self.state = None
        if self.checkpoint.exists():
            numbers = json.loads(self.checkpoint.read_text())
            tensors = {k: torch.tensor(numbers.pop(k)) for k in ("psi", "average")}
            moments = {k: torch.tensor(numbers.pop(k), dtype=torch.float64) for k in ("moment1", "moment2")}
            self.state = NESState(**tensors, **moments, **numbers)
        done = self.state.generation if self.state else 0
        kept = self.log.read_text().splitlines(keepends=True)[:done] if self.log.exists() else []
        self.log.write_text("".join(kept))

    def begin(self, search: NES) -> None:
        self.search = search

    def known(self, number: int) -> Evaluated | None:
        return None

    def evaluated(self, g: Generation) -> None:
        self.crash("before the scores")
        with open(self.log, "a") as f:
            f.write(json.dumps(g.found.scores.tolist()) + "\n")
        self.crash("after the scores")

    def told(self, g: Generation) -> None:
        self.crash("before the state")
        content = {k: v.tolist() if isinstance(v, Tensor) else v for k, v in vars(self.search.state).items()}
        write_atomic(str(self.checkpoint), json.dumps(content).encode())
        self.crash("after the state")


def loop_of(keeper: Files, evaluate: Callable[[int, Population], Evaluated] = sphere, more: int = 0, **own) -> Loop:
    target = Sphere(more)
    search = NES(SECTION, 3, target.begin, target.mask(), keeper.state)
    keeper.begin(search)
    return Loop(search, target, evaluate, keeper, own.pop("generations", GENERATIONS), search.state.generation, **own)


def content(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "scores.jsonl").read_bytes(), (folder / "checkpoint.json").read_bytes()


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def whole(tmp_path: Path) -> tuple[bytes, bytes]:
    folder = empty(tmp_path / "whole")
    assert loop_of(Files(folder)).run()
    return content(folder)


class Crash(Exception):
    pass


def test_a_planted_optimum_is_found(tmp_path: Path) -> None:
    loop = loop_of(Files(tmp_path), generations=40)
    assert loop.run() and loop.done == 40
    assert float((loop.search.state.psi - PLANTED).norm()) < 0.4 < float(PLANTED.norm())


def test_stopped_after_every_generation_and_resumed(tmp_path: Path) -> None:
    """By ``enough``, in new objects, from the files alone."""
    expected, folder, calls = whole(tmp_path), empty(tmp_path / "cut"), []

    def counted(number: int, members: Population) -> Evaluated:
        calls.append(number)
        return sphere(number, members)

    for done in range(1, GENERATIONS + 1):
        loop = loop_of(Files(folder), counted)
        assert loop.run(lambda: loop.done >= done) is (done == GENERATIONS)  # noqa: B023
    assert content(folder) == expected and calls == [1, 2, 3, 4, 5]
    assert loop_of(Files(folder), counted).run() and len(calls) == 5, "a finished loop evaluates nothing"


PLACES = ("evaluation", "before the scores", "after the scores", "before the state", "after the state")


@pytest.mark.parametrize("place", PLACES)
def test_a_crash_costs_no_finished_generation(tmp_path: Path, place: str) -> None:
    """At this place in every generation, once in each: what was finished stays, and the end has the same bytes."""
    expected = whole(tmp_path)
    for at in range(1, GENERATIONS + 1):
        folder, seen = empty(tmp_path / str(at)), iter(range(1, 100))

        def crash(where: str, at: int = at, seen: Iterator[int] = seen) -> None:
            if where == place and next(seen) == at:
                raise Crash

        def evaluate(number: int, members: Population, crash: Callable[[str], None] = crash) -> Evaluated:
            crash("evaluation")
            return sphere(number, members)

        with pytest.raises(Crash):
            loop_of(Files(folder, crash), evaluate).run()
        left = Files(folder)
        assert (left.state.generation if left.state else 0) == at - (place != "after the state")
        assert loop_of(left).run() and content(folder) == expected


@pytest.mark.parametrize("tells_failures", [False, True])
def test_a_failed_member_has_the_worst_score(tmp_path: Path, tells_failures: bool) -> None:
    """The search is told the worst of the others, or NaN where it asks for that; the keeper sees NaN."""
    told: list[np.ndarray] = []

    def evaluate(number: int, members: Population) -> Evaluated:
        found = sphere(number, members)
        found.scores[[1, 4]] = math.nan, math.inf
        found.scores[-1] = -1e9  # of a member that the search did not ask for
        return found

    loop = loop_of(Files(tmp_path), evaluate, more=2, tells_failures=tells_failures)
    loop.search.tell = told.append
    g = loop.generation()
    assert (
        len(g.found.scores) == 16 and len(g.scores) == len(told[0]) == 14 and g.failed.nonzero()[0].tolist() == [1, 4]
    )
    others = np.delete(g.found.scores[:14], [1, 4])
    assert g.scores[1] == g.scores[4] == others.min() > -100 and np.array_equal(np.delete(g.scores, [1, 4]), others)
    assert np.array_equal(told[0], g.found.scores[:14] if tells_failures else g.scores, equal_nan=True)
    assert "NaN" in (tmp_path / "scores.jsonl").read_text()


def test_a_generation_of_failures_is_told_as_equal_scores(tmp_path: Path) -> None:
    loop = loop_of(Files(tmp_path), lambda number, members: Evaluated(np.full(len(members.worlds), math.nan), 0))
    g = loop.generation()
    assert g.failed.all() and np.isfinite(g.scores).all() and len(set(g.scores.tolist())) == 1 and loop.done == 1


@dataclass
class Notes:
    """Keeper, search and hooks that write down when they were called."""

    said: list[str] = field(default_factory=list)

    def ask(self) -> Population:
        self.said.append("ask")
        return Population(torch.zeros(2, 3), torch.arange(2), ["plus"] * 2, np.arange(2))

    def tell(self, scores: np.ndarray) -> None:
        self.said.append(f"tell {scores.tolist()}")

    def known(self, number: int) -> Evaluated | None:
        return Evaluated(np.array([7.0, 8.0]), 0) if number == 1 else None

    def evaluated(self, g: Generation) -> None:
        self.said.append(f"evaluated {g.number}")

    def told(self, g: Generation) -> None:
        self.said.append("told" + " last" * g.last)

    def evaluate(self, number: int, members: Population) -> Evaluated:
        self.said.append("evaluate")
        return Evaluated(np.array([1.0, 2.0]), 0)


def test_the_order_of_a_generation(tmp_path: Path) -> None:
    """What the keeper knows is not evaluated again, but told; a hook may do something else than tell, or end it all."""
    notes = Notes()

    def decide(g: Generation) -> None:
        notes.said.append("before")
        if g.number == 2:
            g.instead = lambda: notes.said.append("renew")
        g.last = g.number == 3

    def after(g: Generation) -> None:
        notes.said.append(f"after {loop.done}")

    loop = Loop(notes, Sphere(), notes.evaluate, notes, 100, before=[decide], after=[after])
    assert loop.run() and loop.done == 3
    assert notes.said == [
        *("ask", "before", "evaluated 1", "tell [7.0, 8.0]", "told", "after 1"),
        *("ask", "evaluate", "before", "evaluated 2", "renew", "told", "after 2"),
        *("ask", "evaluate", "before", "evaluated 3", "tell [1.0, 2.0]", "told last", "after 3"),
    ]


def test_a_loop_without_generations_asks_nothing() -> None:
    notes = Notes()
    assert Loop(notes, Sphere(), notes.evaluate, notes, 3, done=3).run() and not notes.said
