"""experiments/evaluate_policy.py over runs of every kind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from envolve.core.statistics import interval
from envolve.distributed.files.params_file import freeze
from envolve.distributed.files.policy_file import checkpoint_name, save_policy
from envolve.distributed.programs.learner import POLICIES
from envolve.envs.nets.networks import MLPShape
from envolve.experiments import eval_shapers, evaluate_policy, train_goal
from envolve.experiments.policies import distributed as policy_distributed
from envolve.experiments.policies.goal import GoalPolicies, load_learner
from envolve.experiments.policies.shaper import ShaperPolicies
from envolve.outer.goals.arguments import stored_plan
from envolve.outer.goals.run import GoalRun
from envolve.outer.search.nes import RETEST, member_seeds
from envolve.outer.shapers.run import ShaperRun
from tests.experiments import command
from tests.experiments.test_eval_shapers import SMALL, WIDE
from tests.experiments.test_train_goal import TINY
from tests.outer.reporting.events import scalars

pytestmark = pytest.mark.usefixtures("undrawn")
MIXED = {"crl": [], "sac": ["--agent", "sac"], "td3": ["--agent", "td3", "--use_her"], "ppo": ["--agent", "ppo"]}


def evaluate(folder: Path, capsys: Any, *words: object, name: str = "policy", seed: int = 0) -> Any:
    path = folder / f"evaluation_{name}_seed{seed}.json"
    return command.run(evaluate_policy.main, ["--run-dir", folder, "--seed", seed, *words], capsys, path)


# ---------------------------------------------------------------------------------------------------------- goal runs


def goal_run(folder: Path, *words: str) -> Path:
    """TINY, but for the flags that this agent has not."""
    dropped = {
        "crl": [],
        "sac": ["--repr_dim"],
        "td3": ["--repr_dim"],
        "ppo": ["--repr_dim", "--batch_size", "--min_replay_size", "--max_replay_size"],
    }
    agent = words[words.index("--agent") + 1] if "--agent" in words else "crl"
    pairs = [(flag, value) for flag, value in zip(TINY[::2], TINY[1::2]) if flag not in dropped[agent]]
    own = [word for pair in pairs for word in pair]
    code = train_goal.main([*own, *words, "--population", "2", "--results_dir", str(folder), "--exp_name", "run"])
    assert code == 0
    return folder / "run"


@pytest.mark.parametrize("agent", MIXED)
def test_a_stored_goal_policy_acts_as_the_one_in_the_run(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    learners: list[Any] = []
    execute = GoalRun.execute
    monkeypatch.setattr(GoalRun, "execute", lambda run, *a: learners.append(run.training.learner) or execute(run, *a))
    folder = goal_run(tmp_path, *MIXED[agent], "--normalize_observations")
    stored = load_learner(stored_plan(folder), folder / "policy.pt")
    features, goal = torch.randn(2, 5, 4), torch.randn(2, 5, 2)
    torch.testing.assert_close(stored.greedy(features, goal), learners[0].greedy(features, goal), rtol=0, atol=1e-6)

    code, out, _, content = evaluate(folder, capsys, "-n", 4, "--tensorboard", tmp_path / "events")
    assert code == 0 and "simple_u_maze" in out and content["kind"] == "train_goal.py"
    logged = [scalars(tmp_path / "events" / f"member_{m}")["return"] for m in range(2)]
    assert [[v for _, v in one] for one in logged] == [
        pytest.approx(m["return"]["values"], abs=1e-4) for m in content["members"]
    ]
    assert [len(m["return"]["values"]) for m in content["members"]] == [4, 4]
    assert all(0 <= v <= 12 for m in content["members"] for v in m["return"]["values"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return goal_run(tmp_path_factory.mktemp("goal"))


@pytest.fixture
def goal(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run."""
    return Path(shutil.copytree(trained, tmp_path / "goal"))


