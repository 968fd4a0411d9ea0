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
    def reads(self) -> set[str]:
        """Names that it looks up when it is run: of a function, those of its default values."""
        if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = self.node.args
            values = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
            return {n.id for value in values for n in ast.walk(value) if isinstance(n, ast.Name)}
        return self.uses

    @cached_property
    def changes(self) -> set[str]:
        return changes(self.node)

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


CHANGING = set("append extend insert update pop popitem remove clear setdefault sort reverse".split())


def in_place(method: str) -> bool:
    """Whether a method of this name changes its object."""
    return method in CHANGING or (method.endswith("_") and not method.startswith("_"))


def changes(node: ast.stmt) -> set[str]:
    """Names that a top-level statement, no definition of its own, changes, or binds among other things: ``W += 1``,
    ``W["a"] = 2``, ``W.append(3)``, and those in it if it is a loop or a choice."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return set()
    if isinstance(node, ast.If) and "__name__" in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}:
        return set()  # it is not run where the code is used
    found = set()
    for n in ast.walk(node):
        owner: ast.AST | None = None
        if isinstance(n, (ast.Subscript, ast.Attribute)) and not isinstance(n.ctx, ast.Load):
            owner = n.value
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
            owner = n.func.value if in_place(n.func.attr) else None
        elif isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            owner = n
        while isinstance(owner, (ast.Subscript, ast.Attribute)):
            owner = owner.value
        found |= {owner.id} if isinstance(owner, ast.Name) else set()
    return found


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
        self._changes = self._changing(parts)
        self._where: dict[str, Part] = {}  # what a name has been found to mean
        kept = self._needed()
        self.parts = [part for part in parts if id(part) in kept]

    def _changing(self, parts: Sequence[Part]) -> dict[tuple[str, int], list[Part]]:
        """By name and block: what else makes the name's value, beside its last definition. An earlier definition does
        if something up to the last one reads it."""
        found: dict[tuple[str, int], list[Part]] = {}
        earlier: dict[tuple[str, int], list[Part]] = {}
        for part in parts:
            for name in part.reads:
                if (name, part.block) in earlier:
                    found.setdefault((name, part.block), []).extend(earlier.pop((name, part.block)))
            own = set(defines(part.node))
            for name in part.changes:
                last = self._own.get((name, part.block))
                if last is None:
                    self._own[name, part.block] = self._last[name] = part
                elif last is not part and name in own:
                    earlier.setdefault((name, part.block), []).append(part)
                elif last is not part:
                    found.setdefault((name, part.block), []).append(part)
        for part in reversed(parts):
            value = getattr(part.node, "value", None)
            if isinstance(part.node, ast.Assign) and isinstance(value, ast.Name):  # a second name for it
                for name in defines(part.node):
                    if (name, part.block) in found:
                        more = [part, *found[name, part.block]]
                        found.setdefault((value.id, part.block), []).extend(more)
        return found

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
            for part in (found, *self._changes.get((name, found.block), ())):
                kept |= set() if part is found else {id(part)}
                if id(part) not in followed:
                    followed.add(id(part))
                    queue += [(used, part.block) for used in sorted(part.uses)]
                    if part is not found:  # it may bind other names, which others change in turn
                        queue += [(other, part.block) for other in sorted(part.changes)]
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
        """Imports, constants and classes, then the rest, in their order; after the imports in the order in which they
        were written, if a constant needs that."""
        made = [name for p in self.parts for name in {*defines(p.node), *p.changes}]
        functions = {p.name for p in self.parts if p.is_function}
        computed = any(functions & p.reads for p in self.parts if not p.is_function)
        if computed or len(made) > len(set(made)):
            imports = [p.text for p in self.parts if p.is_import]
            rest = [p.text for p in self.parts if not p.is_import]
            return "\n\n\n".join(s.strip("\n") for s in ["\n".join(dict.fromkeys(imports)), *rest] if s) + "\n"
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
