#!/usr/bin/env python3
"""Passes one file, or the saved reply of a model, through the gate that code of models has to pass."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("vet_shaper.py")  # before all that takes time to import

import logging
from dataclasses import dataclass, field
from typing import List, Optional

import torch
import tyro
from typing_extensions import Annotated

from envolve.core import commands
from envolve.core.files import read_text
from envolve.core.registry import nearest
from envolve.envs.physics.task import SHAPER_TYPES, physics_task
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import parse
from envolve.llm.vetting.jail.locks import JailError
from envolve.llm.vetting.literals import as_written
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.text.missing import OWN
from envolve.llm.vetting.vet import Vetted, Vetter
from envolve.outer.reporting.report import precise

HELP = """\
Vet a shaper as if a language model had written it. The command extracts the code from the file, checks it, runs it in a
jail on real states of the task, and converts it to a graph of tensor operations with its constants as parameters
(docs/auto_shape.md, docs/security.md). The file may be Python code, or a model's reply that contains code.

  envolve vet my_reward.py --task Ant --shaper-types compute_reward
  envolve vet reply.txt --task Anymal --out my_reward.graph.json

eval_shapers.py accepts the graph file as a candidate. Exit codes: 0 accepted, 1 refused, 2 wrong arguments or no jail
on this system, 130 Ctrl-C, 143 SIGTERM."""


@dataclass
class Args:
    """Arguments of vet_shaper.py."""

    file: Annotated[Path, tyro.conf.Positional]
    """Python file, or the saved reply of a language model."""
    task: str = "Anymal"
    """Task of the shaper, e.g. Anymal, Ant, Cartpole, HalfCheetah."""
    shaper_types: List[str] = field(default_factory=lambda: list(SHAPER_TYPES))
    """Functions to vet. Default: all."""
    out: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """File for the graph of an accepted shaper, *.graph.json."""
    allow_unprotected: bool = False
    """Run code even if this system cannot provide the full jail (docs/security.md)."""


def complain(text: object) -> None:
    print(f"{commands.called('vet_shaper.py')}: {text}", file=sys.stderr)


def vet(args: Args) -> int:
    """-> exit code. Raises JailError, OSError, KeyError of an unknown task."""
    for kind in args.shaper_types:
        if kind not in SHAPER_TYPES:
            near = nearest(kind, SHAPER_TYPES, cutoff=0.0)
            complain(f"shaper type {kind!r}: expected some of {', '.join(SHAPER_TYPES)}; nearest: {near!r}")
            return 2
    if args.out is not None and not args.out.name.endswith(".graph.json"):
        complain(f"--out {args.out}: expected a name that ends with .graph.json")
        return 2
    text, task = read_text(args.file), physics_task(args.task).name
    with Vetter(make_probe(task), args.shaper_types, args.allow_unprotected) as vetter:
        verdict = vetter.vet(text, args.file.name)
    every = set(args.shaper_types) == set(SHAPER_TYPES)  # too many to write by hand
    notes = [note for note in verdict.notes if not (every and note.endswith(OWN))]
    if not isinstance(verdict, Vetted):
        notes.append(f"for the task {task}; --task names another")
        print("\n".join([f"refused ({verdict.stage}): {verdict.message}", *notes]))
        return 1
    graph_file = verdict.graph_file
    operations = sum(len(graph["nodes"]) for graph in graph_file["functions"].values())
    print(f"accepted: {', '.join(graph_file['functions'])}; {operations} operations, {verdict.seconds:.2f} s")
    for note in notes:
        print(f"  {note}")
    numbers = as_written(graph_file)
    width = max(map(len, numbers), default=0)
    for name, value in numbers.items():
        print(f"  {name:<{width}}  {precise(value)}")
    if args.out is not None:
        write_atomic(str(args.out), graph_file.text().encode())
        print(f"written: {args.out}")
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("vet_shaper.py", Args, argv, HELP)
    commands.existing("vet_shaper.py", "FILE", str(args.file))
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    torch.set_num_threads(1)
    try:
        return vet(args)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("vet_shaper.py"))
    except OSError as e:
        complain(f"{e.filename}: {e.strerror}")
    except (JailError, KeyError) as e:
        complain(e.args[0] if isinstance(e, KeyError) else e)
    return 2


if __name__ == "__main__":
    interrupt.run(main)
