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
    """The task, e.g. Anymal, Ant, Cartpole, HalfCheetah, or one of a library's: mjlab:Mjlab-Cartpole-Balance,
    isaaclab:Isaac-Cartpole."""
    num_envs_per_shaper: int = 256
    """Environments of each agent, and episodes that judge it."""
    iterations: int = 500
    """Training iterations, each of which collects and learns."""
    seeds: int = 1
    """Agents trained per candidate; the candidate's score is the mean of their scores."""
    learner: Literal["ppo", "sac", "td3"] = "ppo"
    """Learning algorithm of the agents."""
    set: Annotated[List[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters of the learner, e.g. lr=1e-3 hidden_size=64."""
    engine: Literal["mujoco", "mujoco_warp", "isaacgym", "mjlab", "isaaclab"] = "mujoco"
    """The simulator: MuJoCo on CPU threads, mujoco_warp or Isaac Gym on a GPU; mjlab and isaaclab with
    their own tasks."""
    device: Optional[str] = None
    """Torch device of simulator and agents, e.g. cuda:0. Default: cpu with mujoco, else the GPU if there is one."""
    threads: int = 0
    """CPU threads; 0 uses all that this process may use. Scores do not depend on the number."""
    backend: Literal["auto", "compiled", "torch"] = "auto"
    """auto: compiled kernels on a CPU, else PyTorch."""
    wandb: Annotated[Optional[str], tyro.conf.arg(metavar="PROJECT")] = None
    """Also log to this project of Weights & Biases, with models and films (docs/tracking.md)."""


@dataclass
class Args(TrainingArgs):
    """Arguments of eval_shapers.py."""

    shaper_types: List[str] = field(default_factory=lambda: list(SHAPER_TYPES))
    """Functions that are taken from the files; the task's own versions serve for the others. Default: all."""
    shapers: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Folder of the shaper files, or one file. Default: envs/user_functions/<task in lower case>."""
    candidates: Annotated[List[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Names of the files to evaluate, with or without .py. Default: all files of the folder."""
    human: bool = True
    """Evaluate the task's own shapers as well (--no-human leaves them out)."""
    seed: int = 0
    """Random seed of environments and agents; equal seeds give equal scores."""
    schedule: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Curriculum and domain randomisation, a YAML or JSON file: parameter of the task -> {iters: [0, 100],
    values: [1, [0.5, 2]], mode: linear}. Test episodes use the unchanged task."""
    out: Annotated[Optional[Path], tyro.conf.arg(name="run-dir", metavar="DIR")] = None
    """Folder for ranking.txt, candidates.json, curves.png, config.yaml and best.pt; default: results/<run id>."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Write candidates.json here, too."""
    workers_on: Annotated[str, tyro.conf.arg(metavar="WHAT", help=TRAINED_ON)] = HERE
    workers: Optional[int] = None
    """On Ray: how many workers, of --threads each. Default: as many as there is room for."""
    video: Annotated[Optional[Tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = None
    """Film the best policy in FILE, .mp4 or .gif; default: best.mp4 among the results."""
