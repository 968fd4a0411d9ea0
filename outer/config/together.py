"""Checks of values that are valid alone but impossible together: task and world, learner and task, sizes, shapers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from envolve.agents.common import torch_compile
from envolve.agents.common.learners import is_off_policy, kind_of, learners_for
from envolve.agents.common.population import size
from envolve.agents.shaped.training import LEARNERS as SHAPED_LEARNERS
from envolve.agents.train import algorithm
from envolve.core.plugins import PluginError, said
from envolve.core.registry import nearest
from envolve.envs.physics.task import PHYSICS_TASKS, SHAPER_TYPES, is_shaped
from envolve.envs.section import INFO_TYPES, RN_TYPES, EnvSection
from envolve.envs.shaping.section import candidates_of, shaper_files, shapers_digest
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.world import info_mismatch, world_size
from envolve.outer.config import problem
from envolve.outer.config.distilled import check_distilled
from envolve.outer.config.searching import check_search_size
from envolve.outer.config.section import RN, SHAPER, GTNSection
from envolve.outer.config.yaml_lines import Path, show
from envolve.outer.plugins import own, try_learner
from envolve.outer.search.search import NES_NAME
from envolve.outer.search.turns import inner_agents

if TYPE_CHECKING:
    from envolve.outer.config.check import Checker

MAX_PARAMETERS = 100_000_000  # of one member's world or agent: 400 MB
MAX_BATCH = 65536  # a minibatch draws its rows from this many random counters


def check_together(checker: Checker, data: dict[str, Any]) -> None:
    """Checks for values that are valid alone but impossible together."""
    gtn = problem.gtn_section(data)
    shaped = is_shaped(data["env_name"])
    if shaped != (gtn.synthetic_env_type == SHAPER):
        words = (
            "2: candidates shape a task in a physics engine" if shaped else "0 or 1: 2 needs a task in a physics engine"
        )
        words += "" if shaped else f", one of {', '.join(PHYSICS_TASKS)}"
        checker.problem(("agents", "gtn", "synthetic_env_type"), str(gtn.synthetic_env_type), words)
        return
    if shaped:
        _shaped(checker, data)
        return
    env = problem.env_section(data)
    task = make_task(data["env_name"], env.max_steps, env.solved_reward)
    env_path, gtn_path = ("envs", data["env_name"]), ("agents", "gtn")
    if gtn.synthetic_env_type == RN and env.reward_env_type == 0:
        types = ", ".join(str(t) for t in RN_TYPES if t > 0 and (task.info_size or t not in INFO_TYPES))
        words = f"one of {types}: synthetic_env_type 1 evolves a reward network, and type 0 has none"
        checker.problem((*env_path, "reward_env_type"), "0", words)
    wrong = info_mismatch(task, env) if gtn.synthetic_env_type == RN else None
    if wrong is not None:
        key, found, words = wrong
        checker.problem((*env_path, key), found, words)
        return  # no size is known
    if gtn.estimator == "antithetic" and not gtn.mirrored_sampling:
        checker.problem((*gtn_path, "mirrored_sampling"), "false", "true: estimator antithetic needs pairs")
    if env.contextual_bandit and (gtn.synthetic_env_type == RN or task.num_states is not None):
        rn = gtn.synthetic_env_type == RN
        words = f"false: {'a reward network keeps the dynamics of the task' if rn else 'states are in a table'}"
        checker.problem((*env_path, "contextual_bandit"), "true", words)
    if env.stored_contexts and not env.contextual_bandit:
        words = "0: only a bandit stores contexts (contextual_bandit: true)"
        checker.problem((*env_path, "stored_contexts"), str(env.stored_contexts), words)
    if env.normalised and (words := _no_units(gtn, env, task)):
        checker.problem((*env_path, "normalised"), "true", f"false: {words}")
    if gtn.best_paid_share and (gtn.synthetic_env_type == RN or not env.contextual_bandit):
        words = "0: only a bandit pays at once for the best action (contextual_bandit: true)"
        checker.problem((*gtn_path, "best_paid_share"), f"{gtn.best_paid_share:g}", words)
    _several_learners(checker, gtn)
    _horizon(checker, gtn)
    if gtn.horizon_generations and gtn.horizon_start > task.max_steps:
        checker.problem((*gtn_path, "horizon_start"), str(gtn.horizon_start), f"at most max_steps, {task.max_steps}")
    if task.num_states is not None and (gtn.horizon_generations or env.test_steps not in (None, task.max_steps)):
        path, key = (gtn_path, "horizon_generations") if gtn.horizon_generations else (env_path, "test_steps")
        words = "nothing: learners with a table are tested for max_steps"
        checker.problem((*path, key), str(gtn.horizon_generations or env.test_steps), words)
    kind = "rn" if gtn.synthetic_env_type == RN else "se"
    _size(checker, (*env_path, "hidden_size"), world_size(kind, task, env))
    check_search_size(checker, data, world_size(kind, task, env))
    check_distilled(checker, data, task)
    tests: dict[str, int] = {}
    for agent in inner_agents(gtn):
        _learner(checker, data, task, "other_agents" if tests else "agent_name", agent)
        tests[agent] = problem.named_learner(data, agent)[1].test_episodes
    if len(set(tests.values())) > 1:
        found = ", ".join(f"{count} of {agent}" for agent, count in tests.items())
        checker.problem((*gtn_path, "other_agents"), found, "as many test_episodes of each, which share a result")


def _several_learners(checker: Checker, gtn: GTNSection) -> None:
    """Scores of worlds with different learners say more about the learners. Only a pair has the same one."""
    count, evals, orig = len(inner_agents(gtn)), gtn.num_grad_evals, gtn.num_orig_evals or gtn.num_workers
    if evals % count and not (gtn.search == NES_NAME and gtn.estimator == "antithetic"):
        how = f"search {gtn.search}" if gtn.search != NES_NAME else f"estimator {gtn.estimator}"
        words = f"a multiple of {count}, the number of learners: {how} compares worlds, which else have other learners"
        checker.problem(("agents", "gtn", "num_grad_evals"), str(evals), words)
    if orig % count:
        checker.warnings.append(
            f"agents.gtn.num_orig_evals: {count} learners share {orig} agents of the unperturbed world unevenly, in "
            f"each generation otherwise; a multiple of {count} is fair"
        )


def _horizon(checker: Checker, gtn: GTNSection) -> None:
    """A growing horizon makes later scores other ones. Searches that compare worlds of one generation do not mind."""
    if not gtn.horizon_generations:
        return
    path = ("agents", "gtn")
    if gtn.search == "random":
        words = "0: search random compares worlds of all generations, with tests of different length"
        checker.problem((*path, "horizon_generations"), str(gtn.horizon_generations), words)
    if gtn.search == NES_NAME and gtn.estimator == "published" and gtn.score_transform_type in (5, 6, 7):
        words = "0 to 4 with horizon_generations: 5, 6 and 7 compare with the unperturbed world, whose tests are full"
        checker.problem((*path, "score_transform_type"), str(gtn.score_transform_type), words)


def _no_units(gtn: GTNSection, env: EnvSection, task: Task) -> str:
    """Why agents in this world cannot see normalised observations; "": they can."""
    if gtn.synthetic_env_type == RN or not env.contextual_bandit:
        return "in a bandit alone (contextual_bandit: true) units do not depend on the agent"
    if env.stored_contexts or task.codes:
        found = "stored_contexts" if env.stored_contexts else f"observations of {task.name} that hold one-hot codes"
        return f"found {found}, and contexts that init_net draws as they are have such units"
    return "se_test_on_real tests agents while they train" if gtn.se_test_on_real else ""


def _size(checker: Checker, path: Path, count: int) -> None:
    if count > MAX_PARAMETERS:
        checker.problem(path, f"a network of {count:,} parameters", f"at most {MAX_PARAMETERS:,}")


def _learner(checker: Checker, data: dict[str, Any], task: Task, key: str, agent: str) -> None:
    """Checks one learner of the inner loop with the task; key: where ``agents.gtn`` names it."""
    name, section, vary = problem.named_learner(data, agent)
    learner_path = ("agents", problem.learner_key(data["agents"], name))
    fitting = learners_for(task)
    if name not in fitting:
        words = f"a learner for {task.name}, which has {kind_of(task)}: {', '.join(fitting)}"
        checker.problem(("agents", "gtn", key), agent, words)
    why = torch_compile.why_not(name, is_off_policy(name), data["device"])
    if why and problem.gtn_section(data).backend == "torch_compile":
        checker.problem(("agents", "gtn", "backend"), "torch_compile", f"another: {why}")
    if vary and vary.train_steps_factor > 1 and section.train_steps == 0:
        words = f"a budget, because train_steps_factor {vary.train_steps_factor} varies it"
        checker.problem((*learner_path, "train_steps"), "0 (no limit)", words)
    if section.init_episodes >= section.train_episodes:
        checker.warnings.append(f"{'.'.join(learner_path)}: the agent never learns: init_episodes >= train_episodes")
    if is_off_policy(name) and name in fitting:
        values = dataclasses.asdict(section)
        try:
            nets = algorithm(name).nets_of(task, section, values["hidden_size"], values["hidden_layer"])
        except Exception as e:
            if own("learner", name) is None:
                raise
            checker.problem(("agents", "gtn", key), agent, f"a learner that can be built: nets_of raised {said(e)}")
            return
        _size(checker, (*learner_path, "hidden_size"), size(nets))
        _own(checker, name, task, section, key)
        if vary and vary.vary_hp and values["batch_size"] * 3 > MAX_BATCH:
            words = f"at most {MAX_BATCH // 3}, because vary_hp draws up to three times as much"
            checker.problem((*learner_path, "batch_size"), str(values["batch_size"]), words)


def _own(checker: Checker, name: str, task: Task, section: Any, key: str) -> None:
    """A learner of the user's own, with this task."""
    learner = own("learner", name)
    if learner is None:
        return
    where = learner.source.path if learner.source else f"learner {name}"
    try:
        try_learner(f"{where}: class {learner.cls.__name__}", learner.cls, task, section)
    except PluginError as e:
        checker.problem(("agents", "gtn", key), name, f"a learner that can be built: {e}")


