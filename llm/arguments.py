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

    task_description: Annotated[str, tyro.conf.arg(metavar="TEXT")] = ""
    """Description of the task for the models, in your own words. Default: the meaning of the task's score."""
    shaper_types: List[str] = field(default_factory=lambda: ["compute_reward"])
    """Functions that the models write. The task's own versions are used for the others."""
    llm: Annotated[List[str], tyro.conf.arg(metavar="MODEL ...")] = field(default_factory=list)
    """Language models: gpt-..., claude-..., ollama:NAME, any name with --base-url, or replay:FILE (recorded replies).
    If you give several, a bandit algorithm chooses among them. Default: gpt-4o."""
    base_url: Annotated[Optional[str], tyro.conf.arg(metavar="URL")] = None
    """URL of an OpenAI-compatible server, e.g. http://localhost:8000/v1."""
    mode: Literal["greedy", "islands", "elites", "steady", "gp"] = "greedy"
    """Search. greedy: improve the best candidate so far (Eureka). islands: separate populations with crossover and
    migration. elites: keep the best candidate of every code size and learning speed. steady: like elites, but
    asynchronous, with --shapers-per-iter attempts at a time. gp: genetic programming over reward graphs, without a
    language model."""
    num_iters: int = 5
    """Iterations of the search; each requests candidates, then trains them."""
    shapers_per_iter: int = 10
    """Candidates requested from the models per iteration; with --mode steady, concurrent attempts."""
    islands: int = 4
    """Number of islands with --mode islands."""
    migration_every: int = 2
    """Iterations between migrations with --mode islands."""
    novelty: Optional[float] = None
    """Similarity (above 0, at most 1) from which a candidate counts as a duplicate of an earlier one. Duplicates are
    not trained. Default: no limit for greedy and gp; 1 (equal structure) for the other modes."""
    repairs: int = 1
    """Repair attempts per candidate and iteration. If a candidate is refused or fails in training, the model gets its
    code and the reason, and is asked for a corrected version."""
    edits: float = 0.0
    """Share of improvements, 0 to 1, for which the model returns edits to the code instead of the whole code."""
    notes: bool = False
    """Let the models write notes, and show these notes to the models in later attempts."""
    human_parent: bool = False
    """Add the human's reward to the population, so that the search can improve it. The models see its code; --mode gp
    uses its graph."""
    cascade: float = 1.0
    """Share of the training iterations, above 0 and at most 1, in a first short training of every candidate. A
    candidate gets the full training only if it is the best of its batch, or if the lower bound of its short score
    reaches the median short score. 1: full training for all."""
    temperature: float = 1.0
    """Sampling temperature of the models."""
    max_tokens: int = 4096
    """Tokens per reply, at most."""
    show_human_reward: bool = False
    """Show the task's own reward to the models."""
    halving: int = 1
    """Successive halving: each round keeps 1/HALVING of the candidates and gives them the environments of the others.
    1: keep all candidates."""
    tune: Literal["none", "nes", "bohb"] = "none"
    """Tune the numeric constants of the best candidates after the search."""
    tune_top: int = 1
    """Candidates to tune, best first."""
    tune_every: int = 0
    """Also tune the best candidate's constants every N iterations, so that the models see the tuned constants; 0: tune
    only at the end."""
    tune_generations: int = 10
    """Tuning generations per candidate."""
    tune_population: int = 16
    """Agents per tuning generation."""
    tune_sigma: float = 0.3
    """NES: standard deviation of the perturbations, relative to the magnitude of each constant."""
    tune_step: float = 0.15
    """NES: step size per generation, in the same unit as --tune_sigma."""
    tune_workers: int = 0
    """Worker processes that train the agents during tuning. 0: this process trains each generation, in one
    simulator."""
    finalists: int = 3
    """Number of best candidates in the final test. Tuned candidates and the human's shapers are always tested too."""
    retest: int = 5
    """Fresh agents per finalist in the final test."""
    seed: Optional[int] = None
    """Random seed of everything except the models' replies. Equal replies give equal scores. Default: 0."""
    budget_usd: Optional[float] = None
    """Budget for model calls, in USD. The run stops before it exceeds this."""
    budget_tokens: Optional[int] = None
    """Budget for model calls, in tokens of prompts and replies together. The run stops before it exceeds this."""
    price: Annotated[List[str], tyro.conf.arg(metavar="MODEL=IN,OUT ...")] = field(default_factory=list)
    """Prices in USD per million input and output tokens, for models that are not listed in llm/models/prices.py."""
    parallel: int = 8
    """Concurrent model calls, at most."""
    timeout: float = 300.0
    """Time limit of one model call, in seconds."""
    processes: int = 0
    """Concurrent trainings with --config; 0: one per core."""
    memory: float = 4.0
    """Memory limit of each training with --config, in GiB, in addition to what Python and PyTorch need."""
    hours: float = 6.0
    """Time limit of each training with --config, in hours."""
    allow_unprotected: bool = False
    """Run code even if this system cannot provide the full jail (docs/security.md)."""
    results_dir: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Parent folder of new runs. Default: results."""
    resume: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Continue the run in this folder with its stored arguments. You may change the budgets, --price, --base-url,
    --parallel, --timeout, --wandb, --json and --video. Failed model calls are repeated."""
    config: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """YAML file that describes a run on your own Gymnasium environment (docs/gym_envs.md). With it, only these flags
    apply: --llm, --base-url, --max-tokens, --parallel, --timeout, --price, --budget-usd, --budget-tokens, --processes,
    --memory, --hours, --seed, --set section.key=value, --results-dir, --wandb, --json, --resume and
    --allow-unprotected."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Also write the results (result.json: best.score, human.score, ...) to this JSON file."""
    video: Annotated[Optional[Tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = None
    """Film the best policy in FILE, .mp4 or .gif."""