def test_the_same_seed_gives_the_same_episodes(goal: Path, capsys: Any) -> None:
    folder = goal
    first, again, other = (evaluate(folder, capsys, "-n", 6, seed=seed)[3] for seed in (1, 1, 2))
    assert first == again
    ends = [[m["distance at the end, m"]["values"] for m in c["members"]] for c in (first, other)]
    assert ends[0] != ends[1]
    returned = first["members"][0]["return"]
    assert (returned["interval"] is None) == (len(set(returned["values"])) == 1)
    low, high = returned["interval"] or [returned["mean"]] * 2
    assert low <= returned["mean"] <= high


def test_actions_drawn_as_in_training(goal: Path, capsys: Any) -> None:
    out = goal / "drawn.json"
    words = ["--run-dir", goal, "--seed", 1, "-n", 6, "--stochastic", "--json", out]
    first, again = (command.run(evaluate_policy.main, words, capsys, out) for _ in range(2))
    _, _, _, greedy = evaluate(goal, capsys, "-n", 6, seed=1)
    assert first == again and first[3]["stochastic"] and not greedy["stochastic"]
    ends = [[m["distance at the end, m"]["values"] for m in content["members"]] for content in (first[3], greedy)]
    assert ends[0] != ends[1]


def test_only_goal_runs_have_actions_to_draw(tmp_path: Path, capsys: Any) -> None:
    code, _, err, _ = evaluate(tmp_path, capsys, "--stochastic")
    assert code == 2 and "--stochastic: found no policy.pt" in err and "train_goal.py" in err


def test_a_goal_run_without_numbers_is_no_success(goal: Path, capsys: Any) -> None:
    folder = goal
    policy = torch.load(folder / "policy.pt", weights_only=True)
    policy["params"][0] = torch.nan
    torch.save(policy, folder / "policy.pt")
    code, out, _, content = evaluate(folder, capsys)
    assert code == 0 and content["members"][0]["return"]["mean"] is None
    assert GoalPolicies(folder).play("policy", 3, 0).best == 1
    policy["params"][1] = torch.nan
    torch.save(policy, folder / "policy.pt")
    code, _, err, _ = evaluate(folder, capsys)
    assert code == 1 and "weights of every member are not finite" in err


@pytest.mark.parametrize(
    "content, said",
    [
        ({"params": torch.zeros(2, 3)}, r"params: found \[2, 3\], expected numbers \[P, D\]"),
        ({"parms": torch.zeros(2, 3)}, "params: found NoneType, expected Tensor"),
        ([1], "params: found NoneType"),
    ],
)
def test_a_file_that_is_no_policy_of_this_run(content: Any, said: str, goal: Path, capsys: Any) -> None:
    folder = goal
    torch.save(content, folder / "policy.pt")
    code, _, err, _ = evaluate(folder, capsys)
    assert code == 1 and re.search(said, err)
    (folder / "policy.pt").write_bytes(b"nothing")
    code, _, err, _ = evaluate(folder, capsys)
    assert code == 1 and "found no policy" in err


# --------------------------------------------------------------------------------------------------------- shaper runs


@pytest.fixture
def shaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trains one candidate on Cartpole -> the run's folder, its run."""

    def make(*words: str) -> tuple[Path, ShaperRun]:
        runs: list[ShaperRun] = []
        write = ShaperRun.write
        monkeypatch.setattr(ShaperRun, "write", lambda run, copy: runs.append(run) or write(run, copy))
        folder = tmp_path / "shapers"
        folder.mkdir()
        (folder / "wide.py").write_text(WIDE)
        settings = SMALL[: SMALL.index("--set")] if "--set" in words else SMALL
        who = ["--shapers", str(folder), "--no-human", "--run-dir", str(tmp_path / "run")]
        assert eval_shapers.main([*settings, *words, *who]) == 0
        return tmp_path / "run", runs[0]

    return make


OFF_POLICY = ["--set", "hidden_size=16", "init_episodes=0"]


