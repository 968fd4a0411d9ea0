"""``agents.gtn.first_world``: a search that goes on from the world of another run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import envolve.outer.run
from envolve.envs.worlds.best_paid import greedy
from envolve.envs.worlds.file import read_world
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError, load_config
from envolve.outer.distil.policy import play
from envolve.outer.reporting.report import number
from envolve.outer.run import PAID_EPISODES
from envolve.outer.search.nes import PAID, fresh_seeds
from envolve.outer.search.target import NetworkTarget, make_target
from tests.outer.small import ROOT, cartpole, cliff
from tests.outer.test_run import Direct, files, go

SHORT = "agents.gtn.max_iterations=2"


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envolve.outer.run, "learning_curve", lambda path, *args, **kwargs: None)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.pt of an ended run."""
    folder: Path = tmp_path_factory.mktemp("before") / "run"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(envolve.outer.run, "learning_curve", lambda path, *args, **kwargs: None)
        go(cliff(SHORT, "seed=7"), folder)
    return folder / "model.pt"


def test_a_run_begins_with_the_world_of_a_file_and_counts_its_price(tmp_path: Path, before: Path) -> None:
    given = read_world(str(before))
    config = cliff("agents.gtn.max_iterations=1", f"agents.gtn.first_world={before}")
    said, _ = go(config, tmp_path / "run")
    assert f"the first world is {before}, score" in said
    world, first = read_world(str(tmp_path / "run/model.pt")), read_world(str(tmp_path / "run/distilled.pt"))
    assert torch.equal(world.flat, given.flat), "the first generation's centre"
    assert torch.equal(first.flat, given.flat) and first.score == given.score
    assert first.evolution_steps == given.evolution_steps is not None
    go(cliff("agents.gtn.max_iterations=1"), tmp_path / "other")
    own = read_world(str(tmp_path / "other/model.pt"))
    assert not torch.equal(own.flat, given.flat)
    assert world.evolution_steps is not None and world.evolution_steps > given.evolution_steps


def test_a_stopped_run_needs_the_file_no_more(tmp_path: Path, before: Path) -> None:
    copy = tmp_path / "copy.pt"
    copy.write_bytes(before.read_bytes())
    config = cliff(SHORT, f"agents.gtn.first_world={copy}")
    go(config, tmp_path / "whole")
    for call in (0, 1):  # before the first generation, and in the second
        copy.write_bytes(before.read_bytes())
        folder = tmp_path / f"stopped{call}"
        with pytest.raises(KeyboardInterrupt):
            go(config, folder, dispatcher=Direct(stop_at=call))
        copy.unlink()
        go(config, folder, resume=True)
        assert files(folder) == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((), r"first_world: {file}: found rn of type \d of Cliff, .*, expected se of CartPole-v0, state_net"),
        (("missing",), "first_world: {file}: .*No such file"),
    ],
)  # fmt: skip
def test_another_world_is_refused(tmp_path: Path, before: Path, change: tuple[str, ...], words: str) -> None:
    path = before if not change else tmp_path / "none.pt"
    with pytest.raises(RunError, match=words.replace("{file}", re.escape(str(path)))):
        go(cartpole(f"agents.gtn.first_world={path}"), tmp_path / "run")


def test_a_net_of_another_size_is_refused(tmp_path: Path, before: Path) -> None:
    words = ["agents.gtn.max_iterations=1", f"agents.gtn.first_world={before}", "envs.Cliff.hidden_size=9"]
    with pytest.raises(RunError, match="found rn of type . of Cliff, .*, expected rn of type . of Cliff, .*-9-1"):
        go(cliff(*words), tmp_path / "run")


def test_a_distilled_search_and_shapers_have_first_worlds_of_their_own(before: Path) -> None:
    own = [f"agents.gtn.first_world={before}", "agents.gtn.init=distilled", "envs.CartPole-v0.contextual_bandit=true"]
    with pytest.raises(ConfigError, match="first_world: found .*, expected none with init: distilled"):
        cartpole(*own)
    with pytest.raises(ConfigError, match="first_world: found .*, expected none: the search begins with the numbers"):
        load_config(ROOT / "default_config_cartpole_shapers.yaml", own[:1])


NORMALISED = (
    "envs.CartPole-v0.contextual_bandit=true", "envs.CartPole-v0.normalised=true", "agents.gtn.max_iterations=3",
    "agents.gtn.quit_when_solved=false",
)  # fmt: skip


def test_a_search_in_units_is_the_same_after_a_stop_and_keeps_worlds_of_the_task(tmp_path: Path) -> None:
    go(cartpole(*NORMALISED, "agents.gtn.max_iterations=1"), tmp_path / "before")
    before = tmp_path / "before/model.pt"
    given = read_world(str(before))
    for name, first in (("own", ""), ("given", f"agents.gtn.first_world={before}")):
        config = cartpole(*NORMALISED, *[first] * bool(first), "seed=3")
        go(config, tmp_path / name)
        for call in (1, 2):
            with pytest.raises(KeyboardInterrupt):
                go(config, tmp_path / f"{name}{call}", dispatcher=Direct(stop_at=call))
            go(config, tmp_path / f"{name}{call}", resume=True)
            assert files(tmp_path / f"{name}{call}") == files(tmp_path / name)
    assert torch.equal(read_world(str(tmp_path / "given/distilled.pt")).flat, given.flat)


def test_the_summary_of_a_bandit_plays_what_it_pays_most_for(tmp_path: Path) -> None:
    go(cartpole(*NORMALISED, "agents.gtn.max_iterations=1"), tmp_path / "before")
    words = [*NORMALISED, f"agents.gtn.first_world={tmp_path / 'before/model.pt'}", "agents.gtn.comparison_agents=1"]
    _, summary = go(cartpole(*words, "seed=3", "agents.gtn.keep=last"), tmp_path / "run")
    keys = fresh_seeds(3, PAID, 1).numpy()
    for found, name in zip(summary.paid, ("model.pt", "distilled.pt"), strict=True):
        world = read_world(str(tmp_path / "run" / name))
        assert found == pytest.approx(play(world.task(), greedy(world.world()), keys, PAID_EPISODES).returns.mean())
    assert f"returns {number(summary.paid[0])} on the task" in (tmp_path / "run/summary.txt").read_text()
    _, summary = go(cartpole(*words, "agents.gtn.comparison_agents=0"), tmp_path / "none")
    assert not summary.paid


def test_the_search_moves_in_units_of_the_first_world() -> None:
    """A perturbation changes what agents see of each feature alike; on the task's side by the feature's spread."""
    config = cartpole(*NORMALISED)
    target = make_target(config.data)
    assert isinstance(target, NetworkTarget)
    world = target.begin(3)
    last = len(world) - target.section.net(6, 1).size - 8 * 4 - 4  # of init_net's last layer, [8, 4], then 4 biases
    world[last : last + 32].view(8, 4).mul_(torch.tensor([0.01, 1.0, 10.0, 100.0]))
    target.measure(lambda: world)
    assert target.units is not None
    vector = target.vector(world)
    back, moved = target.worlds(torch.stack((vector, vector + 1)))
    assert torch.allclose(back, world, rtol=1e-4, atol=1e-4)
    change = (moved - back)[last : last + 32].view(8, 4)
    assert torch.allclose(change, target.units.deviation.expand(8, 4), rtol=1e-2)
