"""Film of several candidates side by side: the best, the human's, the worst that ran, and what failed with its reason.

Columns are candidates, rows are agents with random seeds of their own. All begin alike: the k-th row's episode has the
same start for every candidate.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np

from envolve.agents.shaped.training import ShapedLearner, evaluate, make_envs
from envolve.core.cleaning import one_line, printable
from envolve.envs.shaping.envs import ShapedEnvs
from envolve.envs.sim.simulator import MODELS, SimulatorError
from envolve.outer.film.tiles import tiled
from envolve.outer.names import HUMAN
from envolve.outer.reporting.report import precise
from envolve.outer.shapers.report import Outcome
from envolve.outer.shapers.video import FilmWriter, One, VideoError, captioned, writable_format

ROWS, SECONDS, MOST_FPS = 2, 8.0, 15  # agents of a candidate; of the film, in the robot's time
WIDTH, HEIGHT = 288, 208


class Column(NamedTuple):
    """One candidate of the film. role: why it is there, or ""; number: of the candidate among those trained."""

    role: str
    outcome: Outcome
    number: int


def columns_of(ranking: Sequence[Outcome], candidates: Sequence[Any]) -> List[Column]:
    """The best candidate (on a tie not the human's), the human's, the worst that has a score, and the first failure."""
    scored = [o for o in ranking if math.isfinite(o.score)]
    others = [o for o in scored if o.name != HUMAN]
    chosen = [("best", others[0])] if others else []
    chosen += [("human's", o) for o in scored if o.name == HUMAN]
    if len(others) > 1:
        chosen.append(("worst", others[-1]))
    chosen += [("failed", o) for o in ranking if o.failure is not None][:1]
    return [Column(role, o, list(candidates).index(o.candidate)) for role, o in chosen]


def named(columns: Sequence[Column]) -> str:
    """best upright, human's, failed broken."""
    return ", ".join(f"{c.role} {c.outcome.name}" if c.role != "human's" else c.role for c in columns)


def compare(
    path: Optional[Path],
    folder: Path,
    envs: ShapedEnvs,
    learner: ShapedLearner,
    columns: Sequence[Column],
    K: int,
    seed: int,
) -> Path:
    """Films ``ROWS`` agents of every column (one, if K is 1, in as many episodes) -> the file. path: None for
    compare.mp4 (or .gif) in ``folder``. Raises VideoError."""
    from envolve.envs.sim.stage import Stage  # needs MuJoCo

    suffix = writable_format(path)
    path = path or folder / f"compare{suffix}"
    task = envs.task
    stage = Stage(MODELS / task.model)
    films: List[List[np.ndarray]] = []
    try:
        for row in range(ROWS):
            for column in columns:
                films.append(_tile(stage, envs, learner, column, K, row, seed + row))
        writer = FilmWriter(path, task.dt, MOST_FPS)
        heading = printable(f"{task.name}, score: {task.score_unit}")
        with writer:
            for k in range(max(map(len, films))):
                pictures = [film[min(k, len(film) - 1)] for film in films]  # what is over stands still
                writer.add(k * writer.every, lambda p=pictures: tiled(p, len(columns), heading))  # type: ignore[misc]
    except (SimulatorError, ImportError, OSError) as e:
        raise VideoError(str(e)) from e
    finally:
        stage.close()
    return path


def each(
    folder: Path, envs: ShapedEnvs, learner: ShapedLearner, columns: Sequence[Column], K: int, seed: int
) -> List[Path]:
    """A film of the first agent of every column that has not failed -> ``folder``/<name>.mp4 (or .gif), for a page on
    which one candidate is looked at. Raises VideoError."""
    from envolve.envs.sim.stage import Stage  # needs MuJoCo

    suffix, task, out = writable_format(None), envs.task, []
    stage = Stage(MODELS / task.model)
    try:
        folder.mkdir(exist_ok=True)
        for column in columns:
            if column.outcome.failure is None:
                pictures = _tile(stage, envs, learner, column, K, 0, seed)
                path = folder / f"{column.outcome.name}{suffix}"
                with FilmWriter(path, task.dt, MOST_FPS) as writer:
                    for k, picture in enumerate(pictures):
                        writer.add(k * writer.every, lambda p=picture: p)  # type: ignore[misc]
                out.append(path)
    except (SimulatorError, ImportError, OSError) as e:
        raise VideoError(str(e)) from e
    finally:
        stage.close()
    return out


def _tile(
    stage: Any, envs: ShapedEnvs, learner: ShapedLearner, column: Column, K: int, row: int, key: int
) -> List[np.ndarray]:
    """Pictures of one episode; of a candidate that failed one, with the reason."""
    o, task = column.outcome, envs.task
    name = "human's" if column.role == "human's" else ": ".join(filter(None, (column.role, o.name)))
    if o.failure is not None:
        return [_words(f"{name}\n\n{one_line(o.reason, 300)}")]
    i = column.number * K + min(row, K - 1)
    alone = make_envs(task.name, [envs.candidates[i]], 1, key)
    states: List[np.ndarray] = []
    every = FilmWriter(Path(), task.dt, MOST_FPS).every
    try:
        policy: Any = One(learner, envs, i)

        def keep(t: int) -> None:
            sim: Any = alone.task.sim
            if t % every == 0 and t * task.dt <= SECONDS:
                states.append(sim.qpos[0].numpy().copy())

        score = float(evaluate(alone, policy, keep)[0, 0])
    finally:
        alone.task.sim.close()
    stage.looks = None  # the camera goes to the new robot at once
    said = printable(f"{name}: {precise(score)}, seed {key}")
    return [captioned(stage.picture(q, WIDTH, HEIGHT), said) for q in states]


def _words(text: str) -> np.ndarray:
    """A tile without a picture."""
    import textwrap

    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (WIDTH, HEIGHT), (233, 235, 238))
    lines = [line for part in printable(text).split("\n") for line in (textwrap.wrap(part, 38) or [""])]
    font = ImageFont.load_default(13)
    ImageDraw.Draw(image).multiline_text((12, 12), "\n".join(lines[:10]), fill=(40, 46, 54), font=font, spacing=5)
    return np.asarray(image)
