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
from typing import List, Optional

if any(word.split("=")[-1] == "isaacgym" for word in sys.argv[1:]):
    try:
        import isaacgym  # noqa: F401  it refuses to be imported after torch
    except ImportError:
        pass  # make_simulator says what is missing

import torch
import tyro

from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.eval_shapers import logging_to_stderr
from envolve.llm.arguments import Args
from envolve.llm.gym.evolution import run_config
from envolve.llm.models.request import ChatError, Unanswered
from envolve.llm.plan import Plan, gym_options, make_plan, resume_command, stored_args
from envolve.llm.run import run_plan
from envolve.llm.vetting.jail.locks import JailError
from envolve.outer.checkpoint import RunError
from envolve.outer.config.yaml_lines import ConfigError

HELP = """\
Evolve the shapers of a task with language models. The models write rewards (and observations, meanings of actions,
terminations, initial states, goals). Each candidate is vetted in a jail; all candidates of an iteration train in one
simulator, and the models see the results. Afterwards NES or BOHB can tune the constants in the best code (--tune).

  python3 experiments/auto_shape.py --task Anymal --task_description "Make anymal run as fast as possible" \\
      --shaper_types compute_reward compute_observation --llm gpt-4-turbo-preview
  python3 experiments/auto_shape.py --task Cartpole --llm replay:experiments/recordings/cartpole.jsonl \\
      --num_iters 2 --shapers_per_iter 5 --num_envs_per_shaper 64 --iterations 30         no key, no network
  python3 experiments/auto_shape.py --task Ant --llm gpt-4o claude-sonnet-4-5 --mode islands --halving 2 --tune nes \\
      --budget_usd 5
  python3 experiments/auto_shape.py --task Ant --llm llama3 --base_url http://localhost:8080/v1
  python3 experiments/auto_shape.py --resume results/<run_id>                             after Ctrl-C
  python3 experiments/auto_shape.py --config configs/bipedal_walker.yml                   your own Gymnasium task

Keys are read from OPENAI_API_KEY, ANTHROPIC_API_KEY or, with --base_url, LLM_API_KEY, and never stored. Flags may be
written with - or _. Exit codes: 0 the best candidate has a score, 1 no candidate has one or the run cannot continue,
2 wrong arguments, 130 Ctrl-C, 143 SIGTERM (resumable)."""


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
    go_on = f"continue with: {resume_command(plan.folder)}"
    interrupt.advise(go_on)
    try:
        return run_plan(plan)
    except KeyboardInterrupt:
        return interrupt.stopped("auto_shape.py", go_on)
    except ConfigError as e:
        complain(e)
        return 2
    except Unanswered as e:
        complain(f"{e}; continue with: {resume_command(plan.folder)}")
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
