"""Messages for the model when its code raised: the line, the reason, and the shapes of the tensors in that line."""

from __future__ import annotations

import re
import traceback
from types import FrameType

from torch import Tensor

from envolve.llm.vetting.text.extract import VetError
from envolve.llm.vetting.trace.calling import shape_text
from envolve.llm.vetting.trace.watch import CANDIDATE

LONGEST = 400


def describe(error: BaseException, code: str, n: int, stage: str = "trace") -> VetError:
    """VetError for ``error``, raised by candidate code that was called with n environments."""
    if isinstance(error, VetError):
        return VetError(error.stage, with_source(error.message, code))
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == CANDIDATE]
    lines = [line for f, line in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == CANDIDATE]
    reason = " ".join(str(error).split("\n\n")[0].split())[:LONGEST]
    text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    if not frames:
        return VetError(stage, text)
    shapes = _shapes(frames[-1], _line(code, lines[-1]), n)
    return VetError(stage, with_source(f"line {lines[-1]}: {text}{shapes}{advice(text)}", code))


def with_source(message: str, code: str) -> str:
    """Message with the text of the line that it begins with."""
    found = re.match(r"line (\d+): ", message)
    text = _line(code, int(found[1])) if found else ""
    return f"line {found[1]} ({text}): {message[found.end() :]}" if found and text else message


def _line(code: str, number: int) -> str:
    lines = code.split("\n")  # as Python counts them
    return lines[number - 1].strip()[:120] if 0 < number <= len(lines) else ""


def _shapes(frame: FrameType, line: str, n: int) -> str:
    """Shapes of the tensors that the line names."""
    found = {}
    for name in re.findall(r"[A-Za-z]\w*", line):
        value = frame.f_locals.get(name)
        if isinstance(value, Tensor):
            found[name] = shape_text(list(value.shape), n)
    for holder, key in re.findall(r"(\w+)\[['\"](\w+)['\"]\]", line):
        value = frame.f_locals.get(holder)
        if isinstance(value, dict) and isinstance(value.get(key, 0), Tensor):
            found[f"{holder}[{key!r}]"] = shape_text(list(value[key].shape), n)
    return "; " + ", ".join(f"{name} is {shape}" for name, shape in found.items()) if found else ""


def advice(text: str) -> str:
    """What to write instead, or nothing."""
    if "must match the size" in text or "not broadcast" in text or "shape mismatch" in text:
        return "; to combine [n] with [n, k] write x.unsqueeze(-1), or reduce the other with sum(dim=-1)"
    if "only one element tensors" in text or "Boolean value of Tensor" in text:
        return "; write torch.where(condition, a, b), & | ~ instead of if, and, or, not"
    if "division of integers" in text:
        return "; write x.float() before it, and torch.floor of the quotient"
    if "custom (non-ATen) operator" in text:  # x |= y of a view, or of what has a second name
        return "; write x = x | y, x = x & y, x = x ^ y instead of |=, &=, ^="
    return ""
