"""What an environment from outside is like: its spaces, limits and scales, found by acting at random.

Run as a process of its own (``python3 -m envolve.envs.outside.measure``, a request as JSON on the standard input, the
answer as JSON on the standard output), so that an environment which crashes or hangs costs its user a message. The
answer depends on the environment and the random seed alone; only of an environment so slow that 3,000 steps take more
than a minute fewer are taken. It is measured once: a run that goes on, its workers and its world file have the figures.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

import numpy as np

from envolve.core import plugins
from envolve.core.environ import search_path, words_of
from envolve.envs.outside import spaces
from envolve.envs.outside.build import OutsideError, class_in, file_and_class, maker
from envolve.envs.outside.flat import Flat, FlatError

STEPS, LEAST_STEPS = 3000, 300  # of random actions, from which scales are estimated
SLOW = 60.0  # s of CPU after which fewer steps must do; what was measured is frozen in the configuration
FIRST_NUMBERS, FIRST_LEAST, FIRST_MOST = 8192, 16, 200  # numbers of all first observations, and how many there are
MAX_INFO = 64
DEFAULT_STEPS = 1000  # of an episode, where the environment sets no limit
ALIKE = 3  # truncated episodes of one length that show a limit
SECONDS = 600.0  # until the process is ended
LARGEST = float(np.finfo(np.float32).max)
ONE_IN = 5  # calls that may fail; the rest still says what the environment is like
FEW_CALLS = 20  # of which the failed ones say little
LUCKLESS = 10  # episodes of which none came to an end
RAISED, MOST_WORDS = "raised", 400  # entry of what is measured, only where calls failed: the first, and how many
T = TypeVar("T")


class UnusableError(OutsideError):
    """An environment that was made, but raises or returns what it may not."""


def measure(name: str, section: Mapping[str, Any], seed: int = 0, path: Optional[str] = None) -> Dict[str, Any]:
    """Measures in a child process -> the entry ``measured`` of the task's section.

    section: ``env_kwargs`` and ``wrappers``; path: of the file that defines the environment, if one does. Raises
    OutsideError.
    """
    request = {
        "name": name,
        "seed": seed,
        "path": path,
        "env_kwargs": section.get("env_kwargs") or {},
        "wrappers": section.get("wrappers") or [],
    }
    environ = dict(os.environ, PYTHONPATH=search_path(), OMP_NUM_THREADS="1")
    try:
        done = subprocess.run(
            words_of("envolve.envs.outside.measure"),
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=SECONDS,
            env=environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OutsideError(f"{name}: {STEPS} random steps took longer than {SECONDS:.0f} s: does it hang?") from None
    lines = done.stdout.decode(errors="replace").strip().splitlines()  # packages greet their users in the lines before
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise OutsideError(f"{name}: its process ended with {ended}" + (f": {said[-1][:300]}" if said else ""))
    if "error" in answer:
        raise (UnusableError if answer.get("made") else OutsideError)(str(answer["error"])[:1000])
    return dict(answer["measured"])


def _measure(name: str, section: Mapping[str, Any], seed: int, cls: Optional[type]) -> Dict[str, Any]:
    make = maker(name, section, cls)
    env = make()
    try:
        observation, action = spaces.observation_of(env.observation_space), spaces.action_of(env.action_space)
    except spaces.SpaceError as e:
        raise OutsideError(f"{name}: {e}") from None
    both = spaces.read_observation(observation), spaces.read_action(action)
    calls = _Calls(Flat(env, *both), lambda: Flat(make(), *both))
    count = max(FIRST_LEAST, min(FIRST_MOST, FIRST_NUMBERS // both[0].size))
    first, began = [], time.process_time()
    for i in range(count):
        if i >= FIRST_LEAST and time.process_time() - began > SLOW:
            break
        begin = calls.reset(seed + i)
        if begin is not None:
            first.append(begin[0])
    sample = _Sample(calls, seed)
    deterministic = _same_twice(calls, seed)
    calls.check()
    calls.flat.close()
    farthest = max(float(np.abs(row).max()) for row in first + sample.observations)
    if farthest > LARGEST:
        words = "learners see float32: wrap it in a wrapper that scales them"
        raise OutsideError(f"{name}: found observations up to {farthest:.2g}, expected at most {LARGEST:.2g}: {words}")
    mean, scale = _scales(sample.observations, both[0])
    spec = getattr(env, "spec", None)
    threshold = getattr(spec, "reward_threshold", None)
    limit = getattr(spec, "max_episode_steps", None) or sample.own_limit()
    return {
        "observation": observation,
        "action": action,
        "max_steps": int(limit) if limit else DEFAULT_STEPS,
        "own_limit": bool(limit),
        "solved_reward": None if threshold is None else float(threshold),
        "info_names": sample.info_names(),
        "observation_mean": mean,
        "observation_scale": scale,
        "reward_scale": _reward_scale(sample.rewards),
        "first_observations": [[_short(x) for x in row] for row in first],
        "random_return": sample.mean_return(),
        "random_episodes": len(sample.returns),
        "steps": len(sample.rewards),
        "deterministic": deterministic,
        "versions": _versions(env),
        **(
            {RAISED: calls.words()} if calls.first else {}
        ),  # no key where nothing was raised: earlier measurements stay equal
    }


class _Calls:
    """Calls of an environment that may fail now and then, as they may in a run. After one that failed a new environment
    takes the place of the old, whose state nobody knows. Raises FlatError once more than one in ONE_IN has failed."""

    def __init__(self, flat: Flat, make: Callable[[], Flat]) -> None:
        self.flat, self._make, self.first = flat, make, ""
        self.tried, self.failed = {"step": 0, "reset": 0}, {"step": 0, "reset": 0}

    def reset(self, seed: int) -> Optional[Tuple[np.ndarray, Mapping[str, Any]]]:
        """As :meth:`Flat.reset`; None: it failed."""
        return self._try("reset", lambda: self.flat.reset(seed))

    def step(self, action: Any) -> Optional[Tuple[np.ndarray, float, bool, bool, Mapping[str, Any]]]:
        """As :meth:`Flat.step`; None: it failed."""
        return self._try("step", lambda: self.flat.step(action))

    def _try(self, call: str, function: Callable[[], T]) -> Optional[T]:
        self.tried[call] += 1
        try:
            return function()
        except FlatError as e:
            self._note(call, e)
            return None

    def _note(self, call: str, error: FlatError) -> None:
        self.failed[call] += 1
        if self.tried == self.failed == {"step": 0, "reset": 2}:
            raise error  # nothing has ever worked, as of an environment of the old interface
        self.first = self.first or "".join(c if c.isprintable() else " " for c in str(error)[: MOST_WORDS - 100])
        self.check(spare=FEW_CALLS)
        self.flat.close()
        self.flat = self._make()

    def check(self, spare: int = 0) -> None:
        """Raises FlatError. spare: calls that count as if they had worked."""
        if any(self.failed[call] * ONE_IN > self.tried[call] + spare for call in self.failed):
            raise FlatError(self.words())

    def words(self) -> str:
        """The first failure, and how many there were."""
        counts = [f"{self.failed[call]} of {n:,} {call}s" for call, n in self.tried.items() if self.failed[call]]
        return f"{self.first} in {' and '.join(counts)}"


class _Sample:
    """STEPS random actions. An episode that failed has no return."""

    def __init__(self, calls: _Calls, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.observations: List[np.ndarray] = []
        self.rewards: List[float] = []
        self.returns: List[float] = []  # of episodes that ended
        self.truncated: List[int] = []  # their lengths, of those that a limit ended
        self.numeric: Dict[str, bool] = {}
        episode, total, length, over, failed = 0, 0.0, 0, True, 0
        began = time.process_time()
        for _ in range(STEPS):
            if len(self.rewards) >= LEAST_STEPS and over and time.process_time() - began > SLOW:
                break
            if over:
                begin, episode = calls.reset(seed + episode), episode + 1
                if begin is None:
                    continue
                observation, info = begin
                self._note(info)
                self.observations.append(observation)
                total, length, over = 0.0, 0, False
            after = calls.step(calls.flat.random_action(random))
            if after is None:
                over, failed = True, failed + 1
                if failed >= LUCKLESS and not self.returns:
                    raise FlatError(f"{calls.words()}: {failed} of {failed} episodes failed")
                continue
            observation, reward, terminated, truncated, info = after
            self.observations.append(observation)
            self.rewards.append(reward)
            self._note(info)
            total, length = total + reward, length + 1
            over = terminated or truncated
            if truncated and not terminated:
                self.truncated.append(length)
            if over:
                self.returns.append(total)

    def _note(self, info: Mapping[str, Any]) -> None:
        for key, value in info.items():
            if isinstance(key, str):
                self.numeric[key] = self.numeric.get(key, True) and _is_number(value)

    def own_limit(self) -> Optional[int]:
        """The time limit of an environment whose registration names none: at least ALIKE episodes were truncated, all
        after as many steps."""
        return self.truncated[0] if len(self.truncated) >= ALIKE and len(set(self.truncated)) == 1 else None

    def info_names(self) -> List[str]:
        """Entries that were a number whenever they were there, by name."""
        return sorted(key for key, numeric in self.numeric.items() if numeric and len(key) <= 100)[:MAX_INFO]

    def mean_return(self) -> Optional[float]:
        return float(np.mean(self.returns)) if self.returns else None


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, (bool, int, float, np.bool_, np.number)) and math.isfinite(float(value))
    except (TypeError, OverflowError):  # complex numbers, and integers beyond all floats
        return False


def _scales(rows: List[np.ndarray], space: spaces.Observation) -> Tuple[List[float], List[float]]:
    """Mean and scale of every feature. A feature is centred by its mean and divided by the largest of: its standard
    deviation, a sixth of the range that was seen, and a twentieth of its space's range, if that says anything. The last
    two keep a feature that random actions hardly move from becoming huge once an agent moves it. One-hot codes of
    flattened spaces stay as they are, and so does a feature that never changed, as far as float32 can tell."""
    x = np.stack(rows)
    low, high = x.min(0), x.max(0)
    bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.high - space.low < 2 * spaces.HUGE)
    width = np.where(bounded, space.high, 0.0) - np.where(bounded, space.low, 0.0)
    scale = np.maximum(np.maximum(x.std(0), (high - low) / 6.0), width / 20.0)
    mean = x.mean(0)
    code = bounded & (space.low == 0) & (space.high == 1) if space.kind == "flattened" else np.zeros(len(mean), bool)
    still = (scale.astype(np.float32) == 0) | ~np.isfinite(scale) | code
    mean, scale = np.where(still, 0.0, mean), np.where(still, 1.0, scale)
    return [_short(v) for v in mean], [_short(v) for v in scale]


def _reward_scale(rewards: List[float]) -> float:
    """1 over the root mean square of a step's reward, from 1e-30 to 1e30; 1 where none was paid."""
    size = float(np.sqrt(np.mean(np.square(rewards)))) if rewards else 0.0
    return _short(min(max(1.0 / size, 1e-30), 1e30)) if size > 0 and math.isfinite(size) else 1.0


