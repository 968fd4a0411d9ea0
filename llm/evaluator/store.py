"""What an evaluator was asked and what it found, on disk: killed and started again, it evaluates nothing twice.

requests.jsonl has a line for every candidate that was accepted for evaluation, before its sender hears of it;
results.jsonl one for every candidate that is done. A candidate's id is a hash of its text and of the settings.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envolve.core.files import TABLE_BYTES, read_text
from envolve.envs.worlds.file import write_atomic
from envolve.llm import json_lines

SETTINGS, REQUESTS, RESULTS = "settings.json", "requests.jsonl", "results.jsonl"


class StoreError(ValueError):
    """Raised if a folder belongs to an evaluator with other settings, or cannot be read."""


class Store:
    """Folder of one evaluator. Its methods may be called from several threads."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        """Raises StoreError, JSONLinesError, OSError."""
        self.folder, self.settings = folder, settings
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(settings, indent=1, sort_keys=True)
        path = folder / SETTINGS
        if path.exists():
            self._check(path, settings)
        else:
            write_atomic(str(path), text.encode())
        self._lock = threading.Lock()
        self.results = {str(line["id"]): line for line in _lines(folder / RESULTS, "id")}
        self.waiting = {
            str(line["id"]): str(line["code"])
            for line in _lines(folder / REQUESTS, "id", "code")
            if line["id"] not in self.results
        }

    @staticmethod
    def _check(path: Path, settings: dict[str, Any]) -> None:
        try:
            found = json.loads(read_text(path, TABLE_BYTES))
        except ValueError as e:
            raise StoreError(f"{path}: {e}; expected the settings of an evaluator") from None
        for key, value in settings.items():
            if not isinstance(found, dict) or found.get(key) != value:
                was = found.get(key) if isinstance(found, dict) else found
                raise StoreError(f"{path}, key {key!r}: found {was!r}, expected {value!r}; choose another --folder")

    def number(self, code: str) -> str:
        """The candidate's id."""
        return hashlib.sha256(json.dumps([self.settings, code], sort_keys=True).encode()).hexdigest()[:16]

    def known(self, number: str) -> dict[str, Any] | None:
        """Result of a candidate, or None."""
        with self._lock:
            return self.results.get(number)

    def ask(self, code: str, most: int) -> tuple[str, bool]:
        """Its id, and whether there was room for it: for what is known or waits there always is. Raises OSError."""
        number = self.number(code)
        with self._lock:
            if number in self.results or number in self.waiting:
                return number, True
            if len(self.waiting) >= most:
                return number, False
            json_lines.append(self.folder / REQUESTS, {"id": number, "code": code})
            self.waiting[number] = code
        return number, True

    def next(self, most: int) -> dict[str, str]:
        """Candidates that wait, the first ones."""
        with self._lock:
            return dict(list(self.waiting.items())[:most])

    def done(self, result: dict[str, Any]) -> None:
        """Stores a result, which is on disk on return. Raises OSError."""
        with self._lock:
            json_lines.append(self.folder / RESULTS, result)
            self.results[result["id"]] = result
            self.waiting.pop(result["id"], None)


def _lines(path: Path, *keys: str) -> Iterator[dict[str, Any]]:
    """Lines that have all keys. Raises StoreError, JSONLinesError, OSError."""
    for number, line in json_lines.read(path):
        missing = [key for key in keys if key not in line]
        if missing:
            found = ", ".join(line) or "no key"
            raise StoreError(f"{path}, line {number}: found {found}, expected {' and '.join(keys)}; remove the line")
        yield line