@pytest.mark.parametrize("words", [[], ["--learner", "sac", *OFF_POLICY], ["--learner", "td3", *OFF_POLICY]])
def test_a_stored_shaper_policy_acts_as_the_one_in_the_run(words: list[str], shaped: Any, capsys: Any) -> None:
    folder, run = shaped(*words)
    wide = folder.parent / "shapers" / "wide.py"
    _, policy = ShaperPolicies(folder, wide)._stage(2, 0)
    assert run.envs is not None and run.envs.P == 1
    obs = torch.randn(1, run.envs.N, policy.F)
    expected = run.learner.act(obs)[:, :, : policy.A]
    torch.testing.assert_close(policy.act(obs), expected, rtol=0, atol=1e-5)

    code, out, _, content = evaluate(folder, capsys, "-n", 4, "--shaper", wide, name="best")
    assert code == 0 and content["task"] == "Cartpole" and len(content["members"][0]["return"]["values"]) == 4
    assert abs(content["members"][0]["return"]["mean"] - run.result.score[0]) < 0.5  # type: ignore[union-attr]


def test_the_file_of_a_candidate_is_the_users_to_name(shaped: Any, capsys: Any, tmp_path: Path) -> None:
    folder, _ = shaped()
    code, _, err, _ = evaluate(folder, capsys, name="best")
    assert code == 2 and "--shaper: found none" in err and "wide.py" in err
    other = tmp_path / "other.py"
    other.write_text(WIDE)
    code, _, err, _ = evaluate(folder, capsys, "--shaper", other, name="best")
    assert code == 2 and "expected the file of candidate wide" in err
    wide = folder.parent / "shapers" / "wide.py"
    wide.write_text(WIDE.replace("a.sin(), ", ""))  # narrower than what it was trained with
    code, _, err, _ = evaluate(folder, capsys, "--shaper", wide, name="best")
    assert code == 1 and "expected 5 observations and 2 actions" in err


# --------------------------------------------------------------------------------------------------- distributed runs

PENDULUM = """
import gymnasium
from envolve.distributed.files.params import TrainParamsBase

class TrainParams(TrainParamsBase):
    horizon = 30

    def env_ctor(self, seed, **kwargs):
        return gymnasium.make("Pendulum-v1", g=10.0, **kwargs)
"""


@pytest.fixture
def distributed(tmp_path: Path) -> Path:
    """A run's folder with policies after 0, 500 and 1000 steps: three pushes in the same direction, of two members."""
    params, folder = tmp_path / "p.py", tmp_path / "run"
    params.write_text(PENDULUM)
    freeze(folder, params, None)
    (folder / POLICIES).mkdir(parents=True)
    for step in (0, 500, 1000):
        shape = MLPShape(3, 2, 4, 1, "relu")
        actor = torch.zeros(2, shape.size)
        actor[:, -2] = torch.tensor([1.0, -1.0]) * step / 1000  # of the outputs' biases the mean's
        content = {
            "algorithm": "SAC", "actor": actor, "activation": "relu", "inputs": 3, "outputs": 1, "hidden": 4,
            "layers": 1, "low": torch.tensor([-2.0]), "high": torch.tensor([2.0]), "step": step,
        }  # fmt: skip
        save_policy(folder / POLICIES / f"{checkpoint_name(step)}.pt", content)
    return folder


def by_hand(push: float, seeds: list[int]) -> list[float]:
    env = gymnasium.make("Pendulum-v1")
    returns = []
    for seed in seeds:
        env.reset(seed=seed)
        returns.append(sum(float(env.step(np.array([push]))[1]) for _ in range(30)))
    return returns


def test_a_distributed_policy_is_played_in_the_users_environment(distributed: Path, capsys: Any) -> None:
    newest = checkpoint_name(1000)
    code, out, _, content = evaluate(distributed, capsys, "-n", 3, name=newest, seed=108)
    assert code == 0 and newest in out and content["checkpoint"] == newest and len(content["members"]) == 2
    seeds = member_seeds(108, RETEST, 0, 3).tolist()
    for member, sign in zip(content["members"], (1, -1)):
        push = float(2 * np.tanh(np.float32(sign)))
        assert member["return"]["values"] == pytest.approx(by_hand(push, seeds), rel=1e-4)
        assert member["length"]["values"] == [30, 30, 30]


