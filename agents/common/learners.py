"""Learners by name: their hyperparameters, the actions that they can take, and the loop that trains them. Python
3.8."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Type

from envolve.agents.common.sections import (
    DDQNSection,
    DuelingDDQNSection,
    LearnerSection,
    PPOSection,
    SACSection,
    TabularSection,
    TD3DiscreteSection,
    TD3Section,
)
from envolve.core.registry import Place, Registry
from envolve.envs.task import Task

DISCRETE, CONTINUOUS, BOTH = ACTIONS = ("discrete", "continuous", "both")


class LearnerEntry(NamedTuple):
    """What is known of a learner by its name."""

    section: Type[LearnerSection]
    actions: str = DISCRETE  # one of ACTIONS
    place: Optional[Place] = None  # its Algorithm, for agents/off_policy/training.py; None: it has a loop of its own
    curious: bool = False  # exists as <name>_icm too


def _off_policy(file: str, cls: str) -> Place:
    return Place(f"envolve.agents.off_policy.{file}", cls)


LEARNERS: Registry[LearnerEntry] = Registry(
    "learner",
    {
        "ql": LearnerEntry(TabularSection),
        "ql_cb": LearnerEntry(TabularSection),
        "sarsa": LearnerEntry(TabularSection),
        "sarsa_cb": LearnerEntry(TabularSection),
        "ddqn": LearnerEntry(DDQNSection, DISCRETE, _off_policy("ddqn", "DDQN"), curious=True),
        "duelingddqn": LearnerEntry(
            DuelingDDQNSection, DISCRETE, _off_policy("dueling_ddqn", "DuelingDDQN"), curious=True
        ),
        "td3": LearnerEntry(TD3Section, CONTINUOUS, _off_policy("td3", "TD3"), curious=True),
        "td3_discrete": LearnerEntry(TD3DiscreteSection, DISCRETE, _off_policy("td3_discrete", "TD3Discrete")),
        "sac": LearnerEntry(SACSection, CONTINUOUS, _off_policy("sac", "SAC")),
        "ppo": LearnerEntry(PPOSection, BOTH, curious=True),
    },
    error=KeyError,
)


def is_off_policy(name: str) -> bool:
    """Whether there is a learner of this name that ``agents/off_policy/training.py`` trains."""
    return name in LEARNERS and LEARNERS[name].place is not None


def off_policy_learners() -> List[str]:
    return [name for name in LEARNERS if is_off_policy(name)]


def has_networks(name: str) -> bool:
    """Whether there is a learner of this name that keeps its policy in networks, not in a table."""
    return name in LEARNERS and not issubclass(LEARNERS[name].section, TabularSection)


def curious_learners() -> List[str]:
    """Learners that exist as <learner>_icm too."""
    return [name for name, entry in LEARNERS.items() if entry.curious]


def learners_for(task: Task) -> List[str]:
    """The learners that can learn ``task``: by its kind of actions, and tables for a finite set of states only."""
    actions = CONTINUOUS if task.action_size else DISCRETE
    finite = task.num_states is not None
    return [
        name
        for name, entry in LEARNERS.items()
        if entry.actions in (actions, BOTH) and (finite or not issubclass(entry.section, TabularSection))
    ]


def kind_of(task: Task) -> str:
    """Describes in words which learners fit the task."""
    states = "no finite set of states" if task.num_states is None else f"{task.num_states} states"
    return f"{'continuous' if task.action_size else 'discrete'} actions and {states}"


def check_learner(task: Task, name: str) -> None:
    """Raises ValueError if learner ``name`` cannot learn ``task``."""
    fitting = learners_for(task)
    if name not in fitting:
        raise ValueError(f"{name} cannot learn {task.name}, which has {kind_of(task)}: train {', '.join(fitting)}")
