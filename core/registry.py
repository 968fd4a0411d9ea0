"""Entries by name, of which users may register their own: tasks, learners, searches, engines, losses and so on.

A wrong name is answered in one form everywhere: what was found, what was expected, and the nearest name. Python 3.8.
"""

from __future__ import annotations

from importlib import import_module
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Generic,
    Iterable,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Type,
    TypeVar,
)

Entry = TypeVar("Entry")
Named = TypeVar("Named", bound=Callable[..., Any])
LONGEST = 200  # characters of a name that are compared: the time grows with their square


def nearest(name: str, names: Iterable[str], cutoff: float = 0.5) -> Optional[str]:
    """The name most like ``name``, whatever the case of letters; None: no name is. cutoff: least likeness, 0 to 1."""
    import difflib  # slow

    by_lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower()[:LONGEST], by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def unknown(what: str, name: Any, names: Iterable[str]) -> str:
    """The message about a wrong name: ``what: found name, expected one of names; nearest: name``."""
    known = list(names)
    near = nearest(str(name), known, cutoff=0.0)
    found = f"{what}: found {repr(name)[:LONGEST]}, expected one of {', '.join(known)}"
    return found + (f"; nearest: {near!r}" if near else "")


class Place(NamedTuple):
    """Where something is defined that is imported when it is first needed."""

    module: str
    name: str

    def load(self) -> Any:
        return getattr(import_module(self.module), self.name)


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, in the order of registration. A mapping; ``find`` is ``[]`` with an error for users."""

    def __init__(
        self, what: str, entries: Optional[Mapping[str, Entry]] = None, error: Type[Exception] = ValueError
    ) -> None:
        """what: the kind of entry, or the key that names it, as errors begin; error: what ``find`` raises."""
        self.what, self.error = what, error
        self._entries: Dict[str, Entry] = dict(entries or {})
        self._own: Dict[str, None] = {}  # registered by users

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def find(self, name: str, what: str = "") -> Entry:
        """The entry of this name. what: how the error begins, default: the registry's. Raises ``error``."""
        if name not in self._entries:
            raise self.error(unknown(what or self.what, name, self._entries))
        return self._entries[name]

    # ----------------------------------------------------------------------------------------------------- registering

    @property
    def built_in(self) -> FrozenSet[str]:
        """Names that no user registered."""
        return frozenset(self._entries) - frozenset(self._own)

    def add(self, name: str, entry: Entry) -> Entry:
        """An entry of Envolve's own. Raises ValueError if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.what}: found {name!r} twice")
        self._entries[name] = entry
        return entry

    def named(self, cls: Named) -> Named:
        """Class decorator: ``add`` under the class's attribute ``name``."""
        self.add(cls.name, cls)  # type: ignore[attr-defined, arg-type]
        return cls

    def register(self, name: str, entry: Entry) -> Entry:
        """An entry of the user's own. It takes the place of an earlier one, but raises ValueError for a built-in
        name."""
        if name in self.built_in:
            raise ValueError(f"{name} is the name of a built-in {self.what}, expected another name")
        self._entries[name] = entry
        self._own[name] = None
        return entry

    def unregister(self, name: str) -> None:
        """Removes an entry of the user's own. Raises ValueError for any other name."""
        if name not in self._own:
            raise ValueError(unknown(f"{self.what} to unregister", name, self._own))
        del self._own[name], self._entries[name]
