"""Arguments of auto_shape.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Tuple

import tyro
from typing_extensions import Annotated, Literal

from envolve.outer.shapers.arguments import TrainingArgs


@dataclass
class Args(TrainingArgs):
    """Arguments of auto_shape.py, with those of training."""

    task_description: str = ""
    """Description of the robot's goal for the models, in your words. Default: the meaning of the score."""
    shaper_types: List[str] = field(default_factory=lambda: ["compute_reward"])
    """Functions that the models write; the task's own versions serve for the others."""
    llm: Annotated[List[str], tyro.conf.arg(metavar="MODEL ...")] = field(default_factory=list)
    """gpt-..., claude-..., ollama:NAME, any name with --base-url, or replay:FILE. A bandit chooses among several.
    Default: gpt-4o."""
    base_url: Optional[str] = None
    """URL of an OpenAI-compatible server, e.g. http://localhost:8000/v1."""
    mode: Literal["greedy", "islands", "elites", "steady", "gp"] = "greedy"
    """Search: greedy (Eureka: improve the best candidate so far), islands (populations, crossover, migration), elites
    (the best of every size and pace of learning), steady (the same without iterations: --shapers-per-iter attempts are
    under way at any time) or gp (genetic programming over graphs of rewards: no model, no key)."""
    num_iters: int = 5
    """Iterations of the search; each asks for candidates, then trains them."""
    shapers_per_iter: int = 10
    """Candidates requested from the models per iteration; with --mode steady, attempts under way at any time."""
    islands: int = 4
    """Number of islands (--mode islands)."""
    migration_every: int = 2
    """Iterations between migrations (--mode islands)."""
    novelty: Optional[float] = None
    """Similarity, above 0 and at most 1, from which a candidate counts as a duplicate of an earlier one and is not
    trained. Default: no limit with greedy and gp, 1 (equal structure) with the others."""
    repairs: int = 1
    """How often a reply that was refused, or whose code failed in training, is asked for again within its iteration,
    with its own code and the reason."""
    edits: float = 0.0
    """Share of improvements that are asked for as changes of single places instead of the whole code."""
    notes: bool = False
    """Let the models leave notes to later attempts, and show them."""
    human_parent: bool = False
    """Make the human's reward an individual of the population, with its code (of --mode gp: its graph): attempts may
    improve it."""
    cascade: float = 1.0
    """Share of a training that every candidate gets first; those whose lower bound reaches the median then get the full
    one. 1: all do at once."""
    temperature: float = 1.0
    """Sampling temperature of the models."""
    max_tokens: int = 4096
    """Most tokens in one reply."""
    show_human_reward: bool = False
    """Show the task's own reward to the models."""
    halving: int = 1
    """Successive halving: each round keeps 1/HALVING of the candidates and gives them the environments of the rest.
    1 keeps all candidates."""
    tune: Literal["none", "nes", "bohb"] = "none"
    """Tune the numeric constants of the best candidates after the search."""
    tune_top: int = 1
    """Candidates to tune, best first."""
    tune_every: int = 0
    """Iterations after which the numbers of the best so far are tuned, so that the models are shown them; 0: they are
    tuned at the end alone."""
    tune_generations: int = 10
    """Tuning generations per candidate."""
    tune_population: int = 16
    """Agents per tuning generation."""
    tune_sigma: float = 0.3
    """NES: standard deviation of the perturbations, relative to the size of each constant."""
    tune_step: float = 0.15
    """NES: step size of a generation, in the same unit as --tune_sigma."""
    tune_workers: int = 0
    """Worker processes that train the agents of the tuning, through the exchange of GTN_master.py. 0: train a whole
    generation in this process, in one simulator."""
    finalists: int = 3
    """Best candidates in the final test; tuned candidates and the human's shapers are always in it."""
    retest: int = 5
    """Fresh agents per finalist in the final test."""
    seed: Optional[int] = None
    """Random seed of everything except the models' replies: equal replies give equal scores. Default: 0."""
    budget_usd: Optional[float] = None
    """Largest cost of the models' calls, in USD; the run stops before it exceeds this."""
    budget_tokens: Optional[int] = None
    """Most tokens of prompts and replies together; the run stops before it exceeds this."""
    price: Annotated[List[str], tyro.conf.arg(metavar="MODEL=IN,OUT ...")] = field(default_factory=list)
    """Prices in USD per million input and output tokens, for models that llm/models/prices.py does not list."""
    parallel: int = 8
    """Most concurrent calls of the models."""
    timeout: float = 300.0
    """Time limit of one call, in seconds."""
    processes: int = 0
    """Concurrent trainings with --config; 0: one per core."""
    memory: float = 4.0
    """Memory of each training with --config, in GiB, on top of what Python and PyTorch need."""
    hours: float = 6.0
    """Time limit of each training with --config, in hours."""
    allow_unprotected: bool = False
    """Vet code although this system cannot run it in the jail (docs/security.md)."""
    results_dir: Optional[Path] = None
    """Folder for the runs. Default: results."""
    resume: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Go on with the run in this folder, with the arguments that it was begun with; budgets, --price, --base-url,
    --parallel, --timeout, --wandb, --json and --video may be others. Calls that failed are asked again."""
    config: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """The YAML of a Gymnasium environment of yours (docs/gym_envs.md). It says what is run; of the flags count --llm,
    --base-url, --seed, --set section.key=value, --results-dir, --wandb, --json, --resume, --allow-unprotected, and
    those about calls, budgets and trainings' limits."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Write result.json here, too (best.score, human.score, ...)."""
    video: Annotated[Optional[Tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = None
    """Film the best policy in FILE, .mp4 or .gif."""
