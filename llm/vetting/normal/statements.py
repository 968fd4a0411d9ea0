"""Statements in an equal, allowed form: what has no effect is dropped, assigned lambdas become functions, classes of
constants become dicts, with torch.no_grad() gives way to its body."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any

from envolve.llm.vetting.allow.allowed_names import TYPING
from envolve.llm.vetting.normal.configs import Configs
from envolve.llm.vetting.normal.expressions import Expressions
from envolve.llm.vetting.normal.facts import VIEWS, Facts
from envolve.llm.vetting.normal.unchanged import only_read
from envolve.llm.vetting.parts import HARMLESS

GRADIENTS = {"torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.autograd.no_grad", "no_grad"}
SILENT = {"print", "warnings.warn"}
LOGS = {"debug", "info", "warning", "error", "warn"}
LOGGERS = ("logging", "logger", "log")
HARMLESS_PREFIXES = ("torch.jit.", "torch.compile", "torch.inference_mode", "torch.no_grad", "jit.", "functools.wraps")
PLAIN = ("staticmethod", "script", "final", "override", "no_grad()")


class Mark:
    """What became of a statement, for ``render``."""

    KEPT, HEAD, NEW = "kept", "head", "new"  # as it was; its first line is another; all of it is


class Statements:
    """Rewrites the bodies of one module. ``marks`` has what became of each statement, by its id."""

    def __init__(self, facts: Facts, configs: Configs, expressions: Expressions) -> None:
        self.facts, self.configs, self.expressions = facts, configs, expressions
        self.marks: dict[int, str] = {}
        self.tried: set[int] = set()  # ids of statements that stood in a try with handlers
        self.done = expressions.done
        self._passed: dict[str, int] = {}  # by function: how many arguments calls of it pass, at most
        self._named: dict[str, set[str]] = {}  # by function: arguments that calls of it name
        tries = [n for n in ast.walk(facts.tree) if isinstance(n, ast.Try) and n.handlers]
        reached = [part for n in tries for part in facts.reached(n.body)]
        self._in_tries = {id(n) for part in reached for n in ast.walk(part)}
        for call in facts.calls:
            if isinstance(call.func, ast.Name):
                name = call.func.id
                self._passed[name] = max(self._passed.get(name, 0), len(call.args))
                self._named.setdefault(name, set()).update(k.arg for k in call.keywords if k.arg)

    def module(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements at the top, without names of types: annotations are never evaluated."""
        kept = [s for s in body if not (isinstance(s, ast.Assign) and _is_type(s.value))]
        if len(kept) < len(body):
            self.done["names of types left out"] += len(body) - len(kept)
        return self.body(kept, top=True)

    def body(self, body: Sequence[ast.stmt], top: bool = False) -> list[ast.stmt]:
        """Statements that stand for these; at least one, but at the top of a module."""
        out: list[ast.stmt] = []
        for statement in body:
            out += self._statement(statement)
        if not out and not top:
            out = [self._new(ast.copy_location(ast.Pass(), body[0]))]
        return out

    def _new(self, statement: ast.stmt, mark: str = Mark.NEW) -> ast.stmt:
        self.marks[id(statement)] = mark
        return statement

    def _drop(self, what: str) -> list[ast.stmt]:
        self.done[what] += 1
        return []

    def _statement(self, s: ast.stmt) -> list[ast.stmt]:
        if isinstance(s, ast.Expr) and self._silent(s.value):
            return self._drop("print and log left out")
        if (isinstance(s, ast.Assert) or _only_raises(s)) and not self.facts.changes(s) and not self._caught(s):
            return self._drop("assert and checks that raise left out")
        if isinstance(s, ast.Try) and self.expressions.torch and not self._may_be_caught(s) and not _leaves(s):
            self.done["try left out: code that raises is refused"] += 1
            out = [self._whole(inner) for inner in self.body([*s.body, *s.orelse, *s.finalbody])]
            self.tried |= {id(inner) for inner in out} if s.handlers else set()
            return out
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and _is_logger(s.value):
            return self._drop("print and log left out")
        if isinstance(s, ast.Delete) and all(isinstance(t, ast.Name) for t in s.targets):
            return self._drop("del left out")
        if isinstance(s, ast.Global) and not any(self._stored(n) > 1 for n in s.names):
            return self._drop("global left out")
        if isinstance(s, ast.ClassDef):
            made = self.configs.statement(s)
            if made is not None:
                self.done["objects of constants written as dicts"] += 1
                return [self._new(self._visited(made))]
            return [s]
        if isinstance(s, ast.With) and all(_gradients(item) for item in s.items):
            self.done["with torch.no_grad() left out"] += 1
            return [self._whole(inner) for inner in self.body(s.body)]
        if self._augmented(s):
            assert isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name)
            self.done["x |= y written as x = x | y"] += 1
            value = ast.BinOp(ast.Name(s.target.id, ast.Load()), s.op, s.value)
            return [self._new(self._visited(ast.copy_location(ast.Assign([s.target], value), s)))]
        function = self._lambda(s)
        if function is not None:
            self.done["lambdas with a name written as functions"] += 1
            return [self._new(f) for f in self._function(function)]
        if isinstance(s, ast.FunctionDef):
            return self._function(s)
        if isinstance(s, (ast.If, ast.For, ast.While, ast.With)):
            return [self._compound(s)]
        return [self._visited(s)]

    def _visited(self, s: ast.stmt) -> ast.stmt:
        """A statement without statements in it."""
        self.expressions.touched = False
        out = self.expressions.visit(s)
        assert isinstance(out, ast.stmt)
        if self.expressions.touched:
            self._new(out)
        return out

    def _whole(self, s: ast.stmt) -> ast.stmt:
        """Not at its old place: it has to be written anew."""
        return self._new(s)

    def _compound(self, s: ast.If | ast.For | ast.While | ast.With) -> ast.stmt:
        e = self.expressions
        e.touched = False
        if isinstance(s, (ast.If, ast.While)):
            s.test = e.visit(s.test)
        elif isinstance(s, ast.For):
            s.target, s.iter = e.visit(s.target), e.visit(s.iter)
        else:
            s.items = [e.visit(item) for item in s.items]
        if e.touched:
            self._new(s, Mark.HEAD)
        s.body = self.body(s.body)
        if not isinstance(s, ast.With) and s.orelse:
            s.orelse = self.body(s.orelse, top=True)
        return s

    # ------------------------------------------------------------------------------------------------------ functions

    def _function(self, f: ast.FunctionDef) -> list[ast.stmt]:
        e, before = self.expressions, len(f.decorator_list)
        asked = f.name in self.facts.types
        e.touched = False
        f.decorator_list = [d for d in f.decorator_list if not _harmless(d)]
        if len(f.decorator_list) < before:
            self.done["decorators left out"] += 1
            e.touched = True
        first = self._defaults(f) + (self._aliases(f) if asked and e.torch else [])
        if f.name in self.facts.renames:
            f.name, e.touched = self.facts.renames[f.name], True
        if asked:
            self._unused_rest(f)
        e.touched |= bool(first)
        f.args = e.visit(f.args)
        if e.touched:
            self._new(f, Mark.HEAD)
        begins = f.body and isinstance(f.body[0], ast.Expr) and isinstance(f.body[0].value, ast.Constant)
        documentation, rest = (f.body[:1], f.body[1:]) if begins else ([], f.body)
        made = [self._new(self._visited(ast.copy_location(s, f))) for s in first]
        f.body = [*documentation, *made, *(self.body(rest, top=bool(made or documentation)))]
        return [f]

    def _defaults(self, f: ast.FunctionDef) -> list[ast.stmt]:
        """Defaults that are no constants, of arguments never passed or changed: assignments at the beginning."""
        arguments = [*f.args.posonlyargs, *f.args.args]
        made: list[ast.stmt] = []
        for k in range(len(f.args.defaults)):
            place = len(arguments) - len(f.args.defaults) + k
            argument, default = arguments[place], f.args.defaults[k]
            passed = self._passed.get(f.name, 0) > place or argument.arg in self._named.get(f.name, ())
            if passed or _simple(default) or (place == 0 and f.name in self.facts.types):
                continue
            if _nested(default) or not only_read(f, argument.arg, self.facts.parents):
                continue  # what one call leaves in it, the next one finds
            if not all(self.facts.lasting(n.id) for n in ast.walk(default) if isinstance(n, ast.Name)):
                continue  # inside the function, or later, the name may mean another thing
            made.append(ast.Assign([ast.Name(argument.arg, ast.Store())], default))
        names = {s.targets[0].id for s in made if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}
        if names and not f.args.posonlyargs:
            keep = [a for a in arguments if a.arg not in names]
            defaults = dict(zip([a.arg for a in arguments[len(arguments) - len(f.args.defaults) :]], f.args.defaults))
            f.args.args = keep
            f.args.defaults = [defaults[a.arg] for a in keep if a.arg in defaults]
            self.done["default arguments written into the function"] += 1
            return made
        return []

    def _aliases(self, f: ast.FunctionDef) -> list[ast.stmt]:
        """compute_reward(torques, progress_buf): arguments with names of other simulators, taken from the state."""
        known = self.facts.aliases
        given = [a for a in f.args.args if a.arg in known]
        named = [a.arg for a in f.args.args]
        if not given or self._passed.get(f.name) or any(n in self.facts.state for n in named[:1]):
            return []
        if f.name == "compute_reward" and named[:1] == ["state"]:
            return []
        kept = [a for a in f.args.args if a not in given]
        state = next((a.arg for a in kept if a.arg in self.facts.state), "")
        if not state:
            state = "state" if "state" not in self.facts.values else self.facts.free("state")
            if state != "state":
                return []
            kept.append(ast.arg("state"))
        count = len(f.args.args) - len(f.args.defaults)
        defaults = {a.arg: d for a, d in zip(f.args.args[count:], f.args.defaults)}
        f.args.defaults = [defaults[a.arg] for a in kept if a.arg in defaults]
        if len(f.args.defaults) and kept[-1].arg not in defaults:  # state must stand before those with a default
            kept.insert(len(kept) - 1 - len(f.args.defaults), kept.pop())
        f.args.args = kept
        self.done["names of the state from other simulators"] += len(given)
        made: list[ast.stmt] = []
        for a in given:
            value = ast.parse(known[a.arg].replace("{s}", state), mode="eval").body
            made.append(ast.Assign([ast.Name(a.arg, ast.Store())], value))
        return made

    def _unused_rest(self, f: ast.FunctionDef) -> None:
        """*args and **kwargs that the function does not use."""
        for name in ("vararg", "kwarg"):
            rest = getattr(f.args, name)
            if rest is not None and rest.arg not in self.facts.loaded:
                setattr(f.args, name, None)
                self.done["unused *args and **kwargs left out"] += 1
                self.expressions.touched = True

    def _lambda(self, s: ast.stmt) -> ast.FunctionDef | None:
        """f = lambda x: ... as a function; None: it is something else."""
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            target, value = s.targets[0], s.value
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            target, value = s.target, s.value
        else:
            return None
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Lambda) or self._stored(target.id) > 1:
            return None
        function: ast.FunctionDef = copy.copy(EMPTY)
        function.name, function.args = target.id, value.args
        function.body = [ast.copy_location(ast.Return(value.body), s)]
        function.decorator_list = []
        return ast.copy_location(function, s)

    # ------------------------------------------------------------------------------------------------------- questions

    def _stored(self, name: str) -> int:
        return self.facts.bound.get(name, 0)

    def _augmented(self, s: ast.stmt) -> bool:
        """x |= y of a tensor without another name, which torch cannot trace."""
        if not isinstance(s, ast.AugAssign) or not isinstance(s.op, (ast.BitOr, ast.BitAnd, ast.BitXor)):
            return False
        if not isinstance(s.target, ast.Name) or s.target.id in self.facts.shared:
            return False
        name, facts = s.target.id, self.facts
        made = facts.assigned.get(name, [])
        known = bool(made) and len(made) + facts.augmented[name] == self._stored(name)  # and not part of a tuple
        return known and all(map(_fresh, made)) and facts.only_computed(name, mask=True)

    def _may_be_caught(self, s: ast.Try) -> bool:
        """Whether something in it raises on purpose, so that a handler may be what counts."""
        return bool(s.handlers) and any(map(_raises, self.facts.reached(s.body)))

    def _caught(self, s: ast.stmt) -> bool:
        """Whether a handler may catch what this statement raises."""
        return id(s) in self._in_tries

    def _silent(self, value: ast.expr) -> bool:
        """A call that only tells people something."""
        if not isinstance(value, ast.Call) or self.facts.changes(value):
            return False
        f = value.func
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
            own = f.value.id in self.facts.bound and f.value.id not in LOGGERS
            return not own and (f"{f.value.id}.{f.attr}" in SILENT or (f.value.id in LOGGERS and f.attr in LOGS))
        return isinstance(f, ast.Name) and f.id in SILENT and f.id not in self.facts.bound


