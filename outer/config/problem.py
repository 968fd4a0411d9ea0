"""Content of a resolved configuration as the dataclasses that workers use (no pydantic, Python 3.8).

A resolved configuration is the plain nested dict that ``outer/config/load.py`` makes on the master: every value checked
and every default filled in, so nothing is validated again here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from envolve.agents.common.learners import LEARNERS
from envolve.agents.common.sections import ICMSection, LearnerSection, VarySection
from envolve.core.option import option
from envolve.envs.outside.build import is_outside
from envolve.envs.section import EnvSection
from envolve.envs.shaping.section import ShapedSection
from envolve.outer.config.section import ARSSection, ExpertSection, GTNSection
from envolve.outer.names import COUNT_BASED_SUFFIX, CURIOUS_SUFFIX, VARY_SUFFIX

EXPERT, EXPERT_SUFFIX = "expert", "_expert"
ARS = "ars"  # an expert that is no learner of worlds


@dataclass(frozen=True)
class RunSection:
    """Top-level keys beside ``agents`` and ``envs``."""

    env_name: str = option("", "the task, by its name under envs")
    device: str = option("cpu", "torch device of the workers: cpu, cuda or cuda:<index>")
    # here
    seed: int = option(0, "random seed of the whole run", ge=0)


class AgentName(NamedTuple):
    """Parts of an ``agent_name``."""

    learner: str  # a key of LEARNERS, if the name is right
    curious: bool  # with the intrinsic curiosity module
    vary: bool  # every agent draws its own hyperparameters


def split_agent_name(agent_name: str) -> AgentName:
    """Parses ``DDQN_icm_vary`` -> learner ddqn, curious, vary. _icm is a suffix only for learners that support
    curiosity."""
    name = agent_name.lower()
    vary = name.endswith(VARY_SUFFIX)
    name = name[: -len(VARY_SUFFIX)] if vary else name
    base = name[: -len(CURIOUS_SUFFIX)]
    curious = name.endswith(CURIOUS_SUFFIX) and base in LEARNERS and LEARNERS[base].curious
    return AgentName(base if curious else name, curious, vary)


def learner_key(agents: Mapping[str, Any], name: str) -> str:
    """Key under ``agents`` that learner ``name`` reads: its own, or for ``ql_cb`` and ``sarsa_cb`` without an own
    section that of the plain learner, as in the original."""
    base = name[: -len(COUNT_BASED_SUFFIX)] if name.endswith(COUNT_BASED_SUFFIX) else name
    return base if name not in agents and base in agents else name


def gtn_section(data: Mapping[str, Any]) -> GTNSection:
    """The outer loop of a resolved configuration."""
    return GTNSection(**data["agents"]["gtn"])


def env_section(data: Mapping[str, Any]) -> EnvSection:
    """The section of the task ``env_name``."""
    known = {f.name for f in fields(EnvSection)}  # an environment from outside has more (outer/config/outside.py)
    return EnvSection(**{k: v for k, v in data["envs"][data["env_name"]].items() if k in known})


def shaped_section(data: Mapping[str, Any]) -> ShapedSection:
    """The section of the task ``env_name`` if it lives in a physics engine."""
    return ShapedSection(**data["envs"][data["env_name"]])


def learner(data: Mapping[str, Any]) -> Tuple[str, LearnerSection, Optional[VarySection]]:
    """Learner of the inner loop: its name without suffixes, its hyperparameters, and for a ``_vary`` agent how they are
    drawn (None otherwise). Raises KeyError if the learner does not exist."""
    return named_learner(data, data["agents"]["gtn"]["agent_name"])


def named_learner(data: Mapping[str, Any], agent_name: str) -> Tuple[str, LearnerSection, Optional[VarySection]]:
    """Same as :func:`learner` for any agent name, e.g. to train another learner in an evolved world."""
    name, _, vary = split_agent_name(agent_name)
    entry = LEARNERS.find(name)
    agents: Dict[str, Any] = data["agents"]
    section = entry.section(**agents.get(learner_key(agents, name), {}))
    return name, section, VarySection(**agents.get(name + VARY_SUFFIX, {})) if vary else None


def curiosity(data: Mapping[str, Any]) -> Optional[ICMSection]:
    """Section ``agents.icm`` if the inner loop's agent uses curiosity, else None."""
    agents: Dict[str, Any] = data["agents"]
    return ICMSection(**agents.get("icm", {})) if split_agent_name(agents["gtn"]["agent_name"]).curious else None


def executes_own_code(data: Mapping[str, Any]) -> bool:
    """Returns whether workers need the run's folder: for files of the user's own, or an environment from outside, which
    is made only where a folder that is allowed holds its description."""
    return bool(data.get("plugins")) or is_outside(data["env_name"])


def expert_section(data: Mapping[str, Any]) -> ExpertSection:
    """Section ``agents.expert`` of a configuration with ``init: distilled``."""
    return ExpertSection(**data["agents"][EXPERT])


def expert(data: Mapping[str, Any]) -> Tuple[str, Any]:
    """The learner of the first expert, and its hyperparameters on the task: a ``LearnerSection`` or ``ARSSection``."""
    name = expert_section(data).learner.split()[0]
    return name, learner_of(data, name)


def experts(data: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The configuration of each expert: their learners take turns."""
    section = data["agents"][EXPERT]
    names = section["learner"].split()
    own = [{**section, "learner": names[i % len(names)]} for i in range(section["agents"])]
    return [{**data, "agents": {**data["agents"], EXPERT: one}} for one in own]


def learner_of(data: Mapping[str, Any], name: str) -> Any:
    """Hyperparameters of this learner on the task, as an expert or as what an expert imitates."""
    section = ARSSection if name == ARS else LEARNERS[name].section
    return section(**data["agents"][name + EXPERT_SUFFIX])
