"""Code of a model in an equal form that the allow-list takes: the step between the reply's text and the check.

Nothing is run here, and nothing is allowed here: what comes out passes the same allow-list, jail and checks as before.
The pass rewrites what good replies contain and the allow-list refuses: names with an underscore at an end, assigned
lambdas, generators in sums, asserts and prints, texts of constants, classes of constants, numpy with a twin in torch,
names of the state and helper functions of IsaacGymEnvs. It visits every node a fixed number of times. Code that it
cannot read is returned as it is: the allow-list says what is wrong with it.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envolve.envs.physics.aliases import aliases
from envolve.envs.physics.task import PHYSICS_TASKS
from envolve.llm.vetting.allow.allowed_names import GIVEN, INSTEAD
from envolve.llm.vetting.normal.configs import Configs
from envolve.llm.vetting.normal.expressions import Expressions
from envolve.llm.vetting.normal.facts import Facts
from envolve.llm.vetting.normal.helpers import SOURCES, with_needed
from envolve.llm.vetting.normal.render import Renderer
from envolve.llm.vetting.normal.statements import Mark, Statements
from envolve.llm.vetting.text.parsing import VetError, parse

MOST_NODES = 12_000  # of the syntax tree; the allow-list has fewer
NOTE = "rewritten to the same meaning: "
TRIED = (
    "the 'try' around this line is left out, because its 'except' would hide the mistake: write what is right here, or "
    "choose with if, as in if 'name' in state:"
)


class Normalised(NamedTuple):
    """Result of ``normalise``."""

    code: str
    notes: tuple[str, ...] = ()  # one that lists what was rewritten, or none
    tried: tuple[tuple[int, int], ...] = ()  # first and last lines of what stood in a ``try`` that was left out

    def why(self, message: str) -> str:
        """A refusal of the code, with what its author has to know of the rewriting."""
        found = re.match(r"line (\d+)\b", message)
        within = found and any(first <= int(found[1]) <= last for first, last in self.tried)
        return f"{message}; {TRIED}" if within else message


def normalise(code: str, types: Sequence[str], task: str = "", torch: bool = True) -> Normalised:
    """``code`` in a form with the same meaning. task: whose names of the state are known; torch: False for rewards of
    Gymnasium environments, which are written with numpy."""
    try:
        tree = parse(code, "allowlist")
        size = sum(1 for _ in ast.walk(tree))
        if size > MOST_NODES:
            return Normalised(code)
        known = aliases(PHYSICS_TASKS[task]) if task in PHYSICS_TASKS else {}
        return _normalised(code, tree, types, known, torch)
    except (VetError, RecursionError):  # the allow-list says it
        return Normalised(code)


def _normalised(code: str, tree: ast.Module, types: Sequence[str], known: Mapping[str, str], torch: bool) -> Normalised:
    facts = Facts(tree, types, known)
    configs = Configs(facts)
    expressions = Expressions(facts, configs, torch)
    work = _Marking(facts, configs, expressions)
    body = work.module(tree.body)
    body = _without_imports(body, work, torch)
    helpers = _helpers(body) if torch else []
    if not expressions.done and not helpers:
        return Normalised(code)
    text = Renderer(code, work.marks).module(body)
    if helpers:
        expressions.done[f"helper functions added: {', '.join(helpers)}"] += 1
        text += "".join(f"\n\n{SOURCES[name]}" for name in helpers)
    if not expressions.done:
        return Normalised(text)
    told = [f"{what} ({n})" if n > 1 else what for what, n in sorted(expressions.done.items())]
    notes = (NOTE + "; ".join(told),)
    return Normalised(text, notes, _lines(body, text, work.tried) if work.tried else ())


def _lines(body: Sequence[ast.stmt], text: str, wanted: set[int]) -> tuple[tuple[int, int], ...]:
    """Lines in ``text``, which was written from ``body``, of the statements with these ids."""
    pairs = zip(_statements(body), _statements(parse(text, "allowlist").body))
    return tuple((new.lineno, new.end_lineno or new.lineno) for old, new in pairs if id(old) in wanted)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of this body and of those within it, in order."""
    for s in body:
        yield s
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(s, name, []))


class _Marking(Statements):
    """Statements whose parents are marked where something was dropped from them, so that they are written anew."""

    def body(self, body: Sequence[ast.stmt], top: bool = False) -> list[ast.stmt]:
        out = super().body(body, top)
        self.dropped = self.dropped or [id(s) for s in out] != [id(s) for s in body]
        return out

    def _statement(self, s: ast.stmt) -> list[ast.stmt]:
        before, self.dropped = self.dropped, False
        out = super()._statement(s)
        if self.dropped and len(out) == 1 and self.marks.get(id(out[0])) is None:
            self.marks[id(out[0])] = PART
        self.dropped = before
        return out

    dropped = False


PART = "part"  # mark: its own first line stays, something below changed


def _without_imports(body: list[ast.stmt], work: Statements, torch: bool) -> list[ast.stmt]:
    """Imports that nothing uses any more, and those of simulators, are left out."""
    used = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
    out: list[ast.stmt] = []
    for s in body:
        if isinstance(s, ast.ImportFrom) and (s.module or "").split(".")[0] in SIMULATORS:
            names = {a.asname or a.name for a in s.names}
            if names <= {"*", *SOURCES, "to_torch"} or not names & used:
                work.done["imports left out"] += 1
                continue
        if torch and isinstance(s, ast.ImportFrom) and s.module == OWN and all(a.name in GIVEN for a in s.names):
            if all(a.asname in (None, a.name) for a in s.names):  # best.py of a run has it; the name is given
                work.done["imports left out"] += 1
                continue
        if isinstance(s, (ast.Import, ast.ImportFrom)) and getattr(s, "module", "") != "__future__":
            names = {a.asname or a.name.split(".")[0] for a in s.names}
            given = {"torch", "math"} if torch else {"np", "numpy", "math"}
            if not names & (used | given) and "*" not in names:
                work.done["imports left out"] += 1
                continue
        out.append(s)
    return out


OWN = "envolve.envs.physics.task"
SIMULATORS = ("isaacgym", "isaacgymenvs", "isaaclab", "omni", "legged_gym", "phc", "torch_jit_utils")


def _helpers(body: Sequence[ast.stmt]) -> list[str]:
    """Known helper functions that are called and nowhere defined, with what they need."""
    bound: set[str] = set()
    called: dict[str, None] = {}
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                bound.add(n.id)
            elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
                bound.add(n.name)
            elif isinstance(n, ast.arg):
                bound.add(n.arg)
            elif isinstance(n, (ast.Import, ast.ImportFrom)):
                bound |= {a.asname or a.name for a in n.names}
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in SOURCES:
                called[n.func.id] = None
    return [name for name in with_needed([n for n in called if n not in bound]) if name not in bound]


assert not set(SOURCES) & (set(GIVEN) | set(INSTEAD) | set(dir(builtins)))
assert Mark.NEW != PART
