"""individuals.jsonl: every attempt of a run, one line of JSON each, only ever appended to.

A line is whole once its newline is written. So what a crash leaves is whole lines and at most one torn one, the last,
which is dropped when the run is resumed; anything else that cannot be read is an error with file and line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm.individual import HUMAN, Individual, IndividualError, Proposal, Search


class ArchiveError(ValueError):
    """The file is no archive, or another run's. The text names file and line."""


class Archive:
    """Reads ``path`` if it is there (``individuals``), cuts off a torn last line, and appends to it. Raises
    ArchiveError, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.individuals: list[Individual] = []
        if path.exists():
            self.individuals, whole = _read(path)
            with open(path, "r+b") as file:
                file.truncate(whole)

    def append(self, individuals: Sequence[Individual]) -> None:
        """On disk when this returns. Raises ArchiveError for an id that is there already."""
        known = {i.id for i in self.individuals}
        lines = []
        for i in individuals:
            if i.id in known:
                raise ArchiveError(f"{self.path}: individual {i.id} is there already, expected a new id")
            known.add(i.id)
            lines.append(json.dumps(i.to_json(), allow_nan=False) + "\n")
        with open(self.path, "ab") as file:
            file.write("".join(lines).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        self.individuals += individuals


def read_archive(path: Path) -> list[Individual]:
    """What is in the file, which stays as it is. Raises ArchiveError, OSError."""
    return _read(path)[0]


def replay(search: Search, individuals: Sequence[Individual]) -> tuple[int, list[Individual]]:
    """Bring a new search to where the run stood -> the iteration to go on with, and those individuals of it that exist
    already, in the order of its proposals. The search has been told the human's and those of the iterations before.

    Individuals answer the proposals of their iteration in the order of ids. Raises ArchiveError if they do not: then
    the run had other settings.
    """
    search.tell([i for i in individuals if i.operator == HUMAN])
    of: dict[int, list[Individual]] = {}
    for i in sorted((i for i in individuals if i.operator != HUMAN), key=lambda i: i.id):
        of.setdefault(i.iteration, []).append(i)
    iteration = 0
    while iteration in of:
        found, proposals = of.pop(iteration), search.ask(iteration)
        if len(found) > len(proposals):
            raise ArchiveError(f"iteration {iteration}: found {len(found)} individuals, expected {len(proposals)}")
        for i, proposal in zip(found, proposals):
            _check_answers(i, proposal)
        if len(found) < len(proposals):
            break
        search.tell(found)
        found, iteration = [], iteration + 1
    else:
        found = []
    if of:
        stray = next(iter(of.values()))[0]
        raise ArchiveError(f"individual {stray.id}: found iteration {stray.iteration}, but {iteration} is not finished")
    return iteration, found


def _check_answers(i: Individual, proposal: Proposal) -> None:
    for name in ("operator", "parents", "island", "model"):
        found, expected = getattr(i, name), getattr(proposal, name)
        if found != expected:
            raise ArchiveError(
                f"individual {i.id} of iteration {i.iteration}: found {name} {found!r}, expected {expected!r}; was the "
                "run begun with other settings?"
            )


def _read(path: Path) -> tuple[list[Individual], int]:
    """The individuals of all whole lines, and the bytes that these take."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    individuals: list[Individual] = []
    ids: dict[int, int] = {}
    for number, line in enumerate(content[:whole].split(b"\n")[:-1], 1):
        where = f"{path}:{number}"
        try:
            individual = Individual.from_json(json.loads(line.decode("utf-8"), parse_constant=_no_constant))
        except IndividualError as e:
            raise ArchiveError(f"{where}: {e}") from e
        except (ValueError, RecursionError) as e:
            raise ArchiveError(f"{where}: found no JSON, expected one individual per line ({e})") from e
        if individual.id in ids:
            raise ArchiveError(f"{where}: found id {individual.id} again, first in line {ids[individual.id]}")
        ids[individual.id] = number
        individuals.append(individual)
    return individuals, whole


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
