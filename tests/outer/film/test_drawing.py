"""What is drawn is what the agent observes: the picture of a state of Gymnasium is Gymnasium's own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from envolve.envs.outside.define import define
from envolve.envs.outside.measure import _measure
from envolve.envs.task import make_task
from envolve.outer.film.drawing import AGENT, CELL, COLOURS, Drawing
from envolve.outer.shapers.video import VideoError

pytest.importorskip("pygame", reason="pygame is not installed")


@pytest.mark.parametrize(
    "name, theirs",
    [
        ("CartPole-v0", "CartPole-v1"),
        ("MountainCar-v0", "MountainCar-v0"),
        ("Acrobot-v1", "Acrobot-v1"),
        ("Pendulum-v0", "Pendulum-v1"),
        ("MountainCarContinuous-v0", "MountainCarContinuous-v0"),
    ],
)
def test_pictures_are_gymnasiums(name: str, theirs: str) -> None:
    env = gymnasium.make(theirs, render_mode="rgb_array")
    env.action_space.seed(3)
    observation, _ = env.reset(seed=4)
    drawing = Drawing(make_task(name))
    for _ in range(12):
        action = env.action_space.sample()
        observation, *_ = env.step(action)
        theirs_picture = np.asarray(env.render())
        ours = drawing.picture(observation, action, theirs_picture.shape[1])
        # the arrow of Pendulum is scaled a little otherwise from step to step, the rest are the same pixels
        different = (np.abs(ours.astype(int) - theirs_picture.astype(int)) > 8).any(2).mean()
        assert ours.shape == theirs_picture.shape and different < 0.005, different
    drawing.close()
    env.close()


def test_what_a_world_makes_up_is_cut_at_the_edge() -> None:
    drawing = Drawing(make_task("CartPole-v0"))
    far, edge = (drawing.picture(np.array([x, 0, 0.1, 0]), 0, 300) for x in (50.0, 2.4))
    assert (far == edge).all() and (drawing.picture(np.full(4, np.nan), 0, 300) < 100).any()
    drawing.close()


def test_a_gridworld_is_its_layout_with_the_agent_in_its_cell() -> None:
    task = make_task("Cliff")
    drawing, start = Drawing(task), "".join(task.layout).index("S")  # type: ignore[attr-defined]
    columns = len(task.layout[0])  # type: ignore[attr-defined]
    seen = np.zeros(task.num_states or 0)
    seen[start] = 1
    picture = drawing.picture(seen, 0, columns * CELL + 1)
    row, column = divmod(start, columns)
    assert tuple(picture[row * CELL + CELL // 2, column * CELL + CELL // 2]) == AGENT
    for i, kind in enumerate("".join(task.layout)):  # type: ignore[attr-defined]
        y, x = divmod(i, columns)
        assert tuple(picture[y * CELL + CELL - 4, x * CELL + CELL - 4]) == COLOURS[kind]


def test_a_task_that_cannot_be_drawn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("CartPole-v0")
    monkeypatch.setattr(type(task), "name", "Nameless-v0")
    with pytest.raises(VideoError, match="found Nameless.*expected a task that can be drawn: CartPole, .*gridworld"):
        Drawing(task)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Swimmer-v5"])
def test_a_robot_is_where_its_observation_says(name: str) -> None:
    """Its coordinates, from the observation and the sum of the velocities, are those of the task's own state."""
    pytest.importorskip("mujoco")
    task, rng = make_task(name), np.random.default_rng(0)
    nq = {"HalfCheetah-v5": 9, "Hopper-v5": 6, "Walker2d-v5": 9, "Swimmer-v5": 5}[name]
    state = task.reset(torch.from_numpy(rng.random((1, 1, task.reset_uniforms), dtype=np.float32)))
    seen, true = [task.observe(state)[0, 0].numpy().astype(float)], [state[0, 0, :nq].numpy().copy()]
    for _ in range(40):
        action = torch.from_numpy(rng.uniform(-1, 1, (1, 1, task.action_size)).astype(np.float32))
        state, _, _ = task.step(state, action)
        seen.append(task.observe(state)[0, 0].numpy().astype(float))
        true.append(state[0, 0, :nq].numpy().copy())
    drawing = Drawing(task)
    assert drawing.robot is not None and drawing.robot.nq == nq
    moved = drawing.moved(np.asarray(seen))
    drawn: list[np.ndarray] = []
    drawing.robot.stage.picture = lambda qpos, w, h: drawn.append(qpos) or np.zeros((h, w, 3), np.uint8)  # type: ignore
    for observation, way in zip(seen, moved):
        assert drawing.picture(observation, 0, 300, way).shape == (200, 300, 3)
    n = drawing.robot.model.hidden
    np.testing.assert_allclose(np.asarray(drawn)[:, n:], np.asarray(true)[:, n:], atol=1e-5)
    gone = np.asarray(true)[:, :n] - true[0][:n]
    assert np.abs(np.asarray(drawn)[:, :n] - gone).max() < 0.05 + 0.2 * np.abs(gone).max()
    assert np.isfinite(drawing.moved(np.full((3, len(seen[0])), np.nan))).all()
    drawing.close()


