"""Statements at the top of a reply's code blocks, and the module made of them."""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from envolve.llm.vetting.allow.allowed_names import GIVEN
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.text.scopes import outside_names

# decorators that change nothing here
HARMLESS = ("torch.jit.script", "torch.jit.script_if_tracing", "torch.jit.export", "torch.no_grad()", "torch.no_grad",
            "torch.inference_mode()", "torch.compile", "torch.compile()", "jit.script", "script")  # fmt: skip
MOST_NODES = 8_000  # of the syntax tree that is put together; the allow-lists have fewer
BUILTIN = {*dir(builtins), *GIVEN}  # names that mean the same in every block


@dataclass(eq=False)
class Part:
    """A statement at the top of a block, with the comment lines above it. Whatever takes work is done when it is asked
    for: most of a reply never is."""

    node: ast.stmt
    block: int
    lines: list[str]  # of the block
    above: int  # its first line with its comments, from 1
    first: int  # the same without comments
    last: int
    shared: bool  # another statement is on one of its lines

    @property
    def name(self) -> str:
        """Name of a function."""
        return getattr(self.node, "name", "")

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef))

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, (ast.Import, ast.ImportFrom))

    @property
    def arguments(self) -> int:
        a = getattr(self.node, "args", None)
        return len(a.posonlyargs) + len(a.args) if isinstance(a, ast.arguments) else 0

    @cached_property
    def size(self) -> int:
        """Number of nodes in its syntax tree."""
        return sum(1 for _ in ast.walk(self.node))

    @cached_property
    def uses(self) -> set[str]:
        return outside_names(self.node)

    @cached_property
    def meaning(self) -> str:
        """Key that is equal for statements that differ only in comments and layout."""
        return ast.dump(self.node)

    @cached_property
    def text(self) -> str:
        """Text of a function without harmless decorators."""
        if self.shared:
            return ast.unparse(self.node)
        decorators = getattr(self.node, "decorator_list", [])
        if not decorators:
            return "\n".join(self.lines[self.above - 1 : self.last])
        written = [ast.unparse(d) for d in decorators]
        kept = [f"@{d}" for d in written if d.replace(" ", "") not in HARMLESS]
        comments, body = self.lines[self.above - 1 : self.first - 1], self.lines[self.node.lineno - 1 : self.last]
        return "\n".join([*comments, *kept, *body])


def renamed(part: Part, name: str) -> Part:
    """The same function under another name."""
    assert isinstance(part.node, ast.FunctionDef)
    node = copy.copy(part.node)
    node.name = name
    lines = list(part.lines)
    line = lines[node.lineno - 1]
    lines[node.lineno - 1] = re.sub(rf"\bdef(\s+){re.escape(part.name)}\b", rf"def\g<1>{name}", line, count=1)
    return Part(node, part.block, lines, part.above, part.first, part.last, part.shared)


def parts_of(tree: ast.Module, text: str, block: int) -> Iterator[Part]:
    """Statements at the top of a block, in order."""
    lines = text.split("\n")
    begin = Counter(node.lineno for node in tree.body)
    end = 0  # last line of the statement before
    for node in tree.body:
        decorators = getattr(node, "decorator_list", [])
        first, last = min([node.lineno, *(d.lineno for d in decorators)]), node.end_lineno or node.lineno
        shared = first <= end or begin[last] > (node.lineno == last)
        above = first
        while above - 1 > end and lines[above - 2].lstrip().startswith("#"):
            above -= 1
        yield Part(node, block, lines, above, first, last, shared)
        end = last


def defines(node: ast.stmt) -> list[str]:
    """Names that a top-level statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name.split(".")[0] for a in node.names]
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return []


class Module:
    """The chosen functions and, transitively, what they use. Raises VetError where two blocks disagree about a name
    that functions of both use, or where it is too much."""

    def __init__(self, parts: Sequence[Part], chosen: dict[str, Part]) -> None:
        self._chosen = chosen
        self._last: dict[str, Part] = {}  # that defines a name
        self._own: dict[tuple[str, int], Part] = {}  # the last in a block
        for part in parts:
            for name in defines(part.node):
                self._last[name] = self._own[name, part.block] = part
        self._where: dict[str, Part] = {}  # what a name has been found to mean
        kept = self._needed()
        self.parts = [part for part in parts if id(part) in kept]

    def _needed(self) -> set[int]:
        """Ids of the parts to keep. Every part is followed once, however many names it defines."""
        kept: set[int] = set()
        followed: set[int] = set()
        read: set[int] = set()  # parts whose size is counted
        queue = [(name, part.block) for name, part in self._chosen.items()]
        if "compute_torque" in self._chosen:
            queue.append(("ACTION_SIZE", self._chosen["compute_torque"].block))
        size = 0
        while queue:
            name, block = queue.pop()
            found = self._meant(name, block)
            if found is None or self._where.get(name) is found:
                continue
            size += found.size if id(found) not in read else 0
            read.add(id(found))
            if size > MOST_NODES:
                raise VetError("extract", f"the code is too long: over {MOST_NODES} names, numbers and operations; "
                               "write shorter code")  # fmt: skip
            if name in self._where:
                self._check_same(name, self._where[name], found)
                continue
            self._where[name] = found
            if not (found.is_import and _is_given(found.node)):
                kept.add(id(found))
            if id(found) not in followed:
                followed.add(id(found))
                queue += [(used, found.block) for used in sorted(found.uses)]
        return kept

    def _meant(self, name: str, block: int) -> Part | None:
        """Definition of a name that a block uses: a chosen function, else one in the same block, else, unless Python or
        torch has the name, the last one."""
        if name in self._chosen:
            return self._chosen[name]
        return self._own.get((name, block)) or (None if name in BUILTIN else self._last.get(name))

    def _check_same(self, name: str, one: Part, other: Part) -> None:
        if one.meaning != other.meaning:
            blocks = len({part.block for part in self._chosen.values()})
            raise VetError(
                "extract", f"{blocks} blocks of code define {name!r} differently; write one block, with each name once"
            )

    def text(self) -> str:
        """Imports, constants and classes, then the rest, in their order."""
        first = (ast.Assign, ast.AnnAssign, ast.ClassDef)
        imports = [p.text for p in self.parts if p.is_import]
        constants = [p.text for p in self.parts if isinstance(p.node, first)]
        rest = [p.text for p in self.parts if not p.is_import and not isinstance(p.node, first)]
        sections = ["\n".join(dict.fromkeys(imports)), "\n".join(constants), *rest]
        return "\n\n\n".join(s.strip("\n") for s in sections if s) + "\n"


def _is_given(node: ast.stmt) -> bool:
    """True for an import of a provided module under its own name."""
    if isinstance(node, ast.Import):
        return all((a.name, a.asname) in (("torch", None), ("math", None), ("torch.nn.functional", "F"),
                                          ("torch.nn.functional", None)) for a in node.names)  # fmt: skip
    if isinstance(node, ast.ImportFrom):
        source = {"torch": ("Tensor",), "torch.nn": ("functional",), "__future__": (),
                  "envolve.envs.physics.task": ("Pose",), "envs.physics.task": ("Pose",)}  # fmt: skip
        names = source.get(node.module or "")
        aliased = all((a.asname or a.name) in ("Tensor", "F", "Pose") for a in node.names)
        return node.module == "typing" or (names is not None and aliased and all(a.name in names for a in node.names))
    return False
