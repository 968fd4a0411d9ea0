"""Sections of an evolution of starts and goals: the search, and the training of each member. Python 3.8."""

from __future__ import annotations

from dataclasses import dataclass

from envolve.core.option import option

SECTION = "goal"  # of a configuration, by which workers know what to do
SCORES = ("success", "near", "distance")


@dataclass(frozen=True)
class EvolveSection:
    """Options of the search."""

    goal_family: str = option(
        "", "family of distributions for the goals: circle, offset, box, cells or point; default: the task's own goals"
    )
    start_family: str = option(
        "", "family of distributions for the starts, with the same choices; default: the task's own starts"
    )
    generations: int = option(20, "number of generations", ge=1, le=10**6)
    num_workers: int = option(
        8, "perturbations per generation, each in both directions (mirrored sampling)", ge=1, le=10**6
    )
    num_orig_evals: int = option(
        4, "members that train with the unperturbed starts and goals, and as many with the task's own", ge=1, le=10**6
    )
    noise_std: float = option(0.5, "standard deviation of the perturbations, in units of each parameter", gt=0)
    step_size: float = option(0.3, "learning rate of Adam, which updates the search point, in the same units", gt=0)
    score: str = option(
        "success",
        "score of a member. success: share of episodes that reach the goal at least once; near: share of decisions "
        "near the goal; distance: minus the final distance to the goal, in metres",
        choices=SCORES,
    )
    score_evals: int = option(
        1, "evaluations per training, evenly spaced, the last at its end; the score is their mean", ge=1, le=10**6
    )
    chunk_size: int = option(
        0,
        "members that one process trains side by side; default: the whole generation, or 8 with --workers",
        ge=0,
        le=10**6,
    )
    comparison_agents: int = option(
        16, "agents in the final comparison: N with the evolved starts and goals, N with the task's own", ge=2, le=10**6
    )


@dataclass(frozen=True)
class Inner:
    """Options of the training of each member."""

    env_name: str = option("simple_u_maze", "task; docs/goals.md lists all tasks")
    agent: str = option(
        "crl", "learner: contrastive RL, or a baseline that uses rewards", choices=("crl", "sac", "td3", "ppo")
    )
    num_timesteps: int = option(
        50_000, "environment steps per member, rounded up to whole training phases", ge=1, le=10**12
    )
    num_eval_envs: int = option(64, "episodes per member and evaluation", ge=1, le=10**5)
    episode_length: int = option(0, "episode length in decisions; 0: the task's own", ge=0, le=10**6)
    action_repeat: int = option(1, "environment steps per decision", ge=1, le=10**4)
    seed: int = option(0, "random seed of the search", ge=0, le=2**31)
    engine: str = option(
        "mujoco",
        "simulator of tasks with a robot: mujoco (CPU threads) or mujoco_warp (GPU)",
        choices=("mujoco", "mujoco_warp"),
    )
    threads: int = option(0, "CPU threads; 0: all that this process may use", ge=0, le=1024)
    device: str = option("cpu", "Torch device: cpu or cuda")
    exp_name: str = option("", "name of the run's folder in results/; default: task, families, time and seed")
