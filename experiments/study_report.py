#!/usr/bin/env python3
"""Shows a run, of whatever kind, as one HTML file; of a study also as text, pictures and its best configuration."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("study_report.py")  # before all that takes time to import

import logging
from dataclasses import dataclass
from typing import Annotated, List, Optional, Tuple

import tyro

from envolve.core import commands
from envolve.experiments.command_line import in_words, parse
from envolve.outer.config.yaml_lines import ConfigError

HELP = """\
Show a run as one HTML file, report.html. It contains the result with intervals and costs, learning curves, the
population, the contents of the world, the history of generated code, the configuration and the commands. The file needs
no network and no server.

  envolve report results/RUN --open              make the page and open it in the browser
  envolve report results/RUN_A results/RUN_B     compare runs side by side, with the differences of their configurations
  envolve report results/RUN --watch             serve a live page on this machine while the run goes on
  envolve report results/RUN --film              first film agents in the run's world, if there is no film yet
  envolve report results/STUDY --text            only the text report of a hyperparameter search

FOLDER can be a run of run, evolve, shape, write, tune, goal, evolve-goals, distributed or paper. The run may be
complete, stopped or still going on. Damaged files are left out, and the page names them.

For a hyperparameter search (envolve tune), the command also prints and rewrites summary.txt, and rewrites best.yaml
(the complete best configuration), importance.json, and the pictures parallel_coordinates.png, budget_loss.png and
importance.png. It reads results.json and configs.json (hpbandster's format) and study.yaml. Without study.yaml,
best.yaml is not written, and the axes cover only the values tried.

Exit codes: 0 written, 1 no trial of the search has succeeded yet, 2 wrong arguments or files that cannot be
read or written, 130 Ctrl-C, 143 SIGTERM."""

PAGE = "report.html"


@dataclass
class Args:
    """Arguments of study_report.py."""

    folder: Annotated[Tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER ...")]
    """Folders of one or more runs."""
    out: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Folder for the report, created if it does not exist. Default: the folder of the run; for several runs, the
    current folder."""
    open: tyro.conf.FlagCreatePairsOff[bool] = False
    """Open the page in the browser."""
    watch: tyro.conf.FlagCreatePairsOff[bool] = False
    """Serve the page on 127.0.0.1 and refresh it while the run goes on. Ctrl-C stops the server."""
    port: int = 0
    """Port of --watch; 0: any free port."""
    film: tyro.conf.FlagCreatePairsOff[bool] = False
    """First film agents in the world of each run that has a world but no film (envolve film writes world.gif; up to a
    few minutes per run)."""
    text: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write no page, only the text report of a hyperparameter search."""


def complain(text: object) -> None:
    print(f"{commands.called('study_report.py')}: {text}", file=sys.stderr)


def report(args: Args) -> int:
    """-> exit code. Raises ConfigError, OSError, NoRunError."""
    if not args.folder:
        raise ConfigError(["FOLDER: found nothing, expected the folder of a run"])
    for option, given in (("--watch", args.watch), ("--film", args.film)):
        if given and args.text:
            raise ConfigError([f"{option}: found with --text, expected one of the two"])
    if not 0 <= args.port < 65536:
        raise ConfigError([f"--port: found {args.port}, expected 0 to 65535"])
    if args.text:
        return max(study_text(folder, out) for folder, out in zip(args.folder, places(args)))
    if args.film:
        for folder in args.folder:
            film_of(folder)
    from envolve.experiments.pages import KINDS
    from envolve.outer.page.watch import Pages, serve

    pages = Pages(args.folder, KINDS)
    content = pages.html()  # first: a wrong folder is found before anything is written
    if args.watch:
        return serve(pages, args.port, open_browser=args.open)
    folder = args.out if args.out is not None else args.folder[0] if len(args.folder) == 1 else Path()
    path = write_page(folder, content)
    codes = [study_text(folder, out) for folder, out in zip(args.folder, places(args)) if is_study(folder)]
    for problem in pages.problems:
        print(f"note: {problem}", file=sys.stderr)
    print(f"Page: {path} ({len(content.encode()) / 1e6:.1f} MB)")
    if args.open:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            print(f"No browser was found; open {path.resolve().as_uri()}")
    return max(codes, default=0)


def places(args: Args) -> List[Optional[Path]]:
    """Where the text report of each folder goes: of several, each has a folder of its own in --out."""
    if args.out is None or len(args.folder) == 1:
        return [args.out] * len(args.folder)
    names = [folder.resolve().name for folder in args.folder]
    twice = len(set(names)) < len(names)
    return [args.out / (f"{number}_{name}" if twice else name) for number, name in enumerate(names, 1)]


def film_of(folder: Path) -> None:
    """Films the folder's world if it has one and no film yet. A world that cannot be filmed costs a message."""
    if not (folder / "model.pt").is_file() or any(folder.glob("*.gif")) or any(folder.glob("*.mp4")):
        return
    from envolve.experiments import film_world

    try:
        film_world.film(film_world.Args(folder))
    except (ConfigError, *film_world.FAILURES) as e:
        complain(f"note: no film of {folder}: {e}")


def write_page(folder: Path, content: str) -> Path:
    """Raises OSError."""
    from envolve.envs.worlds.file import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(str(folder / PAGE), content.encode())
    return folder / PAGE


def is_study(folder: Path) -> bool:
    return (folder / "results.json").is_file() and any((folder / n).is_file() for n in ("configs.json", "study.yaml"))


def study_text(folder: Path, to: Optional[Path]) -> int:
    """Rewrites and prints the text report of a study -> exit code. Raises ConfigError, OSError."""
    from envolve.outer.hpo.report import write_report
    from envolve.outer.hpo.trial_log import TrialLog

    if not (folder / "results.json").exists():
        near = "" if folder.exists() else commands.near_file(str(folder))
        raise ConfigError([f"{folder / 'results.json'}: found no such file, expected the folder of a study{near}"])
    study = None
    if (folder / "study.yaml").exists():
        from envolve.outer.hpo.study import read_study  # needs ConfigSpace, which hpbandster's folders can do without

        study = read_study(folder / "study.yaml")
    records = TrialLog(folder).read(repair=False)  # a torn line may be one that is just being written
    out = to if to is not None else folder
    out.mkdir(parents=True, exist_ok=True)
    print(write_report(out, study, records, run_dir=folder))
    return 0 if any(r.result.loss < float("inf") for r in records) else 1


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("study_report.py", Args, argv, HELP)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    from envolve.outer.page.kinds import NoRunError

    try:
        return report(args)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("study_report.py"))
    except (ConfigError, NoRunError, ImportError) as e:
        complain(e)
    except OSError as e:
        complain(in_words(e))
    return 2


if __name__ == "__main__":
    interrupt.run(main)
