"""Makes an environment from outside: a Gymnasium id, or a class in a file of the user's own, and its wrappers.

What a configuration from elsewhere names is made only if Gymnasium itself brings it, or if a folder that is allowed
here (``core/plugins.py``) holds the very same description. Otherwise a file from a stranger could import any installed
package. Neither torch nor Gymnasium is imported before it is needed.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import json
from importlib.util import find_spec
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from envolve.core import plugins
from envolve.core.plugins import class_of
from envolve.core.registry import nearest

PREFIX = "gymnasium:"
DESCRIPTION_FILE = "environment.json"  # in the folder of a run: what its workers may make
OWN = "gymnasium"  # the package whose environments and wrappers everybody may make
# What pip calls packages of known environments. No other name becomes advice: a module of the user's own may have the
# name of a stranger's package.
PACKAGES = {
    "ale_py": "gymnasium[atari]",
    "Box2D": "gymnasium[box2d]",
    "cv2": "gymnasium[other]",
    "gymnasium_robotics": "gymnasium-robotics",
    "highway_env": "highway-env",
    "minigrid": "minigrid",
    "moviepy": "gymnasium[other]",
    "mujoco": "gymnasium[mujoco]",
    "pygame": "gymnasium[classic-control]",
}


class OutsideError(Exception):
    """An environment that cannot be made or used. One sentence that says what to do."""


def is_outside(name: Any) -> bool:
    """Returns whether a configuration's ``env_name`` is an environment from outside."""
    return isinstance(name, str) and name.startswith(PREFIX)


def file_and_class(name: str) -> Optional[Tuple[str, str]]:
    """``gymnasium:my_env.py:MyEnv`` -> its file and its class; None: it is an id of Gymnasium's registry."""
    return plugins.split(name[len(PREFIX) :])


def read_wrappers(value: Any) -> List[Tuple[str, Dict[str, Any]]]:
    """``[FlattenObservation, {minigrid.wrappers:ViewSizeWrapper: {agent_view_size: 5}}]`` -> (module:class, its
    arguments). A class without a module is one of gymnasium.wrappers. Raises ValueError."""
    if not isinstance(value, list) or len(value) > 32:
        raise ValueError(f"found {str(value):.80}, expected a list of wrappers")
    out = []
    for item in value:
        if isinstance(item, str):
            item = {item: {}}
        if not isinstance(item, dict) or len(item) != 1 or not isinstance(next(iter(item.values())) or {}, dict):
            raise ValueError(f"found {str(item):.80}, expected package.module:Wrapper, or that with its arguments")
        ((text, arguments),) = item.items()
        module, _, cls = str(text).rpartition(":")
        if not cls.isidentifier() or not all(part.isidentifier() for part in (module or OWN).split(".")):
            raise ValueError(f"found {text!r:.80}, expected package.module:Wrapper")
        out.append((f"{module or OWN + '.wrappers'}:{cls}", dict(arguments or {})))
    return out


# ------------------------------------------------------------------------------------------------------ what is allowed


def needs_permission(name: str, wrappers: Any) -> bool:
    """Returns whether making this environment imports more than Gymnasium itself."""
    modules = [text.partition(":")[0] for text, _ in read_wrappers(wrappers)]
    return ":" in name[len(PREFIX) :] or any(module.partition(".")[0] != OWN for module in modules)


def canonical(name: str, section: Mapping[str, Any]) -> bytes:
    """What a folder must hold for its environment to be made here."""
    what = {"env_name": name, "env_kwargs": section.get("env_kwargs", {}), "wrappers": section.get("wrappers", [])}
    return json.dumps(what, sort_keys=True).encode()


def check_permission(name: str, section: Mapping[str, Any]) -> None:
    """Raises OutsideError if this process may not make the environment."""
    if needs_permission(name, section.get("wrappers", [])) and not plugins.holds(
        DESCRIPTION_FILE, canonical(name, section)
    ):
        raise OutsideError(
            f"{name}: its package is imported only where its run is allowed; add --plugins DIR to the command, DIR "
            "being the folder of the run or that of the runs (in a script: code_from=DIR)"
        )


def check_configured(config: Mapping[str, Any]) -> None:
    """``check_permission`` of the task of a checked configuration, where it is an environment from outside."""
    name = config["env_name"]
    if is_outside(name):
        check_permission(name, config["envs"][name])


# --------------------------------------------------------------------------------------------------------------- making


def maker(name: str, section: Mapping[str, Any], cls: Optional[type] = None) -> Callable[[], Any]:
    """Function that makes the environment. section: ``env_kwargs`` and ``wrappers``. cls: of a file of the user's own.

    Raises OutsideError; so does the function.
    """
    import gymnasium

    arguments = section.get("env_kwargs") or {}
    wrappers = [(text, _wrapper(text), own) for text, own in read_wrappers(section.get("wrappers") or [])]

    def make() -> Any:
        try:
            if cls is not None:
                env = _called(cls, arguments)
            else:
                made = functools.partial(gymnasium.make, name[len(PREFIX) :], disable_env_checker=True)
                env = _called(made, arguments)
        except Exception as e:
            raise OutsideError(_why_not_made(name, e)) from e
        for text, wrapper, own in wrappers:
            try:
                env = _called(functools.partial(wrapper, env), own)
            except Exception as e:
                raise OutsideError(f"{name}: wrapper {text}: {_said(e)}") from e
        return env

    return make


