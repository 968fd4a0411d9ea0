"""Controls of controls.py: each makes one or two rows of the table, or says why this world cannot have it."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.core.registry import Registry
from envolve.envs.outside.build import check_configured
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.best_paid import best_actions, greedy
from envolve.envs.worlds.file import WorldFile, read_world
from envolve.envs.worlds.world import World
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.controls.baseline import baseline_of
from envolve.outer.controls.direct import evolve_policy
from envolve.outer.controls.hand_made import HAND_MADE
from envolve.outer.controls.values import optimal_values
from envolve.outer.distil.bandit import fit_bandit
from envolve.outer.distil.expert import train_experts
from envolve.outer.distil.fit import fit_classifier, fit_potential
from envolve.outer.distil.policy import Policy, of_observation, play
from envolve.outer.evaluate.networks import BUDGET, EARLY_OUT, REAL, REAL_BUDGET, evaluate
from envolve.outer.search.nes import RETEST, member_seeds

BANDIT_STEPS = 5000  # of agents in a control's bandit, where the world has no budget of its own
CONTEXTS = 2000  # labelled states of a classifier, drawn states of a hand-made bandit


@dataclass
class Row:
    """One row of the table. Lists have an entry per unit: an agent, or a policy that was tested alone."""

    name: str
    what: str
    unit: str = "agent"
    returns: list[float] = field(default_factory=list)  # mean test return on the task, NaN where it failed
    worlds: list[int] = field(default_factory=list)  # which bandit, expert or search each unit belongs to
    train_steps: list[float] = field(default_factory=list)  # of each unit, wherever it trained
    real_steps: float | None = None  # on the task, to make the whole row; None: not known
    why_not: str = ""  # instead of all that: why this world has no such control


@dataclass
class Bench:
    """Shared inputs of all controls."""

    world: WorldFile
    data: dict[str, Any]
    task: Task
    section: EnvSection
    agents: int
    repeats: int
    episodes: int
    spent: int | None  # real steps of the world's evolution; None: its file does not say
    real_steps: int | None  # that direct evolution may spend
    seed: int
    threads: int

    @classmethod
    def of(
        cls, path: Path, agents: int, repeats: int, episodes: int, real_steps: int | None, seed: int, threads: int
    ) -> Bench:
        """Reads a world file. Raises WorldFileError, ConfigError."""
        world = read_world(str(path))
        if not isinstance(world.config.get("agents"), dict):
            raise ConfigError([f"{path}: config: found no section agents, expected the configuration of a run"])
        check_configured(world.config)
        spent = world.evolution_steps
        return cls(
            world,
            world.config,
            world.task(),
            world.section,
            agents,
            repeats,
            episodes,
            spent,
            spent if real_steps is None else real_steps,
            seed,
            threads or len(os.sched_getaffinity(0)),
        )

    @property
    def bandit(self) -> bool:
        return self.world.kind == "se" and self.section.contextual_bandit

    def keys(self, purpose: int, count: int) -> np.ndarray:
        """Random seeds that no evolution uses, int64 [count]."""
        return member_seeds(self.seed, RETEST, 100 + purpose, count)

    def tested(self, row: Row, policies: list[Policy], key: int) -> Row:
        """Makes a row of policies, each tested in episodes with the same starts."""
        for i, policy in enumerate(policies):
            played = play(self.task, policy, self.keys(key, 1), self.episodes)
            row.returns.append(float(played.returns.mean()))
            row.train_steps.append(0.0)
            row.worlds.append(i)
        return row

    def trained(self, row: Row, data: dict[str, Any], worlds: Tensor, mode: str) -> Row:
        """Makes a row of agents, divided among the worlds [W, D]."""
        which = torch.arange(self.agents) % len(worlds)
        seeds = torch.from_numpy(self.keys(0, self.agents))
        values = evaluate(data, worlds[which], seeds, mode, self.threads)
        row.returns += values["mean_return"].tolist()
        row.train_steps += [float(n) for n in values["train_steps"].tolist()]
        row.worlds += which.tolist()
        if mode in (REAL, REAL_BUDGET):
            row.real_steps = (row.real_steps or 0) + int(values["real_steps"].sum())
        return row

    def in_bandits(self, row: Row, flats: list[Tensor]) -> Row:
        """Makes a row of the world's own kind of agents, trained in other bandits."""
        data = copy.deepcopy(self.data)
        data["envs"][self.world.env_name]["contextual_bandit"] = True
        name = problem.learner(data)[0]
        key = problem.learner_key(data["agents"], name)
        data["agents"].setdefault(key, {})["train_steps"] = self.world.budget or BANDIT_STEPS
        return self.trained(row, data, torch.stack(flats), BUDGET)

    def bandit_section(self) -> EnvSection:
        return dataclasses.replace(self.section, contextual_bandit=True)


Control = Callable[[Bench], list[Row]]


def world(bench: Bench) -> list[Row]:
    budget = bench.world.budget
    row = Row("world", "agents trained in the evolved world", real_steps=bench.spent)
    return [bench.trained(row, bench.data, bench.world.flat.unsqueeze(0), BUDGET if budget else EARLY_OUT)]


def tuned(bench: Bench) -> list[Row]:
    found = baseline_of(bench.world.env_name)
    if found is None:
        return [Row("tuned", "", why_not=f"no tuned baseline of {bench.world.env_name} ships")]
    row = Row("tuned", f"tuned {problem.learner(found.config.data)[0]} agents on the task", real_steps=0)
    bench.trained(row, found.config.data, torch.zeros(1, 1), REAL_BUDGET)
    assert row.real_steps is not None
    row.real_steps += found.tuning_steps
    return [row]


