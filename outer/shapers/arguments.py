"""What a user of eval_shapers.py can ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Tuple

import tyro
from typing_extensions import Annotated, Literal

from envolve.envs.physics.task import SHAPER_TYPES


@dataclass
class Args:
    """What a user can ask for."""

    task: str = "Anymal"
    """The task, e.g. Anymal, Ant, Cartpole, HalfCheetah."""
    shaper_types: List[str] = field(default_factory=lambda: list(SHAPER_TYPES))
    """Which functions of the files count; the others are the task's own. Default: all."""
    shapers: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Folder of the files, or one file; default: envs/user_functions/<task in lower case>."""
    candidates: Annotated[List[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Only these files of the folder, with or without .py."""
    human: bool = True
    """The task's own shapers take part (--no-human: they do not)."""
    num_envs_per_shaper: int = 256
    """Environments of each agent, and episodes that judge it."""
    iterations: int = 500
    """Of collecting and learning."""
    seeds: int = 1
    """Agents per candidate; its score is their mean."""
    seed: int = 0
    """Of environments and agents: the same seed gives the same scores."""
    learner: Literal["ppo", "sac", "td3"] = "ppo"
    """How agents learn."""
    set: Annotated[List[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters of the learner, e.g. lr=1e-3 hidden_size=64."""
    schedule: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Curriculum and domain randomisation: YAML or JSON, parameter of the task -> {iters: [0, 100],
    values: [1, [0.5, 2]], mode: linear}. Candidates are judged on the task as it is."""
    engine: Literal["mujoco", "mujoco_warp", "isaacgym"] = "mujoco"
    """The simulator: MuJoCo on CPU threads, mujoco_warp or Isaac Gym on a GPU."""
    device: Optional[str] = None
    """Of simulator and agents, e.g. cuda:0; default: cpu with mujoco, else the GPU if there is one."""
    threads: int = 0
    """CPU threads, 0: all that this process may use. They change no score."""
    backend: Literal["auto", "compiled", "torch"] = "auto"
    """auto: compiled kernels on a CPU, else PyTorch."""
    out: Annotated[Optional[Path], tyro.conf.arg(name="run-dir", metavar="DIR")] = None
    """Folder for ranking.txt, candidates.json, curves.png, config.yaml and best.pt; default: results/<run id>."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Write candidates.json here, too."""
    video: Annotated[Optional[Tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = None
    """Film the best policy in FILE, .mp4 or .gif; default: best.mp4 among the results."""
