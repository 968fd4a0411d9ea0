"""This project's learners: a population trained by ``envolve.agents.train``, compiled or in PyTorch.

    python -m benchmarks.learners ddqn_in_se torch --members 128 [--json FILE]

Two training lengths are timed and subtracted, so that set-up does not count. The final test on the real task is one
episode, after a training of at least a thousand times its work; of an SE trained in PyTorch, where it would still be
seen, it is cut after one step.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Dict, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common.harness import main, measure
from benchmarks.common.settings import SE_HIDDEN, SETTINGS, Setting
from envolve.agents.common.learners import LEARNERS
from envolve.agents.train import Hardware, train
from envolve.envs.classic.cartpole import CartPole
from envolve.envs.section import EnvSection
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.world import init_world

NAMES = ("compiled", "torch", "torch_compile", "cuda")
NEVER = 1e9  # a mean return that no task reaches


class TestedAtOnce(CartPole):
    """Its episodes end after a step, so that the final test takes no time; an SE uses its resets alone."""

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        next_state, reward, terminated = super().step(state, action)
        return next_state, reward, torch.ones_like(terminated)


def task_of(s: Setting) -> Task:
    if s.kind == "se":
        return TestedAtOnce(max_steps=s.max_steps)
    return make_task(s.task, max_steps=s.max_steps, solved_reward=NEVER)


def section_of(s: Setting, steps: int) -> Any:
    """The agent's section for a training of ``steps`` decisions that nothing ends early."""
    values = dict(s.learner)
    if s.ppo:
        values.update(ppo_values(s.ppo))
    skip = values.get("same_action_num", 1)
    return LEARNERS[s.agent].section(
        train_steps=steps * skip,
        train_episodes=max(1000, steps // 8),
        init_episodes=0,
        test_episodes=1,
        early_out_min_steps=10**9,
        **values,
    )


def ppo_values(p: Dict[str, Any]) -> Dict[str, Any]:
    """CleanRL's names -> this project's."""
    return {
        "num_envs": p["num_envs"], "rollout_steps": p["num_steps"], "minibatches": p["num_minibatches"],
        "ppo_epochs": p["update_epochs"], "lr": p["learning_rate"], "gamma": p["gamma"], "advantage": "gae",
        "gae_lambda": p["gae_lambda"], "eps_clip": p["clip_coef"], "ent_coef": p["ent_coef"],
        "vf_coef": 0.5 * p["vf_coef"],  # CleanRL halves the squared error
        "max_grad_norm": p["max_grad_norm"], "norm_advantage": True, "clip_value_loss": True, "anneal_lr": True,
        "adam_eps": 1e-5, "orthogonal_init": True, "bootstrap_time_limit": False,
    }  # fmt: skip


def population(case: str, members: Optional[int], quick: bool, implementation: str) -> Dict[str, Any]:
    s = SETTINGS[case]
    P = members or s.members
    env = EnvSection(hidden_size=SE_HIDDEN, done_bias=-2.0)  # an SE's episodes run to their limit
    task, keys = task_of(s), np.arange(P)
    worlds = init_world("se", task, env, torch.as_tensor(keys)) if s.kind == "se" else torch.zeros(P, 1)
    backend, device = ("torch", "cuda") if implementation == "cuda" else (implementation, "cpu")
    first = s.ppo["num_envs"] * s.ppo["num_steps"] if s.ppo else 20
    clock = time.perf_counter if device == "cuda" else time.process_time

    def run(steps: int) -> Tuple[int, float]:
        section = section_of(s, steps)
        began = clock()
        hardware = Hardware(device)
        result = train(s.agent, section, None, task, s.kind, env, worlds, keys, backend=backend, hardware=hardware)
        seconds = clock() - began
        if result.status.any():
            raise RuntimeError(f"members failed: {result.status}")
        done = result.train_steps if s.agent == "ppo" else result.updates
        return int(done.sum()), seconds

    def timed(steps: int) -> Tuple[int, float]:
        (many, long), (few, short) = run(steps + first), run(first)
        return many - few, long - short

    return {**measure(timed, first, P, quick), "clock": "wall" if device == "cuda" else "cpu"}


if __name__ == "__main__":
    main(__doc__, {name: partial(population, implementation=name) for name in NAMES})
