"""envolve evolve: from an id to a plan, a world and a report."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from envolve.agents import peers
from envolve.core import commands
from envolve.envs.outside.build import OutsideError
from envolve.envs.outside.measure import measure
from envolve.experiments import evolve
from envolve.outer import launch
from envolve.outer.auto import report, unseen
from envolve.outer.auto.choice import Choice
from envolve.outer.auto.facts import Facts, probed
from envolve.outer.auto.plan import plan
from envolve.outer.auto.prepare import prepare
from envolve.outer.auto.report_plan import ReportPlan
from envolve.outer.auto.session import Session
from envolve.outer.auto.unseen import REAL, WORLD, UnseenAgent, train_one
from envolve.outer.config.load import ConfigError, config_of, load_config, store_config
from tests.experiments.command import exit_code
from tests.outer.small import ROOT, cliff
from tests.outer.test_run import Direct, files

ID = "gymnasium:CartPole-v1"
TINY = [
    ID, "--quick", "--agents", "2", "--steps", "20", "--workers", "1", "--seed", "3", "--set",
    "agents.gtn.max_iterations=2", "agents.gtn.num_workers=2", "agents.gtn.num_orig_evals=2",
    "agents.ddqn.train_steps=60", "agents.expert.agents=1", "agents.ddqn_expert.train_steps=60",
    "agents.ddqn_expert.test_episodes=2",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with and without Stable-Baselines3, and no process per agent, so that one reads the plan for all."""
    monkeypatch.setattr("envolve.agents.peers.installed", lambda: False)
    monkeypatch.setattr(report, "pool", lambda count: _Here())
    monkeypatch.setattr(report, "_trained", lambda pool, jobs: map(report.guarded, jobs))
    monkeypatch.setattr(unseen, "load_config", functools.lru_cache(maxsize=None)(load_config))


@pytest.fixture
def measured_once(monkeypatch: pytest.MonkeyPatch, warm: None) -> None:
    """Looking at CartPole takes seconds, and timing it does: the first test that asks does both."""

    def found(name: str, *rest: Any) -> dict[str, Any]:
        if name != ID:
            return measure(name, *rest)
        if not known:
            known.append(measure(name, *rest))
        return copy.deepcopy(known[0])

    def timed(*rest: Any) -> dict[str, Any]:
        if not times:
            times.append(probed(*rest))
        return dict(times[0])

    monkeypatch.setattr("envolve.outer.config.outside.measure", found)
    monkeypatch.setattr("envolve.outer.auto.prepare.probed", timed)


known: list[dict[str, Any]] = []
times: list[dict[str, Any]] = []


