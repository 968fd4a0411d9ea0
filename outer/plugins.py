"""Tasks, learners and searches of the user's own, known by name from then on as the built-in ones are.

``register_*`` takes a class; ``named`` a file and its class, as a configuration names them; ``use`` whatever the
``plugins:`` of a resolved configuration lists, which is what a worker does with a chunk. What may be executed where is
said in ``core/plugins.py``. Python 3.8.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Container, Dict, List, Mapping, NamedTuple, Optional, Tuple, Type

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.learners import ACTIONS, LEARNERS, LearnerEntry
from envolve.agents.common.population import size
from envolve.agents.common.sections import LearnerSection
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.core import plugins
from envolve.core.plugins import PluginError, Source, check_methods, class_of
from envolve.core.registry import Place, Registry
from envolve.envs.physics.task import PHYSICS_TASKS
from envolve.envs.task import ARGUMENTS, ARGUMENTS_KEY, TASKS, Task, make_task
from envolve.outer.config.problem import EXPERT_SUFFIX
from envolve.outer.config.sections import agent_sections
from envolve.outer.names import CURIOUS_SUFFIX, VARY_SUFFIX
from envolve.outer.search.search import NES_NAME, Search
from envolve.outer.search.searches import SEARCHES, search_sections, section_key

TABLES = ("next_state", "reward", "done", "start_state")  # of a task with a finite set of states
REGISTRIES: Dict[str, Registry[Any]] = {"task": TASKS, "learner": LEARNERS, "search": SEARCHES}
TAKEN: Dict[str, Container[str]] = {"task": PHYSICS_TASKS, "search": (NES_NAME,)}  # names of their kind elsewhere


class Own(NamedTuple):
    """A class of the user's own that has a name here."""

    kind: str  # of core/plugins.py: KINDS
    name: str
    cls: type
    source: Optional[Source]  # None: no file that a worker could load


_own: Dict[Tuple[str, str], Own] = {}  # by kind and name


def own(kind: str, name: str) -> Optional[Own]:
    """A class that the user registered, by its kind and name."""
    return _own.get((kind, name))


def _keep(kind: str, name: str, cls: type, entry: Any, source: Optional[Source], where: str) -> Own:
    """entry: what the registry of this kind has under the name."""
    try:
        if name in TAKEN.get(kind, ()):
            raise ValueError(f"{name} is the name of a built-in {kind}, expected another name")
        REGISTRIES[kind].register(name, entry)
    except ValueError as e:
        raise PluginError(f"{where}: {e}") from None
    own = _own[kind, name] = Own(kind, name, cls, source or plugins.source_of(cls))
    return own


def forget(kind: str, name: str) -> None:
    """Removes a class that the user registered."""
    REGISTRIES[kind].unregister(name)
    del _own[kind, name]


def _check_class(where: str, cls: Any, base: type) -> None:
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise PluginError(f"{where}: found {cls!r:.80}, expected a subclass of {base.__module__}.{base.__name__}")


# ------------------------------------------------------------------------------------------------------------- tasks


def register_task(name: str, cls: Type[Task], source: Optional[Source] = None) -> Own:
    """Makes a functional batched task (``envolve.envs.task.Task``) available as ``env_name: <name>``.

    It is tried first, with two members of three environments each. Raises PluginError, in one line.
    """
    where = source.path if source else f"register_task({name!r})"
    _check_class(where, cls, Task)
    check_methods(where, cls, Task, ("reset", "observe", "step"))
    where = f"{where}: class {cls.__name__}"
    if not name.isidentifier() and not all(part.isalnum() for part in name.split("-")):
        raise PluginError(f"{where}: found the name {name!r}, expected letters, digits, _ and -")
    if cls.name not in ("", name):
        raise PluginError(f"{where}: its attribute name is {cls.name!r}, expected {name!r}")
    try_task(where, cls)
    own = _keep("task", name, cls, cls, source, where)
    cls.name = name
    return own


