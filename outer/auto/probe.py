"""Times an environment, the inner learner and the unseen learners, in a process of its own.

``python3 -m envolve.outer.auto.probe`` reads a request as JSON from the standard input and writes the answer as the
last line of the standard output. Its figures decide the size of the plan, and nothing after that.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch

from envolve.agents import peers
from envolve.agents.train import train
from envolve.core import plugins
from envolve.core.child import ends_with_parent
from envolve.envs.outside.build import canonical
from envolve.envs.outside.define import register_of
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.world import init_world
from envolve.outer.auto.facts import SLOW_STEP, USUAL_SECONDS
from envolve.outer.config.distilled import DISTILLED
from envolve.outer.config.problem import env_section, expert, gtn_section, learner
from envolve.outer.plugins import use

WIDTH = 32  # environments side by side
STEP_SECONDS, MOST_STEPS, QUICK_STEPS = 1.5, 20_000, 1500  # of the environments
MEMBERS = 4
EXPERTS, EXPERT_STEPS, QUICK_EXPERT_STEPS = 2, 600, 100  # side by side, and the steps of each
LEARNER_STEPS = {"ppo": 2048, "a2c": 400, "dqn": 400, "sac": 100, "td3": 150}
WARM_UP = 120  # steps of an off-policy learner before it learns at full speed


def rollouts(task: Task, quick: bool) -> dict[str, Any]:
    """Random actions in WIDTH environments: seconds per step, and whether returns differ after a fifth of max_steps."""
    random, cut = np.random.default_rng(0), max(1, task.max_steps // 5)
    state = task.reset(torch.from_numpy(random.random((1, WIDTH, task.reset_uniforms))))
    task.observe(state)
    totals, over = np.zeros(WIDTH), np.zeros(WIDTH, bool)
    early: list[float] = []
    began, steps, spent, t = time.monotonic(), 0, 0.0, 0
    while spent < STEP_SECONDS and steps < (QUICK_STEPS if quick else MOST_STEPS) and not over.all():
        action: Any
        if task.num_actions:
            action = torch.from_numpy(random.integers(task.num_actions, size=(1, WIDTH)))
        else:
            action = torch.from_numpy(random.uniform(-1, 1, (1, WIDTH, task.action_size)).astype(np.float32))
        steps += int((~over).sum())
        state, reward, terminated = task.step(state, action)
        totals += np.where(over, 0.0, reward[0].numpy())
        truncated, failed = task.stopped(state)
        over |= (terminated | truncated | failed)[0].numpy()
        t += 1
        if t == cut or (over.all() and not early):
            early = totals.tolist()
        spent = time.monotonic() - began
    task.release(state)
    early = early or totals.tolist()
    return {"step_seconds": spent / max(1, steps), "early_signal": float(np.ptp(early)) > 0.0, "steps": steps}


def trainings(data: dict[str, Any], task: Task) -> float:
    """Seconds of one training of 1,000 steps in a fresh world, kernels compiled."""
    gtn, section = gtn_section(data), env_section(data)
    name, hyper, vary = learner(data)
    task.test_steps = 1
    worlds = init_world("se", task, section, torch.arange(MEMBERS))
    seconds = 0.0
    for _ in range(2):  # the first one compiles
        began = time.monotonic()
        result = train(name, hyper, vary, task, "se", section, worlds, np.arange(MEMBERS), backend=gtn.backend)
        seconds = time.monotonic() - began
    return seconds * 1000 / max(1, int(result.train_steps.sum()))


def experts(data: dict[str, Any], task: Task, train_steps: int = EXPERT_STEPS) -> tuple[float, int]:
    """Seconds of one training step of an expert on the environment, of EXPERTS side by side, kernels compiled; and the
    steps that this took. train_steps: of each."""
    name, hyper = expert(data)
    section, spent = env_section(data), 0
    short = dataclasses.replace(hyper, train_steps=train_steps, init_episodes=0, test_episodes=1)
    task.test_steps = 1
    seconds = 0.0
    for _ in range(2):  # the first one compiles
        began = time.monotonic()
        result = train(name, short, None, task, "real", section, torch.zeros(EXPERTS, 1), np.arange(EXPERTS))
        seconds = time.monotonic() - began
        spent += int(result.real_steps.sum())
    return seconds / max(1, int(result.train_steps.sum())), spent


def agents(data: dict[str, Any], names: list[str]) -> tuple[dict[str, float], int]:
    """Seconds per step of Stable-Baselines3's learners on the environment, and the steps that this took."""
    from envolve.outer.auto.unseen import real_env

    seconds, steps = {}, 0
    for name in names:
        env = real_env(data)
        model = peers.algorithm(name)("MlpPolicy", env, seed=0, device="cpu")
        if name in ("dqn", "sac", "td3"):
            model.learn(WARM_UP)
        before, began = model.num_timesteps, time.monotonic()
        model.learn(LEARNER_STEPS[name], reset_num_timesteps=False)
        seconds[name] = (time.monotonic() - began) / (model.num_timesteps - before)
        steps += model.num_timesteps
        env.close()
    return seconds, steps


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``Facts`` that are timed, and ``steps``."""
    data = request["data"]
    name = data["env_name"]
    plugins.trust(canonical(name, data["envs"][name]))  # the user has named it on the command line
    for content in request["files"]:  # what the user's own configuration names; no folder is searched
        plugins.receive(base64.b64decode(content))
    use(data)
    register_of(data)
    task = make_task(name)
    answer = rollouts(task, request["quick"])
    if env_section(data).contextual_bandit:
        answer["member_seconds"] = trainings(data, task)
    slow = answer["step_seconds"] > SLOW_STEP
    if gtn_section(data).init == DISTILLED:
        length = QUICK_EXPERT_STEPS if request["quick"] or slow else EXPERT_STEPS
        answer["expert_seconds"], steps = experts(data, task, length)
        answer["steps"] += steps
    if slow:
        answer["agent_seconds"] = {name: USUAL_SECONDS[name] + answer["step_seconds"] for name in request["learners"]}
    elif request["learners"] and not request["quick"]:
        answer["agent_seconds"], steps = agents(data, request["learners"])
        answer["steps"] += steps
    return answer


def main() -> None:
    ends_with_parent(parent=os.getppid())()
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)  # what packages print is not the answer
    answer = probe(request)
    with os.fdopen(out, "w") as file:
        file.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
