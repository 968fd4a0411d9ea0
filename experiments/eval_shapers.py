#!/usr/bin/env python3
"""Evaluates rewards, observations, actions, terminations and initial states of a task, all in one simulator."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("eval_shapers.py")  # before all that takes time to import

import contextlib
import logging
from typing import Iterator, List, Optional, Set

if any(word.split("=")[-1] == "isaacgym" for word in sys.argv[1:]):
    try:
        import isaacgym  # noqa: F401  it refuses to be imported after torch
    except ImportError:
        pass  # make_simulator says what is missing

import torch

from envolve.core import commands
from envolve.core.memory import shortage
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments.command_line import parse
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.address import HERE
from envolve.outer.reporting.display import wide_console
from envolve.outer.reporting.folders import claimed
from envolve.outer.reporting.report import precise
from envolve.outer.reporting.wandb_run import followed
from envolve.outer.shapers.arguments import Args
from envolve.outer.shapers.compare_film import columns_of, compare, named
from envolve.outer.shapers.plan import make_plan
from envolve.outer.shapers.run import RankingPlan, ShaperRun
from envolve.outer.shapers.video import VideoError, film

log = logging.getLogger("envolve")

HELP = """\
Rank the shaper files in a folder. Each file is a candidate. The command trains one agent per candidate, all of them in
one simulator, and ranks the candidates by the task's true score of their final policies.

A file defines any of compute_reward, compute_observation, compute_torque, compute_terminal, compute_initial_state and
compute_goal. The task's own versions are used for the others (docs/shapers.md). A candidate fails if it raises an
exception, or returns NaN or a wrong shape; this does not affect the other candidates. The task's own shapers are ranked
as the candidate "human".

  envolve shape --task Cartpole --num-envs-per-shaper 64 --iterations 30
  envolve shape --task Anymal --shaper-types compute_reward compute_observation --json out.json
  envolve shape --task Ant --shapers my_rewards --candidates a b --seeds 3 --video ant.mp4
  envolve shape --task Ant --set lr=5e-4 hidden_size=64 --schedule gravity.yaml
  envolve shape --task Ant --workers-on ray:HOST:PORT    on the machines of a Ray cluster (docs/ray.md)

Flags may be written with - or _. Exit codes: 0 at least one candidate has a score, 1 none has, 2 wrong arguments,
130 Ctrl-C, 143 SIGTERM (the results so far are written)."""


KNOWN = "what was known is written; the same command begins anew"


class Once(logging.Handler):
    """Prints failures to stderr; of a candidate's agents only the first failure."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("candidate %s is out") and isinstance(record.args, tuple):
            name = str(record.args[0])
            if name in self.seen:
                return
            self.seen.add(name)
        print(record.getMessage(), file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------------ the run


@contextlib.contextmanager
def logging_to_stderr() -> Iterator[None]:
    handler, level = Once(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def complain(text: object) -> None:
    print(f"{commands.called('eval_shapers.py')}: {text}", file=sys.stderr)


def evaluate_shapers(args: Args) -> int:
    try:
        plan = make_plan(args)
    except ConfigError as e:
        complain(e)
        return 2
    except SimulatorError as e:
        complain(e)
        return 1
    with contextlib.ExitStack() as stack:
        if args.out is None:
            try:
                plan = plan._replace(out=stack.enter_context(claimed(plan.out)))
            except OSError as e:
                return cannot_write(e)
        films = stack.enter_context(followed(args.wandb, plan.out))
        return rank(args, plan, films)


def cannot_write(e: OSError) -> int:
    complain(f"cannot write {e.filename}: {e.strerror}")
    return 1


def run_of(args: Args, plan: RankingPlan) -> ShaperRun:
    if args.workers_on == HERE:
        return ShaperRun(plan)
    from envolve.outer.shapers.apart import ApartRun  # late: Ray is an extra

    return ApartRun(plan, args.workers_on, args.workers)


def rank(args: Args, plan: RankingPlan, films: List[Path]) -> int:
    """films: gets the file of the film."""
    torch.set_num_threads(plan.threads)
    run, console, interrupted = run_of(args, plan), wide_console(), False
    try:
        run.execute(console)
    except KeyboardInterrupt:
        interrupted = True
    except (SimulatorError, ExchangeError, ValueError) as e:
        complain(e)
        if isinstance(e, ExchangeError) and run.curve:
            run.write(args.json)
            complain(f"what was trained by then is in {plan.out}")
        return 1
    except Exception as e:  # a fault of this program must not cost the user what hours of training have shown
        if run.curve:
            run.write(args.json)
        if not (short := shortage(e, "--num-envs-per-shaper, --seeds, rollout_steps or hidden_size")):
            raise
        complain(short)
        return 1
    try:
        ranking = run.write(args.json)
    except OSError as e:
        return cannot_write(e)
    interrupt.advise(KNOWN)
    run.show(console, ranking)
    console.print(run.files(), highlight=False, markup=False, soft_wrap=True)
    if interrupted:
        return interrupt.stopped(commands.called("eval_shapers.py"))
    best = run.best(ranking)
    if args.video is not None and best is not None and run.envs is not None:
        console.print(f"Filming {best[0].name} ...", markup=False)
        unit = plan.task.score_unit
        caption = f"{plan.task.name}, {best[0].name}: {precise(best[0].score)} {unit}, seed {args.seed}"
        try:
            made = film((args.video or (None,))[0], plan.out, run.envs, run.learner, best[1], args.seed, caption)
            films.append(made.path)
            text = f"{best[0].name}, one episode: {precise(made.score)} {plan.task.score_unit}"
            console.print(f"Film: {made.path} ({text})", highlight=False, markup=False, soft_wrap=True)
            columns = columns_of(ranking, [c for c, _ in plan.candidates])
            if len(columns) > 1:
                beside = compare(None, plan.out, run.envs, run.learner, columns, plan.K, args.seed)
                films.append(beside)
                console.print(f"Film: {beside} ({named(columns)})", highlight=False, markup=False, soft_wrap=True)
        except VideoError as e:
            complain(f"no film: {e}")
    return 0 if best is not None else 1


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("eval_shapers.py", Args, argv, HELP)
    try:
        with logging_to_stderr():
            return evaluate_shapers(args)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("eval_shapers.py"))


if __name__ == "__main__":
    interrupt.run(main)