def try_task(where: str, cls: Type[Task]) -> None:
    """Resets and steps once. Raises PluginError with the method, what it returned and what was expected."""
    F, A, n = cls.observation_size, cls.action_size, cls.num_actions
    if bool(n) == bool(A):
        raise PluginError(f"{where}: found num_actions {n} and action_size {A}, expected one of the two above 0")
    for attribute in ("observation_size", "default_max_steps"):
        if getattr(cls, attribute) < 1:
            raise PluginError(f"{where}: {attribute}: found {getattr(cls, attribute)}, expected at least 1")
    path = where.partition(": ")[0]

    def call(name: str, *arguments: Tensor) -> Any:
        try:
            return getattr(task, name)(*arguments)
        except Exception as e:
            raise PluginError(f"{plugins.place(e, path)}: {name} raised {plugins.said(e)}") from e

    try:
        task = cls()
    except Exception as e:
        raise PluginError(f"{plugins.place(e, path)}: class {cls.__name__}: {plugins.said(e)}") from e
    missing = [t for t in TABLES if cls.num_states is not None and not hasattr(task, t)]
    if missing:
        raise PluginError(f"{where}: it has num_states and no table {missing[0]}, expected {', '.join(TABLES)}")
    P, N = 2, 3
    state = call("reset", torch.full((P, N, cls.reset_uniforms), 0.5, dtype=torch.float64))
    expect(f"{where}: reset", state, (torch.float64, torch.float32, torch.int64), (P, N, None))
    if cls.num_states is None:  # the observation of a finite task is its state
        expect(f"{where}: observe", call("observe", state), (torch.float32,), (P, N, F))
    action = torch.zeros(P, N, A) if A else torch.zeros(P, N, dtype=torch.int64)
    stepped = call("step", state, action)
    if not isinstance(stepped, tuple) or len(stepped) != 3:
        found = f"{len(stepped)} values" if isinstance(stepped, tuple) else type(stepped).__name__
        raise PluginError(f"{where}: step: found {found}, expected next state, reward and terminated")
    expect(f"{where}: step: next state", stepped[0], (state.dtype,), tuple(state.shape))
    expect(f"{where}: step: reward", stepped[1], (torch.float32,), (P, N))
    expect(f"{where}: step: terminated", stepped[2], (torch.bool,), (P, N))


def expect(what: str, value: Any, dtypes: Tuple[torch.dtype, ...], shape: Tuple[Optional[int], ...]) -> None:
    """Raises PluginError unless ``value`` is a tensor of one of these types and of this shape (None: any length)."""
    words = f"{str(dtypes[0])[len('torch.') :]} [{', '.join('S' if n is None else str(n) for n in shape)}]"
    if not isinstance(value, Tensor):
        raise PluginError(f"{what}: found {type(value).__name__}, expected a tensor {words}")
    fits = value.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape))
    if not fits or value.dtype not in dtypes:
        found = f"{str(value.dtype)[len('torch.') :]} {list(value.shape)}"
        raise PluginError(f"{what}: found {found}, expected {words} (2 members, 3 environments each)")


# ---------------------------------------------------------------------------------------------------------- learners