def _called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The function's value. YAML and JSON know no tuples, so where it refuses lists, they are passed as tuples."""
    try:
        return function(**arguments)
    except (TypeError, ValueError, AssertionError) as e:
        others = {key: _tuples(value) for key, value in arguments.items()}
        if others == arguments:  # no list is in them: nothing else could be passed
            raise
        try:
            return function(**others)
        except Exception:
            if "tuple" in str(e):  # so the lists were what it complained of, and now it says what else is wrong
                raise
            raise e from None


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


def class_in_file(name: str, sha256: str) -> type:
    """The class that ``gymnasium:my_env.py:MyEnv`` names, from a folder that is allowed here. Raises PluginError."""
    reference = file_and_class(name)
    assert reference is not None
    return class_in(plugins.find(reference[0], sha256), reference[1])


def class_in(source: plugins.Source, name: str) -> type:
    """An environment's class, or a task's, of which an environment is made. Raises PluginError."""
    import gymnasium

    from envolve.envs.outside.functional import environment_class
    from envolve.envs.task import Task

    return environment_class(class_of(source, name, gymnasium.Env, Task))


def _wrapper(text: str) -> type:
    import gymnasium

    module, _, name = text.partition(":")
    if module.endswith(".py"):
        words = f"expected a module, {module[:-3]}:{name}; its folder must be the current one or in PYTHONPATH"
        raise OutsideError(f"wrapper {text}: found the name of a file, {words}")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise OutsideError(f"wrapper {text}: {_missing(e.name or module)}") from e
    except (Exception, SystemExit) as e:
        raise OutsideError(f"wrapper {text}: {_said(e)}") from e
    known = [k for k, v in vars(found).items() if isinstance(v, type) and issubclass(v, gymnasium.Wrapper)]
    if name not in known:
        near = nearest(name, known, cutoff=0.0)
        mean = f", did you mean {module}:{near}" if near else ""
        raise OutsideError(f"wrapper {text}: found no such subclass of gymnasium.Wrapper{mean}")
    wrapper: type = getattr(found, name)
    return wrapper


def _why_not_made(name: str, error: Exception) -> str:
    import gymnasium

    text = name[len(PREFIX) :]
    module, _, plain = text.rpartition(":")
    package = module if file_and_class(name) is None else ""
    if package and isinstance(error, ModuleNotFoundError) and find_spec(package.split(".")[0]) is None:
        return f"{name}: {_missing(package)}"
    if isinstance(error, ModuleNotFoundError) and error.name:  # of what the environment itself imports
        return f"{name}: {_missing(error.name)}"
    if isinstance(error, gymnasium.error.UnregisteredEnv):
        near = nearest_ids(plain, module)
        others = f"; {_registered_by(package)}" if package else ""
        return f"{name}: found no environment of this id" + (f", did you mean {' or '.join(near)}" if near else others)
    return f"{name}: {_said(error)}"


def nearest_ids(plain: str, module: str = "", most: int = 3) -> List[str]:
    """Registered ids near this one, with the prefix of a configuration."""
    import gymnasium

    by_lower: Dict[str, str] = {}
    for known in gymnasium.registry:
        by_lower.setdefault(known.lower(), known)
    stem = plain.lower().split("-v")[0]
    same = [known for lower, known in by_lower.items() if lower.split("-v")[0] == stem]  # other versions
    near = same[-1:] or [by_lower[k] for k in difflib.get_close_matches(plain.lower(), by_lower, n=most, cutoff=0.7)]
    front = PREFIX + (f"{module}:" if module else "")
    return [front + known for known in near[:most]]


def _registered_by(package: str, most: int = 5) -> str:
    """What importing a package has registered. The entry point of an environment names the package that holds it."""
    import gymnasium

    def top(entry: Any) -> str:
        module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
        return str(module).partition(".")[0]

    own = [known for known, spec in gymnasium.registry.items() if top(spec.entry_point) == package.partition(".")[0]]
    if own:
        more = f" and {len(own) - most} more" if len(own) > most else ""
        return f"importing {package} registers {', '.join(own[:most])}{more}"
    return (
        f"importing {package} registers none: call its function that registers them in a file of your own, and name a "
        "class of that file (docs/own_environment.md)"
    )


def _missing(module: str) -> str:
    package = module.split(".")[0]
    if package in PACKAGES:
        return f"found no installed package {package}; install it: pip install '{PACKAGES[package]}'"
    if find_spec(package) is not None:
        return f"found no module {module} in the package {package}"
    return f"found no package {package}: neither installed nor in a folder of Python's path (PYTHONPATH=DIR adds one)"


def _said(error: BaseException) -> str:
    return plugins.said(error)[:500]
