"""Sections of a goal-conditioned run: ``run``, and that of its learner."""

from __future__ import annotations

from dataclasses import dataclass

from envolve.agents.goal.crl_section import PER_MEMBER, CRLSection
from envolve.agents.goal.off_policy_section import GoalSACSection, GoalTD3Section
from envolve.agents.goal.ppo_section import GoalPPOSection
from envolve.core.option import option

# name -> section, what it is called, and what each member may have a value of its own for
AGENTS: dict[str, tuple[type, str, tuple[str, ...]]] = {
    "crl": (CRLSection, "contrastive RL", PER_MEMBER),
    "sac": (GoalSACSection, "SAC", GoalSACSection.per_member),
    "td3": (GoalTD3Section, "TD3", GoalTD3Section.per_member),
    "ppo": (GoalPPOSection, "PPO", GoalPPOSection.per_member),
}


@dataclass(frozen=True)
class RunSection:
    """Options of a run; the learner's own options are in the sections of AGENTS."""

    env_name: str = option("reacher", "task; docs/goals.md lists all tasks")
    agent: str = option("crl", "learner: contrastive RL, or a baseline that uses rewards", choices=tuple(AGENTS))
    eval_env: str = option("", "task for evaluations, e.g. simple_u_maze_eval; default: the training task")
    num_timesteps: int = option(
        1_000_000, "environment steps per member, rounded up to whole training phases", ge=1, le=10**12
    )
    num_evals: int = option(50, "number of evaluations, including one before training", ge=1, le=10**6)
    num_eval_envs: int = option(128, "episodes per member and evaluation", ge=1, le=10**5)
    episode_length: int = option(0, "episode length in decisions; 0: the task's own", ge=0, le=10**6)
    action_repeat: int = option(1, "environment steps per decision", ge=1, le=10**4)
    resample: str = option(
        "reset",
        "starts and goals. reset: draw new ones at every reset; fixed: keep the first ones, as in the publication",
        choices=("reset", "fixed"),
    )
    seed: int = option(0, "random seed of the first member; the other members use the next seeds", ge=0, le=2**31)
    population: int = option(1, "number of members, trained side by side", ge=1, le=10**4)
    engine: str = option(
        "mujoco",
        "simulator of tasks with a robot: mujoco (CPU threads) or mujoco_warp (GPU)",
        choices=("mujoco", "mujoco_warp"),
    )
    threads: int = option(0, "CPU threads; 0: all that this process may use", ge=0, le=1024)
    device: str = option("cpu", "Torch device: cpu or cuda")
    keep_policies: bool = option(False, "store the policy of every evaluation as policies/STEPS.pt")
    exp_name: str = option("", "name of the run's folder in results/; default: task, time and seed")
    group_name: str = option("", "group of the run in Weights & Biases")
    project_name: str = option("crl", "project of --log-wandb in Weights & Biases")
    log_wandb: bool = option(False, "the same as --wandb with the project of --project-name")
    wandb_mode: str = option(
        "online",
        "mode of Weights & Biases; offline: store the log in the folder of the run",
        choices=("online", "offline"),
    )
