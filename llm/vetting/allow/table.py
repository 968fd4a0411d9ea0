"""What one kind of candidate code may contain: a table that the engine (``engine.py``) reads.

There are two: ``TORCH`` (``allowlist.py``) for shapers of tasks in a physics engine, ``GYMNASIUM``
(``llm/gym/allowlist.py``) for rewards of users' environments.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Names = frozenset[str]
Owner = Callable[[ast.AST, str], "str | None"]  # expression, how it is changed -> why it may not be; None: it may


@dataclass(frozen=True)
class Limits:
    """Sizes of code, and numbers in it."""

    nodes: int  # of the syntax tree
    problems: int  # that are told at once
    work: int  # statements and expressions executed, loops and calls counted
    turns: int | None  # of a loop over range(number); None: no limit of its own
    number: float  # constant
    text: int  # characters of a string that is no docstring
    size: int = 4096  # of an array that is made, per dimension


@dataclass(frozen=True)
class Table:
    """Names, syntax and limits. given: modules by the name that they have without an import. modules: by their full
    name, (functions, constants, submodules). properties: attributes of objects that may be read; None: all but
    ``hidden``. closed: every name must be defined in the code. texts: may be computed."""

    limits: Limits
    syntax: Names  # kinds of nodes
    refused: Mapping[str, tuple[str, str]]  # kind: its word, what to write instead
    builtins: Names
    given: Mapping[str, str]
    types: Names  # that are names without an import
    modules: Mapping[str, tuple[Names, Names, Names]]
    importable: Names  # modules
    there: str  # said of another import
    methods: Names
    in_place: Names  # methods whose names may end with an underscore
    changing: Names  # methods that change what they belong to
    properties: Names | None
    hidden: Names
    keywords: Names  # arguments that are refused
    instead: Mapping[str, str]  # of names
    instead_of_attributes: Mapping[str, str]
    others: str  # instead of an unknown attribute
    assigned: Callable[[str, str], str]  # what to write instead of owner.name = ...
    owner: Callable[[ast.Module], Owner]
    sized: Names  # functions whose first arguments are sizes
    function_names: Names = frozenset()  # that may be called beside those of the code
    closed: bool = True
    texts: bool = False
    read_only: Names = frozenset()  # names of objects whose methods may not be called
    whole: str = "tensors"

    def refusal(self, node: ast.AST) -> str:
        """Names disallowed syntax, in Python's own words."""
        word, instead = self.refused.get(type(node).__name__, ("syntax of this kind", "write something simpler"))
        return f"{word if ' ' in word else repr(word)} is not allowed; {instead}"
