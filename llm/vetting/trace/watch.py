"""Observers of a candidate's running code: current line, and forbidden operations."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envolve.llm.vetting.text.extract import VetError

CANDIDATE = "<candidate>"  # the file name that a candidate's code is compiled under
ADVICE = {
    "_local_scalar_dense": "a Python number or a truth value is made from a tensor (an if, and, or, not, min(), max(), "
    "float() or round() on a tensor), but a tensor has a value per environment: write torch.where(condition, a, b), "
    "& | ~, torch.minimum, torch.maximum",
    "nonzero": "how many rows this gives depends on the data: write torch.where(condition, a, b)",
    "masked_select": "how many rows this gives depends on the data: write torch.where(condition, a, b)",
    "unique": "how many rows this gives depends on the data",
    "empty": "its numbers are arbitrary: write torch.zeros",
}  # fmt: skip


def line_of_candidate() -> int:
    """Current line of the candidate's code, 0 if it is not running."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == CANDIDATE:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def refused(why: str) -> VetError:
    """For the code that runs now."""
    return VetError("trace", f"line {line_of_candidate()}: {why}")


def refuse_if_never(func: Any) -> None:
    """Raises VetError for operations that no candidate may use, whatever their arguments."""
    name = func._schema.name.split("::")[1]
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise refused(
            f"torch.{name} draws random numbers, which would make no run "
            "repeatable; compute_initial_state and compute_goal may use random.uniform and random.normal, "
            "the others none",
        )
    for part in (name, name.rstrip("_")):
        if part in ADVICE:
            raise refused(ADVICE[part])


class Watch(TorchDispatchMode):
    """Refuses in-place changes of the inputs, random numbers, and numbers taken out of tensors."""

    def __init__(self, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        self.owners = {t.untyped_storage()._cdata for t in inputs.values()}
        self.names = {id(t): name for name, t in inputs.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        refuse_if_never(func)
        if func._schema.is_mutable:
            for given, declared in zip(args, func._schema.arguments):
                written = declared.alias_info is not None and declared.alias_info.is_write
                if written and isinstance(given, Tensor) and given.untyped_storage()._cdata in self.owners:
                    what = f"state[{self.names[id(given)]!r}]" if id(given) in self.names else "the state"
                    raise refused(
                        f"{what} is changed in place, and others read it too: "
                        "work on a copy (x = x + y, or x = x.clone() before)",
                    )
        return func(*args, **(kwargs or {}))


class FirstNotFinite(TorchDispatchMode):
    """Finds the line at which finite numbers first became NaN or infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.operation = 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if not self.line and isinstance(part, Tensor) and part.is_floating_point() and not part.isfinite().all():
                self.line, self.operation = line_of_candidate(), func._schema.name.split("::")[1].rstrip("_")
        return out
