"""Evaluator: greedy episodes with the policies written by the learner, and ``evaluations.csv``.

It needs only the run's folder, so a crash costs an evaluation that is begun again. Its episodes depend on
the run's key and the policy's step alone; a curriculum does not reach its environment.

``success`` is the share of episodes in which the environment reported one at least once (``info["success"]``, or
Gymnasium-Robotics' ``is_success``); empty where none of the episodes has such a key.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from envolve.core import rng
from envolve.core.files import TABLE_BYTES, read_text
from envolve.distributed.files.params import TrainParamsBase, flat
from envolve.distributed.files.policy_file import Policy, greedy_policy, read_policy
from envolve.distributed.programs.collector import seed_of
from envolve.distributed.programs.learner import POLICIES, Kept, stays
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError

EVALUATIONS = "evaluations.csv"
HEADER = ("step", "member", "episodes", "mean_return", "std_return", "mean_length", "success")
REPORTED = ("success", "is_success")  # keys of info


def greedy_episode(env: Any, policy: Policy, seed: int, horizon: int) -> tuple[float, int, float]:
    """Return and length of an episode, and its success, 0 or 1; NaN if none was reported."""
    obs, _ = env.reset(seed=seed)
    total, length, over, success = 0.0, 0, False, math.nan
    while not over and length < horizon:
        obs, reward, terminated, truncated, info = env.step(policy(flat(obs)[None])[0])
        total, length, over = total + float(reward), length + 1, terminated or truncated
        for name in REPORTED:
            if name in info:
                success = max(float(bool(info[name])), 0.0 if math.isnan(success) else success)
    return total, length, success


class Evaluator:
    def __init__(self, params: TrainParamsBase, keys: Tensor, folder: Path, kept: Kept = stays) -> None:
        """keys: int64 [P], random keys of the members; folder: of the run. Raises ParamsError, RunError."""
        self.params, self.folder, self.kept, self.key = params, folder, kept, rng.fold(keys, rng.TEST)
        self.env = params.eval_env(0, seed_of(self.key[0], 0))
        self.lines = self._read()

    def _read(self) -> list[tuple[str, ...]]:
        path = self.folder / EVALUATIONS
        lines = list(csv.reader(read_text(path, TABLE_BYTES).splitlines()))[1:] if path.exists() else []
        for number, line in enumerate(lines, 2):
            if len(line) not in (len(HEADER), len(HEADER) - 1) or not all(v.isdecimal() for v in line[:2]):
                words = f"expected values of {', '.join(HEADER)}; remove the line, and its policy is evaluated again"
                raise RunError(f"{path}:{number}: found {','.join(line)[:80]!r}, {words}")
        return [tuple(line + [""] * (len(HEADER) - len(line))) for line in lines]  # earlier versions had no success

    def due(self) -> list[Path]:
        """Policies to evaluate, the oldest first."""
        p = self.params
        done = {int(line[0]) for line in self.lines}
        last = p.num_iter * p.num_steps_per_iter
        found = []
        for path in sorted((self.folder / POLICIES).glob("policy_checkpoint_*.pt")):
            step = int(path.stem.rpartition("_")[2])
            wanted = step % (p.eval_period * p.num_steps_per_iter) == 0 or step == last
            if wanted and step not in done:
                found.append(path)
        return found

    def evaluate(self, path: Path) -> list[tuple[int, dict[str, float]]]:
        """Evaluates a policy -> step, mean return and, if reported, success of every member. Raises CheckpointError,
        OSError."""
        content = read_policy(path)
        found = []
        for member in range(len(content["actor"])):
            policy = greedy_policy(content, member)
            seeds = [seed_of(self.key[member], content["step"] + 1, e) for e in range(self.params.n_eval_episodes)]
            episodes = [greedy_episode(self.env, policy, seed, self.params.horizon) for seed in seeds]
            returns, lengths, successes = np.array(episodes).T
            values = f"{returns.mean():.6g}", f"{returns.std():.6g}", f"{lengths.mean():.6g}"
            told = {} if np.isnan(successes).all() else {"success": float(np.nan_to_num(successes).mean())}
            success = "".join(f"{value:.6g}" for value in told.values())
            self.lines.append((str(content["step"]), str(member), str(len(episodes)), *values, success))
            found.append((content["step"], {"mean_return": float(returns.mean()), **told}))
        self._write()
        return found

    def _write(self) -> None:
        self.lines.sort(key=lambda line: (int(line[0]), int(line[1])))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([HEADER, *self.lines])
        write_atomic(str(self.folder / EVALUATIONS), text.getvalue().encode())
        self.kept(EVALUATIONS)

    def close(self) -> None:
        self.env.close()
