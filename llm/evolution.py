"""Outer loop over language models: ask, vet, train, tell; then tune the constants of the best and test the finalists.

    search.ask ─► chat ─► vet (jail) ─► novelty ─► train all in one simulator, beside the human's ─► search.tell

Everything that was paid for is on the disk before it is used: replies in calls.jsonl, individuals in individuals.jsonl,
generations of a tuning in tune_<id>.jsonl. A resumed run asks, vets and trains only what is missing, and ends alike:
as what is asked next depends on what became of every call, a run stops where one failed that may be answered later.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from envolve.agents.shaped.halving import Halved, Training
from envolve.agents.shaped.training import Progress
from envolve.core.cleaning import clean
from envolve.llm.cascade import evaluate_in_two
from envolve.llm.fitness import FINAL, Worth, candidate_of, evaluate, judge
from envolve.llm.models.chat import Call, Chat, ChatFailure, Request, settled
from envolve.llm.programs import base_of, program_of
from envolve.llm.repairs import MOST, ask_again, broken
from envolve.llm.reporting.best_code import code_of_graph
from envolve.llm.search.archive import Archive
from envolve.llm.search.individual import CALL, HUMAN, NOVELTY, Individual, Proposal, Search, ranking
from envolve.llm.search.novelty import most_similar
from envolve.llm.tune import Tuned, TuneSettings, tune
from envolve.llm.tune_workers import Workers
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.vet import Rejection, Vetter

log = logging.getLogger("envolve")
HUMAN_ID = -1


@dataclass(frozen=True)
class Settings:
    """Settings of an evolution."""

    iterations: int
    training: Training
    seed: int
    temperature: float = 1.0
    max_tokens: int = 4096
    novelty: float = 1.0  # candidates at least this similar to an earlier one are not trained; above 1: all are
    tune: TuneSettings | None = None
    tune_top: int = 1  # number of best candidates to tune
    finalists: int = 3  # best candidates in the final test, beside tuned ones: the best of many was also lucky
    retest: int = 5  # fresh agents per finalist
    repairs: int = 0  # how often what was refused or failed is asked for again within its iteration
    cascade: float = 1.0  # share of the training that decides who gets the full one; 1: everybody does
    tune_every: int = 0  # iterations after which the numbers of the best so far are tuned; 0: at the end alone


class Watcher(Protocol):
    """Observer of an evolution; ``llm/reporting/live.py`` displays it."""

    def asking(self, iteration: int, proposals: int) -> None: ...

    def vetting(self, iteration: int, count: int) -> None: ...

    def training(self, iteration: int, names: list[str], progress: Progress, inside: list[int]) -> None: ...

    def finished(self, iteration: int, individuals: Sequence[Individual]) -> None: ...

    def tuning(self, individual: Individual, generation: int, mean: float, best: float) -> None: ...

    def note(self, text: str) -> None: ...


class Final(NamedTuple):
    """Finalist with fresh agents; its scores are those of the final test."""

    individual: Individual  # a copy
    worth: Worth


@dataclass
class Result:
    """Result of an evolution."""

    individuals: list[Individual]  # without the human's
    human: Individual
    finals: list[Final]  # the best first, the human's among them
    halved: Halved | None  # learner and environments of the last test
    numbers: list[int]  # of the finals, in the order of its candidates
    tunings: dict[int, Tuned]  # by id
    stopped: str  # why it ended before its time, or ""

    @property
    def best(self) -> Final | None:
        """Best individual written by a model."""
        return next((f for f in self.finals if f.individual.operator != HUMAN and f.individual.ok), None)

    @property
    def steps(self) -> int:
        """Environment steps of selection and tuning, without the human's and those of the final test."""
        return sum(i.steps for i in self.individuals)


