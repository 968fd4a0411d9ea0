"""The code in a reply of a language model.

A reply has prose, fences (```python, ```, ~~~, indented in a list, without an end where the reply was cut off), several
versions of a function, examples of its use, or no fence at all. ``extract_code`` returns one module with the functions
that were asked for, what they need, and nothing else.

Of several versions of a function the last one counts that can be parsed: models correct themselves downwards. A helper
or constant that two blocks define differently is an error only if functions of both blocks are kept.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
import threading
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from envs.physics.task import SHAPER_TYPES
from llm.vetting.fences import Block, fences, unfenced

MOST_CHARACTERS = 40_000  # of code
MOST_REPLY = 400_000  # characters of a reply
# decorators that change nothing here
HARMLESS = ("torch.jit.script", "torch.jit.script_if_tracing", "torch.jit.export", "torch.no_grad()", "torch.no_grad",
            "torch.inference_mode()", "torch.compile", "torch.compile()", "jit.script", "script")  # fmt: skip
GIVEN = ("torch", "math", "F", "Tensor", "Pose")  # names that are there without an import (allowed_names.py)
# One thread parses at a time. Threads share the counter of depth in Python 3.11's parser: SystemError, "AST
# constructor recursion depth mismatch" (https://github.com/python/cpython/issues/106905); and catch_warnings is for one
# thread, too.
PARSER = threading.Lock()
LOOK_ALIKES = {
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2212": "-",
    "\u00d7": "*", "\u00b7": "*", "\u00b2": "** 2", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=",
    "\uff08": "(", "\uff09": ")", "\uff0c": ",", "\u2026": "...", "\u00a0": "a space", "\u200b": "nothing",
    "\ufeff": "nothing",
}  # fmt: skip


class VetError(Exception):
    """Why a reply or its code is refused.

    stage: "extract", "allowlist", "trace", "smoke", "graph" or "limits"; message: for the model that wrote it."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage, self.message = stage, message


class Part(NamedTuple):
    """A statement at the top of a module, and its text."""

    node: ast.stmt
    text: str
    block: int


def extract_code(reply: str, types: Sequence[str]) -> str:
    """The functions among ``types`` (names of shapers) in ``reply``, with helpers, constants and imports that they use.
    Raises VetError("extract", ...) which says what is wrong with the reply."""
    if len(reply) > MOST_REPLY:
        raise VetError("extract", f"the reply has {len(reply)} characters, at most {MOST_REPLY} are read")
    reply = reply.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    fenced = [b for b in fences(reply) if b.text.strip()]
    blocks = fenced or ([Block(reply, False)] if _is_code(reply) else unfenced(reply))
    parts: list[Part] = []
    broken: list[tuple[Block, VetError]] = []
    for i, block in enumerate(blocks):
        try:
            text = block.text if not block.text.startswith((" ", "\t")) else textwrap.dedent(block.text)
            parts += _parts(_cut_off_checked(block, text), i)
        except VetError as e:
            broken.append((block, e))
        except RecursionError:
            broken.append((block, VetError("extract", "the code is nested too deeply")))
    chosen = {name: part for part in parts for name in _defines(part.node) if name in types and _is_def(part.node)}
    if not chosen:
        raise _nothing_found(reply, blocks, parts, broken, types)
    _check_near_misses(parts, chosen, types)
    return _assembled(parts, chosen, types)


def parse(code: str, stage: str = "extract") -> ast.Module:
    """``ast.parse`` whose errors are VetErrors of this stage, with the line."""
    if len(code) > MOST_CHARACTERS:
        raise VetError(stage, f"the code has {len(code)} characters, at most {MOST_CHARACTERS} are allowed")
    try:
        with PARSER, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "invalid escape sequence" and the like are not ours to print
            return ast.parse(code)
    except SyntaxError as e:
        line = e.lineno or 1
        lines = code.split("\n")
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        raise VetError(stage, f"line {line} ({text[:120]}): {_syntax(e, text)}") from e
    except ValueError as e:
        raise VetError(stage, f"the code cannot be parsed: {e}") from e
    except (RecursionError, MemoryError) as e:
        raise VetError(stage, "the code is nested too deeply") from e


