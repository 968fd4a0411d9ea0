"""What a user of auto_shape.py can ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Tuple

import tyro
from typing_extensions import Annotated, Literal


@dataclass
class Args:
    """What a user can ask for."""

    task: str = "Anymal"
    """The task, e.g. Anymal, Ant, Cartpole, HalfCheetah."""
    task_description: str = ""
    """What the robot is to do, in your words; default: what the score says."""
    shaper_types: List[str] = field(default_factory=lambda: ["compute_reward"])
    """Which functions the models write; the others are the task's own."""
    llm: Annotated[List[str], tyro.conf.arg(metavar="MODEL ...")] = field(default_factory=list)
    """gpt-..., claude-..., ollama:NAME, any name with --base-url, or replay:FILE. A bandit chooses among several.
    Default: gpt-4o."""
    base_url: Optional[str] = None
    """An OpenAI-compatible server, e.g. http://localhost:8000/v1."""
    mode: Literal["greedy", "islands"] = "greedy"
    """greedy: Eureka's loop, the best so far is improved. islands: several populations with crossover and migration."""
    num_iters: int = 5
    """Rounds of asking and training."""
    shapers_per_iter: int = 10
    """Candidates asked for in each."""
    islands: int = 4
    """With --mode islands: how many."""
    migration_every: int = 2
    """With --mode islands: iterations between migrations."""
    novelty: Optional[float] = None
    """Candidates this similar to an earlier one (above 0, to 1) are not trained; default: 1 with islands, which is
    equal structure, and none with greedy."""
    temperature: float = 1.0
    """Of the models."""
    max_tokens: int = 4096
    """Of a reply."""
    show_human_reward: bool = False
    """Show the models the task's own reward."""
    num_envs_per_shaper: int = 256
    """Environments of each agent, and episodes that judge it."""
    iterations: int = 500
    """Of collecting and learning."""
    seeds: int = 1
    """Agents per candidate; its score is their mean."""
    halving: int = 1
    """Successive halving: 1/HALVING of the candidates go on, with the environments of the others. 1: none."""
    tune: Literal["none", "nes", "bohb"] = "none"
    """Then move the numbers in the best code."""
    tune_top: int = 1
    """In so many of the best."""
    tune_generations: int = 10
    """Rounds of tuning each."""
    tune_population: int = 16
    """Agents per round."""
    tune_sigma: float = 0.3
    """NES: standard deviation of the numbers, relative to their size."""
    tune_step: float = 0.15
    """NES: how far a round moves them, in the same unit."""
    tune_workers: int = 0
    """Train them in so many worker processes, through the exchange of GTN_master.py; 0: in this one, all of a round in
    one simulator."""
    finalists: int = 3
    """So many of the best, what was tuned and the human's shapers are tested at last."""
    retest: int = 5
    """By so many fresh agents each."""
    seed: Optional[int] = None
    """Of everything but what models say: with the same replies the same scores. Default: 0."""
    budget_usd: Optional[float] = None
    """Stop before this is exceeded."""
    budget_tokens: Optional[int] = None
    """Stop before this is exceeded; of prompts and replies together."""
    price: Annotated[List[str], tyro.conf.arg(metavar="MODEL=IN,OUT ...")] = field(default_factory=list)
    """USD per million tokens, for models that llm/models/prices.py does not know."""
    parallel: int = 8
    """Calls at a time."""
    timeout: float = 300.0
    """Seconds for a call."""
    learner: Literal["ppo", "sac", "td3"] = "ppo"
    """How agents learn."""
    set: Annotated[List[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters of the learner, e.g. lr=1e-3 hidden_size=64."""
    engine: Literal["mujoco", "mujoco_warp", "isaacgym"] = "mujoco"
    """The simulator: MuJoCo on CPU threads, mujoco_warp or Isaac Gym on a GPU."""
    device: Optional[str] = None
    """Of simulator and agents, e.g. cuda:0; default: cpu with mujoco, else the GPU if there is one."""
    threads: int = 0
    """CPU threads, 0: all that this process may use. They change no score."""
    backend: Literal["auto", "compiled", "torch"] = "auto"
    """auto: compiled kernels on a CPU, else PyTorch."""
    processes: int = 0
    """With --config: trainings at once, 0: one per core."""
    memory: float = 4.0
    """With --config: GiB for each, beyond what Python and PyTorch need."""
    hours: float = 6.0
    """With --config: after which a training is ended."""
    allow_unprotected: bool = False
    """Vet code even where this system cannot jail it (docs/security.md)."""
    results_dir: Optional[Path] = None
    """Where runs are kept; default: results."""
    resume: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Go on with the run in this folder, with the arguments that it was begun with; budgets, --price, --base-url,
    --parallel, --timeout, --json and --video may be others. Calls that failed are asked again."""
    config: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """The YAML of a Gymnasium environment of yours (docs/gym_envs.md). It says what is run; of the flags count --llm,
    --base-url, --seed, --set section.key=value, --results-dir, --json, --resume, --allow-unprotected, and those about
    calls, budgets and trainings' limits."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Write result.json here, too (best.score, human.score, ...)."""
    video: Annotated[Optional[Tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = None
    """Film the best policy in FILE, .mp4 or .gif."""
