"""What the report of ``envolve evolve`` trains: as many agents of as many kinds as its share of the time allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from envolve.outer.auto.choice import Choice
from envolve.outer.auto.facts import USUAL_SECONDS, Facts
from envolve.outer.auto.unseen import REAL, REAL_10X, WORLD

REPORT_SHARES = (0.4, 0.5)  # of the time, for the report: more only where it lets a further kind of agent take part
SPARE = 0.85  # of the report's time is planned; the evolution has what is left
TEN = 10  # REAL_10X: times the steps
MOST_AGENTS, LEAST_AGENTS = 10, 3  # of one kind at one place
# Training steps of an unseen agent in the world: of cheap kinds, of those that learn at every step, and for how many
# agents there must be time. The first that fits is taken. PPO takes 2,048 steps at once, and one such round misjudges a
# world: in two of the zoo's for InvertedPendulum-v5 it has 40 of 1,000 after one, and 1,000 after five.
CHEAP_STEPS = 10_240
SIZES = [(CHEAP_STEPS, 8_192, 4), (CHEAP_STEPS, 6_144, LEAST_AGENTS), (CHEAP_STEPS, 4_096, LEAST_AGENTS)]
LEAST_SIZE = (6_144, 4_096, LEAST_AGENTS)  # of one kind, where time is short
EVERY_STEP = ("sac", "td3")  # update at every step, with defaults
ALWAYS = "ppo"  # in every report: it learns something on most environments
LAST = "a2c"  # leaves a report first: it is seldom the best
TESTS, MOST_TESTS = 10, 200  # episodes per agent: more where they are short, since a return may be 0 or 1 ...
TEST_STEPS, TEST_SECONDS = 10_000, 20.0  # ... as many as fit into these steps and this time
LEAST_STEP = 3e-4  # seconds of a training step in a world, at least
START_OF_AGENT = 4.0  # seconds: a process that imports what it needs


@dataclass(frozen=True)
class ReportPlan:
    """What is trained after the evolution."""

    learners: tuple[str, ...]
    agents: int
    steps: tuple[int, ...]  # of each learner, in the world
    tests: int
    library: bool  # Stable-Baselines3's, not this project's
    ten: bool = True  # whether there is time for REAL_10X
    alone: tuple[str, ...] = ()  # learners of which a single agent trains for REAL_10X

    @property
    def places(self) -> tuple[str, ...]:
        """Where agents are trained."""
        return (WORLD, REAL, REAL_10X) if self.ten else (WORLD, REAL)

    def agents_at(self, learner: str, where: str) -> int:
        """Agents of a kind there."""
        return 1 if where == REAL_10X and learner in self.alone else self.agents

    def steps_at(self, learner: str, where: str) -> int:
        """Training steps there."""
        return self.steps[self.learners.index(learner)] * (TEN if where == REAL_10X else 1)


def plan_report(facts: Facts, choice: Choice, learners: list[str], library: bool) -> tuple[ReportPlan, float]:
    """Kinds, agents and steps that fit into the report's time, and the seconds that they are expected to take.

    Where no report fits, agents train on the environment for as many steps as in the world only, and the least such
    report is made even if it does not fit. Kinds, agents and steps that were asked for are not cut; ten times the steps
    are, unless agents or steps were asked for.
    """
    asked = choice.agents is not None or choice.steps is not None
    report, fits = _fitting(facts, choice, learners, library, True)
    if not fits and not asked:
        report, _ = _fitting(facts, choice, learners, library, False)
    return report, _seconds(facts, choice, report)


def _fitting(facts: Facts, choice: Choice, learners: list[str], library: bool, ten: bool) -> tuple[ReportPlan, bool]:
    """-> the widest report that fits, or the least one; whether it fits."""
    reports = [(list(learners), [*SIZES, LEAST_SIZE])] if choice.learners else _reports(facts, learners)
    for kinds, sizes in reports:
        if choice.steps:
            sizes = [(choice.steps, choice.steps, LEAST_AGENTS)]
        for share, (cheap, dear, least) in itertools.product(REPORT_SHARES, sizes):
            budget, steps = SPARE * share * choice.seconds, tuple(dear if k in EVERY_STEP else cheap for k in kinds)
            for agents in [choice.agents] if choice.agents else range(MOST_AGENTS, least - 1, -1):
                whole = _report(facts, kinds, agents, steps, library, ten)
                if _seconds(facts, choice, whole) <= budget:
                    return whole, True
    return _report(facts, kinds, choice.agents or LEAST_AGENTS, steps, library, ten), False


def _reports(facts: Facts, learners: list[str]) -> Iterator[tuple[list[str], list[tuple[int, int, int]]]]:
    """Kinds and sizes, the widest report first, down to the least."""
    kinds = list(learners)
    while len(kinds) > 1:
        yield list(kinds), SIZES
        if LAST in kinds and len(kinds) > 2:
            yield [k for k in kinds if k != LAST], SIZES
        kinds.remove(max([k for k in kinds if k != ALWAYS] or kinds, key=lambda k: _per_step(facts, k)))
    yield kinds, [*SIZES, LEAST_SIZE]


def _report(
    facts: Facts, kinds: list[str], agents: int, steps: tuple[int, ...], library: bool, ten: bool
) -> ReportPlan:
    alone = tuple(k for k in kinds if k in EVERY_STEP)
    return ReportPlan(tuple(kinds), agents, steps, _report_tests(facts), library, ten, alone if ten else ())


def episodes_of(longest: float, quick: int = MOST_TESTS) -> int:
    """Test episodes of an unseen agent. longest: steps of an episode; quick: the most that there is time for."""
    return max(TESTS, min(MOST_TESTS, int(TEST_STEPS / longest), quick))


def _report_tests(facts: Facts) -> int:
    return episodes_of(facts.longest, int(TEST_SECONDS / (facts.likely_length * facts.step_seconds)))


def _per_step(facts: Facts, kind: str) -> float:
    """Seconds of one training step of an unseen agent on the environment."""
    return (facts.agent_seconds or {}).get(kind, USUAL_SECONDS.get(kind, 1e-3))


def _seconds(facts: Facts, choice: Choice, report: ReportPlan) -> float:
    """Expected wall time of a report."""
    tests = report.tests * facts.likely_length * (facts.step_seconds + 3e-4)
    work = 0.0
    for kind in report.learners:
        real = _per_step(facts, kind)
        world = max(real - facts.step_seconds, min(real, LEAST_STEP))  # the learner's own work
        for where in report.places:
            each = report.steps_at(kind, where) * (world if where == WORLD else real)
            work += report.agents_at(kind, where) * (each + tests + START_OF_AGENT * 0.1)
    return work / max(1, min(choice.workers, facts.cores)) + START_OF_AGENT