def register_learner(
    name: str,
    cls: Type[Algorithm],
    section: Optional[Type[LearnerSection]] = None,
    actions: Optional[str] = None,
    source: Optional[Source] = None,
) -> Own:
    """Makes an off-policy algorithm (``envolve.agents.off_policy.algorithm.Algorithm``) available as
    ``agent_name: <name>``, trained by the readable PyTorch loop.

    section: the dataclass of its hyperparameters, declared with ``option``; default: ``cls.section_class``. actions:
    discrete, continuous or both; default: ``cls.actions``. Raises PluginError, in one line.
    """
    where = source.path if source else f"register_learner({name!r})"
    _check_class(where, cls, Algorithm)
    needed = ("nets_of", "initial_rows", "draws", "explore", "greedy", "update")
    check_methods(where, cls, Algorithm, needed)
    where = f"{where}: class {cls.__name__}"
    name = name.lower()
    if not name.isidentifier() or name.endswith((VARY_SUFFIX, CURIOUS_SUFFIX)):
        raise PluginError(f"{where}: found the name {name!r}, expected letters, digits and _, without _vary or _icm")
    section, actions = section or cls.section_class, actions or cls.actions
    _check_learner_section(where, section)
    if actions not in ACTIONS:
        raise PluginError(f"{where}: actions: found {actions!r}, expected one of {', '.join(ACTIONS)}")
    own = (name, name + VARY_SUFFIX, name + EXPERT_SUFFIX)  # its sections
    if name not in LEARNERS and not agent_sections().keys().isdisjoint(own):
        raise PluginError(f"{where}: agents.{name} is another section already, expected another name")
    entry = LearnerEntry(section, actions, Place(cls.__module__, cls.__qualname__))
    return _keep("learner", name, cls, entry, source, where)


def _check_learner_section(where: str, section: Any) -> None:
    wrong = not isinstance(section, type) or not issubclass(section, LearnerSection)
    if wrong or not dataclasses.is_dataclass(section):
        words = "expected a dataclass derived from envolve.agents.common.sections.LearnerSection"
        raise PluginError(f"{where}: section_class: found {section!r:.80}, {words}")
    names = {f.name for f in dataclasses.fields(section)}
    _check_options(where, section)
    for needed in ("lr", "gamma", "tau", "batch_size", "hidden_size", "hidden_layer"):
        if needed not in names:
            raise PluginError(f"{where}: section_class: found no {needed}, which the training loop reads")


def _check_options(where: str, section: Any) -> None:
    for field in dataclasses.fields(section):
        if "limits" not in field.metadata:
            raise PluginError(f"{where}: section_class: {field.name} is declared without envolve.core.option.option")


def try_learner(where: str, cls: Type[Algorithm], task: Task, section: LearnerSection) -> None:
    """Builds two agents and lets them choose an action. Raises PluginError."""
    path = where.partition(": ")[0]
    values = dataclasses.asdict(section)
    try:
        hyper = draw(section, np.arange(2))
        nets = cls.nets_of(task, section, values["hidden_size"], values["hidden_layer"])
        agents = cls(task, hyper, nets, torch.zeros(2, size(nets)), torch.full((2,), values["hidden_size"]))
        action = agents.greedy(torch.zeros(2, 3, task.observation_size))
    except Exception as e:
        raise PluginError(f"{plugins.place(e, path)}: class {cls.__name__}: {plugins.said(e)}") from e
    shape: Tuple[Optional[int], ...] = (2, 3, task.action_size) if task.action_size else (2, 3)
    expect(f"{where}: greedy", action, (torch.float32 if task.action_size else torch.int64,), shape)


# ---------------------------------------------------------------------------------------------------------- searches


def register_search(name: str, cls: Type[Search], source: Optional[Source] = None) -> Own:
    """Makes a search (``envolve.outer.search.search.Search``) available as ``search: <name>``.

    Its attribute ``section_class``, if it has one, is the dataclass of its settings: the section of its name in lower
    case under ``agents``. Raises PluginError.
    """
    where = source.path if source else f"register_search({name!r})"
    _check_class(where, cls, Search)
    check_methods(where, cls, Search, ("ask", "tell", "state", "restore"))
    where = f"{where}: class {cls.__name__}"
    if cls.section_class is not None:
        key = section_key(name)
        if not isinstance(cls.section_class, type) or not dataclasses.is_dataclass(cls.section_class):
            raise PluginError(f"{where}: section_class: found {cls.section_class!r:.80}, expected a dataclass")
        _check_options(where, cls.section_class)
        if key in agent_sections() and key not in search_sections():
            raise PluginError(f"{where}: agents.{key} is another section already, expected another name")
    return _keep("search", name, cls, cls, source, where)


