"""``init: distilled``: the world that a search begins with teaches what an expert has learned on the task.

Workers train the experts, since they alone may make a user's environment. Each expert is a member of a chunk of its
own mode; the answer holds its world. The master takes the world of the best one. Python 3.8.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

import numpy as np
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.world import world_size
from envolve.outer.config.problem import env_section, expert, expert_section, gtn_section, learner_of
from envolve.outer.config.section import ARSSection
from envolve.outer.distil.balance import balanced
from envolve.outer.distil.bandit import fit_bandit
from envolve.outer.distil.expert import improved, own_states, train_experts
from envolve.outer.distil.pupils import COSTS, judged
from envolve.outer.distil.stored import chosen
from envolve.outer.distil.units import fit_in_units

WORLD = "world"  # the value that holds the worlds, float32 [p, D] ...
TAUGHT = "taught"  # ... and the mean returns of their pupils, float64 [p], if these choose
PUPILS = "pupils"  # agents.expert.chosen_by
# Worlds among which the pupils of one expert choose: noise on the contexts in addition to context_noise, and whether
# the states of episodes without random actions are among them. Where an expert falls as soon as it errs, there are few.
TRIES = ((0.0, False), (0.3, False), (1.0, False), (0.3, True), (1.0, True))


def distil(config: Mapping[str, Any], seeds: Tensor, threads: int = 1) -> Dict[str, Any]:
    """One expert per seed, int64 [p], and its world -> values as of ``evaluate``, and ``world`` float32 [p, D].

    The score is the expert's mean test return on the task; NaN with a reason where it diverged. ``real_steps`` count
    its training, its tests, and the episodes whose states became contexts. Where pupils choose, the world is the one of
    several that teaches them best, ``taught`` says how well, and their steps count, too.
    """
    section, gtn = env_section(config), gtn_section(config)
    task = make_task(config["env_name"], section.max_steps, section.solved_reward)
    name, learner = expert(config)
    options = expert_section(config)
    fitted = fit_in_units if options.standardise else fit_bandit
    size, p = world_size("se", task, section), len(seeds)
    how = task, section, seeds.numpy(), False, gtn.backend, threads
    budget, failed = learner.train_steps, [learner.train_steps] * p  # real steps of an expert; of one that diverged
    if options.imitate:
        assert isinstance(learner, ARSSection)
        first = learner_of(config, options.imitate)
        budget += first.train_steps
        teachers = train_experts(options.imitate, first, *how)
        failed = [first.train_steps if teacher is None else budget for teacher in teachers]
        each = seeds.numpy()[:, None]
        made = [improved(task, section, learner, teacher, key) for teacher, key in zip(teachers, each)]
    else:
        made = train_experts(name, learner, *how)
    keys, noise_keys, own_keys = (rng.fold(seeds, stream).tolist() for stream in (rng.FIT, rng.SPREAD, rng.OWN_BANDIT))
    worlds, taught = torch.zeros(p, size), torch.full((p,), torch.nan, dtype=torch.float64)
    cost = {name: np.zeros(p, np.int64) for name in COSTS}
    cost["train_steps"] += budget
    cost["real_steps"] += [lost if one is None else one.steps for one, lost in zip(made, failed)]
    by_pupils = options.chosen_by == PUPILS
    for i, one in enumerate(made):
        if one is None:
            continue
        states = [one.states]
        if by_pupils:
            own, steps = own_states(task, section, one, own_keys[i])
            states.append(torch.cat((one.states, own)))
            cost["real_steps"][i] += steps
        if section.stored_contexts:  # before noise makes them distinct
            states = [chosen(s, section.stored_contexts, noise_keys[i]) for s in states]
        tries = TRIES if by_pupils else TRIES[:1]
        contexts = [spread(task, states[own], options.context_noise + more, noise_keys[i]) for more, own in tries]
        if options.balance:
            contexts = [balanced(c, one.act(c) / task.max_action, noise_keys[i]) for c in contexts]
        able = torch.stack([fitted(task, section, c, one.act, int(keys[i]), options.fit_steps) for c in contexts])
        best = 0
        if by_pupils:
            means, spent = judged(config, able, threads)
            best = int(np.argmax(means))
            taught[i] = means[best]
            for name in COSTS:
                cost[name][i] += spent[name]
        worlds[i] = able[best]
    returns = np.array([np.nan if one is None else one.mean_return for one in made])
    return {
        "score": torch.from_numpy(returns), "mean_return": torch.from_numpy(returns.copy()), WORLD: worlds,
        **({TAUGHT: taught} if by_pupils else {}), **{name: torch.from_numpy(cost[name]) for name in COSTS},
        "reason": reasons(task, made),
    }  # fmt: skip


def spread(task: Task, states: Tensor, noise: float, key: int) -> Tensor:
    """States float32 [n, F] with normal noise, in units of each feature's standard deviation, so that a learner which
    leaves the expert's way is taught as well. Features of a one-hot code stay as they are."""
    if not noise:
        return states
    generator = rng.generator(key)
    scale = noise * states.std(0)
    for begin, end in task.codes:
        scale[begin:end] = 0
    return states + scale * torch.randn(states.shape, generator=generator)


def reasons(task: Task, made: List[Any]) -> List[str]:
    """Why an expert has no world; "" if it has one."""
    said = next(iter(getattr(task, "complaints", {}).values()), "")
    return ["" if one is not None else said or "the expert diverged" for one in made]
