"""Video of one policy over one evaluation episode, rendered off screen on a stage with sky, floor and shadows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor

from envolve.agents.shaped.training import ShapedLearner, evaluate, make_envs
from envolve.core.cleaning import printable
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import MODELS, SimulatorError

CAPTION = 13  # px, height of the letters
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
    """Video writer that takes every n-th step: at most ``most`` pictures a second, in the robot's time."""

    def __init__(self, path: Path, dt: float, most: int = MOST_FPS) -> None:
        """dt: seconds of a step."""
        self.path, self.frames = path, 0
        self.every = max(1, math.ceil(1 / (dt * most)))
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

    def __init__(self, learner: ShapedLearner, envs: ShapedEnvs, i: int) -> None:
        self.learner, self.i, self.A = learner, i, envs.action_sizes[i]
        self.obs = torch.zeros(envs.P, 1, max(envs.observation_sizes), device=envs.device)

    def act(self, obs: Tensor) -> Tensor:
        """Actions [1, 1, A] for obs [1, 1, F]."""
        self.obs[self.i, :, : obs.shape[2]] = obs[0]
        return self.learner.act(self.obs)[self.i : self.i + 1, :, : self.A].to(obs.device)


def captioned(picture: Any, text: str) -> Any:
    """The picture, uint8 [H, W, 3], with a line of text on a dark strip at its lower end."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture)
    font = ImageFont.load_default(CAPTION)
    while len(text) > 4 and font.getlength(text) > image.width - 16:
        text = f"{text[:-4]}..."
    strip = Image.new("RGB", (image.width, CAPTION + 10), (24, 28, 34))
    ImageDraw.Draw(strip).text((8, 3), text, fill=(235, 238, 242), font=font)
    image.paste(strip, (0, image.height - strip.height))
    return np.asarray(image)


def film(
    path: Optional[Path], folder: Path, envs: ShapedEnvs, learner: ShapedLearner, i: int, key: int, caption: str = ""
) -> Film:
    """Agent i of the learner plays one episode, in a simulator of its own. path: None for best.mp4 (or .gif) in
    ``folder``. caption: what stands below the picture, before the time; default: task, candidate and random seed.
    Raises VideoError."""
    from envolve.envs.sim.stage import Stage  # needs MuJoCo, which a worker for another engine may not have

    suffix = writable_format(path)
    path = path or folder / f"best{suffix}"
    try:  # MuJoCo has every model, and what it renders does not depend on the engine of the training
        alone = make_envs(envs.task.name, [envs.candidates[i]], 1, key)
    except (SimulatorError, ImportError) as e:
        raise VideoError(f"no simulator can render: {e}") from e

    stage = Stage(MODELS / alone.task.model)
    said = printable(caption or f"{alone.task.name}, {envs.candidates[i].name}, seed {key}")

    def picture(t: int) -> Any:
        sim: Any = alone.task.sim
        return captioned(stage.picture(sim.qpos[0].numpy(), WIDTH, HEIGHT), f"{said}, {t * alone.task.dt:.1f} s")

    try:
        picture(0)  # so that no empty file is left where there is no OpenGL
        with FilmWriter(path, alone.task.dt) as writer:
            policy: Any = One(learner, envs, i)
            score = evaluate(alone, policy, lambda t: writer.add(t, lambda: picture(t)))
    except (SimulatorError, OSError) as e:
        raise VideoError(str(e)) from e
    finally:
        stage.close()
        alone.task.sim.close()
    return Film(path, writer.frames, writer.fps, float(score[0, 0]))