def test_a_task_from_outside_is_drawn_in_its_own_units() -> None:
    name = "gymnasium:CartPole-v1"
    plain: dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
    section = {**plain, "measured": _measure(name, plain, 0, None)}
    task, own = define(name, section)(max_steps=5), make_task("CartPole-v0")
    state = np.array([0.7, 0.1, 0.12, -0.3])
    assert np.abs((state - task.mean) / task.scale - state).max() > 0.05, "agents see other numbers"
    pictures = []
    for t, seen in ((task, (state - task.mean) / task.scale), (own, state)):
        drawing = Drawing(t)
        pictures.append(drawing.picture(seen, 0, 300))
        drawing.close()
    assert (pictures[0] == pictures[1]).all()
    wrapped = define(name, {**section, "wrappers": ["FlattenObservation"]})(max_steps=5)
    with pytest.raises(VideoError, match="found gymnasium:CartPole-v1, expected a task that .*wrappers, have no"):
        Drawing(wrapped)


def test_the_lander_is_where_gymnasiums_is() -> None:
    """Its ground is that of random seed 0, which this episode has, too. Legs bend a little on their springs; flames and
    their light are not drawn."""
    pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'envolve[box2d]'")
    name = "gymnasium:LunarLander-v3"
    plain: dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
    task = define(name, {**plain, "measured": _measure(name, plain, 0, None)})(max_steps=5)
    env, drawing = gymnasium.make("LunarLander-v3", render_mode="rgb_array"), Drawing(task)
    observation, _ = env.reset(seed=0)
    for step in range(60):
        observation, *_ = env.step(step % 2)  # turns to one side
        theirs = np.asarray(env.render())
        ours = drawing.picture((observation - task.mean) / task.scale, 0, theirs.shape[1])
        assert ours.shape == theirs.shape
        assert (np.abs(ours.astype(int) - theirs.astype(int)) > 8).any(2).mean() < 0.01
    assert abs(observation[4]) > 0.1, "it has turned"
    far = drawing.picture(np.full(8, np.nan), 0, 300)
    assert far.shape == (200, 300, 3)
    drawing.close()
    env.close()


def test_the_walker_is_where_gymnasiums_is() -> None:
    """Every body, from joints, one distance and the sum of the velocities. The ground is flat at the beginning."""
    pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'envolve[box2d]'")
    name = "gymnasium:BipedalWalker-v3"
    plain: dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
    task = define(name, {**plain, "measured": _measure(name, plain, 0, None)})(max_steps=5)
    env, drawing = gymnasium.make("BipedalWalker-v3", render_mode="rgb_array"), Drawing(task)
    rng = np.random.default_rng(0)
    seen, bodies = [env.reset(seed=0)[0]], []
    for _ in range(60):
        seen.append(env.step(rng.uniform(-1, 1, 4).astype(np.float32))[0])
        walker: Any = env.unwrapped
        bodies.append([(b.position.x, b.position.y, b.angle) for b in (walker.hull, *walker.legs)])
    scaled = (np.asarray(seen) - task.mean) / task.scale
    moved = drawing.moved(scaled)
    for observation, way, theirs in zip(scaled[1:], moved[1:], bodies):
        drawing.picture(observation, 0, 300, way)
        ours: Any = drawing.env.unwrapped
        got = [(b.position.x, b.position.y, b.angle) for b in (ours.hull, *ours.legs)]
        np.testing.assert_allclose(got, theirs, atol=0.12)
    assert max(abs(a) for _, _, a in bodies[-1]) > 0.3, "it has moved"
    ground = [drawing.picture(scaled[-1], 0, 600, np.array([x, 0.0])) for x in (0.0, 0.5)]
    assert (ground[0][-20:] != ground[1][-20:]).any(), "one sees how far it came"
    assert drawing.picture(np.full(24, np.nan), 0, 300).shape == (200, 300, 3)
    assert drawing.moved(np.full((3, 24), 1e9)).max() <= 100
    drawing.close()
    env.close()


def test_without_box2d_the_lander_has_no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **words: object) -> None:
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    task = make_task("CartPole-v0")
    monkeypatch.setattr(type(task), "name", "LunarLander-v3")
    with pytest.raises(VideoError, match=r"renderer of LunarLander needs pip install 'envolve\[box2d,video\]'"):
        Drawing(task)
