"""Checks of ``agents.gtn.init: distilled`` and of the expert that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envolve.agents.common.learners import has_networks, kind_of, learners_for
from envolve.core.registry import nearest
from envolve.envs.task import Task
from envolve.outer.config import problem
from envolve.outer.config.schema import defaults
from envolve.outer.config.section import ExpertSection
from envolve.outer.config.yaml_lines import show

if TYPE_CHECKING:
    from envolve.outer.config.check import Checker

DISTILLED, CONFIRMED = "distilled", "confirmed"
LEAST_CONFIRM = 2  # agents, of which there is a standard error


def check_distilled(checker: Checker, data: dict[str, Any], task: Task) -> None:
    """Fills in the expert's learner and its section."""
    gtn, agents = problem.gtn_section(data), data["agents"]
    if gtn.keep == CONFIRMED:
        if gtn.init != DISTILLED and not gtn.first_world:
            words = f"best or last: only a run with init: {DISTILLED} or a first_world has one to compare with"
            checker.problem(("agents", "gtn", "keep"), gtn.keep, words)
        elif gtn.confirm_agents < LEAST_CONFIRM:
            words = f"at least {LEAST_CONFIRM} for keep: {CONFIRMED}"
            checker.problem(("agents", "gtn", "confirm_agents"), str(gtn.confirm_agents), words)
    if gtn.init != DISTILLED:
        return
    if gtn.first_world:
        checker.problem(("agents", "gtn", "first_world"), show(gtn.first_world), f"none with init: {DISTILLED}")
        return
    if not problem.env_section(data).contextual_bandit:
        words = "random: what an expert knows is taught by a bandit (envs.<task>.contextual_bandit: true)"
        checker.problem(("agents", "gtn", "init"), gtn.init, words)
        return
    section = agents.setdefault(problem.EXPERT, defaults(ExpertSection))
    names = section["learner"].lower().split() or ["ddqn" if task.num_actions else "sac"]
    section["learner"] = " ".join(names)
    section["imitate"] = section["imitate"].lower()
    fitting = [learner for learner in learners_for(task) if has_networks(learner)]
    linear = [problem.ARS] if task.action_size else []
    for name in names:
        _check_learner(checker, data, task, "learner", name, [*fitting, *linear])
    if section["balance"] and not task.action_size:
        words = f"false: {task.name} has {kind_of(task)}, and continuous ones are balanced"
        checker.problem(("agents", problem.EXPERT, "balance"), "true", words)
    elif section["balance"] and problem.env_section(data).stored_contexts:
        words = "false with stored_contexts: contexts that are drawn are balanced"
        checker.problem(("agents", problem.EXPERT, "balance"), "true", words)
    if section["imitate"] and section["learner"] != problem.ARS:
        words = f"nothing: only {problem.ARS} imitates, and agents.expert.learner is {section['learner']}"
        checker.problem(("agents", problem.EXPERT, "imitate"), section["imitate"], words)
    elif section["imitate"]:
        _check_learner(checker, data, task, "imitate", section["imitate"], fitting)


def _check_learner(
    checker: Checker, data: dict[str, Any], task: Task, which: str, name: str, fitting: list[str]
) -> None:
    """A learner that the key ``which`` of the expert names, and its section."""
    agents, path = data["agents"], ("agents", problem.EXPERT, which)
    if name not in fitting:
        words = f"a learner with networks for {task.name}, which has {kind_of(task)}: {', '.join(fitting)}"
        checker.problem(path, show(name), words, nearest(name, fitting))
        return
    key = name + problem.EXPERT_SUFFIX
    if key not in agents:
        checker.problem(path, f"no section agents.{key}", "one with the expert's train_steps on the task")
        return
    if not problem.learner_of(data, name).train_steps:
        checker.problem(("agents", key, "train_steps"), "0 (no limit)", "the expert's budget of steps on the task")
