"""Sections that a configuration may have, by their keys. Python 3.8, without pydantic."""

from __future__ import annotations

from typing import Dict, Tuple

from envolve.agents.common.learners import LEARNERS, has_networks
from envolve.agents.common.sections import ICMSection, VarySection
from envolve.envs.physics.task import PHYSICS_TASKS
from envolve.envs.section import EnvSection
from envolve.envs.shaping.section import ShapedSection
from envolve.envs.task import TASKS
from envolve.outer.config.problem import ARS, EXPERT, EXPERT_SUFFIX, VARY_SUFFIX
from envolve.outer.config.section import ARSSection, ExpertSection, GTNSection
from envolve.outer.search.searches import search_sections


def agent_sections() -> Dict[str, Tuple[type, str]]:
    """Key under ``agents`` -> (its dataclass, its kind in LEGACY_KEYS)."""
    out: Dict[str, Tuple[type, str]] = {"gtn": (GTNSection, "gtn"), "icm": (ICMSection, "icm")}
    for name, entry in LEARNERS.items():
        out[name] = (entry.section, "learner")
        out[name + VARY_SUFFIX] = (VarySection, "vary")
        if has_networks(name):
            out[name + EXPERT_SUFFIX] = (entry.section, "learner")
    out[EXPERT] = (ExpertSection, "expert")
    out[ARS + EXPERT_SUFFIX] = (ARSSection, "expert")
    out.update({key: (section, "search") for key, section in search_sections().items()})
    return out


def env_sections() -> Dict[str, type]:
    """Name of a task -> the dataclass of its section."""
    return {**dict.fromkeys(TASKS, EnvSection), **dict.fromkeys(PHYSICS_TASKS, ShapedSection)}
