"""Messages to a model and its user about missing and superfluous functions in a reply."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from envolve.llm.vetting.parts import Part
from envolve.llm.vetting.text.fences import Block
from envolve.llm.vetting.text.naming import LONGEST, meant, nearest, signature
from envolve.llm.vetting.text.parsing import VetError

SHOWN = 5  # names in a message
COMPARED = 20  # functions whose names are compared
OWN = "so the task's own is used"
SURE = 0.8  # so alike, one name is the other with a slip of the pen


def nothing_found(
    reply: str,
    blocks: Sequence[Block],
    parts: Sequence[Part],
    broken: Sequence[tuple[Block, VetError]],
    types: Sequence[str],
) -> VetError:
    """Reason why none of the requested functions was found."""
    for part in parts:
        if isinstance(part.node, ast.ClassDef):
            inner = [n.name for n in part.node.body if isinstance(n, ast.FunctionDef) and n.name in types]
            if inner:
                return VetError(
                    "extract",
                    f"line {part.node.lineno}: {inner[0]} is a method of class {part.name[:LONGEST]}; write a plain "
                    f"function: def {signature(inner[0])}, without self",
                )
    defined = re.compile(r"def\s+(" + "|".join(map(re.escape, types)) + r")\b")
    for block, error in reversed(broken):
        if defined.search(block.text) or len(broken) == len(blocks):
            return error
    functions = [part for part in parts if part.is_function]
    if functions:
        text = f"the code defines {names(functions)}, expected {' and '.join(types)}; "
        found = [(part, kind) for part in functions[:COMPARED] if (kind := meant(part.name, part.arguments, types))]
        if found:
            return VetError("extract", f"{text}rename {found[0][0].name[:LONGEST]} to {found[0][1]}")
        return VetError("extract", f"{text}write def {signature(types[0])}")
    if any(name in reply for name in types) or blocks:
        return VetError(
            "extract",
            f"no function {' or '.join(types)} was found: write def {signature(types[0])} in one block of ```python",
        )
    return VetError("extract", f"no code was found: write {' and '.join(types)} in one block of ```python")


def names(functions: Sequence[Part]) -> str:
    """Formats a, b, c and 3 more."""
    found = list(dict.fromkeys(part.name[:LONGEST] for part in functions))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def misnamed(parts: Sequence[Part], kept: Sequence[Part], chosen: dict[str, Part], types: Sequence[str]) -> None:
    """Raises VetError for a function that nothing uses and whose name is, but for a letter or two, one that was asked
    for and is missing."""
    missing = [kind for kind in types if kind not in chosen]
    for part in _unneeded(parts, kept, chosen) if missing else ():
        near = nearest(part.name, missing, SURE)
        used = near is not None and any(part.name in other.uses for other in parts)
        if near and not used and meant(part.name, part.arguments, missing) == near:
            raise VetError(
                "extract", f"line {part.node.lineno}: the code defines {part.name[:LONGEST]}; rename it to {near}"
            )


def left_out(
    parts: Sequence[Part], kept: Sequence[Part], chosen: dict[str, Part], types: Sequence[str]
) -> tuple[str, ...]:
    """Notes on missing functions, and on functions left out because nothing requested uses them."""
    missing = [kind for kind in types if kind not in chosen]
    unneeded = _unneeded(parts, kept, chosen)
    notes, told = [], set()
    for kind in missing:
        text = f"{kind} was asked for and is missing, {OWN}"
        like = next((part for part in unneeded if meant(part.name, part.arguments, missing) == kind), None)
        if like is not None:
            told.add(like.name)
            text += f"; did you mean it by {like.name[:LONGEST]}? Under that name it is left out: call it {kind}"
        notes.append(text)
    rest = [part for part in unneeded if part.name not in told]
    if rest:
        notes.append(f"left out, as nothing that was asked for uses it: {names(rest)}")
    return tuple(notes)


def _unneeded(parts: Sequence[Part], kept: Sequence[Part], chosen: dict[str, Part]) -> list[Part]:
    """Functions that are not part of the module, each once, the last of its name; shapers of other kinds, too."""
    there = {part.name for part in kept} | set(chosen)
    found = {part.name: part for part in parts if part.is_function and part.name not in there}
    return list(found.values())[:COMPARED]