def _short(x: float) -> float:
    """Rounded to float32: as precise as learners see it, and short in a file."""
    return float(str(np.float32(x)))


def _same_twice(calls: _Calls, seed: int, steps: int = 200) -> bool:
    """Returns whether two episodes with one seed and the same actions are the same."""
    runs = []
    for _ in range(2):
        random = np.random.default_rng(seed + 1)
        begin = calls.reset(seed)
        rows: List[Any] = [begin and begin[0].tobytes()]
        for _ in range(steps if begin else 0):
            after = calls.step(calls.flat.random_action(random))
            if after is None:  # it must fail at this step each time
                rows.append(None)
                break
            observation, reward, terminated, truncated, _ = after
            rows.append((observation.tobytes(), reward, terminated, truncated))
            if terminated or truncated:
                break
        runs.append(rows)
    return runs[0] == runs[1]


def _versions(env: Any) -> Dict[str, str]:
    from importlib import metadata

    names = {"gymnasium", type(env.unwrapped).__module__.split(".")[0]}
    out = {}
    for name in sorted(names):
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return out


def main() -> None:
    request = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)  # what the environment prints is not the answer
    try:
        cls = None
        if request["path"] is not None:
            reference = file_and_class(request["name"])
            assert reference is not None
            cls = class_in(plugins.load(request["path"]), reference[1])
        answer: Dict[str, Any] = {"measured": _measure(request["name"], request, request["seed"], cls)}
    except (OutsideError, FlatError, plugins.PluginError, ValueError) as e:
        text = str(e)
        said = text if text.startswith(request["name"]) else f"{request['name']}: {text}"
        answer = {"error": said, "made": isinstance(e, FlatError)}
    with os.fdopen(out, "w") as file:
        file.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
