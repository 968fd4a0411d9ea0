#!/usr/bin/env python3
"""Lets language models write the shapers of a task, trains agents with them, and shows the models what came of it."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("auto_shape.py")  # before all that takes time to import

import logging
from dataclasses import dataclass, field
from typing import List, Optional

if any(word.split("=")[-1] == "isaacgym" for word in sys.argv[1:]):
    try:
        import isaacgym  # noqa: F401  it refuses to be imported after torch
    except ImportError:
        pass  # make_simulator says what is missing

import torch
import tyro
from typing_extensions import Annotated, Literal

from envolve.core.yaml_lines import ConfigError
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.eval_shapers import logging_to_stderr
from envolve.llm.gym.evolution import run_config
from envolve.llm.models.request import ChatError, Unanswered
from envolve.llm.plan import Plan, gym_options, make_plan, resume_command, stored_args
from envolve.llm.run import run_plan
from envolve.llm.vetting.jail.locks import JailError
from envolve.outer.checkpoint import RunError

HELP = """\
Evolve the shapers of a task with language models: they write rewards (and observations, meanings of actions,
terminations, initial states, goals), every one is vetted in a jail, all of an iteration are trained in one simulator,
and the models see what came of it. Evolution can tune the numbers in what they wrote.

  python3 experiments/auto_shape.py --task Anymal --task_description "Make anymal run as fast as possible" \\
      --shaper_types compute_reward compute_observation --llm gpt-4-turbo-preview
  python3 experiments/auto_shape.py --task Cartpole --llm replay:experiments/recordings/cartpole.jsonl \\
      --num_iters 2 --shapers_per_iter 5 --num_envs_per_shaper 64 --iterations 30         no key, no network
  python3 experiments/auto_shape.py --task Ant --llm gpt-4o claude-sonnet-4-5 --mode islands --halving 2 --tune nes \\
      --budget_usd 5
  python3 experiments/auto_shape.py --task Ant --llm llama3 --base_url http://localhost:8080/v1
  python3 experiments/auto_shape.py --resume results/<run_id>                             after Ctrl-C
  python3 experiments/auto_shape.py --config configs/bipedal_walker.yml                   your own Gymnasium task

Keys are read from OPENAI_API_KEY, ANTHROPIC_API_KEY or, with --base_url, LLM_API_KEY, and written nowhere. Flags may be
written with - or _. Exit codes: 0 the best has a score, 1 nothing has, or it cannot go on, 2 wrong arguments,
130 Ctrl-C, 143 SIGTERM (resumable)."""


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
    """gpt-..., claude-..., ollama:NAME, any name with --base_url, or replay:FILE. A bandit chooses among several.
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
    iterations: Annotated[int, tyro.conf.arg(aliases=["--learning-iterations"])] = 500
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
    """Go on with the run in this folder, with the arguments that it was begun with; budgets, --price, --base_url,
    --parallel, --timeout, --json and --video may be others. Calls that failed are asked again."""
    config: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """The YAML of a Gymnasium environment of yours (docs/gym_envs.md). It says what is run; of the flags count --llm,
    --base_url, --seed, --set section.key=value, --results_dir, --json, --resume, --allow_unprotected, and those about
    calls, budgets and trainings' limits."""
    json: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Write result.json here, too (best.score, human.score, ...)."""
    video: bool = False
    """Film the best policy."""


def complain(text: object) -> None:
    print(f"auto_shape.py: {text}", file=sys.stderr)


def auto_shape(args: Args) -> int:
    try:
        if args.resume is not None and args.config is None:
            args = stored_args(args)
        if args.config is not None:
            return run_config(args.config, gym_options(args))
        plan: Plan = make_plan(args)
    except ConfigError as e:
        complain(e)
        return 2
    torch.set_num_threads(plan.settings.training.threads)
    go_on = f"go on with: {resume_command(plan.folder)}"
    interrupt.advise(go_on)
    try:
        return run_plan(plan)
    except KeyboardInterrupt:
        return interrupt.stopped("auto_shape.py", go_on)
    except ConfigError as e:
        complain(e)
        return 2
    except Unanswered as e:
        complain(f"{e}; go on with: {resume_command(plan.folder)}")
        return 1
    except (ChatError, JailError, SimulatorError, RunError, ValueError) as e:
        complain(e)
        return 1
    except OSError as e:
        complain(f"{e.filename}: {e.strerror}")
        return 1


def main(argv: Optional[List[str]] = None) -> int:
    args = tyro.cli(Args, args=argv, prog="auto_shape.py", description=HELP)
    try:
        with logging_to_stderr():
            logging.getLogger("httpx").setLevel(logging.WARNING)
            return auto_shape(args)
    except KeyboardInterrupt:
        return interrupt.stopped("auto_shape.py")


if __name__ == "__main__":
    interrupt.run(main)
