"""From facts to a plan: what evolves, with which learner and search, for how many generations, and what the report
trains. A pure function. The clock has its say in the facts; the plan alone decides every byte after that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from envolve.outer.auto.facts import USUAL_SECONDS, Facts
from envolve.outer.auto.unseen import REAL, REAL_10X, WORLD
from envolve.outer.config.distilled import DISTILLED
from envolve.outer.config.problem import EXPERT_SUFFIX
from envolve.outer.search.searches import NES_KEYS, SEARCHES

WORLDS, AUTO = ("bandit", "se", "rn"), "auto"
INITS = ("random", DISTILLED)  # how the first world is made
REPORT_SHARES = (0.4, 0.5)  # of the time, for the report: more only where it lets a further kind of agent take part
EXPERT_SHARE = 0.5  # of the evolution's time, for the experts of a distilled world
LEAST_EXPERT, MOST_EXPERT = 3_000, 150_000  # their training steps
EXPERTS_PER_WORKER = 2  # the best of them teaches
EXPERT_EPS, EXPERT_EXPLORES = 0.05, 0.3  # lowest exploration rate, and after which share of the episodes it is reached
START_SECONDS = 12.0  # of the workers
TEN = 10  # REAL_10X: times the steps
CHUNK = 18
MOST_AGENTS, LEAST_AGENTS = 10, 3  # of one kind at one place
# Training steps of an unseen agent in the world: of cheap kinds, of those that learn at every step, and for how many
# agents there must be time. The first that fits is taken. PPO takes 2,048 steps at once, and learns little from one.
CHEAP_STEPS = 10_240
SIZES = [(CHEAP_STEPS, 8_192, 4), (CHEAP_STEPS, 6_144, LEAST_AGENTS), (CHEAP_STEPS, 4_096, LEAST_AGENTS)]
# of one kind, where time is short
SHORT_SIZES = [(6_144, 4_096, LEAST_AGENTS), (4_096, 4_096, LEAST_AGENTS), (2_048, 2_048, LEAST_AGENTS)]
EVERY_STEP = ("sac", "td3")  # update at every step, with defaults
ALWAYS = "ppo"  # in every report: it learns something on most environments
LAST = "a2c"  # leaves a report first: it is seldom the best
TESTS, MOST_TESTS = 10, 100  # episodes per agent: more where they are short, since a return may be 0 or 1 ...
TEST_STEPS = 10_000  # ... as many as fit into these steps
START_OF_AGENT = 4.0  # seconds: a process that imports what it needs
SPARE = 0.85  # of the report's time is planned; the evolution has what is left
MOST_GENERATIONS, LEAST_GENERATIONS = 2000, 3
HORIZON_FROM = 400  # steps of an episode from which tests begin shorter


@dataclass(frozen=True)
class Choice:
    """What the user asked for."""

    seconds: float
    world: str = AUTO
    learner: str = AUTO
    search: str = AUTO
    init: str = AUTO
    seed: int = 0
    workers: int = 1
    agents: int | None = None  # of each kind at each place; None: as many as there is time for
    steps: int | None = None  # of each in the world; None: the same


@dataclass(frozen=True)
class ReportPlan:
    """What is trained after the evolution."""

    learners: tuple[str, ...]
    agents: int
    steps: tuple[int, ...]  # of each learner, in the world
    tests: int
    library: bool  # Stable-Baselines3's, not this project's

    def steps_at(self, learner: str, where: str) -> int:
        """Training steps there."""
        return self.steps[self.learners.index(learner)] * (TEN if where == REAL_10X else 1)


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
    report, report_seconds = _report(facts, choice, learners, library)
    seconds = max(choice.seconds - report_seconds / SPARE, (1 - REPORT_SHARES[-1]) * choice.seconds) - START_SECONDS
    config = _config(facts, choice, world, learner, search)
    gtn = config["agents"]["gtn"]
    distilled = world == "bandit" if choice.init == AUTO else choice.init == DISTILLED
    expert_seconds = _add_expert(config, facts, choice, EXPERT_SHARE * seconds) if distilled else 0.0
    seconds -= expert_seconds
    generations, expected = _generations(facts, choice, gtn, seconds, world)
    gtn["max_iterations"] = generations
    if gtn.get("horizon_start"):
        gtn["horizon_generations"] = max(1, round(0.6 * generations))
    reasons = _reasons(facts, choice, world, config, expected, report, report_seconds, expert_seconds)
    spent = expected + START_SECONDS + expert_seconds
    return EvolvePlan(config, report, world, learner, search, spent, report_seconds, tuple(reasons))


def _learner(facts: Facts, world: str) -> str:
    name = "TD3" if facts.continuous else "DDQN"
    return name if world == "rn" else f"{name}_vary"


# -------------------------------------------------------------------------------------------------------- the search


def _config(facts: Facts, choice: Choice, world: str, learner: str, search: str) -> dict[str, Any]:
    """The configuration, without what depends on the number of generations."""
    gtn: dict[str, Any] = {
        "mode": "single", "agent_name": learner, "synthetic_env_type": 1 if world == "rn" else 0,
        "max_iterations": LEAST_GENERATIONS, "num_workers": 32, "noise_std": 0.05, "step_size": 0.02,
        "estimator": "antithetic", "iterate_averaging": 0.8, "num_orig_evals": 8, "common_random_numbers": True,
        "confirm_agents": 20, "chunk_size": CHUNK, "comparison_agents": 0, "search": search,
        "quit_when_solved": True,
    }  # fmt: skip
    if search in SEARCHES.built_in:  # none of them reads what is nes's own
        gtn = {key: value for key, value in gtn.items() if key not in NES_KEYS}
    if world != "rn" and facts.max_steps >= HORIZON_FROM and facts.early_signal:
        gtn["horizon_start"] = facts.max_steps // 5
    if world == "se":
        gtn.update(collapse_generations=20, max_restarts=2)
    if world == "rn":
        gtn.update(num_workers=8, num_orig_evals=4, rn_objective="auc", confirm_agents=0, chunk_size=10)
    name = learner.lower().removesuffix("_vary")
    agents: dict[str, Any] = {"gtn": gtn, name: _learner_section(facts, name, world)}
    if learner.lower().endswith("_vary"):
        agents[f"{name}_vary"] = {
            "vary_hp": True, "vary_layers": False, "lr_factor": 10.0 if name in ("ddqn", "duelingddqn") else 3.0,
            "train_steps_factor": 1.8,
        }  # fmt: skip
    section: dict[str, Any] = {"hidden_size": 32, "hidden_layer": 1, "activation_fn": "leakyrelu"}
    if world == "bandit":
        section["contextual_bandit"] = True
    elif world == "se":
        section["done_bias"] = -1.0
    else:
        section["reward_env_type"] = 2
    return {"env_name": facts.env, "seed": choice.seed, "agents": agents, "envs": {facts.env: section}}


def _add_expert(config: dict[str, Any], facts: Facts, choice: Choice, seconds: float) -> float:
    """Adds the experts that a distilled world begins with, for as many steps as fit into ``seconds`` -> the seconds
    that they are expected to take."""
    name = "sac" if facts.continuous else "ddqn"
    one = facts.expert_seconds * EXPERTS_PER_WORKER + facts.step_seconds
    steps = int(min(MOST_EXPERT, max(LEAST_EXPERT, seconds / one)))
    episodes = steps / ((facts.random_length + facts.max_steps) / 2)
    section: dict[str, Any] = {
        "train_steps": steps, "train_episodes": steps, "test_episodes": TESTS, "batch_size": 64, "gamma": 0.99,
        "tau": 0.01, "hidden_layer": 1, "rb_size": 100_000,
    }  # fmt: skip
    if name == "sac":
        section.update(lr=1e-3, hidden_size=64, init_episodes=max(1, min(20, round(1000 / facts.random_length))))
    else:
        decay = EXPERT_EPS ** (1 / max(1.0, EXPERT_EXPLORES * episodes))
        section.update(lr=5e-4, hidden_size=128, hidden_layer=2, init_episodes=1,
                       eps_init=1.0, eps_min=EXPERT_EPS, eps_decay=round(decay, 4))  # fmt: skip
    agents = config["agents"]
    agents["gtn"]["init"] = DISTILLED
    agents["expert"] = {"learner": name, "agents": EXPERTS_PER_WORKER * max(1, min(choice.workers, facts.cores))}
    agents[name + EXPERT_SUFFIX] = section
    return steps * one


def _learner_section(facts: Facts, name: str, world: str) -> dict[str, Any]:
    """Hyperparameters of the inner learner: those of the shipped bandits, smaller where there are none."""
    tests = _tests(facts)
    out: dict[str, Any] = {
        "train_episodes": 3000, "train_steps": 1500, "test_episodes": tests, "batch_size": 64, "gamma": 0.99,
        "lr": 1e-3, "hidden_size": 64, "hidden_layer": 1,
        "init_episodes": 0, "bootstrap_time_limit": False,
    }  # fmt: skip
    if name in ("ddqn", "duelingddqn"):
        out.update(tau=0.01, eps_init=1.0, eps_min=0.05, eps_decay=0.998, rb_size=100_000)
    elif name in ("td3", "sac", "td3_discrete"):
        out.update(init_episodes=100, tau=0.02, rb_size=100_000)
        if name == "td3":
            out.update(action_std=0.3, train_steps=1000, batch_size=32, hidden_size=32, lr=2e-3)  # a dear learner
    elif name == "ppo":
        out = {
            "train_episodes": 3000, "train_steps": 2000, "test_episodes": tests, "hidden_size": 64, "hidden_layer": 1,
            "rollout_steps": 250, "ppo_epochs": 10, "minibatches": 4, "advantage": "gae", "norm_advantage": True,
            "lr": 1e-3,
        }  # fmt: skip
    if world == "se" and name != "ppo":
        out.update(eps_decay=0.95) if "eps_decay" in out else out.update(init_episodes=1)
        out.update(train_episodes=1500, early_out_num=5, early_out_virtual_diff=0.1, early_out_min_steps=1500)
    if world == "rn":
        out["train_episodes"] = max(10, min(200, 20_000 // facts.max_steps))
        if "train_steps" in out:
            out["train_steps"] = 0
        if "eps_decay" in out:
            out.update(eps_decay=0.9, eps_min=0.01)
        out["test_episodes"] = 1
    return out


def _tests(facts: Facts) -> int:
    """Test episodes of an agent of the inner loop."""
    return max(2, min(4, 1000 // facts.max_steps))


def _generations(facts: Facts, choice: Choice, gtn: dict[str, Any], seconds: float, world: str) -> tuple[int, float]:
    """Most generations that are expected to fit into ``seconds``, and the seconds that they are expected to take."""
    mirrored = gtn["search"] not in SEARCHES.built_in or SEARCHES[gtn["search"]].mirrored
    perturbed, plain = (1 + mirrored) * gtn["num_workers"], gtn["num_orig_evals"]
    width = max(1, min(choice.workers, facts.cores))
    tests = _tests(facts)
    long = (facts.random_length + facts.max_steps) / 2  # episodes grow longer, or shorter: nobody knows
    start = gtn.get("horizon_start") or facts.max_steps
    middle = min(long, 0.7 * (start + facts.max_steps) / 2 + 0.3 * facts.max_steps)
    real_steps = tests * (perturbed * middle + plain * long)
    if world == "bandit":
        train = (perturbed + plain) * facts.member_seconds * 1.6
    elif world == "se":
        train = (perturbed + plain) * 1500 * 6e-4
    else:
        train = (perturbed + plain) * 20_000 * (1e-3 + facts.step_seconds)
    one = (train + real_steps * facts.step_seconds) / width + 0.15
    count = int(max(LEAST_GENERATIONS, min(MOST_GENERATIONS, seconds / one)))
    return count, count * one


# -------------------------------------------------------------------------------------------------------- the report


def _report(facts: Facts, choice: Choice, learners: list[str], library: bool) -> tuple[ReportPlan, float]:
    """Kinds, agents and steps that fit into the report's time, and the seconds that they are expected to take."""
    for kinds, sizes in _reports(facts, learners):
        if choice.steps:
            sizes = [(choice.steps, choice.steps, LEAST_AGENTS)]
        for share, (cheap, dear, least) in itertools.product(REPORT_SHARES, sizes):
            budget, steps = SPARE * share * choice.seconds, tuple(dear if k in EVERY_STEP else cheap for k in kinds)
            most = min(MOST_AGENTS, int(budget / _seconds(facts, choice, kinds, 1, steps)))
            count = choice.agents or most
            if count >= (choice.agents or least) and _seconds(facts, choice, kinds, count, steps) <= budget:
                return _sized(facts, choice, kinds, count, steps, library)
    return _sized(facts, choice, kinds, choice.agents or LEAST_AGENTS, steps, library)


