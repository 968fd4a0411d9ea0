#!/usr/bin/env python3
"""Scores rewards and other shapers that other programs send over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("serve_evaluator.py")  # before all that takes time to import

import contextlib
import logging
import os
import secrets
from dataclasses import dataclass, field
from typing import List, Optional

import tyro
from typing_extensions import Annotated, Literal

from envolve.agents.shaped.halving import Training
from envolve.core import commands
from envolve.envs.physics.task import physics_task
from envolve.experiments.command_line import parse
from envolve.llm.evaluator.store import Store, StoreError
from envolve.llm.evaluator.web import Server
from envolve.llm.evaluator.work import Evaluator
from envolve.llm.json_lines import JSONLinesError
from envolve.llm.vetting.jail.locks import JailError
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.vet import Vetter
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.wandb_run import check_wandb, followed
from envolve.outer.shapers.plan import hardware, learner_section, wrong_types

HELP = """\
Score candidates that other programs send over HTTP. The server is an evaluator for OpenEvolve, ShinkaEvolve, GEPA or a
program of your own (docs/evaluator.md). It vets each candidate's code in a jail, trains the waiting candidates together
in one simulator, and stores every result.

  envolve serve --task Cartpole --token secret
  curl -H 'Authorization: Bearer secret' -d '{"code": "..."}' 'http://127.0.0.1:8765/evaluate?wait=600'

A server that is stopped or killed and started again with the same --folder evaluates no candidate twice.
Exit codes: 1 the folder, the port or the jail cannot be used, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""
TOKEN = "ENVOLVE_EVALUATOR_TOKEN"


@dataclass
class Args:
    """Arguments of serve_evaluator.py."""

    task: str = "Cartpole"
    """Task on which candidates are scored, e.g. Anymal, Ant, Cartpole, HalfCheetah."""
    shaper_types: List[str] = field(default_factory=lambda: ["compute_reward"])
    """Functions that a candidate defines. The task's own versions are used for the others."""
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on. Any address except loopback lets other machines send code."""
    port: int = 8765
    """Port to listen on; 0: any free port."""
    token: Annotated[Optional[str], tyro.conf.arg(metavar="TOKEN")] = None
    """Token that requests must carry. Default: $ENVOLVE_EVALUATOR_TOKEN, or else a new token, which is printed."""
    num_envs_per_shaper: int = 64
    """Parallel environments of each agent, and its number of test episodes."""
    iterations: int = 30
    """Training iterations; each collects experience and updates the agents."""
    seeds: int = 1
    """Agents trained per candidate; the candidate's score is the mean of their scores."""
    batch: int = 16
    """Candidates trained in one simulator, at most."""
    queue: int = 256
    """Waiting candidates, at most. Further requests get the HTTP status 429."""
    seed: int = 0
    """Random seed; the same candidate with the same seed gets the same score."""
    learner: Literal["ppo", "sac", "td3"] = "ppo"
    """Learning algorithm of the agents."""
    set: Annotated[List[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters of the learner, e.g. lr=1e-3 hidden_size=64."""
    threads: int = 0
    """CPU threads; 0: all that this process may use. Scores do not depend on this."""
    folder: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Folder of requests and results. Default: results/serve_<task>."""
    wandb: Annotated[Optional[str], tyro.conf.arg(metavar="PROJECT")] = None
    """Also log every result to this Weights & Biases project (docs/tracking.md)."""
    allow_unprotected: bool = False
    """Run code even if this system cannot provide the full jail (docs/security.md)."""


def wrong(args: Args) -> List[str]:
    """Problems of the arguments, a line each."""
    found = wrong_types(args.shaper_types)
    for name, least, most in (
        ("port", 0, 65535), ("num_envs_per_shaper", 1, 100_000), ("iterations", 1, 10**9), ("seeds", 1, 10_000),
        ("batch", 1, 1000), ("queue", 1, 10**6), ("seed", 0, 2**63 - 1), ("threads", 0, 1024),
    ):  # fmt: skip
        value = getattr(args, name)
        if not least <= value <= most:
            flag = name.replace("_", "-")
            found.append(f"--{flag}: found {value}, expected at least {least} and at most {most:,}")
    if args.token is not None and not (args.token.isascii() and args.token.isprintable() and args.token):
        found.append("--token: expected printable ASCII characters")
    return found


def serve(args: Args) -> int:
    """-> exit code. Raises ConfigError, KeyError of an unknown task, StoreError, JailError, OSError."""
    if problems := wrong(args):
        raise ConfigError(problems)
    check_wandb(args.wandb)
    task = physics_task(args.task)
    device, threads = hardware("mujoco", None, args.threads)
    training = Training(
        task.name,
        args.learner,
        learner_section(args.learner, args.set),
        args.num_envs_per_shaper,
        args.iterations,
        args.seeds,
        1,
        args.batch,
        "mujoco",
        device,
        threads,
        "auto",
    )
    settings = {
        "task": task.name, "score_unit": task.score_unit, "types": args.shaper_types, "learner": args.learner,
        "hyperparameters": {k: v for k, v in vars(training.section).items() if isinstance(v, (int, float, str, bool))},
        "num_envs": args.num_envs_per_shaper, "iterations": args.iterations, "seeds": args.seeds, "seed": args.seed,
    }  # fmt: skip
    folder = args.folder or Path("results") / f"serve_{task.name.lower()}"
    token = args.token or os.environ.get(TOKEN) or secrets.token_urlsafe(16)
    store = Store(folder, settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(folder))
        vetter = stack.enter_context(Vetter(make_probe(task.name), args.shaper_types, args.allow_unprotected))
        board = stack.enter_context(contextlib.closing(Board(folder)))
        stack.enter_context(followed(args.wandb, folder, settings=settings))
        evaluator = Evaluator(store, vetter, training, args.seed, task.score_unit, args.batch, args.queue, board=board)
        server = stack.enter_context(Server(evaluator, token, args.host, args.port))
        server.begin()
        stack.callback(evaluator.stop)
        told = "" if args.token or os.environ.get(TOKEN) else f", token {token}"
        print(f"{task.name} at {server.url}{told}; {len(store.results)} results in {folder}", flush=True)
        interrupt.advise("the same command goes on")
        evaluator.work()
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("serve_evaluator.py", Args, argv, HELP)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    prog = commands.called("serve_evaluator.py")
    try:
        return serve(args)
    except KeyboardInterrupt:
        return interrupt.stopped(prog)
    except ConfigError as e:
        print(*(f"{prog}: {line}" for line in str(e).splitlines()), sep="\n", file=sys.stderr)
        return 2
    except KeyError as e:
        print(f"{prog}: --task: {e.args[0]}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"{prog}: {e.filename or f'{args.host}:{args.port}'}: {e.strerror}", file=sys.stderr)
    except (StoreError, JSONLinesError, RunError, JailError) as e:
        print(f"{prog}: {e}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    interrupt.run(main)
