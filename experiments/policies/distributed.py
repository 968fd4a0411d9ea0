"""The policies of a run of train_distributed.py: policies/checkpoints/policy_checkpoint_<gradient steps>.pt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from envolve.distributed.files.params import TrainParamsBase, flat
from envolve.distributed.files.params_file import frozen
from envolve.distributed.files.policy_file import greedy_policy, read_policy
from envolve.distributed.programs.evaluator import greedy_episode
from envolve.distributed.programs.learner import POLICIES
from envolve.envs.sim.opengl import choose_opengl
from envolve.experiments.policies.episodes import SECONDS, Episodes, PolicyError
from envolve.outer.checkpoint import CheckpointError
from envolve.outer.film.tiles import below
from envolve.outer.search.nes import RETEST, member_seeds
from envolve.outer.shapers.video import FilmWriter, VideoError


class DistributedPolicies:
    kind = "train_distributed.py"

    def __init__(self, folder: Path) -> None:
        """Raises ParamsError, PolicyError."""
        choose_opengl()  # before a user's file imports MuJoCo
        self.params, self.folder = frozen(folder), folder / POLICIES
        self.names = sorted(path.stem for path in self.folder.glob("policy_checkpoint_*.pt"))
        if not self.names:
            raise PolicyError(f"{self.folder}: found no policy_checkpoint_*.pt, expected a run that has written one")
        self.task = f"{type(self.params).__name__}, {self.params.algorithm}"

    def play(self, name: str, episodes: int, seed: int) -> Episodes:
        """Episodes in the environment of evaluations, made with this random seed. A curriculum does not reach it."""
        content = self._content(name)
        env = self.params.eval_env(0, seed)
        played = []
        try:
            self._check(env, content["inputs"], content["outputs"], name)
            for member in range(len(content["actor"])):
                policy = greedy_policy(content, member)
                seeds = member_seeds(seed, RETEST, 0, episodes).tolist()
                played.append([greedy_episode(env, policy, s, self.params.horizon) for s in seeds])
        finally:
            env.close()
        returns, lengths, success = np.moveaxis(np.array(played, dtype=np.float64), 2, 0)
        more = {} if np.isnan(success).all() else {"success": np.nan_to_num(success)}
        return Episodes(returns, "sum of rewards", lengths, more)

    def film(self, name: str, member: int, seed: int, path: Path, score: str) -> None:
        """The same episodes from the first on, as long as a film lasts."""
        env = film_env(self.params, seed)
        policy = greedy_policy(self._content(name), member)
        fps = float(env.metadata.get("render_fps") or 30.0)  # a step each, as Gymnasium has it
        wanted = int(SECONDS * fps)
        seeds = iter(member_seeds(seed, RETEST, 0, wanted).tolist())
        length, over, total, episode = 0, True, 0.0, 0

        def with_words(now: str) -> Callable[[], np.ndarray]:
            return lambda: below(picture(env), f"{self.task}, seed {seed}, {score}", now)

        try:
            env.reset(seed=0)
            picture(env)  # so that no empty file is left where there are none
            with FilmWriter(path, 1 / fps) as writer:
                for t in range(wanted):
                    if over:
                        length, total, episode = 0, 0.0, episode + 1
                        obs, _ = env.reset(seed=next(seeds))
                    now = f"episode {episode}, step {length}, return so far {total:.4g}"
                    writer.add(t, with_words(now))
                    obs, reward, terminated, truncated, _ = env.step(policy(flat(obs)[None])[0])
                    length, total = length + 1, total + float(reward)
                    over = terminated or truncated or length == self.params.horizon
        except OSError as e:
            raise VideoError(f"{path}: {e.strerror or e}") from e
        finally:
            env.close()

    def _content(self, name: str) -> dict[str, Any]:
        try:
            return read_policy(self.folder / f"{name}.pt")
        except CheckpointError as e:
            raise PolicyError(str(e)) from None

    def _check(self, env: Any, inputs: int, outputs: int, name: str) -> None:
        env_sizes = len(flat(env.observation_space.sample())), env.action_space.shape[0]
        if env_sizes != (inputs, outputs):
            expected = f"{inputs} and {outputs}, those of {name}"
            raise PolicyError(f"{self.folder}: the environment has {env_sizes} inputs and actions, expected {expected}")


def film_env(params: TrainParamsBase, seed: int) -> Any:
    """The environment of evaluations, with pictures. Raises VideoError."""
    args, kwargs = params.eval_env_args_kwargs(0, None)
    try:
        env = params.env_ctor(seed, *args, **{**kwargs, "render_mode": "rgb_array"})
    except TypeError as e:
        raise VideoError(f"--video: env_ctor makes no environment with render_mode='rgb_array': {e}") from e
    if env.render_mode != "rgb_array":
        raise VideoError(f"--video: env_ctor was given render_mode='rgb_array', and made one with {env.render_mode!r}")
    return env


def picture(env: Any) -> np.ndarray:
    """uint8 [H, W, 3]. Raises VideoError."""
    try:
        found = np.asarray(env.render())
    except Exception as e:  # whatever a user's environment and its OpenGL raise
        raise VideoError(f"--video: the environment cannot be rendered: {type(e).__name__}: {e}") from e
    if found.ndim != 3 or found.shape[2] != 3:
        raise VideoError(f"--video: the environment's picture has the shape {found.shape}, expected [H, W, 3]")
    return found.astype(np.uint8, copy=False)
