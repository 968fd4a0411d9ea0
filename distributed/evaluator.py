"""The evaluator: greedy episodes with the policies that the learner has written, and ``evaluations.csv``.

It needs nobody but the run's folder, so that a death costs an evaluation that is begun again. Its episodes depend on
the run's key and the policy's step alone; a curriculum does not reach its environment.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from torch import Tensor

from distributed.collector import seed_of
from distributed.learner import POLICIES
from distributed.params import TrainParamsBase
from distributed.policy_file import Policy, greedy_policy, read_policy
from envs import rng
from envs.world_file import write_atomic

EVALUATIONS = "evaluations.csv"
HEADER = ("step", "member", "episodes", "mean_return", "std_return", "mean_length")


class Evaluator:
    def __init__(self, params: TrainParamsBase, keys: Tensor, folder: Path) -> None:
        """keys: int64 [P], of the members; folder: of the run. Raises ParamsError."""
        self.params, self.folder, self.key = params, folder, rng.fold(keys, rng.TEST)
        self.env = params.eval_env(0, seed_of(self.key[0], 0))
        self.lines = self._read()

    def _read(self) -> list[tuple[str, ...]]:
        path = self.folder / EVALUATIONS
        lines = list(csv.reader(path.read_text().splitlines()))[1:] if path.exists() else []
        return [tuple(line) for line in lines]

    def due(self) -> list[Path]:
        """Policies of evaluations that are not made yet, the oldest first."""
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

    def evaluate(self, path: Path) -> list[tuple[int, float]]:
        """(step, mean return) of every member. Raises CheckpointError, OSError."""
        content = read_policy(path)
        found = []
        for member in range(len(content["actor"])):
            policy = greedy_policy(content, member)
            episodes = [self._episode(policy, member, content["step"], e) for e in range(self.params.n_eval_episodes)]
            returns, lengths = np.array(episodes).T
            values = f"{returns.mean():.6g}", f"{returns.std():.6g}", f"{lengths.mean():.6g}"
            self.lines.append((str(content["step"]), str(member), str(len(episodes)), *values))
            found.append((content["step"], float(returns.mean())))
        self._write()
        return found

    def _episode(self, policy: Policy, member: int, step: int, number: int) -> tuple[float, int]:
        """Return and length."""
        obs, _ = self.env.reset(seed=seed_of(self.key[member], step + 1, number))
        total, length = 0.0, 0
        while length < self.params.horizon:
            obs, reward, terminated, truncated, _ = self.env.step(policy(np.asarray(obs)[None])[0])
            total += float(reward)
            length += 1
            if terminated or truncated:
                break
        return total, length

    def _write(self) -> None:
        self.lines.sort(key=lambda line: (int(line[0]), int(line[1])))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([HEADER, *self.lines])
        write_atomic(str(self.folder / EVALUATIONS), text.getvalue().encode())

    def close(self) -> None:
        self.env.close()
