"""--video of train_goal.py: what is drawn, and what is said where nothing can be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from envolve.envs.goal.picture import coordinates, model_of
from envolve.envs.goal.task import GOAL_TASKS, GoalTask, make_goal_task
from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments import train_goal
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.goals import video as goal_video
from envolve.outer.goals.arguments import build_parser, make_plan
from envolve.outer.goals.video import Stage, film_path
from envolve.outer.shapers.video import VideoError
from tests.experiments.test_train_goal import TINY

make_goal_task("reacher")  # fills GOAL_TASKS


def stage_of(name: str) -> Stage:
    return Stage(make_plan(build_parser().parse(["--task", name, "--seed", "3"])), 0)


@pytest.mark.parametrize("name", sorted(GOAL_TASKS))
def test_every_task_has_a_model_in_which_it_is_where_it_is(name: str) -> None:
    """What should come near the goal is there in the model, too: found by MuJoCo's kinematics."""
    import mujoco

    stage = stage_of(name)
    e, task = stage.episodes, stage.task
    e.step(0.1 * torch.ones(1, 1, task.action_size))
    scenery = stage.scenery
    scenery.data.qpos[:] = coordinates(e)
    mujoco.mj_kinematics(scenery.model, scenery.data)
    body = {
        "reacher": "fingertip",
        "cheetah": "torso",
        "ant_ball": "object",
        "pusher": "object",
        "simple": "point",
        "arm": "cube",
        "arm_reach": "link7",
        "arm_grasp": "left_finger",
    }
    named = body.get(name, body.get(name.split("_")[0], "torso")) if not name.startswith("point") else "point"
    achieved = task.achieved(e.features)[0, 0, :3]
    late = 5e-3 if name in ("arm_reach", "arm_grasp") else 1e-6  # m; its features are of a moment before
    np.testing.assert_allclose(scenery.data.body(named).xpos[: len(achieved)], achieved, atol=late)
    stage.close()


def test_a_name_that_is_no_film(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert film_path(None) is None
    pytest.importorskip("imageio")
    assert film_path("a.gif") == Path("a.gif").absolute()
    assert film_path("") in (Path("video.mp4"), Path("video.gif"))
    with pytest.raises(ConfigError, match="mp4 or .gif"):
        film_path("film.avi")
    assert train_goal.main([*TINY, "--video", "film.avi", "--results_dir", str(tmp_path)]) == 2
    assert "film.avi" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_is_missing_is_said_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: Stage) -> None:
        raise VideoError("--video: no off-screen OpenGL")

    monkeypatch.setattr(Stage, "picture", none)
    words = [*TINY, "--video", str(tmp_path / "a.gif"), "--results_dir", str(tmp_path)]
    assert train_goal.main(words) == 1
    assert "no off-screen OpenGL" in capsys.readouterr().err and not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    assert train_goal.main(words) == 1
    assert "pip install imageio" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_no_model_of_a_task() -> None:
    class Other:
        task = GoalTask()

    with pytest.raises(SimulatorError, match="no model"):
        model_of(Other())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["simple_u_maze", pytest.param("ant_u_maze", marks=pytest.mark.slow)])
def test_a_film_of_the_best_member(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no OpenGL, that is what is said."""
    pytest.importorskip("imageio")
    monkeypatch.setattr(goal_video, "SECONDS", 0.4)
    words = [*TINY, "--task", name, "--population", "2", "--episode_length", "6", "--exp_name", "a", "--video"]
    code = train_goal.main([*words, str(tmp_path / "a.gif"), "--results_dir", str(tmp_path)])
    out = capsys.readouterr()
    if code:
        assert code == 1 and "OpenGL" in out.err
        pytest.skip("no OpenGL here")
    import imageio.v2 as imageio

    frames = np.stack(imageio.mimread(str(tmp_path / "a.gif")))
    assert frames.shape[:3] == (8, 400, 480) and "a.gif  member" in out.out and "2 evaluation episodes" in out.out
    assert (frames[0] != frames[5]).any()  # it moves
    green = (frames[0][..., 1].astype(int) - frames[0][..., 0] > 40).mean()
    assert green > 1e-4  # the goal
