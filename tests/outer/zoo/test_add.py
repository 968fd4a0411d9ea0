"""What ``envolve worlds add`` puts on the shelf: the evolved world of a run, or the one that its experts taught."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envolve.envs.worlds.file import FIRST, MODEL, WorldFileError, read_world
from envolve.experiments import worlds
from envolve.outer.auto import report
from envolve.outer.auto.unseen import RANDOM, UnseenAgent
from envolve.outer.config.load import ConfigError, config_of, store_config
from envolve.outer.search.target import NetworkTarget, make_target
from envolve.outer.zoo.add import add, check_plain
from envolve.outer.zoo.convert import zoo_bytes
from envolve.outer.zoo.measure import Measuring
from envolve.worlds import shelf
from envolve.worlds.task import make_task

RAW = {
    "env_name": "Pendulum-v0",
    "seed": 0,
    "agents": {"gtn": {"agent_name": "PPO", "init": "distilled"}, "ppo": {}, "expert": {"learner": "td3"}},
    "envs": {"Pendulum-v0": {"contextual_bandit": True, "hidden_size": 8, "hidden_layer": 1}},
}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of three generations: both worlds, and its scores."""
    config = config_of({**RAW, "agents": {**RAW["agents"], "td3_expert": {"train_steps": 1000}}}, (), "test")
    folder = tmp_path / "run"
    folder.mkdir()
    store_config(folder, config, {"command": "envolve run my.yaml"})
    target = make_target(config.data)
    assert isinstance(target, NetworkTarget)
    for name, seed, steps in ((FIRST, 1, 1000), (MODEL, 2, 5000)):
        target.save(folder, target.begin(seed), 100.0, False, steps, name)
    head = "generation,member,role,score,mean_return,train_steps,episodes,reason\n"
    (folder / "scores.csv").write_text(head + "".join(f"{g},0,orig,1.0,1.0,10,1,\n" for g in (1, 2, 3)))
    return folder


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[UnseenAgent]:
    """The agents that were to be trained; each returns 10 in a world, 5 on the task."""
    seen: list[UnseenAgent] = []

    def train_all(jobs: list[UnseenAgent], path: Path, workers: int, console: Any) -> list[dict[str, Any]]:
        seen.extend(jobs)
        value = {"world": 10.0, "real": 5.0}
        return [
            {"key": j.key, "learner": j.learner, "where": j.where, "return": value[j.where], "test_returns": [1.0, 2.0],
             "train_steps": j.steps, "real_steps": 0, "test_steps": 0, "failed": ""}
            for j in jobs
        ]  # fmt: skip

    monkeypatch.setattr(report, "train_all", train_all)
    return seen


@pytest.mark.parametrize("distilled", [False, True])
def test_either_world_of_a_run(run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path, distilled: bool) -> None:
    name = add(run_dir, tmp_path / "shelf", Measuring(agents=2), distilled)
    assert name == "Pendulum-v1-bandit"
    world = read_world(str(run_dir / (FIRST if distilled else MODEL)))
    assert (tmp_path / "shelf" / f"{name}{shelf.TENSORS}").read_bytes() == zoo_bytes(world)
    card = json.loads((tmp_path / "shelf" / f"{name}{shelf.CARD}").read_text())
    trained = {j.learner for j in jobs} - {RANDOM}
    assert {j.world for j in jobs if j.where == "world"} == {FIRST if distilled else MODEL}
    if distilled:
        assert card["about"] == "A contextual bandit, distilled from a td3 agent."
        assert (card["generations"], card["learner"], card["search"], card["real_steps"]) == (0, "", "", 1000)
        assert "ppo" in trained, "a world that was only distilled has seen no learner"
    else:
        assert card["about"].endswith("then evolved for 3 generations with PPO by nes.")
        assert card["real_steps"] == 5000 and "ppo" not in trained


@pytest.mark.parametrize("file, said", [("worlds/first.pt", "worlds/first.pt"), ("/home/me/first.pt", "first.pt")])
def test_a_run_that_began_with_a_file(
    run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path, file: str, said: str
) -> None:
    gtn = {"agent_name": "PPO", "first_world": file}
    config = config_of({**RAW, "agents": {"gtn": gtn, "ppo": {}}}, (), "test")
    store_config(run_dir, config, {"command": "envolve run my.yaml"})
    name = add(run_dir, tmp_path / "shelf", Measuring(agents=2))
    card = json.loads((tmp_path / "shelf" / f"{name}{shelf.CARD}").read_text())
    assert card["about"] == f"A contextual bandit, begun with {said}, then evolved for 3 generations with PPO by nes."