class Evolution:
    """Evolution; ``run()`` resumes from the content of ``folder``."""

    def __init__(
        self, settings: Settings, folder: Path, search: Search, chat: Chat, vetter: Vetter | None, watcher: Watcher
    ) -> None:
        """Raises ArchiveError if the folder's archive cannot be read."""
        self.s, self.folder, self.search, self.chat, self.vetter, self.watcher = (
            settings, folder, search, chat, vetter, watcher
        )  # fmt: skip
        self.archive = Archive(folder / "individuals.jsonl")
        self.individuals: list[Individual] = []
        self.human = _human()
        self.tunings: dict[int, Tuned] = {}
        self.stopped = ""

    def run(self) -> Result:
        """Runs everything. Raises Unanswered and other ChatErrors, SimulatorError, ValueError, KeyboardInterrupt."""
        known = self._remember()
        for iteration in range(self.s.iterations):
            proposals = self.search.ask(iteration)
            old = known.get(iteration, [])
            whole = len(old) == len(proposals) and proposals
            # of the last one that is known calls may have failed: nothing was asked that depends on them
            if whole and not (iteration == max(known) and any(map(_unanswered, old))):
                new = old
            else:
                new = self._iteration(iteration, proposals, old)
            self.individuals += new
            self.search.tell([*new, self.human] if self.human.ok else new)
            self.watcher.finished(iteration, new)
            if self.s.tune_every and (iteration + 1) % self.s.tune_every == 0 and not self.stopped:
                self._tune_best(iteration)
            if self.stopped:
                self.watcher.note(f"stopped after iteration {iteration + 1}: {self.stopped}")
                break
        return self._finish()

    def _remember(self) -> dict[int, list[Individual]]:
        """Individuals of the archive by iteration."""
        out: dict[int, list[Individual]] = {}
        for individual in self.archive.load():
            if individual.operator == HUMAN:
                self.human = individual
            else:
                out.setdefault(individual.iteration, []).append(individual)
        return out

    # -------------------------------------------------------------------------------------------------- one iteration

    def _iteration(self, iteration: int, proposals: list[Proposal], old: list[Individual]) -> list[Individual]:
        """Makes an individual of a reply. old: the same one from an earlier session."""
        self.watcher.asking(iteration, len(proposals))
        new = self._ask(iteration, proposals)
        if list(map(_unanswered, old)) == list(map(_unanswered, new)):
            return old  # what failed then fails now
        if not any(i.rejection is None for i in self.individuals):
            self.human = _human()  # is trained beside the first that are, also if they are trained again
        self._vet(iteration, [i for i in new if i.rejection is None and i.graph_file is None])
        self._repair(iteration, [i for i in new if i.rejection is not None])
        self._reject_copies(new)
        reference = self._train(iteration, new)
        while again := self._repair(iteration, [i for i in new if i.failure is not None], 1):
            self._reject_copies([i for i in again if i.rejection is None])
            self._train(iteration, again)
        self.archive.put([*reference, *new])
        return new

    def _repair(self, iteration: int, wrong: list[Individual], times: int = MOST) -> list[Individual]:
        """Asks again for these and vets the answers, at most so many times -> those that were asked for again."""
        asked: list[Individual] = []
        for _ in range(times):
            todo = broken([i for i in wrong if i.rejection is not None or i.failure is not None], self.s.repairs)
            if not todo or self.stopped:
                break
            s = self.s
            new, ends = ask_again(self.chat, self.search.prompts, todo, s.temperature, s.max_tokens, s.seed)
            self.stopped = self.stopped or ends
            self._vet(iteration, new)
            asked += [i for i in new if i not in asked]
            if not new:
                break
        return asked

    def _ask(self, iteration: int, proposals: list[Proposal]) -> list[Individual]:
        s, first = self.s, len(self.individuals)  # ids and calls have the same numbers
        if proposals and proposals[0].graph_file is not None:
            return [self._ready(first + k, iteration, p) for k, p in enumerate(proposals)]
        calls = [
            Call(first + k, Request(p.model, p.messages, s.temperature, s.max_tokens, s.seed + first + k))
            for k, p in enumerate(proposals)
        ]
        new, replies = [], self.chat.ask(calls)
        self.stopped = settled(replies)
        for call, p, reply in zip(calls, proposals, replies):
            individual = Individual(call.index, iteration, p.island, p.operator, p.parents, p.model, call.index)
            if isinstance(reply, ChatFailure):
                individual.rejection = (CALL, str(reply))
            else:
                individual.reply, individual.model = reply.text, reply.asked or p.model
                individual.code = base_of(p)
            new.append(individual)
        return new

    @staticmethod
    def _ready(number: int, iteration: int, p: Proposal) -> Individual:
        """Individual of a search that makes graphs itself: nothing is asked and nothing vetted."""
        assert p.graph_file is not None
        individual = Individual(number, iteration, p.island, p.operator, p.parents, p.model, -1)
        individual.code, individual.graph_file = code_of_graph(p.graph_file), p.graph_file
        return individual

    def _vet(self, iteration: int, replied: Sequence[Individual]) -> None:
        if not replied:
            return
        assert self.vetter is not None
        self.watcher.vetting(iteration, len(replied))
        programs: list[tuple[Individual, str]] = []
        for individual in replied:
            try:
                programs.append((individual, program_of(individual)))
            except VetError as e:
                individual.rejection = (e.stage, clean(e.message))
        verdicts = self.vetter.vet_all([(text, f"i{i.id:03d}") for i, text in programs])
        for (individual, _), verdict in zip(programs, verdicts):
            individual.code, individual.notes = verdict.code, verdict.notes
            for note in verdict.notes:
                self.watcher.note(f"i{individual.id:03d}: {note}")
            if isinstance(verdict, Rejection):
                individual.rejection = (verdict.stage, verdict.message)
            else:
                individual.graph_file = verdict.graph_file

    def _reject_copies(self, new: Sequence[Individual], known: Sequence[Individual] | None = None) -> None:
        """Rejects duplicates of earlier individuals with a message; they are not trained."""
        earlier = [i for i in (self.individuals if known is None else known) if i.graph_file is not None]
        for individual in new:
            if individual.graph_file is None:
                continue
            near, similarity = most_similar(individual, earlier, numbers=self.s.tune is None)
            if near is not None and similarity >= self.s.novelty:
                text = f"it computes what attempt {near.id} computes (similarity {similarity:.2f})"
                score = f", which scored {near.score:.4g}" if near.ok else ""
                individual.rejection = (NOVELTY, text + score)
            else:
                earlier.append(individual)

    def _train(
        self, iteration: int, new: Sequence[Individual], shorts: Sequence[float] | None = None
    ) -> list[Individual]:
        """Trains the individuals that were not rejected. The human's shapers, the reference, take part in the first
        simulator and are then returned. shorts: short scores of a cascade so far; None: of the known individuals."""
        members = [i for i in new if i.rejection is None]
        if not members:
            return []
        reference = [] if self.human.ok or self.human.failure is not None else [self.human]
        members += reference
        names = [HUMAN if i.operator == HUMAN else f"i{i.id:03d}" for i in members]

        def report(progress: Progress, inside: list[int]) -> None:
            self.watcher.training(iteration, names, progress, inside)

        if self.s.cascade < 1:
            earlier = [i.short for i in self.individuals] if shorts is None else shorts
            earlier = [x for x in earlier if math.isfinite(x)]
            evaluate_in_two(self.s.training, members, self.s.seed, self.s.cascade, earlier, report)
        else:
            evaluate(self.s.training, members, self.s.seed, report)
        return reference

    def _tune_best(self, iteration: int) -> None:
        """Tunes the numbers of the best so far; if they train a better agent, they are its numbers from now on, and the
        next prompts show them."""
        best = next(iter(ranking(self.individuals)), None)
        if best is None or best.tuned is not None:  # {}: tuned, and no better for it
            return
        tuned = self._tune(best)
        best.tuned = {}
        if tuned is not None:
            trial = replace(tuned, steps=0)
            self._train(iteration, [trial])
            best.steps += trial.steps
            if trial.ok and trial.score > best.score:
                steps, notes = best.steps, best.notes
                vars(best).update(vars(replace(trial, steps=steps, notes=notes)))
            self.watcher.note(f"i{best.id:03d}: tuned numbers score {trial.score:.4g}")
        self.archive.put([best])
        self.search.tell([best])

    # --------------------------------------------------------------------------------------------------------- the end

    def _finish(self) -> Result:
        ranked = ranking(self.individuals)
        entries = ranked[: self.s.finalists]
        if self.s.tune is not None:
            todo = [i for i in ranked[: self.s.tune_top] if i.tuned is None]
            entries += [tuned for i in todo if (tuned := self._tune(i)) is not None]
        finals, halved, order = self._test([*entries, self.human]) if entries else ([], None, [])
        return Result(self.individuals, self.human, finals, halved, order, self.tunings, self.stopped)

    def _tune(self, individual: Individual) -> Individual | None:
        """Same code with tuned constants; None if it has none. The steps are charged to the individual."""
        assert individual.graph_file is not None and self.s.tune is not None
        candidate = candidate_of(individual)
        if candidate.params is None:
            self.watcher.note(f"i{individual.id:03d} has no numbers to tune")
            return None

        def report(generation: int, mean: float, best: float) -> None:
            self.watcher.tuning(individual, generation, mean, best)

        log_file = self.folder / f"tune_{individual.id}.jsonl"
        with contextlib.ExitStack() as stack:
            workers = None
            if self.s.tune.workers:
                workers = Workers(
                    self.s.training, individual.graph_file, individual.id, self.folder, self.s.tune.workers
                )
                stack.enter_context(workers)
            tuned = tune(self.s.training, candidate, self.s.tune, self.s.seed, individual.id, log_file, report, workers)
        self.tunings[individual.id] = tuned
        individual.steps += tuned.steps
        values = tuned.params.tolist()
        graph_file = individual.graph_file.with_values(values)
        return replace(individual, graph_file=graph_file, tuned=dict(zip(candidate.param_names, values)))

    def _test(self, entries: list[Individual]) -> tuple[list[Final], Halved, list[int]]:
        """Trains fresh agents for the finalists and the human's shapers."""
        self.watcher.note(f"last test: {self.s.retest} fresh agents for each of {len(entries)}")
        training = replace(self.s.training, agents=self.s.retest, eta=1)
        worths, halved = judge(training, [candidate_of(i) for i in entries], self.s.seed, FINAL)
        finals = [
            Final(replace(i, score=w.score, interval=w.interval, agent_scores=w.agent_scores, failure=w.failure), w)
            for i, w in zip(entries, worths)
        ]
        order = sorted(range(len(finals)), key=lambda k: (not finals[k].individual.ok, -_or_zero(worths[k].score), k))
        return [finals[k] for k in order], halved, order


def _human() -> Individual:
    return Individual(HUMAN_ID, 0, 0, HUMAN, (), "", -1)


def _unanswered(individual: Individual) -> bool:
    return individual.rejection is not None and individual.rejection[0] == CALL


def _or_zero(score: float) -> float:
    return score if math.isfinite(score) else 0.0


def verdicts(individuals: Sequence[Individual]) -> dict[str, int]:
    """Number of candidates trained, failed in training, and rejected at each stage."""
    names = [i.rejection[0] if i.rejection else "failed" if i.failure else "trained" for i in individuals]
    return dict(Counter(names).most_common())
