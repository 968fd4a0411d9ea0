"""An environment from outside (any Gymnasium environment) as a task: P members x N episodes, one environment each.

An environment keeps its state to itself, a task's state is explicit. So a row of the state names an episode and says
how many steps of it were taken; the observation and the info vector of that moment are in the row too. Stepping the
newest moment of an episode steps its environment. Any other row is one that the caller ignores (an episode that is over
waits for the others of its batch): it stays as it is and costs nothing. Environments are made once per process and
reused: an episode gives its environment back when it ends or is released. Those of a deterministic environment serve
all tasks of their class, one after the other; others could carry something over from one chunk to the next.

Observations are (x - mean) / scale with the figures of ``measure.py``, frozen in the configuration. Rewards are the
environment's own, in float64; learners on the task see them times ``reward_scale``.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.envs.outside.build import OutsideError, check_permission, class_in_file, file_and_class, maker
from envolve.envs.outside.flat import Flat, FlatError, info_vector
from envolve.envs.outside.spaces import Action, Observation, typed
from envolve.envs.outside.watch import TooSlow, again, watched
from envolve.envs.task import Task

log = logging.getLogger("envolve")
EPISODE, SEED, AGE, STATUS, HEAD = 0, 1, 2, 3, 4  # columns of the state; then info [V] and observation [F]
RUNNING, TERMINATED, TRUNCATED, FAILED = 0, 1, 2, 3
REMEMBERED = 200_000  # episodes that are over
BATCH = 256  # environments at once; more episodes are tested one batch after the other


class OutsideTask(Task):
    """Base class; ``define.py`` makes a class for one environment."""

    on_host = True
    reset_uniforms = 2
    stops_itself = True
    section: ClassVar[Mapping[str, Any]] = {}  # env_kwargs, wrappers, measured, and sha256 of a file
    observations: ClassVar[Observation]
    actions: ClassVar[Action]
    mean: ClassVar[np.ndarray]  # float64 [F], as scale
    scale: ClassVar[np.ndarray]
    random_return: ClassVar[Optional[float]] = None
    first: ClassVar[Tensor]  # float32 [K, F], as learners see them
    spare: ClassVar[Tuple[int, List[Flat]]] = (-1, [])  # a process, and its environments that no episode uses

    def __init__(self, max_steps: Optional[int] = None, solved_reward: Optional[float] = None) -> None:
        super().__init__(max_steps, solved_reward)
        self._new = itertools.count()
        self._live: Dict[int, Flat] = {}  # environments by the number of their episode
        self._age: Dict[int, int] = {}
        self._start: Dict[int, np.ndarray] = {}  # their first observations
        self._over: Set[int] = set()  # episodes whose environment was given back
        self._free = self._spare() if self.section["measured"]["deterministic"] else []
        self._make: Any = None
        self.complaints: Dict[int, str] = {}  # why an episode failed

    @classmethod
    def _spare(cls) -> List[Flat]:
        """The list of free environments of this process. A child begins with an empty one, not with its parent's."""
        if cls.spare[0] != os.getpid():
            cls.spare = os.getpid(), []
        return cls.spare[1]

    # ------------------------------------------------------------------------------------------------------ as a task

    def reset(self, u: Tensor) -> Tensor:
        """New episodes, each begun when it is first looked at. Their seeds are 31 bits of the two uniforms."""
        P, N = u.shape[:2]
        state = np.full((P, N, HEAD + self.info_size + self.observation_size), math.nan)
        numbers = u.detach().cpu().numpy().astype(np.float64)
        state[..., SEED] = np.floor(numbers[..., 0] * 2**24) * 2**7 + np.floor(numbers[..., 1] * 2**7)
        state[..., EPISODE] = np.fromiter(itertools.islice(self._new, P * N), np.float64, P * N).reshape(P, N)
        state[..., AGE], state[..., STATUS] = 0, RUNNING
        return torch.from_numpy(state).to(u.device)

    def observe(self, state: Tensor) -> Tensor:
        return torch.from_numpy(self.observe_rows(state.detach().cpu().numpy())).to(state.device)

    def observe_rows(self, rows: np.ndarray) -> np.ndarray:
        """``observe`` of states float64 [P, N, S] in an array."""
        seen: np.ndarray = ((self._raw(rows) - self.mean) / self.scale).astype(np.float32)
        return seen

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Rewards are float64: their sums equal those of a plain loop over the environment."""
        after = state.detach().cpu().numpy().copy()
        reward = self.step_rows(after, action.detach().cpu().numpy())
        out = after, reward, after[..., STATUS] == TERMINATED
        next_state, paid, terminated = (torch.from_numpy(x).to(state.device) for x in out)
        return next_state, paid, terminated

    def step_rows(self, rows: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Steps states float64 [P, N, S], contiguous, in place. action: int64 [P, N] or float32 [P, N, A] -> rewards
        float64 [P, N]."""
        assert rows.flags.c_contiguous  # else the next line copies them
        P, N, S = rows.shape
        flat, rewards = rows.reshape(P * N, S), np.zeros(P * N)
        running = np.flatnonzero(flat[:, STATUS] == RUNNING)
        heads = flat[running, :STATUS].astype(np.int64).tolist()
        chosen = self._own_actions(action.reshape(P * N, -1)[running])
        with watched():
            for i, (number, seed, age), own in zip(running.tolist(), heads, chosen):
                rewards[i] = self._step(flat[i], number, seed, age, own)
        return rewards.reshape(P, N)

    def _own_actions(self, chosen: np.ndarray) -> Sequence[Any]:
        """The environment's own actions. chosen: indices [n, 1] or numbers [n, A]."""
        if self.actions.n:
            return self.actions.of_indices(chosen[:, 0])
        return list(self.actions.of_numbers(chosen))

    def info(self, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
        return next_state[..., HEAD : HEAD + self.info_size].nan_to_num().to(torch.float32)

    def stopped(self, state: Tensor) -> Tuple[Tensor, Tensor]:
        status = state[..., STATUS]
        return status == TRUNCATED, status == FAILED

    def first_observations(self, u: Tensor) -> Tensor:
        """One of the observations that ``measure.py`` saw after a reset, chosen by the first uniform: float32
        [P, N, F].
        A world without the task's dynamics needs no environment."""
        rows = (u[..., 0] * len(self.first)).long().clamp_(max=len(self.first) - 1)
        return self.first.to(u.device)[rows]

    def release(self, state: Tensor) -> None:
        for number in state.detach()[..., EPISODE].reshape(-1).tolist():
            self._give_back(int(number))

    def complaint(self, state: Tensor) -> str:
        """Why an episode of these states failed; "": none did."""
        numbers = state.detach()[..., EPISODE].reshape(-1).tolist()
        return next((self.complaints[int(n)] for n in numbers if int(n) in self.complaints), "")

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        low, high = ((x - self.mean) / self.scale for x in (self.observations.low, self.observations.high))
        return low.tolist(), high.tolist()

    def episodes_at_once(self, members: int) -> int:
        return max(1, BATCH // members)

    # ------------------------------------------------------------------------------------------------ in its own units

    def to_own(self, observation: np.ndarray, learned: bool) -> np.ndarray:
        """What learners see [..., F] -> the environment's own units and shape. learned: a network drew it, so it is
        neither rounded nor clipped; else it is what the environment said, in its type."""
        value, space = observation.astype(np.float64) * self.scale + self.mean, self.observations
        shape = observation.shape[:-1] + space.shape
        if learned:
            return value.astype(np.float32).reshape(shape)
        return typed(np.clip(value, space.low, space.high), space.dtype).reshape(shape)

    # ----------------------------------------------------------------------------------------------- the environments

    def _raw(self, rows: np.ndarray) -> np.ndarray:
        """Observations float64 [P, N, F] in the environment's units; begins the episodes that were not looked at."""
        raw: np.ndarray = rows[..., HEAD + self.info_size :]
        new = np.isnan(raw[..., 0])
        if new.any():
            raw = raw.copy()
            with watched():
                for p, n in np.argwhere(new):
                    raw[p, n] = self._begin(int(rows[p, n, EPISODE]), int(rows[p, n, SEED]))[0]
        return raw

    def _begin(self, number: int, seed: int) -> Tuple[np.ndarray, Optional[Flat]]:
        """First observation of the episode and, if it can go on, its environment."""
        if number in self._live:
            return self._start[number], self._live[number]
        zero = np.zeros(self.observation_size)
        if number in self.complaints or number in self._over:
            return zero, None
        env = None
        try:
            env = self._free.pop() if self._free else self._open()
            again()
            observation, _ = env.reset(seed)
        except (FlatError, OutsideError, TooSlow) as e:
            self._fail(number, env, e)
            return zero, None
        self._live[number], self._age[number], self._start[number] = env, 0, observation
        return observation, env

    def _step(self, row: np.ndarray, number: int, seed: int, age: int, action: Any) -> float:
        """Steps the row of a running episode in place -> its reward."""
        env = self._live.get(number)
        if env is None and age == 0:
            env = self._begin(number, seed)[1]
        if env is None and number in self.complaints:
            row[STATUS] = FAILED
            return math.nan
        if env is None or self._age[number] != age:
            return 0.0  # not the newest moment: the caller ignores it
        try:
            again()
            observation, reward, terminated, truncated, info = env.step(action)
        except (FlatError, TooSlow) as e:
            self._fail(number, env, e)
            row[STATUS] = FAILED
            return math.nan
        self._age[number] = age + 1
        row[AGE] = age + 1
        row[HEAD + self.info_size :] = observation
        if self.info_names:
            row[HEAD : HEAD + self.info_size] = info_vector(info, self.info_names)
        if terminated or truncated:
            row[STATUS] = TERMINATED if terminated else TRUNCATED
            self._give_back(number)
        return reward

    def _open(self) -> Flat:
        if self._make is None:
            check_permission(self.name, self.section)
            cls = None
            if file_and_class(self.name) is not None:
                cls = class_in_file(self.name, str(self.section.get("sha256")))
            self._make = maker(self.name, self.section, cls)
        env = self._make()
        self._check_spaces(env)
        return Flat(env, self.observations, self.actions)

    def _check_spaces(self, env: Any) -> None:
        from envolve.envs.outside.spaces import SpaceError, action_of, observation_of

        try:
            found = observation_of(env.observation_space), action_of(env.action_space)
        except SpaceError as e:
            raise OutsideError(f"{self.name}: {e}") from None
        expected = self.section["measured"]["observation"], self.section["measured"]["action"]
        for what, mine, theirs in zip(("observations", "actions"), found, expected):
            if {k: v for k, v in mine.items() if k != "text"} != {k: v for k, v in theirs.items() if k != "text"}:
                words = "another version is installed, or its spaces change from one instance to the next"
                raise OutsideError(f"{self.name}: its {what} are not those that were measured: {words}")

    def _fail(self, number: int, env: Optional[Flat], error: BaseException) -> None:
        """The episode has failed. An environment that misbehaved is not used again."""
        text = str(error)
        self.complaints[number] = text if text.startswith(self.name) else f"{self.name}: {text}"
        log.warning("%s", self.complaints[number])
        self._give_back(number)
        if env is not None:
            if env in self._free:
                self._free.remove(env)
            env.close()

    def _give_back(self, number: int) -> None:
        env = self._live.pop(number, None)
        self._age.pop(number, None)
        self._start.pop(number, None)
        self._over.add(number)
        if len(self._over) > REMEMBERED:
            self._over = set(sorted(self._over)[REMEMBERED // 2 :])
        if env is not None:
            self._free.append(env)
