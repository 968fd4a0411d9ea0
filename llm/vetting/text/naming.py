"""Guesses the intended name: of a variable by its letters, of a requested function by its purpose.

``compute_done`` is a termination, although by its letters it resembles ``compute_torque``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from envolve.envs.physics.task import PHYSICS_TASKS, SHAPER_TYPES

LONGEST = 64  # letters of a name that is compared: longer names are not compared
COMPARED = 24  # names that are compared in full, of those that share most letters
ALIKE = 0.7  # of the words of two functions' names
MEANINGS = {  # words in the names that models give to these functions
    "compute_reward": "reward rewards rew rewarding payoff fitness objective cost",
    "compute_observation": "observation observations obs observe observed features",
    "compute_torque": "torque torques effort efforts force forces actuation control controls action actions motor",
    "compute_terminal": "terminal terminals terminate terminated termination terminations done dones finished fallen "
    "ended ending failed failure alive truncated reset resets",
    "compute_initial_state": "initial initialize initialise init start starting spawn respawn pose reset resets",
    "compute_goal": "goal goals target targets command commands waypoint",
}
ARGUMENTS = {  # as functions of these kinds are asked for (envs/physics/task.py)
    "compute_torque": "action, state", "compute_goal": "state, random", "compute_initial_state": "state, random, rest",
}  # fmt: skip


def signature(kind: str) -> str:
    """Formats compute_torque(action, state)"""
    return f"{kind}({ARGUMENTS.get(kind, 'state')})"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Known name with the most letters in common, in order. Compares only likely names, to save time."""
    if len(name) > LONGEST:
        return None
    likely = [k for k in known if len(k) <= LONGEST]
    if len(likely) > COMPARED:
        own = _pieces(name)
        shared = {k: 2 * len(own & pieces) / (len(own) + len(pieces)) for k in likely if (pieces := _pieces(k))}
        likely = sorted(shared, key=lambda k: (-shared[k], k))[:COMPARED]
    near = difflib.get_close_matches(name, likely, n=1, cutoff=cutoff)
    return near[0] if near else None


@lru_cache(maxsize=4096)
def _pieces(name: str) -> frozenset[str]:
    """Letters and pairs of letters."""
    return frozenset({*name, *(name[i : i + 2] for i in range(len(name) - 1))})


def meant(name: str, arguments: int, asked: Sequence[str]) -> str | None:
    """Requested function that one with this name and number of arguments probably is; None: none of them."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:LONGEST]).lower())
    meanings = [kind for kind in SHAPER_TYPES if set(words) & set(MEANINGS[kind].split())]
    found = [kind for kind in asked if kind in meanings]
    if found:
        return min(found, key=lambda kind: abs(arguments - 1 - ARGUMENTS.get(kind, "").count(",")))
    if meanings:
        return None
    stems = {kind.removeprefix("compute_"): kind for kind in asked}
    near = nearest("_".join(w for w in words if w != "compute"), stems, ALIKE)
    return stems[near] if near else None


_BEFORE = re.compile(
    r"^(?:(?:compute|get|calculate|calc|compute_and_get|evaluate|eval|make|build|is|check|my|custom|generate|"
    r"determine|process|apply|convert|should)_)+"
)
_AFTER = re.compile(
    r"(?:_(?:fn|func|function|batch|torch|vectorized|jit|buf|buffer|v?\d+|condition|conditions|mask|flags?|signal|vector|"
    r"state|values?))+$"
)
_ADJECTIVES = "total dense shaped task overall final combined eureka new improved step episode env environment robot"
SYNONYMS = {
    "compute_reward": "reward rewards rew",
    "compute_observation": "observation observations obs",
    "compute_torque": "torque torques effort efforts action actions control actions_to_torques action_to_torque",
    "compute_terminal": "terminal terminals terminate terminated termination terminations done dones reset resets "
    "episode_done episode_over episode_end",
    "compute_initial_state": "initial_state initial_states init_state initial_pose start_state",
    "compute_goal": "goal goals target targets command commands",
}
_KINDS = {word: kind for kind, words in SYNONYMS.items() for word in words.split()}


@lru_cache(maxsize=1)
def _before_a_noun() -> frozenset[str]:
    """Words that say nothing of a function's purpose."""
    return frozenset([*_ADJECTIVES.split(), *(n.lower() for n in PHYSICS_TASKS), *ROBOTS])


@lru_cache(maxsize=4096)
def synonym(name: str) -> str | None:
    """The function that a name says beyond doubt, by a closed list: get_reward, compute_anymal_reward, is_done."""
    if len(name) > LONGEST:
        return None
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_")
    plain = _AFTER.sub("", _BEFORE.sub("", plain))
    known = _before_a_noun()
    words = plain.split("_")
    while len(words) > 1 and words[0] in known:
        words = words[1:]
    return _KINDS.get("_".join(words))


ROBOTS = "cartpole quadruped cheetah half ball balance quadrotor quad drone arm walker".split()