def _reports(facts: Facts, learners: list[str]) -> Iterator[tuple[list[str], list[tuple[int, int, int]]]]:
    """Kinds and sizes, the widest report first, down to the least."""
    kinds = list(learners)
    while len(kinds) > 1:
        yield list(kinds), SIZES
        if LAST in kinds and len(kinds) > 2:
            yield [k for k in kinds if k != LAST], SIZES
        kinds.remove(max([k for k in kinds if k != ALWAYS] or kinds, key=lambda k: _per_step(facts, k)))
    yield kinds, SIZES + SHORT_SIZES


def _sized(
    facts: Facts, choice: Choice, kinds: list[str], agents: int, steps: tuple[int, ...], library: bool
) -> tuple[ReportPlan, float]:
    return ReportPlan(tuple(kinds), agents, steps, _report_tests(facts), library), _seconds(
        facts, choice, kinds, agents, steps
    )


def _report_tests(facts: Facts) -> int:
    """Test episodes of an unseen agent."""
    return max(TESTS, min(MOST_TESTS, TEST_STEPS // facts.max_steps))


def _per_step(facts: Facts, kind: str) -> float:
    """Seconds of one training step of an unseen agent."""
    return (facts.agent_seconds or {}).get(kind, USUAL_SECONDS.get(kind, 1e-3))


def _seconds(facts: Facts, choice: Choice, kinds: list[str], agents: int, steps: tuple[int, ...]) -> float:
    """Expected wall time of a report."""
    long = (facts.random_length + facts.max_steps) / 2
    tests = _report_tests(facts) * long * (facts.step_seconds + 3e-4)
    training = sum((2 + TEN) * n * _per_step(facts, k) for k, n in zip(kinds, steps))
    one = training + len(kinds) * 3 * (tests + START_OF_AGENT * 0.1)
    width = max(1, min(choice.workers, facts.cores))
    return agents * one / width + START_OF_AGENT


# ---------------------------------------------------------------------------------------------------------- in words


def _reasons(
    facts: Facts, choice: Choice, world: str, config: dict[str, Any], expected: float, report: ReportPlan,
    report_seconds: float, expert_seconds: float,
) -> list[str]:  # fmt: skip
    gtn = config["agents"]["gtn"]
    learner, search, generations = gtn["agent_name"], gtn["search"], gtn["max_iterations"]
    actions = f"actions of {facts.action_size} numbers" if facts.continuous else f"{facts.num_actions} actions"
    why = {
        "bandit": "a contextual bandit: no dynamics, so that agents of any kind learn it (arXiv:2406.12589)",
        "se": "an environment with next states: harder to evolve than a bandit",
        "rn": "a reward network: its agents train on the real environment",
    }[world]
    kind = "Stable-Baselines3's, default hyperparameters" if report.library else (
        "this project's, default hyperparameters, since Stable-Baselines3 is not installed"
    )  # fmt: skip
    lines = [
        f"Plan of: envolve evolve {facts.env}. It runs again with: envolve run FILE",
        f"environment: {facts.features} observations, {actions}, at most {facts.max_steps:,} steps, "
        f"{facts.step_seconds * 1e6:.0f} us each",
        f"world: {why}" if choice.world == AUTO else f"world: {world}, as asked for",
        f"learner: {learner}" + (", every agent with hyperparameters of its own" if "_vary" in learner.lower() else ""),
        f"search: {search}, {generations} generations, about {_minutes(expected)} on {choice.workers} workers",
        f"report: {', '.join(report.learners)} ({kind}); {report.agents} of each in the world and on the environment "
        f"for {_counts(report)} steps, and there for {TEN} times as many; about {_minutes(report_seconds)}",
    ]
    if gtn.get("init") == DISTILLED:
        count, name = config["agents"]["expert"]["agents"], config["agents"]["expert"]["learner"]
        steps = config["agents"][name + EXPERT_SUFFIX]["train_steps"]
        lines.insert(5, f"first world: distilled from the best of {count} {name} agents, each trained on the "
                        f"environment for {steps:,} steps; about {_minutes(expert_seconds)}")  # fmt: skip
    if not facts.deterministic:
        lines.append("the environment is not deterministic: two runs of this plan may differ")
    if facts.random_return is not None and math.isfinite(facts.random_return):
        lines.append(f"random actions return {facts.random_return:.4g} in {facts.random_length:.0f} steps")
    return lines


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
        "places": [WORLD, REAL, REAL_10X],
    }  # fmt: skip
