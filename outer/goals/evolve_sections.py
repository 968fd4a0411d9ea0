"""Sections of an evolution of starts and goals: the search, and the training of each member. Python 3.8."""

from __future__ import annotations

from dataclasses import dataclass

from envolve.core.option import option

SECTION = "goal"  # of a configuration, by which workers know what to do
SCORES = ("success", "near", "distance")


@dataclass(frozen=True)
class EvolveSection:
    """Options of the search."""

    goal_family: str = option("", "family of the goals: circle, offset, box, cells or point; none: the task's own")
    start_family: str = option("", "family of the starts, as for the goals")
    generations: int = option(20, "generations", ge=1, le=10**6)
    num_workers: int = option(8, "perturbations per generation, each in both directions", ge=1, le=10**6)
    num_orig_evals: int = option(
        4, "members that score the current search point, and as many plain ones", ge=1, le=10**6
    )
    noise_std: float = option(0.5, "standard deviation of a perturbation, in units of each parameter", gt=0)
    step_size: float = option(0.3, "Adam's learning rate, in the same units", gt=0)
    score: str = option(
        "success",
        "share of episodes near the goal once, share of decisions near it, or minus the last distance (m)",
        choices=SCORES,
    )
    score_evals: int = option(
        1, "evaluations, evenly spaced over a training, the last at its end; the score is their mean", ge=1, le=10**6
    )
    chunk_size: int = option(
        0, "members that one process trains side by side; 0: all of a generation, and 8 with --workers", ge=0, le=10**6
    )
    comparison_agents: int = option(
        16, "fresh agents with the evolved starts and goals, and as many plain ones", ge=2, le=10**6
    )


@dataclass(frozen=True)
class Inner:
    """Options of the training of each member."""

    env_name: str = option("simple_u_maze", "the task; docs/goals.md has them all")
    agent: str = option("crl", "the learner", choices=("crl", "sac", "td3", "ppo"))
    num_timesteps: int = option(50_000, "environment steps of each member", ge=1, le=10**12)
    num_eval_envs: int = option(64, "evaluation episodes of each member", ge=1, le=10**5)
    episode_length: int = option(0, "decisions of an episode; 0: the task's own", ge=0, le=10**6)
    action_repeat: int = option(1, "environment steps per decision", ge=1, le=10**4)
    seed: int = option(0, "random seed of the search", ge=0, le=2**31)
    engine: str = option("mujoco", "simulator of tasks with a robot", choices=("mujoco", "mujoco_warp"))
    threads: int = option(0, "CPU threads; 0: all that this process may use", ge=0, le=1024)
    device: str = option("cpu", "cpu, or cuda")
    exp_name: str = option("", "name of the run's folder in results/; default: task, families, time and seed")