class _Here:
    """In place of a pool."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...


@pytest.mark.usefixtures("measured_once")
def test_a_plan_a_world_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    words = [*TINY, "agents.gtn.init=random", "--results-dir", str(tmp_path)]
    assert exit_code(evolve.main, [*words, "--learners", "ppo", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    content = json.loads(out.read_text())
    assert {"env", "world", "learner", "search", "seconds", "real_steps", "unseen", "verdict"} <= set(content)
    assert content["env"] == ID and content["world"] == "bandit" and content["learner"] == "DDQN_vary"
    assert set(content["unseen"]) == {"ppo"} and set(content["unseen"]["ppo"]) == {"world", "real", "real_10x"}
    for where, steps in (("world", 20), ("real", 20), ("real_10x", 200)):
        figure = content["unseen"]["ppo"][where]
        assert 8 <= figure["mean_return"] <= 500 and figure["agents"] == 2 and figure["train_steps"] >= steps
    spent = content["real_steps_of"]
    assert content["real_steps"] == sum(spent.values()) and spent["measuring"] > 3000 and spent["evolution"] > 0
    assert spent["baselines"] >= 2 * 220 and spent["tests"] >= 2 * 10 * 8
    assert content["verdict"] in shown and content["verdict"].endswith(".")

    (run_dir,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    plan = yaml.safe_load((run_dir / "plan.yaml").read_text())
    assert (run_dir / "plan.yaml").read_text() in shown and plan["agents"]["gtn"]["max_iterations"] == 2
    assert load_config(run_dir / "plan.yaml").data == load_config(run_dir / "config.yaml").data

    before = (run_dir / "model.pt").read_bytes()
    lines = (run_dir / report.FILE).read_text().splitlines()
    (run_dir / report.FILE).write_text("\n".join(lines[:3]) + "\n")  # as if it had been stopped after three agents
    again = tmp_path / "again.json"
    assert exit_code(evolve.main, ["--resume", str(run_dir), "--json", str(again)]) == 0
    assert json.loads(again.read_text())["unseen"] == content["unseen"]
    assert (run_dir / "model.pt").read_bytes() == before


@pytest.mark.usefixtures("measured_once")
def test_only_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "--check", "--results-dir", str(tmp_path / "none")]
    assert exit_code(evolve.main, words) == 0
    plan = yaml.safe_load(capsys.readouterr().out)
    assert plan["env_name"] == ID and plan["seed"] == 3 and plan["envs"][ID]["contextual_bandit"] is True
    assert not (tmp_path / "none").exists()


WRONG = [
    ([], "found neither ENV nor --resume DIR"),
    ([ID, "--resume", "x"], "found both ENV and --resume DIR"),
    (["--resume", "x", "--seed", "4"], "--resume goes on with the plan of its run: found --seed"),
    (["--resume", "nowhere"], "found no auto.json in 'nowhere'"),
    ([ID, "--minutes", "0"], "--minutes: found 0, expected at least 0.05"),
    ([ID, "--agents", "0"], "--agents: found 0"),
    ([ID, "--json", "/no/such/folder/x.json"], "--json: cannot write"),
    ([ID, "--env-kwargs", "5"], "--env-kwargs: found '5', expected KEY=VALUE"),
    (["gymnasium:CartPol-v1"], "did you mean gymnasium:CartPole-v1"),
    (["CartPole-v7"], "did you mean gymnasium:CartPole-v1"),
    ([ID, "--world", "bandits"], "--world: found 'bandits', expected one of auto, bandit, se, rn; nearest: 'bandit'"),
    ([ID, "--learners", "pqo"], "--learners: found 'pqo'"),
    ([ID, "--learners", "sac"], "--learners: found 'sac', expected one of "),
    ([ID, "--learner", "ddqnn"], "--learner: found 'ddqnn', expected one of auto, "),
    ([ID, "--learner", "QL"], "--learner: found QL, expected a learner with networks, e.g. DDQN_vary: "),
    (["/tmp/my_env.py:Mine"], "ENV: found /tmp/my_env.py:Mine, expected my_env.py:Mine, started in the folder /tmp"),
    (["my_env.py"], "ENV: found my_env.py, expected my_env.py:Class, or my_env:ID"),
    (["my_env.py:My/Env-v0"], "expected my_env:My/Env-v0"),
    (["no_such_package:My/Env-v0"], "found no package no_such_package"),
    ([ID, "--search", "ness", "--quick"], "did you mean nes"),
    ([ID, "--set", "agents.gtn.max_iteration=3"], "did you mean agents.gtn.max_iterations"),
]


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize(("words", "expected"), WRONG, ids=[" ".join(w)[:40] for w, _ in WRONG])
def test_wrong_words_are_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(evolve.main, words) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: measuring ")]
    assert len(err) == 1 and err[0].startswith("evolve.py: ") and expected in err[0], err


FILE = """
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = int(self.np_random.integers(3)), 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x, self.t = max(0, min(5, self.x + (1 if action else -1))), self.t + 1
        return np.array([self.x], np.float32), -1.0, self.x == 5, self.t == 20, {}
"""
IN_A_FILE = "gymnasium:my_env.py:Corridor"


def test_an_environment_in_a_file_is_timed_with_its_experts_and_nothing_beside_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_env.py").write_text(FILE)
    choice = Choice(seconds=600.0, workers=1, agents=2, steps=64)
    raw = plan(facts_of_a_file(), choice, ["ppo"], False).config
    data = config_of(raw).data
    Path("my_env.py").write_text("raise SystemExit('not what was named')")  # its bytes were read once
    timed = probed(data, [], True)
    assert timed["step_seconds"] > 0 and timed["steps"] > 2 * 2 * 100
    assert 0 < timed["expert_seconds"] < 0.5, "a plan must know how long an expert takes, with --quick too"
    monkeypatch.setattr("envolve.outer.auto.facts._own_files", lambda data: [b"another = 1"])
    with pytest.raises(OutsideError, match="no folder is allowed"):
        probed(data, [], True)


def facts_of_a_file() -> Facts:
    return Facts(IN_A_FILE, 1, 2, 0, 20, None, -15.0, 15.0, 3000, True, 1)


def test_a_task_in_a_file_is_planned_for_as_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: None
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "my_task.py", "my_task.py")
    monkeypatch.setattr("envolve.outer.auto.prepare.probed", lambda data, kinds, quick: {"steps": 0})
    made = prepare("my_task.py:PointMass", Choice(seconds=60.0))
    assert made.plan.config["env_name"] == "gymnasium:my_task.py:PointMass"
    assert (made.facts.features, made.facts.num_actions, made.facts.max_steps) == (2, 3, 40)
    assert made.facts.solved_reward == -20.0
    key = "envs.gymnasium:my_task.py:PointMass."
    short = prepare(
        "my_task.py:PointMass", Choice(seconds=60.0), overrides=[f"{key}max_steps=7", f"{key}solved_reward=-3"]
    )
    assert (short.facts.max_steps, short.facts.solved_reward) == (7, -3.0) and short.facts.random_length <= 7
    with pytest.raises(ConfigError, match="max_steps: found 0"):
        prepare("my_task.py:PointMass", Choice(seconds=60.0), overrides=[f"{key}max_steps=0"])


@pytest.mark.slow
def test_an_environment_in_a_file_from_its_plan_to_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_env.py").write_text(FILE)
    words = [IN_A_FILE, *TINY[1:], "agents.gtn.confirm_agents=2"]
    assert exit_code(evolve.main, [*words, "--learners", "ppo", "--results-dir", "runs"]) == 0
    (run_dir,) = (tmp_path / "runs").iterdir()
    first = json.loads((run_dir / "report.json").read_text())["unseen"]
    (run_dir / report.FILE).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # the run's folder has all that it needs
    assert exit_code(evolve.main, ["--resume", str(run_dir)]) == 0
    assert json.loads((run_dir / "report.json").read_text())["unseen"] == first


def test_its_help_names_every_key_and_its_old_door() -> None:
    assert commands.COMMANDS["evolve"].module == "experiments.evolve"
    assert "--minutes" in commands.help_text(commands.COMMANDS["evolve"])


def test_stopped_before_its_first_checkpoint_it_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts train, or the first generation is evaluated: scores.csv is there, and no checkpoint."""
    config = cliff("agents.gtn.comparison_agents=0", "agents.gtn.max_iterations=2")
    monkeypatch.setattr("envolve.outer.run.learning_curve", lambda *args, **more: None)
    monkeypatch.setattr(launch, "compiled_beside", lambda data: contextlib.nullcontext())
    folders = [tmp_path / "cut", tmp_path / "whole"]
    for stop_at, run_dir in zip((0, -1), folders):
        run_dir.mkdir()
        store_config(run_dir, config)
        engines = [Direct(stop_at=stop_at), Direct()]
        monkeypatch.setattr(launch, "_on_files", lambda *args, engines=engines: (engines.pop(0), None, "", ""))
        run = Session(run_dir, config, "Cliff", "rn", "QL", "nes", ReportPlan((), 0, (), 0, False), 0, 1)
        if stop_at == 0:
            with pytest.raises(KeyboardInterrupt):
                run.evolve(1)
            assert (run_dir / "scores.csv").exists() and not (run_dir / "checkpoint.pt").exists()
        run.evolve(1)
    assert files(folders[0]) == files(folders[1])