@pytest.mark.parametrize("name", ["policy_checkpoint_0000000500", "policy_checkpoint_0000000500.pt"])
def test_the_checkpoint_that_was_asked_for(name: str, distributed: Path, capsys: Any) -> None:
    code, _, _, content = evaluate(distributed, capsys, "--checkpoint", name, name=checkpoint_name(500))
    assert code == 0 and content["checkpoint"] == checkpoint_name(500)
    code, _, err, _ = evaluate(distributed, capsys, "--checkpoint", "policy_checkpoint_0000000501")
    assert code == 2 and "nearest: policy_checkpoint_0000000500" in err


def test_a_policy_of_another_environment(distributed: Path, capsys: Any) -> None:
    path = distributed / "params.py"
    path.write_text(PENDULUM.replace('"Pendulum-v1", g=10.0', '"MountainCarContinuous-v0"'))
    code, _, err, _ = evaluate(distributed, capsys)
    assert code == 1 and "the environment has (2, 1) inputs and actions, expected 3 and 1" in err


def test_a_distributed_run_that_has_written_no_policy(distributed: Path, capsys: Any) -> None:
    for path in (distributed / POLICIES).iterdir():
        path.unlink()
    code, _, err, _ = evaluate(distributed, capsys)
    assert code == 1 and "found no policy_checkpoint_*.pt" in err


def test_a_film_needs_pictures(distributed: Path, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("imageio")
    monkeypatch.setattr(policy_distributed, "SECONDS", 1.5)  # more than an episode
    pytest.importorskip("pygame")
    code, _, _, _ = evaluate(distributed, capsys, "-n", 1, "--video", tmp_path / "a.gif", name=checkpoint_name(1000))
    assert code == 0 and (tmp_path / "a.gif").stat().st_size > 1000
    path = distributed / "params.py"
    path.write_text(PENDULUM.replace("g=10.0, **kwargs)", "g=10.0)"))
    code, _, err, _ = evaluate(distributed, capsys, "-n", 1, "--video", tmp_path / "a.gif", name=checkpoint_name(1000))
    assert code == 1 and "was given render_mode='rgb_array', and made one with None" in err


# ------------------------------------------------------------------------------------------------------ what is wrong


def test_wrong_arguments(tmp_path: Path, capsys: Any) -> None:
    for words, said in (
        (["--run-dir", tmp_path / "nobody"], "--run-dir: found no "),
        (["--run-dir", tmp_path], r"expected a folder with params.py"),
        (["--run-dir", tmp_path, "-n", 0], "--episodes: found 0, expected at least 1"),
        (["--run-dir", tmp_path, "--seed", -1], "--seed: found -1"),
        (["--run-dir", tmp_path, "--video", "a.avi"], "expected a name that ends in .mp4 or .gif"),
        (["--run-dir", tmp_path, "--json", tmp_path], "--json: found"),
    ):
        code, _, err, _ = command.run(evaluate_policy.main, words, capsys, tmp_path / "none.json")
        assert code == 2 and said in err


def test_a_wrong_checkpoint_shows_the_nearest(goal: Path, capsys: Any) -> None:
    code, _, err, _ = evaluate(goal, capsys, "--checkpoint", "polcy.pt")
    assert code == 2 and "--checkpoint: found no 'polcy'" in err and "nearest: policy" in err


@pytest.mark.slow
def test_films(goal: Path, tmp_path: Path, shaped: Any, capsys: Any) -> None:
    pytest.importorskip("imageio")
    shaper, _ = shaped()
    wide = tmp_path / "shapers" / "wide.py"
    for folder, name, words in ((goal, "policy", []), (shaper, "best", ["--shaper", wide])):
        film = tmp_path / f"{name}.gif"
        code, _, err, _ = evaluate(folder, capsys, "-n", 2, "--video", film, *words, name=name)
        assert (code == 0 and film.stat().st_size > 1000) or "OpenGL" in err


def test_figures_of_members() -> None:
    found = evaluate_policy.figures(np.array([1.0, 3.0]))
    assert found["mean"] == 2.0 and found["values"] == [1.0, 3.0]
    assert found["interval"] == list(interval([1.0, 3.0])) and found["interval"][0] < 1 < 3 < found["interval"][1]
    assert evaluate_policy.figures(np.array([2.0, 2.0]))["interval"] is None, "equal episodes tell nothing of others"