def greedy_row(bench: Bench) -> list[Row]:
    of: World = bench.world.world()
    row = Row("greedy", "no agent: the action that the world pays most for", "policy", real_steps=0)
    if of.kind == "rn":
        row.what = "no agent: the action whose next reward, by the task's own dynamics, is highest"
    return [bench.tested(row, [greedy(of)], 1)]


def classifier(bench: Bench) -> list[Row]:
    if not bench.bandit:
        return [Row("classifier", "", why_not="only bandits have labelled contexts")]
    of, policies = bench.world.world(), []
    for i, key in enumerate(bench.keys(2, bench.repeats)):
        u = np.random.default_rng([bench.seed, i]).random((1, CONTEXTS, of.reset_uniforms))
        states = of.reset(torch.from_numpy(u))
        states = states[:, torch.isfinite(states[0]).all(-1)]
        policies.append(fit_classifier(bench.task, states[0], best_actions(of, states)[0], int(key)))
    row = Row("classifier", "a classifier of the bandit's contexts by its best action", "policy", real_steps=0)
    return [bench.tested(row, policies, 1)]


def hand_made(bench: Bench) -> list[Row]:
    if bench.world.kind != "se":
        return [Row("hand_made", "", why_not="it stands beside SEs")]
    found = HAND_MADE.get(bench.world.env_name)
    if found is None:
        return [Row("hand_made", "", why_not=f"nobody wrote a policy for {bench.world.env_name}")]
    F, flats = bench.task.observation_size, []
    for i, key in enumerate(bench.keys(3, bench.repeats)):
        u = torch.from_numpy(np.random.default_rng([bench.seed, i]).random((CONTEXTS, F))).float()
        flats.append(fit_bandit(bench.task, bench.bandit_section(), found.states(u), found.act, int(key)))
    policy = of_observation(bench.task, lambda x: found.act(x[0]).unsqueeze(0))
    rule = Row("hand_made", f"a policy by hand: {found.rule}", "policy", real_steps=0)
    taught = Row("hand_made bandit", "agents in bandits that teach it", real_steps=0)
    return [bench.tested(rule, [policy], 1), bench.in_bandits(taught, flats)]


def distilled(bench: Bench) -> list[Row]:
    if bench.world.kind != "se":
        return [Row("distilled", "", why_not="it stands beside SEs")]
    found = baseline_of(bench.world.env_name)
    if found is None:
        return [Row("distilled", "", why_not=f"no tuned baseline of {bench.world.env_name} ships, to be the expert")]
    data = found.config.data
    name, learner, _ = problem.learner(data)
    gtn = problem.gtn_section(data)
    test_each = gtn.synthetic_env_type == 1 or gtn.se_test_on_real
    keys = bench.keys(4, bench.repeats)
    trained = train_experts(name, learner, bench.task, bench.section, keys, test_each, gtn.backend, bench.threads)
    experts = [e for e in trained if e is not None]
    if len(experts) < len(keys):
        return [Row("distilled", "", why_not=f"{len(keys) - len(experts)} of {len(keys)} experts diverged")]
    section = bench.bandit_section()
    flats = [
        fit_bandit(bench.task, section, e.states, e.act, int(key))
        for e, key in zip(experts, bench.keys(5, bench.repeats))
    ]
    spent = sum(e.steps for e in experts)
    expert = Row("expert", f"tuned {name} agents on the task, none chosen", real_steps=spent)
    expert.returns, expert.train_steps = [e.mean_return for e in experts], [float(e.steps) for e in experts]
    expert.worlds = list(range(len(experts)))
    taught = Row("distilled", "agents in bandits distilled from these", real_steps=spent)
    return [expert, bench.in_bandits(taught, flats)]


def potential(bench: Bench) -> list[Row]:
    if bench.world.kind != "rn" or bench.task.num_states is None:
        return [Row("potential", "", why_not="only reward networks of finite tasks have it")]
    data = copy.deepcopy(bench.data)
    section = dataclasses.replace(bench.section, reward_env_type=2)
    data["envs"][bench.world.env_name]["reward_env_type"] = 2
    gamma = bench.world.discount()
    values = optimal_values(bench.task, gamma)
    flats = [fit_potential(bench.task, section, values, int(key)) for key in bench.keys(6, bench.repeats)]
    row = Row("potential", f"agents paid r + {gamma:g} V*(s') - V*(s), V* by value iteration", real_steps=0)
    return [bench.trained(row, data, torch.stack(flats), BUDGET if bench.world.budget else EARLY_OUT)]


def direct(bench: Bench) -> list[Row]:
    if bench.real_steps is None:
        why = "the file does not say how many real steps its evolution took; give --real-steps"
        return [Row("direct", "", why_not=why)]
    found = [evolve_policy(bench.task, bench.real_steps, int(key)) for key in bench.keys(7, bench.repeats)]
    row = Row("direct", "policies evolved on the task, without a world", "policy")
    row.real_steps = sum(e.steps for e in found) / len(found)
    bench.tested(row, [e.policy for e in found], 1)
    row.train_steps = [float(e.steps) for e in found]
    return [row]


CONTROLS: Registry[Control] = Registry("control", {
    "world": world, "tuned": tuned, "greedy": greedy_row, "classifier": classifier, "hand_made": hand_made,
    "distilled": distilled, "potential": potential, "direct": direct,
})  # fmt: skip