@pytest.mark.slow
def test_stopped_in_the_evolution_it_goes_on_to_the_same_world(tmp_path: Path) -> None:
    """In processes of its own, as a user does; Stable-Baselines3's agents if it is there."""
    planned = ["agents.ddqn_expert.train_episodes=60", "agents.ddqn_expert.eps_decay=0.9"]  # else by the speed of now
    planned += ["agents.ppo_expert.train_episodes=60", "agents.ppo_expert.train_steps=60"]
    words = [*TINY, "agents.gtn.max_iterations=12", *planned]

    def start(*more: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "envolve", "evolve", *more]
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    whole = start(*words, "--results-dir", str(tmp_path / "whole"))
    assert whole.communicate(timeout=600) and whole.returncode == 0
    cut = start(*words, "--results-dir", str(tmp_path / "cut"))
    until = time.monotonic() + 300
    while not list(tmp_path.glob("cut/*/checkpoint.pt")):
        assert cut.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    cut.send_signal(signal.SIGINT)
    err = cut.communicate(timeout=60)[1].decode()
    assert cut.returncode == 130 and "--resume" in err
    (run_dir,) = (tmp_path / "cut").iterdir()
    again = start("--resume", str(run_dir))
    assert again.communicate(timeout=600) and again.returncode == 0
    (other,) = (tmp_path / "whole").iterdir()
    assert (run_dir / "model.pt").read_bytes() == (other / "model.pt").read_bytes()
    found = [json.loads((d / "report.json").read_text())["unseen"] for d in (run_dir, other)]
    assert found[0] == found[1]


@pytest.mark.slow
def test_stable_baselines3s_agents_train_in_the_world_and_on_the_environment(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    assert exit_code(evolve.main, [*TINY, "--results-dir", str(tmp_path), "--learners", "ppo"]) == 0
    (run_dir,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    for learner, steps in (("ppo", 2048), ("a2c", 100), ("dqn", 200)):
        for where in (WORLD, REAL):
            job = UnseenAgent(str(run_dir), learner, where, peers.whole_rollouts(learner, steps), 5, 2, True)
            first, again = train_one(job), train_one(job)
            assert first["failed"] == "" and first["test_returns"] == again["test_returns"]
            assert first["train_steps"] == steps and first["real_steps"] == (0 if where == WORLD else steps)
            assert all(8 <= x <= 500 for x in first["test_returns"])


@pytest.mark.slow
def test_cartpole_is_learned_by_agents_that_never_saw_its_world(tmp_path: Path) -> None:
    """The known score: at least 450 of 500 in a bandit, by this project's PPO."""
    out = tmp_path / "out.json"
    words = [ID, *"--minutes 8 --agents 2 --steps 8192 --learners ppo".split()]
    assert exit_code(evolve.main, [*words, "--results-dir", str(tmp_path), "--json", str(out)]) == 0
    worlds = {k: v["world"]["mean_return"] for k, v in json.loads(out.read_text())["unseen"].items()}
    assert max(worlds.values()) > 450, worlds
