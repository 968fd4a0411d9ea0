"""Cost of a call of a Python shaper, counted instead of timed: the same on any machine under any load.

In the unit in which graphs are counted (envs/graph/plan.py), numbers that operations on tensors read and write; an
operation by itself counts too, since one on a few numbers takes torch as long as one on thousands.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envolve.envs.graph.plan import PRODUCTS, WORK, WORK_PER_ROW

OPERATION = 2**12  # numbers that torch reads and writes in the time of a call from Python


class TooMuch(BaseException):
    """Raised inside the counted function; not an Exception, so that it is not swallowed by accident."""


def allowed(rows: int) -> int:
    """Largest allowed cost of a call for this many environments, the same as for graphs."""
    return WORK + WORK_PER_ROW * rows


def cost(call: Callable[[], Any], most: int) -> int:
    """Cost of one call, which is ended as soon as it exceeds ``most``. Raises what it raises."""
    count = _Count(most)
    try:
        with count:
            call()
    except TooMuch:
        pass
    return count.total


class _Count(TorchDispatchMode):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.total = most, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by torch when this class is made. True, its default, makes the first use import torch's compiler: 800
        modules and 4 s of CPU time. It is for code that is compiled, which this never is."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        read = list(_tensors(args))
        self.total += OPERATION + sum(math.prod(t.shape) for t in (*read, *_tensors(out)))
        if str(func) in PRODUCTS:  # every output sums as many products as the last but one operand has columns
            self.total += math.prod(out.shape) * read[-2].shape[-1] // 4
        if self.total > self.most:
            raise TooMuch
        return out


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
