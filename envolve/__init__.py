"""Envolve: evolve the environment, not the agent.

>>> import envolve
>>> result = envolve.evolve("default_config_cartpole_syn_env.yaml", workers=2)
>>> env = envolve.load_world(result.world)
>>> figures = envolve.evaluate(result.world, agent="ddqn", agents=20)

Nothing is loaded before it is used: ``import envolve`` takes no time. Python 3.8, since workers import it too; what is
behind these names needs 3.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List

__version__ = "0.2.0"

_NAMES: Dict[str, str] = {
    "evolve": "envolve.api",
    "Result": "envolve.api",
    "load_world": "envolve.api",
    "evaluate": "envolve.api_evaluate",
    "Evaluation": "envolve.api_evaluate",
    "Figures": "envolve.api_evaluate",
    "rank": "envolve.api_rank",
    "Rank": "envolve.api_rank",
    "register_task": "envolve.api",
    "register_learner": "envolve.api",
    "register_search": "envolve.api",
    "Task": "envolve.envs.task",
    "Search": "envolve.outer.search.search",
    "Algorithm": "envolve.agents.off_policy.algorithm",
    "LearnerSection": "envolve.agents.common.sections",
    "option": "envolve.core.option",
    "ConfigError": "envolve.outer.config.yaml_lines",
    "RunError": "envolve.outer.checkpoint",
    "PluginError": "envolve.core.plugins",
    "WorldFileError": "envolve.envs.worlds.file",
}

__all__ = [
    "Algorithm",
    "ConfigError",
    "Evaluation",
    "Figures",
    "LearnerSection",
    "PluginError",
    "Rank",
    "Result",
    "RunError",
    "Search",
    "Task",
    "WorldFileError",
    "__version__",
    "evaluate",
    "evolve",
    "load_world",
    "option",
    "rank",
    "register_learner",
    "register_search",
    "register_task",
]

if TYPE_CHECKING:
    from envolve.agents.common.sections import LearnerSection
    from envolve.agents.off_policy.algorithm import Algorithm
    from envolve.api import Result, evolve, load_world, register_learner, register_search, register_task
    from envolve.api_evaluate import Evaluation, Figures, evaluate
    from envolve.api_rank import Rank, rank
    from envolve.core.option import option
    from envolve.core.plugins import PluginError
    from envolve.envs.task import Task
    from envolve.envs.worlds.file import WorldFileError
    from envolve.outer.checkpoint import RunError
    from envolve.outer.config.yaml_lines import ConfigError
    from envolve.outer.search.search import Search


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'envolve' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