# ------------------------------------------------------------------------------------------------- by configuration

BASES: Dict[str, type] = {"task": Task, "learner": Algorithm, "search": Search}
REGISTER: Dict[str, Callable[..., Own]] = {
    "task": lambda cls, source: register_task(cls.name or cls.__name__, cls, source),
    "learner": lambda cls, source: register_learner(cls.__name__, cls, source=source),
    "search": lambda cls, source: register_search(cls.__name__, cls, source),
}


def named(kind: str, source: Source, cls_name: str) -> Own:
    """The class of a file, registered by its name (of a task: its attribute ``name``, if it has one)."""
    known = [o for o in _own.values() if o.kind == kind and o.source and o.source.sha256 == source.sha256]
    for entry in known:
        if entry.cls.__name__ == cls_name:
            return entry
    return REGISTER[kind](class_of(source, cls_name, BASES[kind]), source)


def set_arguments(name: str, section: Any) -> None:
    """Remembers the arguments of a task of the user's own from its section ``envs.<name>``, and tries them. Raises
    PluginError."""
    given = section.get(ARGUMENTS_KEY, {}) if isinstance(section, Mapping) else {}
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        raise PluginError(f"found {given!r:.80}, expected a mapping, the arguments of the task's class")
    reserved = sorted({"max_steps", "solved_reward"} & set(given))
    if reserved:
        raise PluginError(f"found {reserved[0]}, expected that key in envs.{name} itself")
    ARGUMENTS[name] = dict(given)
    try:
        make_task(name)
    except Exception as e:
        del ARGUMENTS[name]
        raise PluginError(f"the class of {name} refuses them: {plugins.said(e)}") from e


def use(config: Mapping[str, Any], kinds: Tuple[str, ...] = ("task", "learner")) -> None:
    """Registers what a resolved configuration uses, from folders that are allowed here. Raises PluginError."""
    section = config.get("plugins")
    if not section:
        return
    wrong = plugins.check_section(section)
    if wrong:
        raise PluginError(f"plugins: {wrong[0]}")
    for file, entry in section.items():
        for kind in kinds:
            for cls_name in entry.get(kind, "").split():
                if not _known(kind, file, entry[plugins.SHA256], cls_name):
                    named(kind, plugins.find(file, entry[plugins.SHA256]), cls_name)
    name = config.get("env_name")
    if "task" in kinds and isinstance(name, str) and own("task", name) is not None:
        set_arguments(name, config.get("envs", {}).get(name))


def _known(kind: str, file: str, sha256: str, cls_name: str) -> bool:
    """Whether this very class is registered. Another run's class of the same name may have taken its place."""
    return any(
        o.kind == kind
        and o.cls.__name__ == cls_name
        and o.source is not None
        and o.source.sha256 == sha256
        and _registered(o) is o.cls
        for o in _own.values()
    )


def _registered(own: Own) -> Any:
    found = REGISTRIES[own.kind].get(own.name)
    if isinstance(found, LearnerEntry):
        place = Place(own.cls.__module__, own.cls.__qualname__)
        return own.cls if found.place == place else None
    return found


def used(entries: List[Own]) -> Dict[str, Dict[str, str]]:
    """The ``plugins`` of a configuration that uses these. Raises PluginError where two files have one name."""
    out: Dict[str, Dict[str, str]] = {}
    for entry in entries:
        source = entry.source
        if source is None:
            continue
        mine = out.setdefault(source.file, {plugins.SHA256: source.sha256})
        if mine[plugins.SHA256] != source.sha256:
            raise PluginError(f"plugins: two different files are named {source.file}; rename one")
        names = mine.get(entry.kind, "").split()
        mine[entry.kind] = " ".join(dict.fromkeys([*names, entry.cls.__name__]))
    return out
