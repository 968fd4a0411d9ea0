"""learned_reward.py, heatmap.py and their pictures: rewards and visits that can be told by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.envs.task import make_task
from envolve.envs.worlds.file import read_world, save_world
from envolve.envs.worlds.world import RealTask, init_world, world_size
from envolve.experiments.paper import heatmap, learned_reward
from envolve.experiments.paper.common import grids
from envolve.experiments.paper.common.data import Data, DataError, load
from envolve.experiments.paper.pictures import heatmap as heatmap_figure
from envolve.experiments.paper.pictures import learned_reward as reward_figure
from envolve.outer.config import problem
from envolve.outer.controls.values import action_values, table_of
from tests.experiments import command
from tests.outer.small import cliff

CLIFF = make_task("Cliff")
RIGHT, LEFT, DOWN, UP = range(4)


def rn(path, mode, flat=None):
    config = cliff(f"envs.Cliff.reward_env_type={mode}").data
    section = problem.env_section(config)
    if flat is None:
        flat = init_world("rn", CLIFF, section, torch.tensor([1]))[0]
    save_world(str(path), "rn", "Cliff", flat, config)
    return read_world(str(path))


def test_learned_reward_of_known_networks(tmp_path):
    """A network of zeros adds nothing to the task's reward, and pays nothing alone."""
    section = problem.env_section(cliff().data)
    zeros = torch.zeros(world_size("rn", CLIFF, section))
    worlds = [rn(tmp_path / f"{mode}.pt", mode, zeros) for mode in (1, 2, 5, 6)]
    out = learned_reward.rewards(worlds)
    assert out.shape == (4, 48, 4)
    assert np.array_equal(out[1], CLIFF.reward) and np.array_equal(out[3], CLIFF.reward)
    assert not out[0].any() and not out[2].any()


def test_learned_reward_of_a_potential_is_that_of_its_two_states(tmp_path):
    world = rn(tmp_path / "model.pt", 1)
    reward = learned_reward.rewards([world])[0]
    w = world.world()
    state = torch.arange(48)[None, :, None]
    phi = w.phi(CLIFF.observe(state))[0].numpy()
    expected = world.discount() * phi[CLIFF.next_state] - phi[:, None]
    assert reward == pytest.approx(expected, abs=1e-6)


def test_the_optimum_of_a_learned_reward(tmp_path):
    """A network of zeros leaves the task's own optimum, -12. Alone it pays all the same, and the first action of a tie,
    right, ends in the first hole. A potential beside the task's reward changes the optimum by what the end pays alone
    (Ng et al. 1999), since the potential of a terminal state is not zero."""
    zeros = torch.zeros(world_size("rn", CLIFF, problem.env_section(cliff().data)))
    found = [learned_reward.optimum(rn(tmp_path / f"{mode}.pt", mode, zeros), CLIFF) for mode in (1, 2, 5, 6)]
    assert found == [-100.0, -12.0, -100.0, -12.0]
    next_state, reward, done = table_of(RealTask(CLIFF, 1))
    values = torch.from_numpy(np.linspace(0.0, 47.0, 48))  # of each cell, terminal ones among them
    for gamma in (0.8, 1.0):
        shaped = reward + gamma * values[next_state] - values[:, None]
        q = action_values((next_state, shaped, done), gamma)
        plain = action_values((next_state, reward, done), gamma)
        inside = ~(done.amin(1) > 0)
        ends = torch.where(done > 0, gamma * values[next_state], torch.zeros_like(reward, dtype=torch.float64))
        paid = action_values((next_state, reward + ends, done), gamma)
        assert torch.allclose((q + values[:, None])[inside], paid[inside]), "Ng et al.: but for what the end pays"
        assert not torch.allclose(paid[inside], plain[inside])


def greedy(path):
    """A table whose best action is that of ``path``: state -> action, elsewhere RIGHT."""
    q = np.zeros((48, 4))
    for state, action in path.items():
        q[state, action] = 1
    return q


def test_visits_by_hand():
    """Up, along the row above the holes, down to the goal; into the first hole; against the left wall for 50 steps."""
    along = {36: UP, **{24 + c: RIGHT for c in range(11)}, 35: DOWN}
    counts, returns = heatmap.visits(np.stack([greedy(along), greedy({36: RIGHT}), greedy({36: LEFT})]), CLIFF)
    assert returns.tolist() == [-12, -100, -50]
    first = np.zeros(48, int)
    first[[36, *range(24, 36), 47]] = 1
    assert counts[0].tolist() == first.tolist()
    assert counts[1].sum() == 2 and counts[1][36] == counts[1][37] == 1
    assert counts[2].sum() == 51 == counts[2][36]