def _syntax(error: SyntaxError, text: str) -> str:
    for character in text:
        if character in LOOK_ALIKES and (error.msg.startswith("invalid") or "unterminated" in error.msg):
            return f"found {character!r} (U+{ord(character):04X}); write {LOOK_ALIKES[character]}"
    if isinstance(error, TabError):
        return "tabs and spaces are mixed in the indentation; write four spaces"
    return f"{type(error).__name__}: {error.msg}"


def _is_code(reply: str) -> bool:
    """The reply is a module and nothing else."""
    try:
        return any(_is_def(node) for node in parse(textwrap.dedent(reply)).body)
    except VetError:
        return False


def _cut_off_checked(block: Block, text: str) -> str:
    """The block's text if it can be parsed; where a reply ends within it, up to its last complete function."""
    try:
        tree = parse(text)
    except VetError as e:
        error = e.__cause__
        if block.closed or not isinstance(error, SyntaxError) or "too many" in error.msg:
            raise
        at_end = (error.lineno or 0) >= len(text.rstrip().split("\n"))
        if at_end or "never closed" in error.msg or "triple-quoted" in error.msg:
            raise VetError("extract", _cut_off(text)) from None
        raise
    if not block.closed and tree.body:
        last = tree.body[-1]
        if isinstance(last, ast.FunctionDef) and not _returns(last):
            raise VetError("extract", _cut_off(text))
    return text


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(function))


def _cut_off(text: str) -> str:
    last = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
    return (f"the reply ends in the middle of the code, at {last[-80:]!r}: write the whole code, shorter, in one "
            "block that ends with ```")  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- parts


def _parts(text: str, block: int) -> list[Part]:
    """The statements at the top, each with the comment lines above it; a function without harmless decorators."""
    tree, lines = parse(text), text.split("\n")
    found: list[Part] = []
    end = 0  # last line of the statement before
    for node in tree.body:
        decorators = list(getattr(node, "decorator_list", []))
        first, last = min([node.lineno, *(d.lineno for d in decorators)]), node.end_lineno or node.lineno
        shared = first <= end or any(n is not node and n.lineno == last for n in tree.body)
        above = first
        while above - 1 > end and lines[above - 2].lstrip().startswith("#"):
            above -= 1
        kept = lines[above - 1 : last]
        if decorators:
            rest = [d for d in decorators if ast.unparse(d).replace(" ", "") not in HARMLESS]
            kept = [
                *lines[above - 1 : first - 1],
                *(f"@{ast.unparse(d)}" for d in rest),
                *lines[node.lineno - 1 : last],
            ]
        found.append(Part(node, ast.unparse(node) if shared else "\n".join(kept), block))
        end = last
    return found


