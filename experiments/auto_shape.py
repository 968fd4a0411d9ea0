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

import contextlib
import logging
from typing import List, Optional

if any(word.split("=")[-1] == "isaacgym" for word in sys.argv[1:]):
    try:
        import isaacgym  # noqa: F401  it refuses to be imported after torch
    except ImportError:
        pass  # make_simulator says what is missing

import torch

from envolve.core import commands
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.command_line import parse
from envolve.experiments.eval_shapers import logging_to_stderr
from envolve.llm.arguments import Args
from envolve.llm.gym.evolution import run_config
from envolve.llm.models.request import ChatError, Unanswered
from envolve.llm.plan import Plan, gym_options, make_plan, resume_command, stored_args
from envolve.llm.run import check_models, run_plan
from envolve.llm.vetting.jail.locks import JailError
from envolve.outer.checkpoint import RunError
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.folders import claimed

HELP = """\
Evolve the shapers of a task with language models. The models write rewards, and on request also observations, actions,
terminations, initial states and goals (--shaper-types). Each candidate is vetted in a jail. All candidates of an
iteration train in one simulator, and the models see the results. At the end, NES or BOHB can tune the constants in the
best code (--tune).

  envolve write --task Anymal --task-description "Make anymal run as fast as possible" \\
      --shaper-types compute_reward compute_observation --llm gpt-4-turbo-preview
  envolve write --task Cartpole --llm replay:experiments/recordings/cartpole.jsonl \\
      --num-iters 2 --shapers-per-iter 5 --num-envs-per-shaper 64 --iterations 30     recorded replies, no key needed
  envolve write --task Ant --llm gpt-4o claude-sonnet-4-5 --mode islands --halving 2 --tune nes \\
      --budget-usd 5
  envolve write --task Ant --llm llama3 --base-url http://localhost:8080/v1
  envolve write --resume results/<run_id>                             go on after Ctrl-C
  envolve write --config configs/bipedal_walker.yml                   your own Gymnasium environment

API keys are read from OPENAI_API_KEY, ANTHROPIC_API_KEY or, with --base-url, LLM_API_KEY, and are never stored. Flags
may be written with - or _. Exit codes: 0 at least one candidate has a score, 1 none has, or it cannot start or
continue, 2 wrong arguments,
130 Ctrl-C, 143 SIGTERM (resumable)."""


def complain(text: object) -> None:
    print(f"{commands.called('auto_shape.py')}: {text}", file=sys.stderr)


def auto_shape(args: Args) -> int:
    try:
        if args.resume is not None and args.config is None:
            args = stored_args(args)
        if args.config is not None:
            return run_config(args.config, gym_options(args))
        plan: Plan = make_plan(args)
        check_models(plan)
    except ConfigError as e:
        complain(e)
        return 2
    except SimulatorError as e:
        complain(e)
        return 1
    try:
        with contextlib.nullcontext(plan.folder) if plan.resumed else claimed(plan.folder) as folder:
            return run(plan._replace(folder=folder))
    except OSError as e:
        complain(f"{e.filename}: {e.strerror}")
        return 1


def run(plan: Plan) -> int:
    torch.set_num_threads(plan.settings.training.threads)
    go_on = f"continue with: {resume_command(plan.folder)}"
    interrupt.advise(go_on)
    try:
        return run_plan(plan)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("auto_shape.py"), go_on)
    except ConfigError as e:
        complain(e)
        return 2
    except Unanswered as e:
        complain(f"{e}; continue with: {resume_command(plan.folder)}")
        return 1
    except (ChatError, JailError, SimulatorError, RunError, ValueError) as e:
        complain(e)
        return 1


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("auto_shape.py", Args, argv, HELP)
    try:
        with logging_to_stderr():
            logging.getLogger("httpx").setLevel(logging.WARNING)
            return auto_shape(args)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("auto_shape.py"))


if __name__ == "__main__":
    interrupt.run(main)