def _shaped(checker: Checker, data: dict[str, Any]) -> None:
    """Checks candidates and learner of a task in a physics engine; stores the digest of the candidates' files."""
    name = data["env_name"]
    gtn, section = problem.gtn_section(data), problem.shaped_section(data)
    path = ("envs", name)
    agent = problem.split_agent_name(gtn.agent_name)
    if agent.learner not in SHAPED_LEARNERS or agent.curious or agent.vary:
        words = f"a learner for shaped tasks: {', '.join(SHAPED_LEARNERS)}"
        checker.problem(("agents", "gtn", "agent_name"), show(gtn.agent_name), words)
    if gtn.first_world:
        words = "none: the search begins with the numbers of a candidate"
        checker.problem(("agents", "gtn", "first_world"), show(gtn.first_world), words)
    if gtn.backend == "torch_compile":
        words = "auto, compiled or torch: the learners of shaped tasks have no such updates"
        checker.problem(("agents", "gtn", "backend"), gtn.backend, words)
    for kind in section.types():
        if kind not in SHAPER_TYPES:
            words = f"some of {', '.join(SHAPER_TYPES)}, with spaces between"
            checker.problem((*path, "shaper_types"), show(kind), words, nearest(kind, SHAPER_TYPES))
            return
    try:
        files = shaper_files(section, name)
    except FileNotFoundError as e:
        checker.problem((*path, "shapers"), str(e), "candidates")
        return
    digest = shapers_digest(files)
    if section.shapers_sha256 not in ("", digest):
        found = f"other candidates than this configuration was resolved with ({files[0].parent})"
        checker.problem((*path, "shapers_sha256"), found, "the files as they were, or a new run")
        return
    data["envs"][name]["shapers_sha256"] = digest
    for candidate in candidates_of(section, name):
        if candidate.failure is not None:
            checker.warnings.append(f"candidate {candidate.name} will not take part: {candidate.failure}")
