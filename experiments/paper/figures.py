#!/usr/bin/env python3
"""Draws the figures of the paper's experiments from the data that their commands wrote. One figure per file in
experiments/paper/pictures/."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("figures.py")  # before all that takes time to import

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any

import tyro

from envolve.core import commands, listener
from envolve.core.child import end_process, ends_with_parent
from envolve.core.places import CODE, IMPORTS
from envolve.core.registry import nearest
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.data import DataError
from envolve.experiments.paper.common.drawing import Drawing, Need, save_drawing
from envolve.outer.config.yaml_lines import ConfigError

HERE = CODE / "experiments" / "paper"
NAMES = tuple(sorted(p.stem for p in (HERE / "pictures").glob("[a-z]*.py")))
STOP_SECONDS = 3.2  # from SIGTERM to SIGKILL, for a command that makes data


def modules() -> dict[str, Any]:
    return {name: import_module(f"envolve.experiments.paper.pictures.{name}") for name in NAMES}


def listing() -> str:
    width = max(map(len, NAMES))
    return "\n".join(f"  {name:{width}}  {module.TITLE}" for name, module in modules().items())


HELP = """\
Draw the figures of the paper's experiments from the data in --results-dir. Each figure is written as PNG and SVG, with
its caption as a text file.

  envolve paper figures score_transforms
  envolve paper figures compare --only Cliff --quick    first generate missing data, in about a minute each
  envolve paper figures all                             draw every figure that has data

Captions state interquartile means, 95 % intervals, and the numbers of runs and agents, including failures. If a figure
has no data, the command that generates them is printed. Figures from a quick look (--quick) are marked "quick".

{figures}

Exit codes: 0 drawn (all: at least one), 1 data are missing or damaged, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""


@dataclass
class Args:
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of the figures, or all."""
    show: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(name="list")] = False
    """List the figures and the commands that generate their data, and exit."""
    only: Annotated[list[str], tyro.conf.arg(metavar="VARIANT ...")] = field(default_factory=list)
    """Variants to draw, e.g. Cliff, for figures that exist for several tasks."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """First generate missing data, with the --quick of their commands."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Folder with the data. The figures are written to its folder paper/figures/."""


def complain(text: object) -> None:
    print(f"{commands.called('figures.py')}: {text}", file=sys.stderr)


def command_of(need: Need, args: Args) -> list[str]:
    """The command for this need as a user types it, in the repository's folder or anywhere."""
    where = [] if args.results_dir == Path("results") else ["--results-dir", str(args.results_dir)]
    return [*typed(need), *where]


def typed(need: Need) -> list[str]:
    """Its command through the door that was used: envolve paper transfer, or the file."""
    return [*commands.typed(Path(need.command[0]).name), *need.command[1:]]


def run(words: list[str]) -> int:
    """Runs a command with this process's output, and that ends with us -> its exit code."""
    quiet = {**os.environ, listener.QUIET: "1"}  # how to go on is for us to say
    child = subprocess.Popen(words, cwd=IMPORTS, env=quiet, start_new_session=True, preexec_fn=ends_with_parent())
    try:
        return child.wait()
    finally:
        end_process(child, STOP_SECONDS)


def found(name: str, variant: str, needs: Sequence[Need], args: Args) -> list[Any]:
    """Available data; with --quick, missing data are made first. Raises DataError for a damaged file."""
    out = []
    for need in needs:
        data = need.read(args.results_dir)
        if data is None and args.quick:
            words = [*command_of(need, args), "--quick"]
            print(f"{title(name, variant)}: {shlex.join(words)}", file=sys.stderr)
            script, *own = need.command
            own += ["--results-dir", str(args.results_dir.resolve()), "--quick"]
            code = run([sys.executable, str(HERE / script), *own])
            if code in (130, 143):
                raise KeyboardInterrupt
            if code:
                raise DataError(f"{shlex.join(words)}: exit code {code}, expected 0")
            data = need.read(args.results_dir)
        if data is None:
            complain(f"{title(name, variant)}: found no data, expected those of: {shlex.join(command_of(need, args))}")
        else:
            out.append(data)
    return out


def title(name: str, variant: str) -> str:
    return f"{name}_{variant}" if variant else name


def draw(name: str, variant: str, module: Any, args: Args) -> bool:
    """Draws a figure -> whether there were data. Raises DataError, OSError."""
    needs = module.NEEDS[variant]
    data = found(name, variant, needs, args)
    if needs and not data:
        return False
    try:
        drawing: Drawing = module.draw(variant, data)
    except KeyError as e:
        raise DataError(f"{title(name, variant)}: found no quantity {e} in its data, expected it") from e
    quick = any(getattr(d, "quick", False) for d in data)
    paths = save_drawing(drawing, args.results_dir / "paper" / "figures" / title(name, variant), quick)
    print(paths[0])
    return True


def chosen(args: Args) -> list[tuple[str, str, Any]]:
    """(name, variant, module) of all that is asked for. Raises ConfigError."""
    known = modules()
    if not args.names:
        raise ConfigError(["NAME: found none, expected figures (see --list) or all"])
    for name in args.names:
        if name != "all" and name not in known:
            raise ConfigError([f"NAME: found {name!r}, expected a figure or all; nearest: {nearest(name, NAMES)!r}"])
    names = NAMES if "all" in args.names else args.names
    variants = {v for name in names for v in known[name].NEEDS}
    for v in args.only:
        if v not in variants:
            expected = f"one of {', '.join(sorted(variants - {''})) or 'none'}"
            raise ConfigError([f"--only: found {v!r}, expected {expected} for {', '.join(args.names)}"])
    out = [(n, v, known[n]) for n in names for v in known[n].NEEDS if not args.only or v in args.only or not v]
    return list({(n, v): (n, v, m) for n, v, m in out}.values())


def show_list() -> None:
    for name, module in modules().items():
        print(f"{name}: {module.TITLE}")
        for variant, needs in module.NEEDS.items():
            for need in needs:
                print(f"    {f'{variant:32} ' * bool(variant)}{shlex.join(typed(need))}")


def work(args: Args) -> int:
    if args.show:
        show_list()
        return 0
    figures = chosen(args)
    drawn, damaged = 0, 0
    for name, variant, module in figures:
        try:
            drawn += draw(name, variant, module, args)
        except DataError as e:
            complain(e)
            damaged += 1
    if len(figures) > 1:
        print(f"{drawn} of {len(figures)} pictures drawn")
    return 0 if drawn and not damaged and (drawn == len(figures) or "all" in args.names) else 1


def main(argv: list[str] | None = None) -> int:
    text = HELP.format(figures=listing())
    args = parse("figures.py", Args, argv, text)
    try:
        return work(args)
    except ConfigError as e:
        complain(e)
        return 2
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("figures.py"), interrupt.GO_ON)
    except OSError as e:
        complain(f"{e.filename}: {e.strerror}")
        return 1


if __name__ == "__main__":
    interrupt.run(main)
