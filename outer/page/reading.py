"""Reads the folder of a run that may be damaged, half-written or of another version.

What cannot be read is a line in ``problems``; the rest of the page is made all the same. Files are opened through
``core/files.py``: bounded, plain, never executed.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from envolve.core.cleaning import one_line, printable
from envolve.core.files import TABLE_BYTES, TEXT_BYTES, leads_out, read_plain
from envolve.outer.page.parts import COMPLETE, RUNNING, STOPPED, Code, Film

T = TypeVar("T")
CAPTIONS = {  # films that this project makes
    "world": "Agents in the evolved world, and the same agents on the task. Of a reward network: with its reward and "
    "with the task's",
    "best": "The best candidate's best agent",
    "compare": "The best candidate, the human's, the worst that ran, and what failed: one row for each random seed",
    "eval": "The best reward's policy in new episodes",
}
FILMS = (".webp", ".gif", ".mp4")
STILL = 120.0  # seconds without a new byte in a folder, after which a run is taken for stopped
LONGEST_LINE = 300  # characters of a problem


class Folder:
    """One run's folder. problems: what could not be read, each with the file and the reason."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def attempt(self, what: str, work: Callable[[], T]) -> T | None:
        """work(), or None and a problem. Whatever is in a file, the page is made: any exception counts."""
        try:
            return work()
        except Exception as e:
            said = e.strerror if isinstance(e, OSError) and e.strerror else str(e) or type(e).__name__
            known = isinstance(e, (OSError, ValueError)) or type(e).__module__.startswith("envolve.")
            reason = str(said) if known else f"{type(e).__name__}: {said}"
            reason = reason.removeprefix(f"{self.path / what}").lstrip(": ,")
            self.problem(f"{what}: {reason}")
            return None

    def problem(self, text: str) -> None:
        """Says on the page what is not shown, and why."""
        self.problems.append(one_line(text, LONGEST_LINE))

    def text(self, name: str) -> str:
        """Printable text of a file; "" if there is none or it cannot be read."""
        if not self.has(name):
            return ""
        data = self.attempt(name, lambda: read_plain(self.path / name, TEXT_BYTES))
        return printable((data or b"").decode("utf-8", "replace"))

    def json(self, name: str) -> Any:
        """Content of a JSON file; None if there is none or it cannot be read."""
        if not self.has(name):
            return None
        return self.attempt(name, lambda: json.loads(read_plain(self.path / name, TABLE_BYTES)))

    def keys_of(self, name: str, **kinds: type) -> dict[str, Any]:
        """Content of a JSON file with keys; empty if there is none. kinds: what the values of keys must be; others, and
        whole files of another kind, are problems and left out."""
        found = self.json(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.problem(f"{name}: found {type(found).__name__}, expected keys and values")
            return {}
        for key, kind in kinds.items():
            if found.get(key) is not None and not isinstance(found[key], kind):
                self.problem(f"{name}: {key}: found {type(found[key]).__name__}, expected {kind.__name__}")
        return {k: v for k, v in found.items() if k not in kinds or isinstance(v, kinds[k])}

    def rows(self, name: str, columns: Sequence[str] = ()) -> list[dict[str, str]]:
        """Rows of a CSV file. A torn last line, of a run that is writing it, is left out. columns: what the page shows;
        a file without some of them, as of an older version, is a problem."""
        if not self.has(name):
            return []

        def read() -> list[dict[str, str]]:
            text = read_plain(self.path / name, TABLE_BYTES).decode("utf-8", "replace")
            table = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
            rows = list(table)
            whole = [row for row in rows if None not in row and None not in row.values()]
            missing = [c for c in columns if c not in (table.fieldnames or ())]
            if missing and text:
                self.problem(f"{name}: found no column {', '.join(missing)}; a run of another version, or damage")
            if len(whole) < len(rows):
                self.problem(f"{name}: {len(rows) - len(whole):,} of {len(rows):,} rows have another number of columns")
            return whole

        return self.attempt(name, read) or []

    def yaml(self, name: str) -> dict[str, Any]:
        """Content of a YAML file; empty if there is none or it cannot be read."""
        if not self.has(name):
            return {}
        found = self.attempt(
            name,
            lambda: yaml.load(
                read_plain(self.path / name, TEXT_BYTES),
                yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader,
            ),
        )
        if found is not None and not isinstance(found, dict):
            self.problems.append(f"{name}: found {type(found).__name__}, expected keys and values")
        return found if isinstance(found, dict) else {}

    def films(self, captions: dict[str, str] | None = None, below: str = "") -> list[Film]:
        """Films in the folder, with what they show. below: of this folder in it, if it is there."""
        if below and not (self.path / below).is_dir():
            return []
        if leads_out(self.path / below, self.path):
            self.problem(f"{below}: found a link that leads out of the folder")
            return []
        found = sorted(p for p in (self.path / below).iterdir() if p.suffix in FILMS and p.is_file())
        known = {**CAPTIONS, **(captions or {})}
        return [Film(p, f"{known[p.stem]} ({p.name})" if p.stem in known else p.name) for p in found]

    def state(self, end: str) -> str:
        """Whether the run is complete (the file ``end`` is there), writes to its folder, or has stopped."""
        if self.has(end):
            return COMPLETE
        return RUNNING if time.time() - self.changed() < STILL else STOPPED

    def changed(self) -> float:
        """When something was written last, in seconds since the epoch; only the folder itself and what is in it."""
        times = [self.path.stat().st_mtime]
        for child in self.path.iterdir():
            try:
                times.append(child.stat().st_mtime)
            except OSError:  # a file of a moment
                continue
        return max(times)


def header(text: str) -> dict[str, str]:
    """The comments ``# name: value`` at the top of a config.yaml."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"#\s*([\w .()-]+?):\s+(.*)", line)
        if not line.startswith("#"):
            break
        if match:
            found[match[1]] = match[2]
    return found


def shell(command: str, title: str = "Command") -> Code:
    return Code(title, command, "shell", open=True)
