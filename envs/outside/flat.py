"""One environment from outside with flat observations: checks what it returns, and turns every misbehaviour into one
exception with one line."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Tuple

import numpy as np

from envolve.core.plugins import said
from envolve.envs.outside.spaces import Action, Observation


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the latter takes longer than some environments' steps


class FlatError(Exception):
    """The environment raised, or returned what it may not. One line."""


class Flat:
    """``reset`` and ``step`` with observations float64 [F], whatever the space."""

    def __init__(self, env: Any, observation: Observation, action: Action) -> None:
        self.env, self.observation, self.action = env, observation, action
        self._flatten: Callable[[Any], Any] = lambda value: value
        if observation.kind == "flattened":
            self._flatten = _flattener(env.observation_space)
        self._size = observation.size

    def reset(self, seed: int) -> Tuple[np.ndarray, Mapping[str, Any]]:
        """Observation and info of a new episode. Raises FlatError."""
        try:
            out = self.env.reset(seed=seed)
        except (Exception, SystemExit) as e:
            if "seed" in str(e) and isinstance(e, TypeError):
                words = "reset takes no seed; Gymnasium's is reset(*, seed=None, options=None)"
                raise FlatError(f"found the old interface: {words}") from e
            raise FlatError(f"reset raised {said(e)[:300]}") from e
        if not isinstance(out, tuple) or len(out) != 2 or not _is_mapping(out[1]):
            words = "expected (observation, info): this is the old interface, which gymnasium.make wraps no more"
            raise FlatError(f"reset returned {type(out).__name__}, {words}")
        return self._vector(out[0]), out[1]

    def step(self, action: Any) -> Tuple[np.ndarray, float, bool, bool, Mapping[str, Any]]:
        """action: the environment's own. Raises FlatError."""
        try:
            out = self.env.step(action)
        except (Exception, SystemExit) as e:
            raise FlatError(f"step raised {said(e)[:300]}") from e
        if not isinstance(out, tuple) or len(out) != 5:
            found = f"{len(out)} values" if isinstance(out, tuple) else type(out).__name__
            words = "expected (observation, reward, terminated, truncated, info)"
            raise FlatError(f"step returned {found}, {words}")
        try:
            reward = float(out[1])
        except Exception:  # an object may raise whatever it likes, and a large integer an OverflowError
            raise FlatError(f"step returned the reward {out[1]!r:.80}, expected a number") from None
        if not -np.inf < reward < np.inf:
            raise FlatError(f"step returned the reward {reward}, expected a finite number")
        try:
            terminated, truncated = bool(out[2]), bool(out[3])
        except Exception:
            found = f"{out[2]!r:.80} and {out[3]!r:.80}"
            raise FlatError(f"step returned {found} for terminated and truncated, expected two flags") from None
        if not _is_mapping(out[4]):
            raise FlatError(f"step returned the info {out[4]!r:.80}, expected a mapping")
        return self._vector(out[0]), reward, terminated, truncated, out[4]

    def _vector(self, value: Any) -> np.ndarray:
        try:
            vector = np.array(self._flatten(value), np.float64).reshape(-1)  # a copy: environments reuse theirs
        except Exception as e:
            raise FlatError(f"found an observation that does not fit its space: {said(e)[:300]}") from e
        if vector.size != self._size:
            raise FlatError(f"found an observation of {vector.size} numbers, expected {self._size} as in its space")
        # the square of a finite vector is finite, but for numbers beyond 1e154; one product is faster than two passes
        if not math.isfinite(vector @ vector) and not np.isfinite(vector).all():
            raise FlatError("found an observation that is not finite")
        return vector

    def random_action(self, random: np.random.Generator) -> Any:
        """The environment's own action, drawn from all of them."""
        if self.action.n:
            return self.action.of_index(int(random.integers(self.action.n)))
        return self.action.of_numbers(random.uniform(-1.0, 1.0, self.action.size))

    def close(self) -> None:
        """Closes the environment; what that raises costs nothing any more."""
        try:
            self.env.close()
        except Exception:
            pass


def _flattener(space: Any) -> Callable[[Any], Any]:
    """Gymnasium's ``flatten``; for Discrete, its one-hot code without the dispatch, which takes ten times as long."""
    from gymnasium.spaces import Discrete, flatten

    if not isinstance(space, Discrete):
        return lambda value: flatten(space, value)
    n, start = int(space.n), int(space.start)

    def one_hot(value: Any) -> np.ndarray:
        index = int(value) - start
        if not 0 <= index < n:
            raise ValueError(f"found {value}, expected {start} to {start + n - 1}")
        code = np.zeros(n)
        code[index] = 1.0
        return code

    return one_hot


def info_vector(info: Mapping[str, Any], names: Tuple[str, ...]) -> np.ndarray:
    """float64 [V]; an entry that is missing, no number or not finite is 0."""
    out = np.zeros(len(names))
    for i, name in enumerate(names):
        try:
            value = float(info.get(name, 0.0))
        except Exception:
            continue
        out[i] = value if -np.inf < value < np.inf else 0.0
    return out