EMPTY: Any = ast.parse("def f(): pass").body[0]  # with the fields that this version of Python has


def _fresh(value: ast.expr) -> bool:
    """Whether an expression makes a tensor of its own, and no view of another."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr not in VIEWS
    return isinstance(value, (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Constant))


def _raises(part: ast.AST) -> bool:
    return any(isinstance(n, (ast.Assert, ast.Raise)) for n in ast.walk(part))


def _leaves(s: ast.Try) -> bool:
    """Whether it may be left before its ``finally``, which then is done all the same."""
    inner = [n for part in (*s.body, *s.orelse) for n in ast.walk(part)]
    return bool(s.finalbody) and any(isinstance(n, (ast.Return, ast.Break, ast.Continue)) for n in inner)


def _only_raises(s: ast.stmt) -> bool:
    """if x is None: raise ValueError(...)"""
    return isinstance(s, ast.If) and not s.orelse and len(s.body) == 1 and isinstance(s.body[0], ast.Raise)


def _is_logger(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("logging.getLogger", "getLogger")


def _is_type(node: ast.expr) -> bool:
    """Dict[str, Tensor]"""
    names = TYPING | {"dict", "list", "tuple"}
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names


def _gradients(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and item.optional_vars is None and ast.unparse(call.func) in GRADIENTS


def _harmless(decorator: ast.expr) -> bool:
    text = ast.unparse(decorator).replace(" ", "")
    return text in HARMLESS or text in PLAIN or text.startswith(HARMLESS_PREFIXES)


def _nested(node: ast.expr) -> bool:
    """Whether objects that can be changed lie within another."""
    return any(isinstance(n, (ast.List, ast.Dict, ast.Set)) and n is not node for n in ast.walk(node))


def _simple(node: ast.expr) -> bool:
    """A default that the allow-list takes: a number, text, None, a tuple of those."""
    if isinstance(node, ast.UnaryOp):
        return _simple(node.operand)
    if isinstance(node, ast.Tuple):
        return all(_simple(e) for e in node.elts)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id in ("torch", "math")
    return isinstance(node, ast.Constant)
