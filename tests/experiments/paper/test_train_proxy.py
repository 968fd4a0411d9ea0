"""train_proxy.py: what it evolves, that nothing is done twice, and what it says when it cannot. Members are
evaluated in this process; one slow test has workers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys

import pytest

from envolve.envs.worlds.file import read_world
from envolve.experiments.paper import train_proxy
from envolve.experiments.paper.common.proxies import best_worlds, proxy, read_runs, write_index, write_result
from envolve.outer.config.load import ConfigError, load_config
from envolve.outer.evaluate.networks import BUDGET, PROXY
from tests.experiments import command
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, CLIFF, GRIDWORLD_FILE, ROOT
from tests.outer.test_run import Direct

SMALL = (*CLIFF, "agents.gtn.max_iterations=3", "agents.gtn.comparison_agents=0")
CHEETAH_FILE = ROOT / "default_config_halfcheetah_reward_env_paper.yaml"


@pytest.fixture()
def call(capsys, tmp_path, monkeypatch, undrawn):
    """-> exit code, stdout, stderr, index.json; with ``call.direct``, what took the place of the workers."""

    def run(*words, direct=None, config=GRIDWORLD_FILE, overrides=SMALL, folder="gridworld_reward_env_paper_mode2"):
        run.direct = direct or Direct()
        monkeypatch.setattr(train_proxy, "exchange", lambda args, kind: contextlib.nullcontext(run.direct))
        words = [config, *words, "--results-dir", tmp_path, *(["--set", *overrides] if overrides else [])]
        return command.run(train_proxy.main, words, capsys, tmp_path / folder / "index.json")

    return run


def test_worlds_of_one_mode(call, tmp_path):
    code, out, _, index = call("--mode", 1, "--runs", 2, "--seed", 5, folder="gridworld_reward_env_paper_mode1")
    folder = tmp_path / "gridworld_reward_env_paper_mode1"
    assert code == 0 and "2 runs finished" in out
    assert (index["task"], index["mode"], index["objective"]) == ("Cliff", 1, "reward_threshold")
    assert [run["seed"] for run in index["runs"]] == [5, 6]
    for run in index["runs"]:
        world = read_world(str(folder / f"seed{run['seed']}" / run["model"]))
        assert world.section.reward_env_type == 1 and world.score == run["score"] and world.solved == run["solved"]
        assert run["generations"] == 3 and 1 <= run["best_generation"] <= 3 and run["error"] == ""
        config = load_config(folder / f"seed{run['seed']}" / "config.yaml")
        assert config.data["seed"] == run["seed"] and (folder / f"seed{run['seed']}" / "summary.txt").exists()
    assert index["runs"][0]["score"] != index["runs"][1]["score"]


def test_a_finished_run_is_not_repeated_and_an_interrupted_one_goes_on(call, tmp_path):
    code, _, err, _ = call("--runs", 2, direct=Direct(stop_at=5))
    assert code == 130 and "stopped" in err
    folder = tmp_path / "gridworld_reward_env_paper_mode2"
    assert [run.seed for run in read_runs(folder)] == [0]
    code, _, err, index = call("--runs", 2)
    assert code == 0 and "1 of 2 runs are finished already" in err
    assert [(g, mode) for g, mode, _ in call.direct.calls] == [(2, PROXY), (3, PROXY), (4, BUDGET)]
    straight = call("--runs", 2, "--name", "other", folder="other_mode2")[3]
    assert len(call.direct.calls) == 2 * 4, "three generations, and fresh agents in the kept world"
    for a, b in zip(index["runs"], straight["runs"]):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    assert call("--runs", 2)[0] == 0 and call.direct.calls == []
    assert call("--runs", 2, overrides=(*SMALL, "agents.gtn.noise_std=0.2"))[0] == 2


def test_an_rn_is_solved_if_its_agents_solve_the_task(call):
    """Not if only those did that gave it its score: fresh ones all end at -50."""

    def change(chunk, values):
        values["mean_return"][:] = -13.0 if chunk.mode == PROXY else -50.0
        return values

    _, out, _, index = call("--runs", 2, direct=Direct(change))
    assert [run["solved"] for run in index["runs"]] == [False, False]
    assert "0 solved (what fresh agents do on the task)" in out


def test_what_the_evolution_cost_is_kept(call, tmp_path):
    _, out, _, index = call("--runs", 2)
    folder = tmp_path / "gridworld_reward_env_paper_mode2"
    spent = [run["real_steps"] for run in index["runs"]]
    assert all(n > run["steps"] for n, run in zip(spent, index["runs"])), "an RN's agents walk the task, and are tested"
    assert [read_world(str(folder / f"seed{i}" / "model.pt")).evolution_steps for i in (0, 1)] == spent
    assert f"real steps spent on evolving, tests included: {sum(spent):,}" in out
    path = folder / "seed0" / "result.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "real_steps"}))
    assert "tests included: unknown" in call("--runs", 2)[1], "a result of an earlier version"


@pytest.mark.parametrize(("mode", "agent"), [(0, "QL"), pytest.param(-1, "ql_cb", marks=pytest.mark.slow)])
def test_modes_without_evolution(call, tmp_path, mode, agent):
    folder = f"gridworld_reward_env_paper_mode{mode}"
    code, out, _, index = call("--mode", mode, "--runs", 2, folder=folder)
    assert code == 0 and "no reward network" in out
    assert [(g, m) for g, m, _ in call.direct.calls] == [(1, "real_budget")] * 2
    for run in index["runs"]:
        assert run["model"] == "" and run["generations"] == 0 and math.isfinite(run["score"])
    config = load_config(tmp_path / folder / "seed0" / "config.yaml")
    assert config.data["agents"]["gtn"]["agent_name"] == agent
    with pytest.raises(ConfigError, match="0 finished runs with a world, expected at least 1"):
        best_worlds(tmp_path / folder, 1)


def test_objectives_have_folders_of_their_own(call, tmp_path):
    index = call("--runs", 1, "--objective", "auc", folder="gridworld_reward_env_paper_mode2_auc")[3]
    assert index["objective"] == "auc"
    index = call("--runs", 1, "--objective", "mean_return", folder="gridworld_reward_env_paper_mode2_mean_return")[3]
    assert index["runs"][0]["score"] == index["runs"][0]["mean_return"]
    code, _, err, _ = call("--objective", "auk")
    assert code == 2 and "--objective: found 'auk', expected one of reward_threshold, auc, mean_return" in err


def test_ses_by_their_agents(call, tmp_path):
    small = (*CARTPOLE, "agents.gtn.max_iterations=2")
    for words, name in (((), "fixed"), (("--vary-hp", "True"), "varied")):
        folder = f"cartpole_syn_env_paper_{name}"
        code, _, _, index = call("--runs", 1, *words, config=CARTPOLE_FILE, overrides=small, folder=folder)
        assert code == 0 and index["mode"] is None and index["runs"][0]["model"] == "model.pt"
        agent = load_config(tmp_path / folder / "seed0" / "config.yaml").data["agents"]["gtn"]["agent_name"]
        assert agent == ("DDQN_vary" if name == "varied" else "DDQN")
    code, _, err, _ = call("--mode", 2, config=CARTPOLE_FILE, overrides=small)
    assert code == 2 and "--mode: found 2, expected none" in err and "evolves SEs" in err


@pytest.mark.parametrize(
    ("config", "mode", "words"),
    [
        (GRIDWORLD_FILE, 3, "found 3 (augmented exclusive potential; Cliff has no info vector), expected one of -1, 0"),
        (GRIDWORLD_FILE, 102, "has no info vector"),
        (GRIDWORLD_FILE, 9, "--mode: found 9, expected one of -1, 0, 1, 2, 5, 6"),
        (CHEETAH_FILE, -2, "expected one of -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 101, 102"),
    ],
)
def test_modes_that_do_not_fit(call, config, mode, words):
    code, _, err, _ = call("--mode", mode, config=config, overrides=())
    assert code == 2 and words in err


@pytest.mark.parametrize("mode", [-1, 0, 3, 4, 7, 8, 101, 102])
def test_half_cheetah_has_all_modes(tmp_path, mode):
    kind = proxy(CHEETAH_FILE, tmp_path, mode=mode, quick=True)
    assert kind.folder.name == f"halfcheetah_reward_env_paper_mode{mode}_quick"
    gtn, env = kind.config.data["agents"]["gtn"], kind.config.data["envs"]["HalfCheetah-v3"]
    assert env["reward_env_type"] == (mode if kind.evolves else 2)
    assert gtn["agent_name"] == ("td3_icm" if mode == -1 else "td3")


def test_shares_cover_every_run_once():
    seeds = list(range(3, 20))
    shares = [train_proxy.share(seeds, i, 4) for i in range(4)]
    assert shares[1] == [4, 8, 12, 16] and sorted(s for share in shares for s in share) == seeds
    assert train_proxy.share(seeds, None, None) == seeds


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((2, 2), "BOHB_ID: found 2, expected less than BOHB_WORKERS, 2"),
        ((0,), "BOHB_WORKERS: found nothing"),
        ((0, 0), "BOHB_WORKERS: found 0, expected at least 1"),
        (("--runs", 0), "--runs: found 0"),
        (("--workers", 0), "--workers: found 0"),
    ],
)
def test_wrong_arguments(call, words, expected):
    code, _, err, _ = call(*words)
    assert code == 2 and expected in err


def test_two_masters_share_the_runs(call):
    assert [r["seed"] for r in call(1, 2, "--runs", 3)[3]["runs"]] == [1]
    assert [r["seed"] for r in call(0, 2, "--runs", 3)[3]["runs"]] == [0, 1, 2]


def test_a_run_in_which_all_fail_is_a_result(call, tmp_path):
    """Its worlds are kept out of the choice, not out of the index."""

    class Failing(Direct):
        def evaluate(self, chunks, unfit=None):
            results = super().evaluate(chunks)
            for result in results:
                result.values["score"][:] = math.nan
                result.values["mean_return"][:] = math.nan
                result.reasons[:] = ["it broke"] * len(result.reasons)
            return results

    code, out, _, index = call("--runs", 1, direct=Failing())
    assert code == 0 and "1 without a score" in out
    run = index["runs"][0]
    assert run["score"] is None and run["model"] == "" and "every agent failed" in run["error"]


def test_the_best_worlds(call, tmp_path):
    """By the stored score, the highest first; of equal ones the lower seed."""
    call("--runs", 3)
    folder = tmp_path / "gridworld_reward_env_paper_mode2"
    runs = read_runs(folder)
    scores = {0: -300.0, 1: -200.0, 2: -200.0}
    for run in runs:
        write_result(folder / f"seed{run.seed}", type(run)(**{**vars(run), "score": scores[run.seed]}))
    assert [w.path.split("/")[-2] for w in best_worlds(folder, 3)] == ["seed1", "seed2", "seed0"]
    assert [w.path.split("/")[-2] for w in best_worlds(folder, 1)] == ["seed1"]
    with pytest.raises(ConfigError, match="found 3 finished runs with a world, expected at least 4"):
        best_worlds(folder, 4)
    (folder / "seed0" / "result.json").write_text("{")
    with pytest.raises(ConfigError, match="seed0/result.json: found JSONDecodeError"):
        best_worlds(folder, 1)


def test_quick_is_kept_apart(call):
    code, _, _, index = call("--quick", "--runs", 1, overrides=(), folder="gridworld_reward_env_paper_mode2_quick")
    assert code == 0 and index["runs"][0]["generations"] == 10


def test_check_does_nothing(call, tmp_path):
    code, out, _, index = call("--check")
    assert code == 0 and "mode 2, additive potential: seeds 0 to 49" in out and index is None
    assert list(tmp_path.iterdir()) == []


def test_the_index_is_made_from_all_runs(call, tmp_path):
    call("--runs", 2)
    kind = proxy(GRIDWORLD_FILE, tmp_path, overrides=SMALL)
    (kind.folder / "index.json").unlink(missing_ok=True)
    write_index(kind)
    assert len(json.loads((kind.folder / "index.json").read_text())["runs"]) == 2


@pytest.mark.slow
def test_with_workers_as_a_user_types_it(tmp_path):
    words = ["--runs", "2", "--workers", "1", "--results-dir", str(tmp_path), "--set", *SMALL]
    script = [sys.executable, str(ROOT / "experiments/paper/train_proxy.py"), str(GRIDWORLD_FILE)]
    masters = [
        subprocess.Popen(
            [*script, str(i), "2", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for i in range(2)
    ]
    texts = [m.communicate(timeout=300)[0].decode() for m in masters]
    assert [m.returncode for m in masters] == [0, 0], texts
    assert [run.seed for run in read_runs(tmp_path / "gridworld_reward_env_paper_mode2")] == [0, 1]
