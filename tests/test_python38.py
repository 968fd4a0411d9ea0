"""Workers in Python 3.8 with the libraries that Isaac Gym's users have (``make test-38``): all that a worker imports,
and every learner trained a little by ``GTN_worker.py`` for a dispatcher in the Python of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
import torch

from envolve.agents.common.learners import LEARNERS, curious_learners
from envolve.envs.shaping.section import candidates_of
from envolve.envs.task import make_task
from envolve.envs.worlds.world import init_world
from envolve.outer.config import problem
from envolve.outer.config.load import Config, load_config
from envolve.outer.config.section import RN
from envolve.outer.evaluate.networks import PROXY, evaluate
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.messages import Chunk, ChunkResult
from tests.test_layout import name, worker_side

ROOT = Path(__file__).resolve().parent.parent
NAMED = "ENVOLVE_PYTHON38"  # another Python 3.8 than that of .venv38; where it is named, nothing is skipped
LIBRARIES = ("torch", "numpy", "numba", "mujoco")
NEWER_MUJOCO = {
    f"envolve.envs.sim.mujoco_{m}" for m in ("batch", "cpu", "warp")
}  # Python 3.8 has none that is new enough

TABLES = [learner for learner in LEARNERS if learner.startswith(("ql", "sarsa"))]
CONTINUOUS = ["td3", "sac", "ppo", "td3_icm", "ppo_icm"]
CARTPOLE = ["ddqn", "duelingddqn", "td3_discrete", "ppo", "ddqn_icm", "duelingddqn_icm", "ppo_icm"]
SHAPED = ["ppo", "sac", "td3"]


@lru_cache(maxsize=None)
def why_not(python: str) -> str:
    """Empty where ``python`` is 3.8 and has the libraries of a worker."""
    code = f"import sys; assert sys.version_info[:2] == (3, 8), sys.version\nimport {', '.join(LIBRARIES)}"
    if not Path(python).exists():
        return f"no {python}"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.fixture(scope="module")
def python38() -> str:
    named = os.environ.get(NAMED)
    python = named or str(ROOT / ".venv38/bin/python")
    reason = why_not(python)
    assert not (named and reason), f"{NAMED}={named}: {reason}"
    if reason:
        pytest.skip(f"no Python 3.8 with a worker's libraries ({reason}): make test-38")
    return python


def run(python: str, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    command = [python, "-c", script, *arguments] if script else [python, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


class Slot:
    """A dispatcher and the one worker, in Python 3.8, that works for it."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.log = folder / "worker.log"
        with self.log.open("w") as output:
            self.worker = subprocess.Popen(
                [*command, "0", "0", "--sync-dir", str(folder / "sync"), "--heartbeat", "0.2"],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.dispatcher = Dispatcher(str(folder / "sync"), 0, "mixed", interval=0.2, on_wait=self._still_there)
        self.chunks = 0

    def _still_there(self) -> None:
        assert self.worker.poll() is None, self.log.read_text()[-3000:]

    def evaluate(self, config: Config, worlds: torch.Tensor, seeds: torch.Tensor) -> ChunkResult:
        self.chunks += 1
        (result,) = self.dispatcher.evaluate([Chunk("mixed", 0, self.chunks, 0, PROXY, config.data, worlds, seeds)])
        return result

    def close(self) -> None:
        """The worker is told to quit, and does."""
        try:
            self.dispatcher.close(quit_workers=True)
            assert self.worker.wait(60) == 0, self.log.read_text()[-3000:]
        finally:
            self.worker.kill()
            self.worker.wait()


@pytest.fixture(scope="module")
def slot(python38: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    slot = Slot(tmp_path_factory.mktemp("worker"), [python38, "GTN_worker.py"])
    yield slot
    slot.close()


@pytest.fixture(scope="module")
def isaac_slot(python38: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    if run(python38, "-c", "import pytest").returncode:
        pytest.skip(f"{python38} has no pytest, which the fake of Isaac Gym needs")
    slot = Slot(tmp_path_factory.mktemp("isaac"), [python38, "tests/isaac_worker.py"])
    yield slot
    slot.close()


def small(learner: str, backend: str, continuous: bool = False) -> Config:
    """A configuration in which an agent trains for 40 steps at most: an SE of CartPole, an RN of Pendulum or Cliff."""
    base = learner[: -len("_icm")] if learner.endswith("_icm") else learner
    gtn = [f"agents.gtn.agent_name={learner}", f"agents.gtn.backend={backend}"]
    if learner in TABLES:
        own = [f"agents.{learner}.train_episodes=5", "env_name=Cliff"]
        return load_config(ROOT / "default_config_gridworld_reward_env_paper.yaml", [*gtn, *own])
    sizes = {"train_episodes": 2, "train_steps": 40, "init_episodes": 0, "hidden_size": 8, "test_episodes": 2}
    sizes.update({"rollout_steps": 8, "ppo_epochs": 2} if base == "ppo" else {"batch_size": 8})
    own = [f"agents.{base}.{key}={value}" for key, value in sizes.items()]
    if continuous:
        file, own = "default_config_pendulum_reward_env_paper.yaml", [*own, "envs.Pendulum-v0.max_steps=20"]
    else:
        file, own = "default_config_cartpole_syn_env_paper.yaml", [*own, "envs.CartPole-v0.hidden_size=8"]
    return load_config(ROOT / file, [*gtn, *own])


def init_of(config: Config, P: int) -> torch.Tensor:
    """P worlds as PyTorch initialises them -> [P, D]."""
    data = config.data
    kind = "rn" if problem.gtn_section(data).synthetic_env_type == RN else "se"
    section = problem.env_section(data)
    task = make_task(data["env_name"], section.max_steps, section.solved_reward)
    return init_world(kind, task, section, torch.arange(P))


def check(slot: Slot, config: Config, same_bytes: bool) -> None:
    """The worker's results are complete and finite, and, where sums have one order, those of this Python."""
    worlds, seeds = init_of(config, 3), torch.tensor([1, 2, 3])
    result = slot.evaluate(config, worlds, seeds)
    assert result.error == "" and result.reasons == [""] * 3, slot.log.read_text()[-3000:]
    agents = {**config.data["agents"], "gtn": {**config.data["agents"]["gtn"], "backend": "torch"}}
    expected = evaluate({**config.data, "agents": agents}, worlds, seeds, PROXY)  # tables: kernels compute the same
    for key, value in result.values.items():
        assert value.shape == expected[key].shape, key
        if same_bytes:
            assert value.numpy().tobytes() == expected[key].numpy().tobytes(), key
    assert all(torch.isfinite(result.values[key]).all() for key in ("score", "mean_return", "test_returns"))
    assert (result.values["train_steps"] > 0).all() and (result.values["updates"] > 0).all()


# --------------------------------------------------------------------------------------------------------------- tests

IMPORT = """
import importlib, sys
sys.path.insert(0, ".")
for module in sys.argv[1:]:
    importlib.import_module(module)
print("imported", len(sys.argv) - 1)
"""


@pytest.mark.slow
def test_every_module_of_the_workers_side_is_imported(python38: str) -> None:
    modules = [("envolve." if "/" in name(p) else "") + name(p)[:-3].replace("/", ".") for p in worker_side()]
    modules = [m[: -len(".__init__")] if m.endswith(".__init__") else m for m in modules]
    done = run(python38, *(m for m in modules if m not in NEWER_MUJOCO), script=IMPORT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(modules) - len(NEWER_MUJOCO)}\n"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("learner", TABLES)
def test_tables_are_learned(slot: Slot, learner: str, backend: str) -> None:
    check(slot, small(learner, backend), same_bytes=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("learner", CARTPOLE)
def test_learners_of_discrete_actions_train(slot: Slot, learner: str, backend: str) -> None:
    check(slot, small(learner, backend), same_bytes=False)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("learner", CONTINUOUS)
def test_learners_of_continuous_actions_train(slot: Slot, learner: str, backend: str) -> None:
    check(slot, small(learner, backend, continuous=True), same_bytes=False)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("learner", SHAPED)
def test_shapers_train_in_isaac_gym(isaac_slot: Slot, learner: str, backend: str) -> None:
    """A chunk of candidates in one engine, which is faked."""
    overrides = [f"agents.gtn.backend={backend}"]
    overrides += [f"agents.gtn.agent_name={learner}", f"agents.{learner}.hidden_size=8", "envs.Cartpole.iterations=2"]
    overrides += ["envs.Cartpole.engine=isaacgym", "envs.Cartpole.num_envs_per_shaper=4"]
    overrides += [f"agents.{learner}.rollout_steps=8"] if learner == "ppo" else [f"agents.{learner}.batch_size=8"]
    config = load_config(ROOT / "default_config_cartpole_shapers.yaml", overrides)
    count = len(candidates_of(problem.shaped_section(config.data), "Cartpole"))
    result = isaac_slot.evaluate(config, torch.arange(count).float()[:, None], torch.arange(count))
    assert result.error == "", isaac_slot.log.read_text()[-3000:]
    good = [reason == "" for reason in result.reasons]
    assert torch.isfinite(result.values["score"]).tolist() == good and sum(good) > count / 2


@pytest.mark.slow
@pytest.mark.parametrize("file", ["cartpole_shapers", "halfcheetah_reward_env_paper"])
def test_what_needs_a_newer_mujoco_says_so_in_one_line(slot: Slot, file: str) -> None:
    config = load_config(ROOT / f"default_config_{file}.yaml", ["agents.gtn.backend=torch"])
    size = 1 if "shapers" in file else init_of(config, 1).shape[1]
    result = slot.evaluate(config, torch.zeros(1, size), torch.zeros(1, dtype=torch.int64))
    assert "MuJoCo 3.17 or later is needed, found MuJoCo 3.2.3 in Python 3.8." in result.error
    assert result.error.count("\n") == 0


GOALS = """
import sys
sys.path.insert(0, ".")
import torch
from envolve.agents.goal.crl_section import CRLSection
from envolve.agents.goal.crl_train import GoalTraining
from envolve.agents.goal.off_policy_section import GoalSACSection, GoalTD3Section
from envolve.agents.goal.ppo_section import GoalPPOSection
from envolve.envs.goal.task import make_goal_task
for section in (CRLSection, GoalSACSection, GoalTD3Section, GoalPPOSection):
    sizes = {"h_dim": 8, "num_envs": 4, "unroll_length": 8}
    more = {"num_minibatches": 2} if section is GoalPPOSection else {"batch_size": 8, "min_replay_size": 8,
                                                                   "max_replay_size": 64}
    task = make_goal_task("simple_u_maze")
    t = GoalTraining(task, task, section(**sizes, **more), torch.tensor([1, 2]), episode_length=10, num_eval_envs=3)
    for _ in range(4):
        t.iteration()
    assert t.updates > 0 and torch.isfinite(t.evaluate().distance).all()
print("trained")
"""


@pytest.mark.slow
def test_learners_of_goals_train(python38: str) -> None:
    done = run(python38, script=GOALS)
    assert done.returncode == 0 and done.stdout.endswith("trained\n"), done.stderr


def test_every_learner_is_among_them() -> None:
    curious = {f"{learner}_icm" for learner in curious_learners()}
    assert {*TABLES, *CARTPOLE, *CONTINUOUS} == {*LEARNERS} | curious
