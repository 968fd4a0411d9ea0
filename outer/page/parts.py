"""What a page is made of: plain data, which says nothing of HTML.

A reader (``outer/page/*_page.py``, ``llm/reporting/page.py``, ``experiments/paper/page.py``) turns the folder of a run
into a ``Page``; ``write.py`` turns pages into one HTML file. Texts may come from anyone, a language model included:
they are escaped when the file is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

COMPLETE, RUNNING, STOPPED = "complete", "running", "not complete"


@dataclass(frozen=True)
class Fact:
    """One of the large figures at the top: "200.0", with its interval or its unit in small letters below."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Prose:
    """Paragraphs of plain text. mono: keep lines and columns, as of a summary for terminals."""

    text: str
    mono: bool = False
    template: ClassVar[str] = "prose"


@dataclass(frozen=True)
class Table:
    """rows: texts, or numbers, which are set flush right; None: an empty cell. Rows beyond ``MOST`` fold away."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]
    caption: str = ""
    template: ClassVar[str] = "table"
    MOST: ClassVar[int] = 25


@dataclass(frozen=True)
class Chart:
    """A figure of Plotly. data, layout: as Plotly takes them; colours may be the names of ``charts.PALETTE``, which
    follow the page into dark mode. about: what it shows, in words, for screen readers."""

    title: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    note: str = ""  # n, which interval, what was cut off
    about: str = ""
    height: int = 340
    wide: bool = False  # the whole width of the page
    template: ClassVar[str] = "chart"


@dataclass(frozen=True)
class Code:
    """A text that folds away: a configuration, a command. language: yaml, python, shell or ""."""

    title: str
    text: str
    language: str = ""
    open: bool = False
    template: ClassVar[str] = "code"


@dataclass(frozen=True)
class Film:
    """A film or a picture of the run's folder. It becomes part of the page if it is small."""

    path: Path
    caption: str
    template: ClassVar[str] = "film"


@dataclass(frozen=True)
class Lineage:
    """Candidates with their code, and who came from whom.

    nodes: one each, in the order of ids: id, name, iteration, parents, operator, island, model, state (trained,
    rejected, failed, human), stage, why, score, low, high, steps, tokens, usd. details: by id, code, reply, curves,
    tuned, notes; packed, as there may be a thousand. films: by id, of those that have one.
    """

    nodes: Sequence[Mapping[str, Any]]
    details: Mapping[str, Mapping[str, Any]]
    unit: str
    best: int | None
    films: Mapping[str, Film] = field(default_factory=dict)
    template: ClassVar[str] = "lineage"


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates. axes: name, ticks [(place in 0..1, text)]; lines: label, places in 0..1 or None, shade in
    0..1 (1 is best) or None for a failure, text. groups: names with indices of lines; one is shown at a time, at first
    the first."""

    axes: Sequence[Mapping[str, Any]]
    lines: Sequence[Mapping[str, Any]]
    groups: Sequence[tuple[str, Sequence[int]]]
    note: str = ""
    template: ClassVar[str] = "parallel"


Part = Prose | Table | Chart | Code | Film | Lineage | Parallel


@dataclass
class Section:
    title: str
    parts: list[Part]
    lead: str = ""  # a sentence below the title


@dataclass(frozen=True)
class Curve:
    """One line for the comparison of runs."""

    x: Sequence[float]
    y: Sequence[float]
    x_title: str
    y_title: str


@dataclass
class Page:
    """One run. problems: files that could not be read, and why; the rest is shown all the same."""

    folder: Path
    kind: str  # "Synthetic environment", ...
    title: str  # what it is about, in the words of the task; never the name of a folder
    verdict: str = ""
    state: str = COMPLETE
    facts: list[Fact] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)  # nested; for the differences between runs
    curve: Curve | None = None
    problems: list[str] = field(default_factory=list)

    def add(self, title: str, *parts: Part | None, lead: str = "") -> None:
        """Appends a section, unless nothing is in it."""
        there = [part for part in parts if part is not None]
        if there:
            self.sections.append(Section(title, there, lead))
