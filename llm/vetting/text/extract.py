"""The code in a reply of a language model.

A reply has prose, fences (```python, ```, ~~~, indented in a list, without an end where the reply was cut off), several
versions of a function, examples of its use, or no fence at all. ``extract`` returns one module with the functions that
were asked for, what they need, and nothing else; and what was asked for and is missing.

Of several versions of a function the last one counts that can be parsed: models correct themselves downwards. A helper
or constant that two blocks define differently is an error only if functions of both blocks are kept. Whatever a reply
is, reading it takes time in proportion to its length: only so much of it is given to the parser, from its end on.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from envolve.llm.vetting.parts import Module, Part, defines, parts_of, renamed
from envolve.llm.vetting.text.classes import functions_of
from envolve.llm.vetting.text.fences import Block, fences, unfenced
from envolve.llm.vetting.text.missing import left_out, misnamed, nothing_found
from envolve.llm.vetting.text.naming import meant, synonym
from envolve.llm.vetting.text.parsing import MOST_CHARACTERS, MOST_PARTS, PARSER, VetError, parse
from envolve.llm.vetting.text.scan import measure

__all__ = ["MOST_CHARACTERS", "MOST_REPLY", "PARSER", "Extracted", "VetError", "extract", "extract_code", "parse"]

MOST_REPLY = 200_000  # characters of a reply; a long one of a large model is a tenth of that
MOST_GUESSED = 8  # functions of a reply, none with a name that was asked for, whose purpose is guessed
MOST_BLOCKS = 64  # that are read, the last of a reply


class Extracted(NamedTuple):
    """Result of reading a reply."""

    code: str
    notes: tuple[str, ...] = ()  # what was asked for and is missing, and what was left out, for the model and people


def extract_code(reply: str, types: Sequence[str]) -> str:
    """Code found by ``extract``, methods left in their classes. Raises VetError."""
    return extract(reply, types, classes=False).code


def extract(reply: str, types: Sequence[str], classes: bool = True) -> Extracted:
    """The functions among ``types`` (names of shapers) in ``reply``, with helpers, constants and imports that they use.
    classes: take methods out of classes, too. Raises VetError("extract", ...) which says what is wrong with the
    reply."""
    if len(reply) > MOST_REPLY:
        raise VetError(
            "extract",
            f"the reply has {len(reply)} characters, at most {MOST_REPLY} are read: write less, in one block",
        )
    reply = reply.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    blocks = _blocks(reply)
    parts, broken = _read(blocks)
    asked = set(types)
    notes: tuple[str, ...] = ()
    if classes and any(isinstance(part.node, ast.ClassDef) for part in parts) and not _found(parts, asked):
        parts, notes = _out_of_classes(parts, types)
    chosen = {part.name: part for part in parts if part.is_function and part.name in asked}
    parts, called = _by_another_name(parts, chosen, types)
    if not chosen:
        raise nothing_found(reply, blocks, parts, broken, types)
    module = Module(parts, chosen)
    misnamed(parts, module.parts, chosen, types)
    return Extracted(module.text(), (*notes, *called, *left_out(parts, module.parts, chosen, types)))


def _found(parts: Sequence[Part], asked: set[str]) -> bool:
    """True if a function at the top has a name that was asked for, or a synonym of one."""
    return any(part.is_function and (part.name in asked or synonym(part.name) in asked) for part in parts)


def _out_of_classes(parts: list[Part], types: Sequence[str]) -> tuple[list[Part], tuple[str, ...]]:
    """Parts with the functions of the last class that has one which was asked for, and a note."""
    defined = {name for part in parts for name in defines(part.node)}
    for part in reversed(parts):
        if not isinstance(part.node, ast.ClassDef) or part.size > MOST_PARTS:
            continue
        names = {n.name for n in part.node.body if isinstance(n, ast.FunctionDef)}
        if any(name in types or synonym(name) in types for name in names):
            text = functions_of(part.node, types, defined - {part.name})
            if text is None:
                continue
            inside = list(parts_of(parse(text), text, part.block))
            at = parts.index(part)
            return [*parts[:at], *inside, *parts[at + 1 :]], (f"class {part.name[:64]} is taken apart into functions",)
    return parts, ()


def _by_another_name(
    parts: list[Part], chosen: dict[str, Part], types: Sequence[str]
) -> tuple[list[Part], tuple[str, ...]]:
    """Parts with functions under the names that were asked for, where no function has such a name and exactly one, that
    no other uses, is a synonym of it (compute_done, get_reward); and a note on each. Adds them to ``chosen``."""
    missing = [kind for kind in types if kind not in chosen]
    if not missing:
        return parts, ()
    last = {part.name: part for part in parts if isinstance(part.node, ast.FunctionDef) and part.arguments}
    says = {name: synonym(name) for name in last}
    few = len(last) <= MOST_GUESSED
    if few and not chosen and not any(kind in missing for kind in says.values()):  # else nothing would be found
        says = {name: meant(name, part.arguments, missing) for name, part in last.items()}
    notes = []
    for kind in missing:
        names = [name for name, other in says.items() if other == kind]
        if len(names) > 1:  # parts of a sum beside the sum
            names = [name for name in names if not any(name in p.uses for p in last.values() if p is not last[name])]
        if len(names) != 1 or any(names[0] in p.uses for p in parts if p.name != names[0]):
            continue
        old = last[names[0]]
        chosen[kind] = renamed(old, kind)
        parts = [chosen[kind] if part is old else part for part in parts]
        notes.append(f"{names[0]} is taken as {kind}")
    return parts, tuple(notes)


def _blocks(reply: str) -> list[Block]:
    """Possible code blocks, at most the last ones."""
    fenced = [b for b in fences(reply) if b.text.strip()][-MOST_BLOCKS:]
    return fenced or ([Block(reply, False)] if _is_code(reply) else unfenced(reply))


def _read(blocks: Sequence[Block]) -> tuple[list[Part], list[tuple[Block, VetError]]]:
    """The statements of all blocks in their order, and the blocks that cannot be parsed. All together may have
    MOST_PARTS; the last ones are read first."""
    found: list[list[Part]] = []
    broken: list[tuple[Block, VetError]] = []
    left = MOST_PARTS
    for i in range(len(blocks) - 1, -1, -1):
        block = blocks[i]
        text = block.text if not block.text.startswith((" ", "\t")) else textwrap.dedent(block.text)
        try:
            tree = _parsed(block, text, left)
            left -= measure(text, left).parts
            found.append(list(parts_of(tree, text, i)))
        except VetError as e:
            broken.append((block, e))
    return [part for parts in reversed(found) for part in parts], broken[::-1]


def _is_code(reply: str) -> bool:
    """Whole reply as a module."""
    try:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return any(isinstance(node, functions) for node in parse(textwrap.dedent(reply)).body)
    except VetError:
        return False


def _parsed(block: Block, text: str, most: int) -> ast.Module:
    """Syntax tree of a block; if the reply ends in it, only if its last function is complete."""
    try:
        tree = parse(text, most=most)
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
        if isinstance(last, ast.FunctionDef) and not any(isinstance(n, ast.Return) for n in ast.walk(last)):
            raise VetError("extract", _cut_off(text))
    return tree


def _cut_off(text: str) -> str:
    last = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
    return (
        f"the reply ends in the middle of the code, at {last[-80:]!r}: write the whole code, shorter, in one "
        "block that ends with ```"
    )
