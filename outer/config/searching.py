"""Checks of ``agents.gtn.search`` and of what belongs to it: its settings, keys that only ``nes`` reads, sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from envolve.core.registry import nearest
from envolve.outer.config import problem
from envolve.outer.config.schema import defaults
from envolve.outer.config.section import GTNSection
from envolve.outer.config.yaml_lines import show
from envolve.outer.search.search import NES_NAME
from envolve.outer.search.searches import NES_KEYS, SEARCHES, not_read, section_key, settings_of

if TYPE_CHECKING:
    from envolve.outer.config.check import Checker

GTN = ("agents", "gtn")


def check_search(checker: Checker, raw: Any, agents: dict[str, Any]) -> None:
    """Checks the name; fills in the search's settings; sees to the keys that it does not read. raw: the section gtn as
    it was written; agents: the checked sections."""
    gtn = agents["gtn"]
    name = gtn["search"]
    known = [NES_NAME, *SEARCHES]
    if name not in known:
        words = f"{', '.join(known)}, or a class of a file of yours: my_search.py:MyES"
        checker.problem((*GTN, "search"), show(name), words, nearest(name, known))
        return
    cls = SEARCHES.get(name)
    if name != NES_NAME and cls is not None and cls.section_class is not None:
        agents.setdefault(section_key(name), defaults(cls.section_class))
    if name in SEARCHES.built_in and isinstance(raw, dict):
        _check_keys(checker, raw, gtn)


def _check_keys(checker: Checker, raw: Mapping[str, Any], gtn: dict[str, Any]) -> None:
    """Keys that ``nes`` alone reads, with another search.

    Both in one place, a file or --set, contradict each other: a problem. Where only the search is set
    on top of a file that was written for ``nes``, the file's keys are ignored with a warning. They get their defaults,
    so that the run's own configuration is plain.
    """
    name, known = gtn["search"], defaults(GTNSection)
    on_top = (*GTN, "search") in checker.overrides
    ignored = []
    for key in NES_KEYS:
        if key not in raw or gtn[key] == known[key]:
            continue
        path = (*GTN, key)
        if on_top and path not in checker.overrides:
            ignored.append(key)
        else:
            words = f"{show(known[key])}, its default, with search {name}: {not_read(name, key)}"
            checker.problem(path, show(gtn[key]), words)
        gtn[key] = known[key]
    if ignored:
        keys = ", ".join(f"agents.gtn.{key}" for key in ignored)
        checker.warnings.append(f"ignored: {keys} (only search nes reads them; search is {name})")


def check_search_size(checker: Checker, data: Mapping[str, Any], size: int) -> None:
    """Whether the search can evolve worlds of ``size`` numbers."""
    section = problem.gtn_section(data)
    if section.search in SEARCHES.built_in:
        settings = settings_of(section.search, data["agents"])
        refusal = SEARCHES[section.search].refusal(size, section, settings)
        if refusal is not None:
            checker.problem((*GTN, refusal.key), refusal.found, refusal.expected)
