"""From facts to a plan: what evolves, with which learner and search, for how many generations, and what the report
trains. A pure function. The clock has its say in the facts; the plan alone decides every byte after that.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from envolve.outer.auto.choice import AUTO, Choice
from envolve.outer.auto.configuration import LEAST_GENERATIONS, add_expert, configuration, inner_tests
from envolve.outer.auto.facts import SLOW_STEP, TINY, Facts
from envolve.outer.auto.report_plan import REPORT_SHARES, SPARE, TEN, ReportPlan, plan_report
from envolve.outer.config.distilled import DISTILLED
from envolve.outer.config.problem import EXPERT_SUFFIX
from envolve.outer.distil.begin import PUPILS
from envolve.outer.names import VARY_SUFFIX
from envolve.outer.search.searches import SEARCHES

WORLDS = ("bandit", "se", "rn")
INITS = ("random", DISTILLED)  # how the first world is made
EXPERT_SHARE = 0.6  # of the evolution's time, for the experts of a distilled world
START_SECONDS = 12.0  # of the workers
MOST_GENERATIONS = 2000
# Seconds of a training step of one of ten agents side by side on a busy core, beside the environment's own
# (benchmarks/any_env/learners.py --worlds se rn --members 10).
SE_STEP, RN_STEP = 1e-4, 2e-4
LATE = 1.25  # times the time that was asked for: a plan that is expected to take longer says so


@dataclass(frozen=True)
class EvolvePlan:
    """config: the content of a YAML file that ``envolve run`` takes. reasons: lines that say why."""

    config: dict[str, Any]
    report: ReportPlan
    world: str
    learner: str  # of the inner loop, as in the configuration
    search: str
    evolution_seconds: float  # as expected
    report_seconds: float
    reasons: tuple[str, ...]

    def text(self) -> str:
        """The YAML, with its reasons as comments."""
        head = "".join(f"# {line}\n" for line in self.reasons)
        return head + yaml.safe_dump(self.config, sort_keys=False, default_flow_style=None, width=120)


def plan(facts: Facts, choice: Choice, learners: list[str], library: bool) -> EvolvePlan:
    """The whole plan. learners: the kinds that never see the world, the first ones preferred."""
    world = "bandit" if choice.world == AUTO else choice.world
    learner = _learner(facts, world) if choice.learner == AUTO else choice.learner
    search = "nes" if choice.search == AUTO else choice.search
    report, report_seconds = plan_report(facts, choice, learners, library)
    seconds = max(choice.seconds - report_seconds / SPARE, (1 - REPORT_SHARES[-1]) * choice.seconds) - START_SECONDS
    config = configuration(facts, choice, world, learner, search)
    gtn = config["agents"]["gtn"]
    distilled = world == "bandit" if choice.init == AUTO else choice.init == DISTILLED
    expert_seconds = add_expert(config, facts, choice, EXPERT_SHARE * seconds) if distilled else 0.0
    seconds -= expert_seconds
    generations, expected = _generations(facts, choice, config["agents"], seconds, world)
    gtn["max_iterations"] = generations
    if gtn.get("horizon_start"):
        gtn["horizon_generations"] = max(1, round(0.6 * generations))
    reasons = _reasons(facts, choice, world, config, expected, report, report_seconds, expert_seconds)
    spent = expected + START_SECONDS + expert_seconds
    if spent + report_seconds > LATE * choice.seconds:
        parts = {"the evolution": expected + START_SECONDS, "the experts": expert_seconds, "the report": report_seconds}
        reasons.insert(1, _longer(facts, choice, parts))
    return EvolvePlan(config, report, world, learner, search, spent, report_seconds, tuple(reasons))


def _learner(facts: Facts, world: str) -> str:
    name = "TD3" if facts.continuous else "DDQN"
    return name if world == "rn" else name + VARY_SUFFIX


def _generations(facts: Facts, choice: Choice, agents: dict[str, Any], seconds: float, world: str) -> tuple[int, float]:
    """Most generations that are expected to fit into ``seconds``, and the seconds that they are expected to take."""
    gtn = agents["gtn"]
    mirrored = gtn["search"] not in SEARCHES.built_in or SEARCHES[gtn["search"]].mirrored
    perturbed, plain = (1 + mirrored) * gtn["num_workers"], gtn["num_orig_evals"]
    width = max(1, min(choice.workers, facts.cores))
    tests = inner_tests(facts)
    start = gtn.get("horizon_start") or facts.max_steps
    middle = min(facts.likely_length, 0.7 * (start + facts.max_steps) / 2 + 0.3 * facts.max_steps)
    real_steps = tests * (perturbed * middle + plain * facts.likely_length)
    if world == "bandit":
        train = (perturbed + plain) * facts.member_seconds * 1.6
    elif world == "se":
        train = (perturbed + plain) * 1500 * SE_STEP
    else:
        steps = agents[gtn["agent_name"].lower().removesuffix(VARY_SUFFIX)]["train_episodes"] * facts.likely_length
        train = (perturbed + plain) * steps * (RN_STEP + facts.step_seconds)
    one = (train + real_steps * facts.step_seconds) / width + 0.15
    count = int(max(LEAST_GENERATIONS, min(MOST_GENERATIONS, seconds / one)))
    return count, count * one


def _reasons(
    facts: Facts,
    choice: Choice,
    world: str,
    config: dict[str, Any],
    expected: float,
    report: ReportPlan,
    report_seconds: float,
    expert_seconds: float,
) -> list[str]:
    gtn = config["agents"]["gtn"]
    learner, search, generations = gtn["agent_name"], gtn["search"], gtn["max_iterations"]
    actions = f"actions of {facts.action_size} numbers" if facts.continuous else f"{facts.num_actions} actions"
    why = {
        "bandit": "a contextual bandit: no dynamics, so that agents of any kind learn it (arXiv:2406.12589)",
        "se": "an environment with next states: harder to evolve than a bandit",
        "rn": "a reward network: its agents train on the real environment",
    }[world]
    kind = (
        "Stable-Baselines3's, default hyperparameters"
        if report.library
        else ("this project's, default hyperparameters, since Stable-Baselines3 is not installed")
    )
    ten = f"and there for {TEN} times as many" if report.ten else f"for {TEN} times as many there is no time"
    ten += f" (one {' and one '.join(report.alone)})" if report.alone else ""
    lines = [
        f"Plan of: envolve evolve {facts.env}. It runs again with: envolve run FILE",
        f"environment: {facts.features} observations, {actions}, at most {facts.max_steps:,} steps, "
        f"{facts.step_seconds * 1e6:.0f} us each",
        f"world: {why}" if choice.world == AUTO else f"world: {world}, as asked for",
        f"learner: {learner}" + ", every agent with hyperparameters of its own" * (VARY_SUFFIX in learner.lower()),
        f"search: {search}, {generations} generations, about {_minutes(expected)} on {choice.workers} workers",
        f"report: {', '.join(report.learners)} ({kind}); {report.agents} of each in the world and on the environment "
        f"for {_counts(report)} steps, {ten}; about {_minutes(report_seconds)}",
    ]
    if gtn.get("init") == DISTILLED:
        expert = config["agents"]["expert"]
        names, count, which = expert["learner"].split(), expert["agents"], "best"
        if expert["chosen_by"] == PUPILS:
            which = "best-teaching"
        kinds = " and ".join(
            f"{count // len(names)} {name} ({config['agents'][name + EXPERT_SUFFIX]['train_steps']:,} steps each)"
            for name in names
        )
        lines.insert(
            5,
            f"first world: distilled from the {which} expert, of {kinds}; about {_minutes(expert_seconds)}",
        )
    if facts.tiny:
        which = "observation " + ", ".join(map(str, facts.tiny[:5])) + (" ..." if len(facts.tiny) > 5 else "")
        lines.append(
            f"{which}: narrower than {TINY:g} in the environment's units, a constant to many default learners; "
            "--wrappers '{RescaleObservation: {min_obs: -1, max_obs: 1}}' helps"
        )
    if not facts.deterministic:
        lines.append("the environment is not deterministic: two runs of this plan may differ")
    if facts.random_return is not None and math.isfinite(facts.random_return):
        lines.append(f"random actions return {facts.random_return:.4g} in {facts.random_length:.0f} steps")
    return lines


def _longer(facts: Facts, choice: Choice, parts: dict[str, float]) -> str:
    """Why a plan takes longer than asked for. parts: the expected seconds of each."""
    unasked = Choice(choice.seconds)
    names = ("agents", "steps", "learners", "world", "learner", "search")
    asked = [name for name in names if getattr(choice, name) != getattr(unasked, name)]
    if choice.quick:
        asked = ["quick", *(name for name in asked if name not in choice.quick)]
    largest = max(parts, key=lambda name: parts[name])
    why = f"its largest part is {largest}, about {_minutes(parts[largest])}"
    if facts.step_seconds >= SLOW_STEP:
        why += f", for a step of the environment takes {facts.step_seconds * 1e3:.3g} ms"
    takes = "take" if len(asked) > 1 else "takes"
    least = f"the least that --{' and --'.join(asked)} {takes}" if asked else "the least plan"
    asked_for = f"NOT the {_minutes(choice.seconds)} that were asked for"
    return f"time: {_minutes(sum(parts.values()))}, {asked_for}: this is {least}; {why}"


def _counts(report: ReportPlan) -> str:
    """``10,240``, or ``10,240 (ppo) and 4,096 (sac)``."""
    by = {n: [k for k, m in zip(report.learners, report.steps) if m == n] for n in report.steps}
    return " and ".join(f"{n:,}" + (f" ({', '.join(kinds)})" if len(by) > 1 else "") for n, kinds in by.items())


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} minutes"


def stored(of: EvolvePlan) -> dict[str, Any]:
    """What a run keeps beside its configuration, as JSON."""
    return {
        "world": of.world, "learner": of.learner, "search": of.search, "report": asdict(of.report),
        "places": list(of.report.places),
    }  # fmt: skip
