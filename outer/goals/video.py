"""A film of a goal-conditioned policy: evaluation episodes one after the other (``envs/goal/picture.py``)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from envolve.agents.goal.crl_train import GoalLearner
from envolve.core import rng
from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.episodes import Episodes
from envolve.envs.goal.picture import Scenery
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import make_goal_task
from envolve.envs.sim.opengl import choose_opengl
from envolve.envs.sim.simulator import SimulatorError
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.film.tiles import below
from envolve.outer.goals.arguments import GoalPlan
from envolve.outer.goals.run import GoalRun
from envolve.outer.shapers.video import HEIGHT, WIDTH, FilmWriter, VideoError, writable_format

SECONDS = 20.0  # of the film, in the robot's time


def film_path(given: str | None) -> Path | None:
    """File for --video: None if the option is not given. Raises ConfigError, VideoError."""
    if given is None:
        return None
    path = Path(given) if given else None
    if path is not None and path.suffix.lower() not in (".mp4", ".gif"):
        raise ConfigError([f"--video: found {given!r}, expected a name that ends in .mp4 or .gif"])
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError([f"--video: found {given!r}, expected a file in a folder that exists"])
    suffix = writable_format(path)
    return Path(f"video{suffix}") if path is None else path.absolute()


def check_film(plan: GoalPlan, film: Path | None) -> None:
    """Renders a first picture before training begins. Raises VideoError if rendering fails."""
    if film is not None:
        stage = Stage(plan, 0)
        stage.picture()
        stage.close()


def film_of(run: GoalRun, path: Path) -> str:
    """Films the member with the best last evaluation -> a line of the summary. Raises VideoError."""
    scores = [s for s in run.scores[-run.plan.run.population :] if math.isfinite(s.success)]
    best = max(scores, key=lambda s: (s.success, s.near))
    member = best.member
    episodes = film_member(run.plan, run.training.learner, member, path, f"success {best.success:.2f}")
    return f"{path}  member {member} in {episodes} evaluation episodes\n"


def film_member(plan: GoalPlan, learner: GoalLearner, member: int, path: Path, score: str = "") -> int:
    """Films a member's policy -> number of evaluation episodes shown. score: of the member, for the line below the
    picture, with task, agent and random seed. Raises VideoError."""
    stage = Stage(plan, member)
    run = plan.run
    caption = f"{run.eval_env or run.env_name}, {plan.agent_title}, seed {run.seed + member}"
    more = f"{score}, " * bool(score)
    e = stage.episodes
    seen, wanted = (torch.zeros(learner.P, 1, x.shape[2], device=e.device) for x in (e.features, e.goal))
    try:
        with FilmWriter(path, stage.dt) as writer:
            for t in range(math.ceil(SECONDS / stage.dt)):
                writer.add(t, lambda: below(stage.picture(), caption, f"{more}episode {int(e.episode.item()) + 1}"))
                seen[member], wanted[member] = e.features[0], e.goal[0]
                e.step(learner.greedy(seen, wanted)[member : member + 1])
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror or error}") from error
    finally:
        stage.close()
    return int(e.episode.item()) + 1


class Stage:
    """One environment of the evaluation's task, with MuJoCo's renderer."""

    def __init__(self, plan: GoalPlan, member: int) -> None:
        """Raises VideoError."""
        choose_opengl()
        run = plan.run
        self.task = make_goal_task(run.eval_env or run.env_name)
        key = rng.fold(torch.tensor([run.seed + member], device=run.device), rng.TEST)
        try:  # MuJoCo has every model, and what it draws does not depend on the engine of the training
            self.episodes: Episodes = make_episodes(
                self.task, key, 1, episode_length=run.episode_length, action_repeat=run.action_repeat
            )
            self.scenery = Scenery(self.episodes)
        except (SimulatorError, ImportError) as e:
            raise VideoError(f"--video: no simulator can render: {e}") from e
        self.dt = self.task.dt * run.action_repeat  # s, of a decision

    def picture(self) -> np.ndarray:
        """Picture, uint8 [HEIGHT, WIDTH, 3]. Raises VideoError."""
        try:
            return self.scenery.picture(WIDTH, HEIGHT)
        except SimulatorError as error:
            raise VideoError(f"--video: {error}") from error

    def close(self) -> None:
        self.scenery.close()
        if isinstance(self.episodes, SimulatedEpisodes):
            self.episodes.sim.close()
