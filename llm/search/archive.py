"""individuals.jsonl: every attempt of a run, one line of JSON each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envolve.core.files import TABLE_BYTES, read_plain
from envolve.envs.worlds.file import write_atomic
from envolve.llm import json_lines
from envolve.llm.search.individual import Individual, IndividualError


class ArchiveError(ValueError):
    """Raised for a line that is not an individual. The text names file, line and fault."""


class Archive:
    """The individuals of a run. Lines are added at the end; those of an iteration that is evaluated again, because it
    was interrupted or because calls were answered that had failed, take the place of what it came to before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> list[Individual]:
        """Individuals in the order of ids; none without a file. An incomplete last line does not count. Raises
        ArchiveError, OSError."""
        found: dict[int, Individual] = {}
        try:
            for number, content in json_lines.read(self.path):
                try:
                    individual = Individual.from_json(content)
                except IndividualError as e:
                    raise ArchiveError(f"{self.path}, line {number}: {e}") from None
                found[individual.id] = individual
        except json_lines.JSONLinesError as e:
            raise ArchiveError(str(e)) from None
        return [found[i] for i in sorted(found)]

    def put(self, individuals: Sequence[Individual]) -> None:
        """Adds individuals, which are on disk on return, and replaces earlier ones with these ids. Raises ArchiveError,
        OSError."""
        new = {i.id for i in individuals}
        try:
            old = [content.get("id") in new for _, content in json_lines.read(self.path)]
        except json_lines.JSONLinesError as e:
            raise ArchiveError(str(e)) from None
        if any(old):
            lines = read_plain(self.path, TABLE_BYTES).split(b"\n")[:-1]
            kept = [line + b"\n" for line, stale in zip(lines, old) if not stale]
            # at once: between the two a kill would lose what was trained
            write_atomic(str(self.path), b"".join([*kept, *(json_lines.line(i.to_json()) for i in individuals)]))
        else:
            json_lines.append(self.path, *(i.to_json() for i in individuals))
