"""Describes in a few lines what a configuration would run (``GTN_master.py CONFIG --check``)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from envolve.agents.common.learners import is_off_policy
from envolve.agents.common.population import size
from envolve.agents.common.sections import HYPER_FACTOR, ICMSection, LearnerSection, TabularSection, VarySection
from envolve.agents.train import algorithm
from envolve.envs.managers.library import is_managed
from envolve.envs.nets.networks import MLPShape
from envolve.envs.physics.task import physics_task
from envolve.envs.section import EnvSection
from envolve.envs.shaping.section import candidates_of
from envolve.envs.task import Task, make_task, mark_of
from envolve.envs.worlds.world import rn_shape, se_nets
from envolve.outer.config import problem
from envolve.outer.config.section import RN, SHAPER, GTNSection
from envolve.outer.search.search import NES_NAME
from envolve.outer.search.searches import settings_of, worlds_of
from envolve.outer.search.target import ranks
from envolve.outer.search.turns import inner_agents

if TYPE_CHECKING:
    from envolve.outer.config.load import Config


def describe(config: Config) -> str:
    """Description: one aligned line per topic."""
    data = config.data
    gtn = problem.gtn_section(data)
    if gtn.synthetic_env_type == SHAPER:
        return _lines(_describe_shaped(data))
    env = problem.env_section(data)
    (name, section, vary), icm = problem.learner(data), problem.curiosity(data)
    task = make_task(data["env_name"], env.max_steps, env.solved_reward)
    mark = mark_of(task.solved_reward)
    others = [problem.named_learner(data, agent) for agent in inner_agents(gtn)[1:]]
    lines = [
        ("task", f"{task.name}: {task.observation_size} {'observations' if task.num_states is None else 'states'}, "
                 f"{_actions(task)}, at most {task.max_steps} steps, "
                 + ("no solved mark" if mark is None else f"solved at {mark:g}")),
        ("world", _describe_world(task, env, gtn)),
        ("learner", _describe_learner(task, name, section)),
        *([("curiosity", _describe_curiosity(icm))] if icm else []),
        ("varied", _describe_vary(section, vary)),
        *[line for other, own, theirs in others
          for line in (("in turn", _describe_learner(task, other, own)), ("varied", _describe_vary(own, theirs)))],
        ("training", f"at most {section.train_episodes} episodes"
                     + (f" and {section.train_steps} steps" if section.train_steps else "")
                     + f", learning from episode {section.init_episodes}; test: {section.test_episodes} episodes"),
        ("early out", "none: in a bandit the budget alone ends training" if env.contextual_bandit
                      else _describe_early_out(section, gtn, mark)),
        *_describe_search(gtn, data, mark is not None),
        ("device, seed", f"{data['device']}, {data['seed']}"),
    ]  # fmt: skip
    return _lines(lines)


def _lines(topics: list[tuple[str, str]]) -> str:
    return "\n".join(f"{topic:<13}{text}" for topic, text in topics)


def _describe_shaped(data: dict[str, Any]) -> list[tuple[str, str]]:
    gtn, section = problem.gtn_section(data), problem.shaped_section(data)
    name, task = problem.learner(data)[0], physics_task(data["env_name"])
    candidates = candidates_of(section, data["env_name"])
    usable = [c for c in candidates if c.failure is None]
    shown = ", ".join(c.name for c in usable[:8]) + (f" and {len(usable) - 8} more" if len(usable) > 8 else "")
    lost = f"; {len(candidates) - len(usable)} cannot be loaded" if len(usable) < len(candidates) else ""
    limit = "" if is_managed(task.name) else f" in {section.engine}, at most {task.max_steps} steps"
    lines = [
        ("task", f"{task.name}{limit}; score: {task.score_meaning}, {task.score_unit}"),
        ("candidates", shown + lost),
        ("learner", f"{name}: {section.num_envs_per_shaper} environments, {section.iterations} iterations each"),
    ]
    if ranks(data):
        lines.append(("run", f"ranking: {gtn.max_iterations} rounds of all candidates in chunks of {gtn.chunk_size}"))
    else:
        params = candidates[0].params
        lines += [("evolved", f"{0 if params is None else len(params)} numbers of {candidates[0].name}")]
        lines += _describe_search(gtn, data)
    return [*lines, ("device, seed", f"{data['device']}, {data['seed']}")]


def _actions(task: Task) -> str:
    if task.num_actions:
        return f"{task.num_actions} actions"
    numbers = "number" if task.action_size == 1 else "numbers"
    return f"actions of {task.action_size} {numbers} in [-{task.max_action:g}, {task.max_action:g}]"


def _chain(net: MLPShape) -> str:
    return "-".join(map(str, net.widths()))


def _describe_world(task: Task, env: EnvSection, gtn: GTNSection) -> str:
    if gtn.synthetic_env_type == RN:
        nets, what = {"phi": rn_shape(task, env)}, f"reward network, type {env.reward_env_type}"
    else:
        nets = {name.removesuffix("_net"): shape for name, shape in se_nets(task, env)}
        what = "contextual bandit" if env.contextual_bandit else "synthetic environment"
    chains = ", ".join(f"{k} {_chain(net)}" for k, net in nets.items())
    activation = next(iter(nets.values())).activation
    seen = "; agents see its states in units of their spread" if env.normalised else ""
    return f"{what}: {chains}, {activation}, {sum(net.size for net in nets.values()):,} parameters{seen}"


def _describe_curiosity(icm: ICMSection) -> str:
    return f"eta {icm.eta:g}, lr {icm.lr:g}, {icm.feature_dim} features, {icm.hidden_size} hidden units; not compiled"


def _describe_learner(task: Task, name: str, section: LearnerSection) -> str:
    values = dataclasses.asdict(section)
    shown = [k for k in ("lr", "alpha", "batch_size", "gamma", "tau", "beta") if k in values]
    if "beta" in shown and not name.endswith(problem.COUNT_BASED_SUFFIX):
        shown.remove("beta")
    numbers = ", ".join(f"{k} {values[k]:g}" for k in shown)
    if is_off_policy(name):
        nets = algorithm(name).nets_of(task, section, values["hidden_size"], values["hidden_layer"])
        chains = ", ".join(map(_chain, nets))
        numbers += f", network {chains} {values['activation_fn']} ({size(nets):,} parameters)"
    if "eps_init" in values:
        numbers += ", exploration {eps_init:g} x {eps_decay:g} per episode to {eps_min:g}".format(**values)
    return f"{name}: {numbers}"


def _describe_vary(section: LearnerSection, vary: VarySection | None) -> str:
    if vary is None or not (vary.vary_hp or vary.train_steps_factor > 1):
        return "nothing: every agent has these hyperparameters"
    parts = []
    if vary.vary_hp and not isinstance(section, TabularSection):
        if vary.lr_factor != HYPER_FACTOR:
            parts.append(f"lr within a factor of {vary.lr_factor:g}")
        named = ("batch_size", "hidden_size") if parts else ("lr", "batch_size", "hidden_size")
        rest = [name for name in named if hasattr(section, name)]
        layers = ", layers +-1" if vary.vary_layers else ""
        parts.append(f"{', '.join(rest)} within a factor of {HYPER_FACTOR:g}{layers}")
    elif vary.vary_hp:
        parts.append("alpha and gamma in [0.1, 1]")
    if vary.train_steps_factor > 1:
        low, high = section.train_steps / vary.train_steps_factor, section.train_steps * vary.train_steps_factor
        parts.append(f"the budget from {low:.0f} to {high:.0f} steps")
    return "drawn anew for every agent: " + "; ".join(parts)


def _describe_early_out(section: LearnerSection, gtn: GTNSection, mark: float | None) -> str:
    average = f"when the average of {section.early_out_num} episodes"
    if gtn.synthetic_env_type == RN or gtn.se_test_on_real:
        return "none: the task has no solved mark" if mark is None else f"{average} on the real task reaches {mark:g}"
    after = f", not before {section.early_out_min_steps} steps" if section.early_out_min_steps else ""
    return f"{average} in the world changes by less than {section.early_out_virtual_diff:g} of it{after}"


def _settings(search: str, data: dict[str, Any]) -> dict[str, Any]:
    settings = settings_of(search, data["agents"])
    return {} if settings is None else dataclasses.asdict(settings)


def _describe_search(gtn: GTNSection, data: dict[str, Any], marked: bool = True) -> list[tuple[str, str]]:
    """marked: the task has a mark that solves it, which can end the run."""
    nes = gtn.search == NES_NAME
    worlds, pairs = worlds_of(gtn.search, gtn)
    agents, orig = worlds * gtn.num_grad_evals, gtn.num_orig_evals or gtn.num_workers
    count = "" if gtn.other_agents else f"{-(-(agents + orig) // gtn.chunk_size)} "
    update = f"transform {gtn.score_transform_type}" if gtn.estimator == "published" else "ranks, Adam"
    how = f"NES, {gtn.estimator} estimator ({update})" if nes else gtn.search
    settings = {"step_size": gtn.step_size} if nes else _settings(gtn.search, data)
    values = {"noise_std": gtn.noise_std, **settings}
    shown = [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()]
    lines = [
        ("search", ", ".join([how, *shown])),
        ("generation", f"{gtn.num_workers} {pairs} x {gtn.num_grad_evals} + {orig} unperturbed = "
                       f"{agents + orig} agents in {count}chunks of {gtn.chunk_size}"),
        ("run", f"at most {gtn.max_iterations} generations, "
                + ("ends when solved" if marked and gtn.quit_when_solved and gtn.synthetic_env_type != RN
                   else "all of them")
                + (f" and confirmed by {gtn.confirm_agents} more agents" if marked and gtn.confirm_agents else "")
                + (f"; restarts after {gtn.collapse_generations} collapsed ones" if gtn.collapse_generations else "")),
    ]  # fmt: skip
    if gtn.horizon_generations:
        grows = f"from {gtn.horizon_start} to all steps in {gtn.horizon_generations} generations"
        lines.append(("horizon", f"tests of perturbed worlds grow {grows}"))
    if gtn.synthetic_env_type == RN:
        lines.append(("score", gtn.rn_objective))
    if gtn.best_paid_share:
        lines.append(
            (
                "score",
                f"{1 - gtn.best_paid_share:g} x the agent's return + {gtn.best_paid_share:g} x that of "
                "the action that the world pays most for",
            )
        )
    return lines
