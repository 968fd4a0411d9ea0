"""Which kind of run a folder holds, and the reader for it.

Readers of rooms that this one may not import (``llm``, ``experiments``) are added by
``experiments/pages.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envolve.core.files import no_links_out_of
from envolve.core.registry import nearest
from envolve.outer.page import distributed_page, goal_page, run_page, shapers_page, study_page
from envolve.outer.page.parts import Page
from envolve.outer.page.reading import Folder

MOST_LISTED = 6


class NoRunError(Exception):
    """Raised for a folder that is no run. The message says what was expected, and names runs nearby."""


@dataclass(frozen=True)
class Kind:
    command: str  # that leaves such folders
    files: str  # by which they are known
    fits: Callable[[Folder], bool]
    read: Callable[[Folder], Page]


KINDS = (
    Kind("envolve goal", "config.yaml, scores.csv", goal_page.fits, goal_page.read),
    Kind("envolve evolve-goals", "generations.csv", goal_page.fits_evolution, goal_page.read_evolution),
    Kind("envolve run, envolve evolve", "config.yaml, scores.csv", run_page.fits, run_page.read),
    Kind("envolve shape", "candidates.json", shapers_page.fits, shapers_page.read),
    Kind("envolve tune", "results.json, configs.json", study_page.fits, study_page.read),
    Kind("envolve distributed", "run.json", distributed_page.fits, distributed_page.read),
)


def kind_of(folder: Folder, kinds: Sequence[Kind]) -> Kind | None:
    return next((kind for kind in kinds if kind.fits(folder)), None)


def read_page(path: Path, kinds: Sequence[Kind]) -> Page:
    """The page of a run's folder. Raises NoRunError."""
    if not path.is_dir():
        what = "a file" if path.exists() else "no such folder"
        raise NoRunError(f"{path}: found {what}, expected the folder of a run{_near(path)}")
    try:
        with no_links_out_of(path):
            folder = Folder(path)
            kind = kind_of(folder, kinds)
            if kind is not None:
                return kind.read(folder)
        raise NoRunError(
            f"{path}: found {_content(path)}, expected the folder of a run: {_files(kinds)}{_runs_in(path, kinds)}"
        )
    except OSError as e:
        raise NoRunError(f"{path}: {e.strerror}") from None


def _files(kinds: Sequence[Kind]) -> str:
    return "; ".join(f"{kind.files} ({kind.command})" for kind in kinds)


def _content(path: Path) -> str:
    names = sorted(child.name for child in path.iterdir())
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more if names else "an empty folder"


def _runs_in(path: Path, kinds: Sequence[Kind]) -> str:
    """Runs below a folder that holds some, the newest first."""
    found = [
        p
        for p in path.iterdir()
        if p.is_dir() and os.access(p, os.R_OK | os.X_OK) and kind_of(Folder(p), kinds) is not None
    ]
    found.sort(key=lambda p: -p.stat().st_mtime)
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return f". Runs in it: {', '.join(str(p) for p in found[:MOST_LISTED])}{more}" if found else ""


def _near(path: Path) -> str:
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_dir()]
    except OSError:
        return ""
    found = nearest(path.name, beside)
    return f"; nearest: {path.parent / found}" if found else ""
