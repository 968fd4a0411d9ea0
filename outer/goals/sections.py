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

    env_name: str = option("reacher", "the task; docs/goals.md has them all")
    agent: str = option("crl", "the learner: contrastive RL, or a baseline with rewards", choices=tuple(AGENTS))
    eval_env: str = option("", "the task of evaluations, e.g. simple_u_maze_eval; default: env_name")
    num_timesteps: int = option(
        1_000_000, "environment steps per member, rounded up to whole training phases", ge=1, le=10**12
    )
    num_evals: int = option(50, "evaluations, the first before training", ge=1, le=10**6)
    num_eval_envs: int = option(128, "evaluation episodes of each member", ge=1, le=10**5)
    episode_length: int = option(0, "decisions of an episode; 0: the task's own", ge=0, le=10**6)
    action_repeat: int = option(1, "environment steps per decision", ge=1, le=10**4)
    resample: str = option(
        "reset",
        "reset: new starts and goals at every reset; fixed, as published: keep the first ones",
        choices=("reset", "fixed"),
    )
    seed: int = option(0, "random seed of the first member; the others take the seeds that follow", ge=0, le=2**31)
    population: int = option(1, "members, trained side by side", ge=1, le=10**4)
    engine: str = option(
        "mujoco",
        "simulator of tasks with a robot: MuJoCo on CPU threads, or mujoco_warp on a GPU",
        choices=("mujoco", "mujoco_warp"),
    )
    threads: int = option(0, "CPU threads; 0: all that this process may use", ge=0, le=1024)
    device: str = option("cpu", "cpu, or cuda")
    keep_policies: bool = option(False, "keep the policy of every evaluation, as policies/STEPS.pt")
    exp_name: str = option("", "name of the run's folder in results/; default: task, time and seed")
    group_name: str = option("", "group in Weights & Biases")
    project_name: str = option("crl", "project in Weights & Biases")
    log_wandb: bool = option(False, "as --wandb, with --project-name")
    wandb_mode: str = option(
        "online",
        "Weights & Biases: online, or offline (keep the log in the run's folder)",
        choices=("online", "offline"),
    )
