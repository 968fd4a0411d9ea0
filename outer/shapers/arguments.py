"""Arguments of eval_shapers.py, and those that auto_shape.py shares with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Tuple

import tyro
from typing_extensions import Annotated, Literal

from envolve.envs.physics.task import SHAPER_TYPES
from envolve.outer.ray.address import HERE, TRAINED_ON


@dataclass
class TrainingArgs:
    """Flags of every command that trains agents of shaped tasks, once."""

    task: str = "Anymal"
    """The task, e.g. Anymal, Ant, Cartpole, HalfCheetah, or a task of another library: mjlab:Mjlab-Cartpole-Balance,
    isaaclab:Isaac-Cartpole."""
    num_envs_per_shaper: int = 256
    """Parallel environments of each agent, and its number of test episodes."""
    iterations: int = 500
    """Training iterations; each collects experience and updates the agents."""
    seeds: int = 1
    """Agents trained per candidate; the candidate's score is the mean of their scores."""
    learner: Literal["ppo", "sac", "td3"] = "ppo"
    """Learning algorithm of the agents."""
    set: Annotated[List[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters of the learner, e.g. lr=1e-3 hidden_size=64."""
    engine: Literal["mujoco", "mujoco_warp", "isaacgym", "mjlab", "isaaclab"] = "mujoco"
    """Simulator: mujoco (CPU threads), mujoco_warp or isaacgym (GPU), or mjlab and isaaclab for the tasks of those
    libraries."""
    device: Optional[str] = None
    """Torch device of simulator and agents, e.g. cuda:0. Default: cpu with mujoco, otherwise the GPU if there is
    one."""
    threads: int = 0
    """CPU threads; 0: all that this process may use. Scores do not depend on this."""
    backend: Literal["auto", "compiled", "torch"] = "auto"
    """Implementation of the learner: compiled kernels, or torch (PyTorch). auto: compiled on a CPU, otherwise torch."""
    wandb: Annotated[Optional[str], tyro.conf.arg(metavar="PROJECT")] = None
    """Also log to this Weights & Biases project, with models and films (docs/tracking.md)."""


@dataclass
class Args(TrainingArgs):
    """Arguments of eval_shapers.py."""

    shaper_types: List[str] = field(default_factory=lambda: list(SHAPER_TYPES))
    """Functions that are used from the files. The task's own versions are used for the others. Default: all."""
    shapers: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Folder with the shaper files, or one file. Default: envs/user_functions/<task in lower case>."""
    candidates: Annotated[List[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Names of the files to evaluate, with or without .py. Default: all files in the folder."""
    human: bool = True
    """Also evaluate the task's own shapers, as the candidate "human" (--no-human leaves them out)."""
    seed: int = 0
    """Random seed of environments and agents; equal seeds give equal scores."""
    schedule: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """YAML or JSON file with a curriculum or domain randomisation. It maps parameters of the task to schedules, e.g.
    gravity: {iters: [0, 100], values: [1.6, [9.0, 10.6]], mode: linear}. Test episodes use the unchanged task."""
    out: Annotated[Optional[Path], tyro.conf.arg(name="run-dir", metavar="DIR")] = None
    """Folder of the run, for ranking.txt, candidates.json, curves.png, config.yaml and best.pt. Default:
    results/<run id>."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Also write the results (candidates.json) to this JSON file."""
    workers_on: Annotated[str, tyro.conf.arg(metavar="PLACE", help=TRAINED_ON)] = HERE
    workers: Optional[int] = None
    """Ray only: number of workers, with --threads each. Default: as many as fit on the cluster."""
    video: Annotated[Optional[Tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = None
    """Film the best policy in FILE, .mp4 or .gif. Without FILE: best.mp4 in the folder of the run."""
