"""A user's Gymnasium environment, as cheap as can be, and a configuration for it."""

from __future__ import annotations

import json
from pathlib import Path

ENV = '''
import gymnasium
import numpy as np

LENGTH = 5.0


class Walk(gymnasium.Env):
    """A point on a line; the action is its speed."""

    def __init__(self, start=0.0, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.render_mode, self.start = render_mode, start
        self.trail = []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.full(1, self.start, np.float32)
        return self.x, {}

    def step(self, action):
        self.x = np.clip(self.x + 0.5 * action, -10, 10).astype(np.float32)
        reward, parts = self.compute_reward(self.x, action)
        parts["fitness_score"] = self.compute_fitness_score(self.x)
        return self.x, reward, False, False, parts

    def compute_fitness_score(self, x):
        return float(x[0]) / LENGTH

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)
'''
STEP = """
def step(self, action):
    reward, parts = self.compute_reward(self.x, action)
"""
CONFIG = """
eureka: {{backend: replay, model: {recording}, iterations: {iterations}, samples: {samples}, final_seeds: 0}}
environment: {{name: walk, max_episode_steps: 10, class_name: Walk, benchmark: null}}
experiment: {{parent: {parent}, name: walk, use_datetime: false}}
rl:
  algo: ppo
  algo_params: {{policy: MlpPolicy, n_steps: 32, batch_size: 32, n_epochs: 1}}
  architecture: {{net_arch: {{pi: [4], vf: [4]}}, activation_fn: Tanh}}
  training:
    total_timesteps: 128
    num_envs: 1
    device: cuda
    torch_compile: true
    eval: {{num_episodes: 1, num_evals: 2}}
evaluation: {{num_episodes: 2}}
"""
GOOD = """Forward.
```python
def compute_reward(self, x, action):
    return float(x[0]) / LENGTH, {"forward": x[0] / LENGTH}
```
"""


def method(body: str) -> str:
    """A reward with these lines in it."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"def compute_reward(self, x, action):\n{lines}"


def write_user_env(folder: Path, text: str = ENV) -> Path:
    """-> envs/walk below ``folder``."""
    env = folder / "envs" / "walk"
    (env / "env_code").mkdir(parents=True)
    (env / "env_code" / "env.py").write_text(text)
    (env / "step.py").write_text(STEP)
    (env / "task_description.txt").write_text("Walk to the right.")
    return env


def write_config(folder: Path, replies: list[str], iterations: int = 1, text: str = CONFIG) -> Path:
    recording = folder / "replies.jsonl"
    recording.write_text("".join(json.dumps({"reply": reply}) + "\n" for reply in replies))
    path = folder / "walk.yml"
    samples = len(replies) // iterations
    path.write_text(text.format(recording=recording, parent=folder / "runs", iterations=iterations, samples=samples))
    return path