def test_only_the_learners_that_were_asked_for(run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path) -> None:
    add(run_dir, tmp_path / "shelf", Measuring(agents=2, learners=("ppo",)), distilled=True)
    assert {j.learner for j in jobs} == {RANDOM, "ppo"}
    with pytest.raises(ConfigError, match="--learners: found 'pppo', expected .*nearest: 'ppo'"):
        add(run_dir, tmp_path / "shelf", Measuring(learners=("pppo",)), distilled=True)


def test_a_report_gives_the_figures_unless_agents_are_asked_for(
    run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"random": None, "unseen": {}, "library": "of the report"}
    (run_dir / "report.json").write_text(json.dumps(kept))
    monkeypatch.setattr(shelf, "DATA", tmp_path / "shelf")
    libraries = []
    for words in ([], ["--steps", "4096"], ["--agents", "2"], ["--learners", "td3"]):
        assert worlds.main(["add", str(run_dir), "--workers", "1", *words]) == 0
        path = max((tmp_path / "shelf").glob(f"*{shelf.CARD}"), key=lambda p: p.stat().st_mtime_ns)
        libraries.append(json.loads(path.read_text())["library"])
        assert bool(jobs) == bool(words)
    assert libraries[0] == "of the report" and "of the report" not in libraries[1:]
    assert {j.steps for j in jobs} >= {4096, 10_000}


def outside(run_dir: Path, **section: Any) -> None:
    """Makes the run one of Gymnasium's own Pendulum-v1."""
    name = "gymnasium:Pendulum-v1"
    agents = {**RAW["agents"], "td3_expert": {"train_steps": 1000}}
    raw = {**RAW, "agents": agents, "env_name": name, "envs": {name: {**RAW["envs"]["Pendulum-v0"], **section}}}
    config = config_of(raw, (), "test")
    store_config(run_dir, config, {"command": "envolve evolve"})
    target = make_target(config.data)
    assert isinstance(target, NetworkTarget)
    target.save(run_dir, target.begin(1), 100.0, False, 1000, MODEL)


def test_a_task_from_a_file_is_refused() -> None:
    """A card that names it would be of use to nobody else."""
    with pytest.raises(
        ConfigError, match="run: found the task gymnasium:my_env.py:Line, expected the id of an installed"
    ):
        check_plain(Path("run"), {"env_name": "gymnasium:my_env.py:Line"})


def test_arguments_of_the_task_are_refused(run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path) -> None:
    outside(run_dir, env_kwargs={"g": 9.0})
    with pytest.raises(ConfigError, match=r"found env_kwargs .*, expected none: .*'Pendulum-v1' names"):
        add(run_dir, tmp_path / "shelf", Measuring(agents=2))
    assert not jobs and not (tmp_path / "shelf").exists()


def test_wrappers_of_gymnasium_go_into_the_file(run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path) -> None:
    outside(run_dir, wrappers=[{"RescaleObservation": {"min_obs": -1, "max_obs": 1}}])
    name = add(run_dir, tmp_path / "shelf", Measuring(agents=2))
    path = str(tmp_path / "shelf" / f"{name}{shelf.TENSORS}")
    assert shelf.open_world(path).wrappers == (("RescaleObservation", {"min_obs": -1, "max_obs": 1}),)
    task = make_task(path)
    assert task.spec is not None and task.spec.id == "Pendulum-v1"
    assert np.abs(task.reset(seed=0)[0]).max() <= 1


def test_other_wrappers_are_refused(run_dir: Path, jobs: list[UnseenAgent], tmp_path: Path) -> None:
    outside(run_dir, wrappers=["NormalizeReward"])
    with pytest.raises(WorldFileError, match="found the wrapper NormalizeReward, expected one of ClipAction"):
        add(run_dir, tmp_path / "shelf", Measuring(agents=2))
    assert not (tmp_path / "shelf").exists()


def test_a_run_without_experts_has_no_such_world(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / FIRST).unlink()
    with pytest.raises(ConfigError, match="found no distilled.pt .*expected .* agents.gtn.init: distilled"):
        add(run_dir, tmp_path / "shelf", Measuring(), distilled=True)
    assert not (tmp_path / "shelf").exists()


def test_figures_of_both_worlds_are_kept_apart() -> None:
    of = [
        UnseenAgent("run", "ppo", where, 10, 1, 2, True, world).key
        for where in ("world", "real")
        for world in (MODEL, FIRST)
    ]
    assert of[0] != of[1] and of[2] == of[3], "agents on the task are the same for both"
