"""Sections of environments from outside: ``envs.gymnasium:LunarLander-v3``.

Beside the keys that every task has, such a section says how the environment is made (``env_kwargs``, ``wrappers``) and,
once the configuration is resolved, what it is like (``measured``). Measuring runs the environment in a process of its
own; a run that goes on reads what its configuration says.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from envolve.core import plugins
from envolve.envs.outside.build import OutsideError, canonical, file_and_class, is_outside, read_wrappers
from envolve.envs.outside.define import OUTSIDE_KEYS, register_outside
from envolve.envs.outside.measure import RAISED, UnusableError, measure
from envolve.envs.section import INFO_TYPES, EnvSection
from envolve.envs.task import make_task
from envolve.outer.config.yaml_lines import Path, show

if TYPE_CHECKING:
    from envolve.outer.config.check import Checker

MEANING = {
    "env_kwargs": "arguments of the environment, a mapping",
    "wrappers": "list of package.module:Wrapper, or of {package.module:Wrapper: {argument: value}}; "
    "without a module: of gymnasium.wrappers",
    "measured": "what the environment is like; written when the configuration is resolved",
    "sha256": "of the file that defines the environment; written when the configuration is resolved",
}
NOT_THE_SAME = "the environment is not deterministic: two episodes with one seed and the same actions differed"


def outside_section(checker: Checker, raw: dict[str, Any], path: Path, seed: int) -> dict[str, Any] | None:
    """Checked section of one environment, which is then registered as a task; None: a problem was noted."""
    name = str(path[-1])
    own = {key: raw[key] for key in OUTSIDE_KEYS if key in raw}
    own.setdefault("env_kwargs", {})
    own.setdefault("wrappers", [])
    if not isinstance(own["env_kwargs"], dict) or not all(isinstance(k, str) for k in own["env_kwargs"]):
        checker.problem((*path, "env_kwargs"), show(own["env_kwargs"]), MEANING["env_kwargs"])
        return None
    try:
        read_wrappers(own["wrappers"])
    except ValueError as e:
        checker.problem((*path, "wrappers"), str(e).partition("found ")[2].partition(",")[0], MEANING["wrappers"])
        return None
    if checker.folder is not None:
        plugins.trust(canonical(name, own))
    if not _remember_file(checker, name, own):
        return None
    if "measured" not in own:
        try:
            own["measured"] = measure(name, own, seed, _file(checker, name))
        except OutsideError as e:
            wanted = f"an environment that can be {'used' if isinstance(e, UnusableError) else 'made'}"
            checker.problem(("env_name",), str(e).partition(": ")[0], f"{wanted}: {_short(e)}")
            return None
    try:
        register_outside(name, own)
    except ValueError as e:
        checker.problem((*path, "measured"), "what does not fit", str(e))
        return None
    rest = checker.ranges({k: v for k, v in raw.items() if k not in OUTSIDE_KEYS}, path)
    out = checker.section(rest, path, EnvSection, "env")
    task = make_task(name)
    # the class has the finite stand-in for "no mark", which configurations of earlier runs hold, too
    for key, value in (("max_steps", task.max_steps), ("solved_reward", task.default_solved_reward)):
        out[key] = value if out[key] is None else out[key]
    measured = own["measured"]
    if measured["own_limit"] and out["max_steps"] > measured["max_steps"]:
        checker.warnings.append(f"{name} ends its episodes after {measured['max_steps']} steps itself")
        out["max_steps"] = measured["max_steps"]
    if not measured["own_limit"] and "max_steps" not in raw:
        checker.warnings.append(f"{name} sets no time limit; max_steps {out['max_steps']} is used")
    if not measured["deterministic"]:
        checker.warnings.append(f"{name}: {NOT_THE_SAME}, and so may two runs with one seed")
    if RAISED in measured:
        words = f"{measured[RAISED]} while it was measured; in a run each costs its member"
        checker.warnings.append(f"{name}: {words}")
    if out["info_dim"] == 0 and out["reward_env_type"] in INFO_TYPES:
        out["info_dim"] = task.info_size
    return {**out, **own}


def _short(error: Exception) -> str:
    return str(error).partition(": ")[2] or str(error)


def _remember_file(checker: Checker, name: str, own: dict[str, Any]) -> bool:
    """Notes the SHA-256 of the file that defines the environment, if one does. False: a problem was noted."""
    reference = file_and_class(name)
    if reference is None or checker.folder is None:
        return True
    words = "an environment in a file beside the configuration, gymnasium:my_env.py:MyEnv"
    if not plugins.FILE.fullmatch(reference[0]):
        checker.problem(("env_name",), name, words)
        return False
    try:
        found = plugins.remember(str(_file(checker, name)))
    except plugins.PluginError as e:
        checker.problem(("env_name",), name, f"{words}: {e}")
        return False
    if own.setdefault("sha256", found) != found:
        checker.problem(("env_name",), f"another version of {reference[0]}", "the file as it was, or a new run")
        return False
    return True


def _file(checker: Checker, name: str) -> str | None:
    """Path of the file that defines the environment."""
    reference = file_and_class(name)
    if reference is None:
        return None
    return str(FilePath(checker.folder or FilePath(), reference[0]))


def override_path(key: str) -> Path:
    """``envs.gymnasium:a.b:Env-v0.max_steps`` -> its path; an id may contain dots."""
    if key.startswith("envs.") and is_outside(key[len("envs.") :]):
        name, _, last = key[len("envs.") :].rpartition(".")
        return ("envs", name, last)
    return tuple(key.split("."))
