"""Searches by name, beside ``nes``: those of this folder, and those that a user registers (``outer/plugins.py``).

A built-in one is a subclass of :class:`Search` in a file of its own and a line here. Its settings are the dataclass
``section_class``, which a configuration sets in the section ``agents.<name>``. Python 3.8.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Type

from envolve.core.registry import Registry
from envolve.outer.search.cma import CMA
from envolve.outer.search.openai_es import OpenAIES
from envolve.outer.search.random_search import RandomSearch
from envolve.outer.search.search import NES_NAME, Search
from envolve.outer.search.sep_cma import SepCMA
from envolve.outer.search.snes import SNES

SEARCHES: Registry[Type[Search]] = Registry(
    "search", {"snes": SNES, "sep_cma": SepCMA, "cma": CMA, "openai_es": OpenAIES, "random": RandomSearch}
)
# keys of agents.gtn that nes alone reads; of the others only a user's own search may read them
NES_KEYS = (
    "step_size", "nes_step_size", "mirrored_sampling", "estimator", "score_transform_type", "weight_decay",
    "iterate_averaging", "common_random_numbers",
)  # fmt: skip


def section_key(name: str) -> str:
    """The key under ``agents`` of a search's settings."""
    return name.lower()


def search_sections() -> Dict[str, type]:
    """Key under ``agents`` -> the dataclass of the settings, of every search that has some."""
    return {section_key(name): cls.section_class for name, cls in SEARCHES.items() if cls.section_class is not None}


def settings_of(name: str, agents: Mapping[str, Any]) -> Any:
    """Settings of the search ``name``, from the section ``agents`` of a resolved configuration; None: it has none."""
    cls = SEARCHES.get(name)
    if name == NES_NAME or cls is None or cls.section_class is None:
        return None
    return cls.section_class(**agents.get(section_key(name), {}))


def not_read(name: str, key: str) -> str:
    """Why the built-in search ``name`` does not read this key of ``agents.gtn``, as the end of a sentence."""
    why = SEARCHES[name].nes_keys.get(key, "")
    return "only nes reads it" + (f"; {why.format(name=name)}" if why else "")


def worlds_of(name: str, section: Any) -> Tuple[int, str]:
    """Perturbed worlds per generation, and what num_workers counts."""
    nes = name == NES_NAME
    cls: Optional[Type[Search]] = SEARCHES.get(name)
    mirrored = section.mirrored_sampling if nes else cls is not None and cls.mirrored
    what = "mirrored pairs" if mirrored else "perturbations" if nes else "worlds"
    return section.num_workers * (2 if mirrored else 1), what
