"""Random numbers of a task that belong to candidates.

The libraries draw from torch's global generator, for all environments at once or for those that begin an episode. One
candidate's fall would move every other candidate's numbers. ``Draws`` answers torch's random functions instead: each
environment has a key (its candidate's, and its number within the candidate) and a counter of the numbers drawn for it.
What an environment sees then depends on its own past alone, and is the same in a simulation of this candidate only.

Axes: R environments (rows), w numbers of each.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from envolve.core import rng
from envolve.envs.sim.simulator import SimulatorError


class Draws(TorchFunctionMode):
    """Within ``with draws:``, torch's random functions draw by row. Raises SimulatorError for numbers that are not one
    row per environment, and for a function that it does not know."""

    def __init__(self, key: Tensor, N: int, device: torch.device) -> None:
        """key: int64 [P], of the candidates; N environments each."""
        super().__init__()
        self.N, self.device = N, device
        self.R = len(key) * N
        self._rows: Optional[Tensor] = None  # int64, environments that the running code draws for; None: all
        self._shared = False  # the running code draws for all environments at once
        one = torch.zeros(1, dtype=torch.int64, device=device)
        self._everyones = rng.bits(rng.fold(one, rng.MANAGERS), one)  # key of these numbers, no candidate's
        self.begin(key)

    def begin(self, key: Tensor) -> None:
        """Restarts every environment's sequence, with keys int64 [P]."""
        number = torch.arange(self.N, device=self.device).repeat(len(key))
        own = rng.fold(key.to(self.device), rng.MANAGERS).repeat_interleave(self.N)
        self._key = rng.bits(own, number)
        self._count = torch.zeros(self.R, dtype=torch.int64, device=self.device)
        self._common = -(2**40)  # counter of numbers that all environments share, far from the others

    @contextlib.contextmanager
    def of(self, rows: Optional[Tensor], shared: bool = False) -> Iterator[None]:
        """Code within draws for these environments, int64; None: for all."""
        before = self._rows, self._shared
        self._rows, self._shared = rows, shared
        try:
            yield
        finally:
            self._rows, self._shared = before

    @contextlib.contextmanager
    def watched(self, task: str) -> Iterator[None]:
        """Active within; raises SimulatorError if torch's global generator was used all the same."""
        before = self._global()
        with self:
            yield
        if not torch.equal(before, self._global()):
            raise SimulatorError(f"{task} draws random numbers in compiled code, where candidates cannot be kept apart")

    def _global(self) -> Tensor:
        return torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()

    # ------------------------------------------------------------------------------------------------------- numbers

    def _take(self, shape: Sequence[int]) -> Tuple[Tensor, Tensor]:
        """Keys and counters of numbers of this shape: int64 [K, w] each."""
        given, width = (shape[0] if shape else 1), math.prod(shape[1:])
        every = torch.arange(self.R, device=self.device)
        if self._shared and given != self.R:  # one number for all environments
            number = self._common + torch.arange(given * width, device=self.device)
            self._common += given * width
            return self._everyones, number.view(given, width)
        rows = every if self._rows is None else self._rows
        if given not in (len(rows), self.R):
            raise SimulatorError(self._unfit(shape))
        at = rows if given == len(rows) else every  # computed for all, used for some
        number = self._count[at][:, None] + torch.arange(width, device=self.device)
        self._count[rows] += width
        return self._key[at][:, None], number

    def _unfit(self, shape: Sequence[int]) -> str:
        expected = self.R if self._rows is None else f"{len(self._rows)} or {self.R}"
        return (
            f"the task draws random numbers of shape {list(shape)}, expected {expected} rows: one for each environment,"
            " so that candidates can be kept apart"
        )

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """float32 in [0, 1)."""
        key, number = self._take(shape)
        return rng.uniform(key, number).view(tuple(shape))

    def normal(self, shape: Sequence[int]) -> Tensor:
        key, number = self._take(shape)
        return rng.normal(key, number).view(tuple(shape))

    # ------------------------------------------------------------------------------------------- torch's functions

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        answer = ANSWERS.get(func)
        if answer is None:
            return func(*args, **(kwargs or {}))
        return answer(self, *args, **(kwargs or {}))


def _shape(size: Tuple[Any, ...]) -> List[int]:
    """Shape from f(3, 4), f((3, 4)) or f(torch.Size)."""
    if len(size) == 1 and not isinstance(size[0], int):
        return [int(n) for n in size[0]]
    return [int(n) for n in size]


def _rand(d: Draws, *size: Any, dtype: Any = None, **_: Any) -> Tensor:
    return d.uniform(_shape(size or (_.get("size", ()),))).to(dtype or torch.float32)


def _randn(d: Draws, *size: Any, dtype: Any = None, **_: Any) -> Tensor:
    return d.normal(_shape(size or (_.get("size", ()),))).to(dtype or torch.float32)


def _rand_like(d: Draws, x: Any, dtype: Any = None, **_: Any) -> Tensor:
    return d.uniform(list(x.shape)).to(dtype or x.dtype)


def _randn_like(d: Draws, x: Any, dtype: Any = None, **_: Any) -> Tensor:
    return d.normal(list(x.shape)).to(dtype or x.dtype)


def _integers(d: Draws, low: int, high: int, shape: Sequence[int]) -> Tensor:
    return low + (d.uniform(shape).double() * (high - low)).long()


def _randint(d: Draws, *given: Any, dtype: Any = None, **named: Any) -> Tensor:
    """randint(high, size), randint(low, high, size), by position or by name."""
    parts = list(given)
    size = named["size"] if "size" in named else parts.pop()
    high = named["high"] if "high" in named else parts.pop()
    low = named.get("low", parts.pop() if parts else 0)
    return _integers(d, int(low), int(high), _shape((size,))).to(dtype or torch.int64)


def _randint_like(d: Draws, x: Any, *given: Any, dtype: Any = None, **named: Any) -> Tensor:
    parts = list(given)
    high = named["high"] if "high" in named else parts.pop()
    low = named.get("low", parts.pop() if parts else 0)
    return _integers(d, int(low), int(high), list(x.shape)).to(dtype or x.dtype)


def _uniform_(d: Draws, x: Tensor, low: float = 0.0, high: float = 1.0, **named: Any) -> Tensor:
    low, high = named.get("from", low), named.get("to", high)
    return x.copy_(d.uniform(list(x.shape)) * (high - low) + low)


def _normal_(d: Draws, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return x.copy_(d.normal(list(x.shape)) * std + mean)


def _unknown(name: str) -> Callable[..., Any]:
    def refuse(d: Draws, *args: Any, **kwargs: Any) -> Any:
        raise SimulatorError(f"the task calls torch's {name}, whose numbers candidates cannot have apart")

    return refuse


ANSWERS: Dict[Any, Callable[..., Any]] = {
    torch.rand: _rand, torch.randn: _randn, torch.rand_like: _rand_like, torch.randn_like: _randn_like,
    torch.randint: _randint, torch.randint_like: _randint_like,
    Tensor.uniform_: _uniform_, Tensor.normal_: _normal_,
    **{getattr(torch, n): _unknown(n) for n in ("randperm", "multinomial", "bernoulli", "poisson", "normal")},
    **{getattr(Tensor, n): _unknown(n) for n in
       ("multinomial", "bernoulli", "bernoulli_", "random_", "exponential_", "geometric_", "cauchy_", "log_normal_")},
}  # fmt: skip