def _is_def(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _defines(node: ast.stmt) -> list[str]:
    """Names that a statement at the top gives a meaning."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name.split(".")[0] for a in node.names]
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return []


def _uses(node: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _assembled(parts: Sequence[Part], chosen: dict[str, Part], types: Sequence[str]) -> str:
    """One module: the chosen functions and, transitively, what they use, in the order in which they stand."""
    blocks = {part.block for part in chosen.values()}
    kept: dict[int, Part] = {}
    where: dict[str, Part] = {}
    queue: list[tuple[str, int]] = [(name, part.block) for name, part in chosen.items()]
    if "compute_torque" in chosen:
        queue.append(("ACTION_SIZE", chosen["compute_torque"].block))
    while queue:
        name, block = queue.pop()
        options = [p for p in parts if name in _defines(p.node)]
        if name in chosen:
            part = chosen[name]
        elif options:  # of its own block if there is one, else the last of all
            part = ([p for p in options if p.block == block] or options)[-1]
        else:
            continue
        if name in where and where[name] is not part and ast.dump(where[name].node) != ast.dump(part.node):
            raise VetError(
                "extract",
                f"{len(blocks)} blocks of code define {name!r} differently; write one block, with each name once",
            )
        if name in where:
            continue
        where[name] = part
        same = isinstance(part.node, (ast.Import, ast.ImportFrom))
        if id(part) not in kept and not (same and _is_given(part.node, name)):
            kept[id(part)] = part
        queue += [(used, part.block) for used in _uses(part.node) - {name}]
    order = [part for part in parts if id(part) in kept]
    imports = [p.text for p in order if isinstance(p.node, (ast.Import, ast.ImportFrom))]
    constants = [p.text for p in order if isinstance(p.node, (ast.Assign, ast.AnnAssign))]
    rest = [p.text for p in order if not isinstance(p.node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))]
    sections = ["\n".join(dict.fromkeys(imports)), "\n".join(constants), *rest]
    return "\n\n\n".join(s.strip("\n") for s in sections if s) + "\n"


def _is_given(node: ast.stmt, name: str) -> bool:
    """An import of what is there anyway, under the name that it has."""
    if isinstance(node, ast.Import):
        return all((a.name, a.asname) in (("torch", None), ("math", None), ("torch.nn.functional", "F"),
                                          ("torch.nn.functional", None)) for a in node.names)  # fmt: skip
    if isinstance(node, ast.ImportFrom):
        source = {"torch": ("Tensor",), "torch.nn": ("functional",), "envs.physics.task": ("Pose",), "__future__": ()}
        names = source.get(node.module or "")
        aliased = all((a.asname or a.name) in ("Tensor", "F", "Pose") for a in node.names)
        return node.module == "typing" or (names is not None and aliased and all(a.name in names for a in node.names))
    return False


# ------------------------------------------------------------------------------------------------------ what is wrong


def _nothing_found(
    reply: str,
    blocks: Sequence[Block],
    parts: Sequence[Part],
    broken: Sequence[tuple[Block, VetError]],
    types: Sequence[str],
) -> VetError:
    for part in parts:
        if isinstance(part.node, ast.ClassDef):
            inner = [n.name for n in part.node.body if isinstance(n, ast.FunctionDef) and n.name in types]
            if inner:
                return VetError(
                    "extract",
                    f"{inner[0]} is a method of class {part.node.name}; write a plain function: def "
                    f"{_signature(inner[0])}, without self",
                )
    defined = re.compile(r"def\s+(" + "|".join(map(re.escape, types)) + r")\b")
    for block, error in reversed(broken):
        if defined.search(block.text) or len(broken) == len(blocks):
            return error
    names = [part.node.name for part in parts if isinstance(part.node, ast.FunctionDef)]
    if names:
        near = [(n, m) for n in names for m in difflib.get_close_matches(n, types, n=1, cutoff=0.0)]
        best = max(near, key=lambda pair: difflib.SequenceMatcher(None, *pair).ratio(), default=(names[0], types[0]))
        return VetError(
            "extract",
            f"the code defines {', '.join(names[:5])}, expected {' and '.join(types)}; rename {best[0]} to {best[1]}",
        )
    if any(name in reply for name in types) or blocks:
        return VetError(
            "extract",
            f"no function {' or '.join(types)} was found: write def {_signature(types[0])} in one block of ```python",
        )
    return VetError("extract", f"no code was found: write {' and '.join(types)} in one block of ```python")


def _check_near_misses(parts: Sequence[Part], chosen: dict[str, Part], types: Sequence[str]) -> None:
    """A function that nothing uses and whose name is almost one that was asked for and is missing."""
    used: set[str] = set().union(*(_uses(p.node) for p in parts))
    for part in parts:
        if isinstance(part.node, ast.FunctionDef) and part.node.name not in used and part.node.name not in SHAPER_TYPES:
            near = difflib.get_close_matches(part.node.name, [t for t in types if t not in chosen], n=1, cutoff=0.8)
            if near:
                raise VetError("extract", f"the code defines {part.node.name}; rename it to {near[0]}")


def _signature(name: str) -> str:
    arguments = {"compute_torque": "action, state", "compute_goal": "state, random",
                 "compute_initial_state": "state, random, rest"}  # fmt: skip
    return f"{name}({arguments.get(name, 'state')})"
