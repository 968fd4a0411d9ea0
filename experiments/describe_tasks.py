#!/usr/bin/env python3
"""What shapers can read, of every task in a physics engine, as Markdown: envolve tasks --write
brings docs/shaped_tasks.md up to date (a test compares the two)."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("describe_tasks.py")  # before all that takes time to import

import inspect
from dataclasses import dataclass
from typing import List, Optional, Type

import tyro
from typing_extensions import Annotated

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.core import commands
from envolve.envs.managers.library import NAMES
from envolve.envs.physics.task import PHYSICS_TASKS, PhysicsTask
from envolve.envs.shaping.candidate import TERM_FILE
from envolve.envs.shaping.term_file import term_text
from envolve.envs.sim.simulator import SimulatorError
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import parse
from envolve.llm.search.task_facts import limits_text, task_facts
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.shapers.plan import task_and_engine

DOCS = Path(__file__).resolve().parents[1] / "docs" / "shaped_tasks.md"
HELP = """\
Print as Markdown what shapers can read in each physics task: names, shapes, units and meanings. For a task of mjlab or
Isaac Lab, print its state and the weights and parameters of its terms (docs/mjlab.md, docs/isaaclab.md). This requires
a Python environment with that library.

  envolve tasks                                            print all tasks
  envolve tasks --write                                    update docs/shaped_tasks.md
  envolve tasks --task mjlab:Mjlab-Cartpole-Balance        print one task
  envolve tasks --task mjlab:Mjlab-Velocity-Flat-Unitree-Go1 --terms go1.terms.json

Exit codes: 0 printed or written, 1 the library is missing, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""
MARK = "<!-- What follows is written by experiments/describe_tasks.py -->\n"


def describe(cls: Type[PhysicsTask]) -> str:
    """One task's section."""
    facts = task_facts(cls)
    limits = set(facts.effort_limits)
    limit = f", at most {limits_text(facts.effort_limits)}" if len(limits) == 1 and limits != {float("inf")} else ""
    lines = [
        f"## {cls.name}", "",
        f"Score ({cls.score_unit}): {cls.score_meaning}. A control step is {facts.dt:g} s, an episode at most "
        f"{cls.max_steps} of them. The task's own policy sees {facts.features} numbers and has "
        f"{_count(cls.action_size, 'action')}; "
        f"`compute_torque` returns {_count(facts.efforts, 'effort')}{limit}.", "",
        "| name | shape | unit | meaning |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, q in cls.described(facts.efforts).items():
        meaning = q.meaning
        if name in cls.parameters:
            low, high = cls.parameters[name].low, cls.parameters[name].high
            drawn = f"{low:g}" if low == high else f"drawn from [{low:g}, {high:g}]"
            meaning = f"*parameter, {drawn}:* {meaning}"
        shape = ", ".join(["n", *map(str, q.shape)])
        lines.append(f"| `{name}` | [{shape}] | {q.unit} | {meaning} |")
    return "\n".join(lines) + "\n"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + "s" * (n != 1)


def sections() -> str:
    return "\n".join(describe(PHYSICS_TASKS[name]) for name in sorted(PHYSICS_TASKS))


def signatures() -> List[str]:
    """Signatures of the six functions, without annotations."""
    names = [n for n in vars(PhysicsTask) if n.startswith("compute_")]
    return [f"{n}({', '.join(inspect.signature(getattr(PhysicsTask, n)).parameters)})" for n in names]


@dataclass
class Args:
    write: tyro.conf.FlagCreatePairsOff[bool] = False
    """Update docs/shaped_tasks.md instead of printing."""
    task: Optional[str] = None
    """Print only this task, e.g. Ant or mjlab:Mjlab-Cartpole-Balance."""
    terms: Annotated[Optional[Path], tyro.conf.arg(metavar="FILE")] = None
    """Write the weights and parameters of a task of mjlab or Isaac Lab to this file, *.terms.json, as a first candidate
    for envolve shape."""


def complain(text: object) -> None:
    print(f"{commands.called('describe_tasks.py')}: {text}", file=sys.stderr)


def one_task(args: Args) -> int:
    """Prints one task, or writes its terms."""
    from envolve.envs.managers import facts

    try:
        cls, engine = task_and_engine(args.task or "", "mujoco")
        if engine not in NAMES:
            if args.terms is not None:
                complain(f"--terms: found {cls.name}, expected a task of mjlab or Isaac Lab")
                return 2
            print(describe(cls))
        elif args.terms is None:
            print("\n".join(facts.described(cls.name)))
        else:
            if not args.terms.name.endswith(TERM_FILE):
                complain(f"--terms {args.terms}: expected a name that ends with {TERM_FILE}")
                return 2
            write_atomic(str(args.terms), term_text(cls.name, facts.numbers(cls.name)).encode())
            print(f"written: {args.terms}")
    except ConfigError as e:
        complain(e)
        return 2
    except SimulatorError as e:
        complain(e)
        return 1
    except OSError as e:
        complain(f"cannot write {e.filename}: {e.strerror}")
        return 2
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("describe_tasks.py", Args, argv, HELP)
    if args.task is not None:
        return one_task(args)
    if args.terms is not None:
        complain("--terms: found no --task, expected --task mjlab:NAME")
        return 2
    if args.write and not DOCS.exists():
        complain(f"--write: found no {DOCS}, which only a checkout of the project has")
        return 2
    if args.write:
        before, mark, _ = DOCS.read_text(encoding="utf-8").partition(MARK)
        DOCS.write_text(f"{before}{mark}\n{sections()}", encoding="utf-8")
    else:
        print(sections())
    return 0


if __name__ == "__main__":
    interrupt.run(main)
