"""Figure like compare.py, with agents that the reward networks were not evolved with: other hyperparameters, other
learners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envolve.experiments.paper.common.drawing import DataFile, Drawing, Need, panels
from envolve.experiments.paper.common.series import learner
from envolve.experiments.paper.pictures import se
from envolve.experiments.paper.pictures.compare import ABOUT, STEPS, TASKS, draw_curves

TITLE = "learning curves of agents that the reward networks were not evolved with"
LEARNERS = {"Cliff": "sarsa", "CartPole-v0": "duelingddqn", "MountainCarContinuous-v0": "ppo", "HalfCheetah-v3": "ppo"}
PPO_STEPS = {"HalfCheetah-v3": 5_000_000}
NEEDS: dict[str, tuple[Need, ...]] = {
    f"{task}_vary_hp": (DataFile("transfer", task, ("transfer.py", config, "--vary-hp"), "vary_hp"),)
    for task, config in TASKS.items()
}
for task, agent in LEARNERS.items():
    command = ("transfer.py", TASKS[task], "--agent", agent)
    NEEDS[f"{task}_{agent}"] = (DataFile("transfer", task, command, agent),)
for task, config in se.CONFIGS.items():  # SEs have no learning curves: as figures 3 and 7
    command = ("transfer.py", config, "--agent", "ppo")
    NEEDS[f"{task}_se_ppo"] = (DataFile("transfer", task, command, "se_ppo"),)


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    if "_se_" in variant:
        return se.draw(variant, data)
    figure, (ax,) = panels(6.4, 4.4)
    [only] = data
    task, agent, varied = only.task, only.settings.get("agent", ""), bool(only.settings.get("vary_hp"))
    limit = PPO_STEPS.get(task) if agent == "ppo" else None
    ends, steps, cut = draw_curves(ax, only, limit or STEPS.get(task))
    words = f"{learner(agent)} agents" + ", each with hyperparameters of its own" * varied
    ax.set_title(f"{task}: {learner(agent)} agents" + ", HPs varied" * varied, fontsize=11, loc="left")
    caption = (
        f"Transfer of reward networks on {task}: test return after each training episode, over the environment steps "
        f"of training; {words}. {ABOUT} After {steps:,.0f} steps: " + "; ".join(ends) + f".{cut}"
    )
    return Drawing(figure, caption)