def test_every_episode_starts_once_and_no_agent_is_forgotten(capsys, tmp_path):
    out = tmp_path / "out.json"
    words = ["--modes", "0", "--worlds", "2", "--agents", "3", "--episodes", "5", "--json", out]
    assert command.run(heatmap.main, words, capsys, tmp_path / "no")[0] == 0
    data = load(out)
    q = data.series["mode 0"]
    assert len(q["visits"]) == len(q["return"]) == 6 and not any(q["failed"])
    assert all(v[CLIFF.start_state] >= 1 and sum(v) <= CLIFF.max_steps + 1 for v in q["visits"])
    assert all(1 <= n <= 5 * CLIFF.max_steps for n in q["train_steps"])
    assert data.settings["episodes"] == 5 and data.settings["hyperparameters"]["train_episodes"] == 5


@pytest.mark.parametrize(
    ("module", "args", "words"),
    [
        (heatmap, ["--agent", "ddqn"], "--agent: found 'ddqn', expected sarsa or ql"),
        (heatmap, ["--modes", "3"], "--modes: found 3"),
        (heatmap, ["--episodes", "0"], "--episodes: found 0, expected at least 1"),
        (heatmap, ["--modes", "1"], "train_proxy.py default_config_gridworld_reward_env.yaml --mode 1"),
        (learned_reward, ["--modes", "0"], "--modes: found 0 (no reward network), expected modes of reward networks"),
        (learned_reward, ["default_config_cartpole_reward_env.yaml"], "expected a task with a finite set of states"),
        (learned_reward, ["--worlds", "0"], "--worlds: found 0, expected at least 1"),
    ],
)
def test_wrong_arguments(capsys, tmp_path, module, args, words):
    code, _, err, _ = command.run(module.main, [*args, "--results-dir", tmp_path], capsys, tmp_path / "no")
    assert code == 2 and words in err and not list(tmp_path.glob("paper/*/*"))


def heatmap_data():
    counts = np.zeros((3, 48), int)
    counts[:, 36], counts[0, 24] = 1, 2
    q = {"visits": counts.tolist(), "return": [-12.0, -12.0, -50.0], "failed": [""] * 3, "world": ["a", "a", "b"]}
    return Data("heatmap", "Cliff", {"episodes": 7, "agent": "sarsa"}, False, {"mode 2": q, "mode 0": q}, 1.0)


def test_heatmap_picture():
    out = heatmap_figure.draw("Cliff", [heatmap_data()])
    ax = out.figure.axes[0]
    assert ax.get_title(loc="left") == "additive potential RN"
    shown = ax.collections[0].get_array().reshape(-1)
    assert shown[36] == 1 and shown[24] == pytest.approx(2 / 3) and shown.sum() == pytest.approx(5 / 3)
    assert sum(t.get_text() == "hole" for t in ax.texts) == 10 and {"S", "G"} <= {t.get_text() for t in ax.texts}
    assert any(a.get_ylabel() == "visits per test episode" for a in out.figure.axes)
    assert "after 7 episodes" in out.caption and "additive potential RN -31.00 [" in out.caption
    assert "(3 agents in 2 worlds)" in out.caption


def test_learned_reward_picture():
    reward = CLIFF.reward.astype(float)
    learned = {"reward": [(reward + 1).tolist(), (reward + 3).tolist()], "world": ["a", "b"]}
    data = Data("learned_reward", "Cliff", {}, False, {"task": {"reward": [reward.tolist()]}, "mode 6": learned}, 1.0)
    out = reward_figure.draw("Cliff", [data])
    whole, simple = (ax.collections[0].get_array() for ax in out.figure.axes[2:4])
    assert len(whole) == 37 * 4  # goal and holes: no step begins there
    assert whole.min() == -98 and whole.max() == 2
    assert len(simple) == 37 * 4 - 11 and simple.min() == 1
    assert "additive non-potential RN 1.01 [" in out.caption and "] (2 RNs)" in out.caption


def test_triangles_point_where_the_action_goes():
    from envolve.experiments.paper.common.drawing import panels

    _, (ax,) = panels(2, 2)
    values = np.full((48, 4), np.nan)
    values[13] = [10, 11, 12, 13]  # row 1, column 1
    out = grids.triangles(ax, CLIFF, values)
    middles = {v: p.vertices[:3].mean(axis=0) - (1.5, 1.5) for v, p in zip(out.get_array(), out.get_paths())}
    assert middles[10][0] > 0.2 and middles[11][0] < -0.2 and middles[12][1] > 0.2 and middles[13][1] < -0.2


def test_no_gridworld():
    with pytest.raises(DataError, match="found data of CartPole-v0, expected a gridworld"):
        grids.gridworld("CartPole-v0")
