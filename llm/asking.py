"""From a proposal to a checked graph: models are asked, replies vetted, and what was refused is asked for again."""

from __future__ import annotations

from collections.abc import Sequence

from envolve.core.cleaning import clean
from envolve.llm.models.chat import Call, Chat, ChatFailure, Reply, settled
from envolve.llm.models.request import Sampling
from envolve.llm.programs import base_of, program_of
from envolve.llm.repairs import MOST, ask_again, broken
from envolve.llm.reporting.best_code import code_of_graph
from envolve.llm.search.individual import CALL, Individual, Proposal, RewardSearch
from envolve.llm.settings import Settings, Watcher
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.vet import Rejection, Vetter


class Asking:
    """Makes individuals of proposals. ``stopped``: why nothing more can be asked, or ""."""

    def __init__(self, s: Settings, search: RewardSearch, chat: Chat, vetter: Vetter | None, watcher: Watcher) -> None:
        """vetter: None for a search that makes graphs itself."""
        self.search, self.chat, self.vetter, self.watcher = search, chat, vetter, watcher
        self.sampling, self.repairs = Sampling(s.temperature, s.max_tokens, s.seed), s.repairs
        self.stopped = ""

    def ask(self, first: int, iteration: int, proposals: list[Proposal]) -> list[Individual]:
        """Individuals with replies, still to be vetted. first: id of the first one; calls have the same numbers.
        Raises Unanswered and other ChatErrors."""
        if proposals and proposals[0].graph_file is not None:
            return [_ready(first + k, iteration, p) for k, p in enumerate(proposals)]
        new = [attempt(first + k, iteration, p) for k, p in enumerate(proposals)]
        replies = self.chat.ask([self.call(i.id, p) for i, p in zip(new, proposals)])
        self.stopped = settled(replies)
        for individual, p, reply in zip(new, proposals, replies):
            take(individual, p, reply)
        return new

    def ask_one(self, individual: Individual, p: Proposal) -> None:
        """The same for a single attempt. One that was refused for good is no reason to stop: others may be answered."""
        (reply,) = self.chat.ask([self.call(individual.id, p)])
        if isinstance(reply, ChatFailure) and (not reply.final or reply.model_is_out):
            self.stopped = self.stopped or settled([reply])
        take(individual, p, reply)

    def call(self, number: int, p: Proposal) -> Call:
        return self.sampling.call(number, p.model, p.messages)

    def vet(self, iteration: int, replied: Sequence[Individual]) -> None:
        """Gives each its graph, or the reason why it has none."""
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

    def repair(self, iteration: int, wrong: list[Individual], times: int = MOST) -> list[Individual]:
        """Asks for these again and vets the answers, up to ``times`` times -> those that were asked for again."""
        asked: list[Individual] = []
        for _ in range(times):
            todo = broken([i for i in wrong if i.rejection is not None or i.failure is not None], self.repairs)
            if not todo or self.stopped or self.chat.stopped:  # at Ctrl-C a verdict may be of a vetter that was closed
                break
            new, ends = ask_again(self.chat, self.search.prompts, todo, self.sampling)
            self.stopped = self.stopped or ends
            self.vet(iteration, new)
            asked += [i for i in new if i not in asked]
            if not new:
                break
        return asked


def attempt(number: int, iteration: int, p: Proposal, call: int | None = None) -> Individual:
    """Individual of a proposal that has no reply yet. call: number of its call; None: its own."""
    return Individual(number, iteration, p.island, p.operator, p.parents, p.model, number if call is None else call)


def take(individual: Individual, p: Proposal, reply: Reply | ChatFailure) -> None:
    """Gives it its reply, or the reason why it has none."""
    if isinstance(reply, ChatFailure):
        individual.rejection = (CALL, str(reply))
    else:
        individual.reply, individual.model = reply.text, reply.asked or p.model
        individual.code = base_of(p)


def _ready(number: int, iteration: int, p: Proposal) -> Individual:
    """Individual of a search that makes graphs itself: nothing is asked and nothing vetted."""
    assert p.graph_file is not None
    individual = attempt(number, iteration, p, call=-1)
    individual.code, individual.graph_file = code_of_graph(p.graph_file), p.graph_file
    return individual


def unanswered(individual: Individual) -> bool:
    return individual.rejection is not None and individual.rejection[0] == CALL
