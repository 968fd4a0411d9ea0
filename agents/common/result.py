"""What training a population returns, whatever the learner or back end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np

OK, WORLD_DIVERGED, AGENT_DIVERGED = 0, 1, 2
REASONS = ("", "the world's output is not finite", "the agent's weights are not finite")


@dataclass
class TrainResult:
    """Axes: P members, E training episodes, T test episodes."""

    test_return: np.ndarray  # [P, T] float64: greedy returns of the final policy on the real task
    train_steps: np.ndarray  # [P] int64: environment steps trained on (world or task)
    updates: np.ndarray  # [P] int64
    episodes: np.ndarray  # [P] int64: training episodes begun; of PPO, those finished
    real_steps: np.ndarray  # [P] int64: steps on the real task, tests included
    episode_return: np.ndarray  # [P, E] float32: logged reward of each training episode, NaN beyond the last
    episode_length: np.ndarray  # [P, E] int32: its steps, 0 beyond the last
    status: np.ndarray  # [P] int8: OK, WORLD_DIVERGED, AGENT_DIVERGED
    weights: np.ndarray  # [P, D] float32: the trained network (or Q table), zero-padded to the largest member

    def __post_init__(self) -> None:
        self.complaints: Dict[int, str] = {}  # what the task says of members that failed on it

    @classmethod
    def before_training(cls, weights: np.ndarray, train_episodes: int, test_episodes: int) -> TrainResult:
        """Result of members that have done nothing yet, to be filled in. weights: float32 [P, D], not copied."""
        members = len(weights)
        train_steps, updates, episodes, real_steps = (np.zeros(members, np.int64) for _ in range(4))
        return cls(
            test_return=np.full((members, test_episodes), np.nan),
            train_steps=train_steps,
            updates=updates,
            episodes=episodes,
            real_steps=real_steps,
            episode_return=np.full((members, train_episodes), np.nan, np.float32),
            episode_length=np.zeros((members, train_episodes), np.int32),
            status=np.full(members, OK, np.int8),
            weights=weights,
        )

    def put(self, rows: np.ndarray, run: Any, weights: Any) -> None:
        """Members ``rows`` as the PyTorch loop ``run`` has trained them; its final test is taken first, since that
        counts steps. weights: tensor [len(rows), D]."""
        self.test_return[rows] = run.final_test().cpu().numpy()
        self.weights[rows] = weights.cpu().numpy()
        for name, values in (
            ("train_steps", run.train_steps), ("updates", run.updates), ("episodes", run.episodes),
            ("real_steps", run.real_steps), ("episode_return", run.logged), ("episode_length", run.length),
            ("status", run.status),
        ):  # fmt: skip
            getattr(self, name)[rows] = values.cpu().numpy()
        for i, complaint in run.complaints.items():
            self.complaints[int(rows[i])] = complaint
