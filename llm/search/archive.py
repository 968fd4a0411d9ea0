"""individuals.jsonl: every attempt of a run, one line of JSON each, only ever appended to."""

from __future__ import annotations

from pathlib import Path

from llm import json_lines
from llm.search.individual import Individual, IndividualError


class ArchiveError(ValueError):
    """A line that is no individual. The text names file, line and fault."""


class Archive:
    """The individuals of a run. An iteration that was interrupted is evaluated again as a whole and written again, so
    of several lines of one id the last counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> list[Individual]:
        """In the order of ids; none if there is no file. A torn last line does not count. Raises ArchiveError,
        OSError."""
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

    def append(self, individual: Individual) -> None:
        """On the disk when this returns. Raises OSError."""
        json_lines.append(self.path, individual.to_json())
