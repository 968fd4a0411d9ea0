"""Outer loop over language models: ask, vet, train, tell; then tune the constants of the best and test the finalists.

    search.ask ─► chat ─► vet (jail) ─► novelty ─► train all in one simulator, beside the human's ─► search.tell
                  └── llm/asking.py ──┘ └────────────────── llm/training.py ────────────────┘   then llm/finals.py

Everything that was paid for is on the disk before it is used: replies in calls.jsonl, individuals in individuals.jsonl,
generations of a tuning in tune_<id>.jsonl. A resumed run asks, vets and trains only what is missing, and ends alike:
as what is asked next depends on what became of every call, a run stops where one failed that may be answered later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from envolve.llm.asking import Asking, unanswered
from envolve.llm.finals import Result, fresh_test, last_test, tune_numbers
from envolve.llm.models.chat import Chat
from envolve.llm.search.archive import Archive
from envolve.llm.search.individual import HUMAN, Individual, Proposal, RewardSearch, ranking
from envolve.llm.settings import Settings, Watcher
from envolve.llm.training import reject_copies, train, untrained_human
from envolve.llm.tune import Tuned
from envolve.llm.vetting.vet import Vetter


class Evolution:
    """Evolution; ``run()`` resumes from the content of ``folder``."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        search: RewardSearch,
        chat: Chat,
        vetter: Vetter | None,
        watcher: Watcher,
    ) -> None:
        """Raises ArchiveError if the folder's archive cannot be read."""
        self.s, self.folder, self.search, self.watcher = settings, folder, search, watcher
        self.asking = Asking(settings, search, chat, vetter, watcher)
        self.archive = Archive(folder / "individuals.jsonl")
        self.individuals: list[Individual] = []
        self.human = untrained_human()
        self.tunings: dict[int, Tuned] = {}

    def run(self) -> Result:
        """Runs everything. Raises Unanswered and other ChatErrors, SimulatorError, ValueError, KeyboardInterrupt."""
        known = self.remember()
        for iteration in range(self.s.iterations):
            proposals = self.search.ask(iteration)
            old = known.get(iteration, [])
            whole = len(old) == len(proposals) and proposals
            # of the last one that is known calls may have failed: nothing was asked that depends on them
            if whole and not (iteration == max(known) and any(map(unanswered, old))):
                new = old
            else:
                new = self._iteration(iteration, proposals, old)
            self.individuals += new
            self.search.tell([*new, self.human] if self.human.ok else new)
            self.watcher.finished(iteration, new)
            if self.s.tune_every and (iteration + 1) % self.s.tune_every == 0 and not self.asking.stopped:
                self._tune_best(iteration)
            if self.asking.stopped:
                self.watcher.note(f"stopped after iteration {iteration + 1}: {self.asking.stopped}")
                break
        return self.finish()

    def remember(self) -> dict[int, list[Individual]]:
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
        """Makes an individual of every proposal. old: the same ones from an earlier session."""
        asking = self.asking
        self.watcher.asking(iteration, len(proposals))
        new = asking.ask(len(self.individuals), iteration, proposals)
        if list(map(unanswered, old)) == list(map(unanswered, new)):
            return old  # what failed then fails now
        if not any(i.rejection is None for i in self.individuals):
            self.human = untrained_human()  # is trained beside the first that are, also if they are trained again
        asking.vet(iteration, [i for i in new if i.rejection is None and i.graph_file is None])
        asking.repair(iteration, [i for i in new if i.rejection is not None])
        reject_copies(self.s, new, self.individuals)
        reference = self._train(iteration, new)
        while again := asking.repair(iteration, [i for i in new if i.failure is not None], 1):
            reject_copies(self.s, [i for i in again if i.rejection is None], self.individuals)
            self._train(iteration, again)
        self.archive.put([*reference, *new])
        return new

    def _train(self, iteration: int, new: Sequence[Individual]) -> list[Individual]:
        return train(self.s, self.watcher, iteration, new, self.human, [i.short for i in self.individuals])

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

    def _tune(self, individual: Individual) -> Individual | None:
        found = tune_numbers(self.s, self.folder, individual, self.watcher)
        if found is None:
            return None
        tuned, self.tunings[individual.id] = found
        return tuned

    # --------------------------------------------------------------------------------------------------------- the end

    def finish(self) -> Result:
        """Tunes the best, if that is asked for, and tests the finalists."""
        ranked = ranking(self.individuals)
        entries = ranked[: self.s.finalists]
        if self.s.tune is not None:
            todo = [i for i in ranked[: self.s.tune_top] if i.tuned is None]
            entries += [tuned for i in todo if (tuned := self._tune(i)) is not None]
        entries += [self.human] * bool(entries)
        finals, halved, order = last_test(self.s, entries, self.watcher) if entries else ([], None, [])
        fresh = fresh_test(self.s, finals, self.watcher)
        return Result(self.individuals, self.human, finals, halved, order, self.tunings, self.asking.stopped, fresh)
