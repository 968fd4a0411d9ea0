"""Video of one policy over one evaluation episode, rendered off screen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor

from envolve.agents.shaped.training import Learner, evaluate, make_envs
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import SimulatorError

WIDTH, HEIGHT, MOST_FPS = 480, 352, 25  # OpenGL in software, which most servers have, takes 0.1 s for a picture


class VideoError(Exception):
    """Raised if there is no video; the text says why."""


class Film(NamedTuple):
    path: Path
    frames: int
    fps: float
    score: float  # of the episode


def writable_format(path: Optional[Path]) -> str:
    """Format of the video in ``path``, or the best available: ".mp4" or ".gif". Raises VideoError."""
    try:
        import imageio.v2  # noqa: F401
    except ImportError:
        raise VideoError("no imageio, which writes films: pip install imageio imageio-ffmpeg") from None
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped]

        imageio_ffmpeg.get_ffmpeg_exe()
        mp4 = True
    except (ImportError, RuntimeError):
        mp4 = False
    if path is None:
        return ".mp4" if mp4 else ".gif"
    if path.suffix.lower() == ".mp4" and not mp4:
        raise VideoError("no imageio-ffmpeg, which writes MP4: pip install imageio-ffmpeg, or name a file.gif")
    return path.suffix.lower()


class FilmWriter:
    """Video writer that takes every n-th step: at most MOST_FPS pictures a second, in the robot's time."""

    def __init__(self, path: Path, dt: float) -> None:
        """dt: seconds of a step."""
        self.path, self.frames = path, 0
        self.every = max(1, math.ceil(1 / (dt * MOST_FPS)))
        self.fps = 1 / (dt * self.every)

    def __enter__(self) -> FilmWriter:
        """Raises OSError."""
        import imageio.v2 as imageio

        gif = self.path.suffix.lower() == ".gif"
        options: Dict[str, Any] = {"duration": 1000 / self.fps, "loop": 0} if gif else {"fps": self.fps}
        self.writer: Any = imageio.get_writer(str(self.path), **options)
        return self

    def __exit__(self, *exc: object) -> None:
        self.writer.close()

    def add(self, t: int, picture: Callable[[], Any]) -> None:
        """Takes a picture after step t, if one is due; picture: makes a uint8 [H, W, 3]."""
        if t % self.every == 0:
            self.writer.append_data(picture())
            self.frames += 1


class One:
    """Policy of one candidate among the P of a learner, for ``evaluate``."""

    def __init__(self, learner: Learner, envs: ShapedEnvs, i: int) -> None:
        self.learner, self.i, self.A = learner, i, envs.action_sizes[i]
        self.obs = torch.zeros(envs.P, 1, max(envs.observation_sizes), device=envs.device)

    def act(self, obs: Tensor) -> Tensor:
        """Actions [1, 1, A] for obs [1, 1, F]."""
        self.obs[self.i, :, : obs.shape[2]] = obs[0]
        return self.learner.act(self.obs)[self.i : self.i + 1, :, : self.A].to(obs.device)


def film(path: Optional[Path], folder: Path, envs: ShapedEnvs, learner: Learner, i: int, key: int) -> Film:
    """Agent i of the learner plays one episode, in a simulator of its own. path: None for best.mp4 (or .gif) in
    ``folder``. Raises VideoError."""
    suffix = writable_format(path)
    path = path or folder / f"best{suffix}"
    try:  # MuJoCo has every model, and what it renders does not depend on the engine of the training
        alone = make_envs(envs.task.name, [envs.candidates[i]], 1, key)
    except (SimulatorError, ImportError) as e:
        raise VideoError(f"no simulator can render: {e}") from e

    def picture() -> Any:
        return alone.task.sim.render(0, WIDTH, HEIGHT)

    try:
        picture()  # so that no empty file is left where there is no OpenGL
        with FilmWriter(path, alone.task.dt) as writer:
            policy: Any = One(learner, envs, i)
            score = evaluate(alone, policy, lambda t: writer.add(t, picture))
    except (SimulatorError, OSError) as e:
        raise VideoError(str(e)) from e
    finally:
        alone.task.sim.close()
    return Film(path, writer.frames, writer.fps, float(score[0, 0]))
