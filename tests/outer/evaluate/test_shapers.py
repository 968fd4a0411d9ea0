"""Shapers through the outer loop: what a world vector means, rankings, NES over the numbers in a file."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console

import envolve.outer.run
from envolve.envs.graph.file import GraphFile
from envolve.envs.shaping.candidate import load_candidate
from envolve.outer.config.load import Config, describe, load_config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.evaluate.networks import PROXY, REAL, evaluate
from envolve.outer.evaluate.shapers import candidate_of, params_of
from envolve.outer.reporting.report import LiveTable
from envolve.outer.reporting.summary import summary_text
from envolve.outer.run import Run
from envolve.outer.search.ranking import Ranking, ranking_text, read_ranking
from envolve.outer.search.target import ranks
from tests.envs.graphs import Graph
from tests.outer.small import ROOT
from tests.outer.test_run import Direct

GOOD = "def compute_reward(state): return -state['pole_angle'].abs()\n"
NARROW = """import torch
def compute_observation(state): return torch.stack((state['pole_angle'], state['cart_position']), 1)
"""
BAD = "def compute_reward(state): return state['no_such_thing']\n"
NUMBERS = "PARAMS = {'a': 2.0, 'b': 0.0}\ndef compute_reward(state, params): return params[:, 0] - params[:, 1]\n"
SMALL = ("envs.Cartpole.num_envs_per_shaper=4", "envs.Cartpole.iterations=1", "agents.ppo.rollout_steps=8",
         "agents.ppo.hidden_size=8", "agents.gtn.backend=torch", "agents.gtn.chunk_size=3")  # fmt: skip


def folder(tmp_path: Path, **files: str) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    return path


def config(shapers: Path, *overrides: str, name: str = "shapers") -> Config:
    file = ROOT / f"default_config_cartpole_{name}.yaml"
    return load_config(file, [*SMALL, f"envs.Cartpole.shapers={shapers}", *overrides])


def table(generations: int) -> tuple[io.StringIO, LiveTable]:
    output = io.StringIO()
    return output, LiveTable(generations, "title", Console(file=output, width=200))


def test_a_number_moves_in_units_of_its_own_size(tmp_path: Path) -> None:
    candidate = load_candidate(folder(tmp_path, numbers=NUMBERS) / "numbers.py")
    assert params_of(candidate, torch.tensor([0.5, 0.5])).tolist() == [3.0, 0.5]
    assert candidate_of([candidate], torch.tensor([0.0])).params.tolist() == [2.0, 0.0]
    assert candidate_of([candidate], torch.tensor([0.0, -1.0, 1.0])).params.tolist() == [0.0, 1.0]


def test_a_chunk_is_evaluated_in_one_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import envolve.agents.shaped.training

    made = []
    make = envolve.agents.shaped.training.make_simulator
    monkeypatch.setattr(envolve.agents.shaped.training, "make_simulator", lambda *a: made.append(a) or make(*a))
    data = config(folder(tmp_path, bad=BAD, good=GOOD, narrow=NARROW)).data
    worlds, seeds = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([5, 5, 6])
    values = evaluate(data, worlds, seeds, PROXY)
    assert len(made) == 1 and made[0][2] == 12
    assert values["score"].isfinite().tolist() == [False, True, True]
    assert "no_such_thing" in values["reason"][0] and values["reason"][1:] == ["", ""]
    assert values["test_returns"].shape == (3, 4) and values["train_steps"].tolist() == [32] * 3
    human = evaluate(data, worlds, seeds, REAL)
    assert human["score"][0] == human["score"][1] and human["reason"] == [""] * 3


def test_a_member_does_not_depend_on_its_chunk(tmp_path: Path) -> None:
    data = config(folder(tmp_path, good=GOOD, narrow=NARROW), "agents.gtn.backend=compiled").data
    worlds, seeds = torch.tensor([[0.0], [1.0], [0.0]]), torch.tensor([3, 4, 5])
    together = evaluate(data, worlds, seeds, PROXY)["test_returns"]
    for i in range(3):
        assert torch.equal(evaluate(data, worlds[i : i + 1], seeds[i : i + 1], PROXY)["test_returns"][0], together[i])


def test_a_ranking_says_who_failed_and_resumes_with_the_same_bytes(tmp_path: Path) -> None:
    c = config(folder(tmp_path, bad=BAD, good=GOOD, narrow=NARROW), "agents.gtn.max_iterations=3")
    assert ranks(c.data) and "ranking: 3 rounds" in describe(c)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    output, live = table(3)
    with live:
        text = Ranking(c, tmp_path / "whole", Direct()).execute(live)
    assert "bad is out: KeyError" in output.getvalue()
    ranked = read_ranking(tmp_path / "whole" / "scores.csv")
    assert [r.name for r in ranked][-1] == "bad" and len(ranked[0].scores) == 3 and len(ranked[-1].reasons) == 3
    assert ranked[0].mean >= ranked[1].mean and f"1     {ranked[0].name}" in text and "failed 3 of 3: KeyError" in text
    for resume, stop in ((False, 2), (True, -1)):
        live = table(3)[1]
        try:
            with live:
                Ranking(c, tmp_path / "parts", Direct(stop_at=stop), resume).execute(live)
        except KeyboardInterrupt:
            assert not resume
    whole, parts = ((tmp_path / name / "scores.csv").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_nes_moves_the_numbers_and_leaves_them_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envolve.outer.run, "learning_curve", lambda path, *a, **k: Path(path).write_text("picture"))
    path = folder(tmp_path, numbers=NUMBERS) / "numbers.py"
    overrides = ("agents.gtn.max_iterations=3", "agents.gtn.num_workers=3", "agents.gtn.comparison_agents=2")
    c = config(path, *overrides, name="reward_shaper")
    assert not ranks(c.data) and "2 numbers of numbers" in describe(c)
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    def likes_b(chunk, values):  # a score that only the numbers decide
        values["score"] = -(chunk.worlds[:, 2] - 1).double().square()
        return values

    live = table(3)[1]
    with live:
        summary = Run(c, run_dir, Direct(likes_b)).execute(live)
    kept = yaml.safe_load((run_dir / "params.yaml").read_text())
    assert kept["shaper"] == "numbers.py" and set(kept["params"]) == {"a", "b"} and kept["params"]["b"] > 0.1
    assert "params.yaml" in summary_text(summary) and "Cartpole, shaper" in summary_text(summary)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["envs.Cartpole.shaper_types=compute_rewards"], "did you mean compute_reward"),
        (["envs.Cartpole.shapers=nowhere"], "found no *.py"),
        (["agents.gtn.agent_name=DDQN"], "a learner for shaped tasks: ppo, sac, td3"),
        (["agents.gtn.agent_name=PPO_vary"], "a learner for shaped tasks"),
        (["agents.gtn.synthetic_env_type=1"], "found 1, expected 2"),
        (["agents.gtn.backend=torch_compile"], "backend: found torch_compile, expected auto, compiled or torch"),
        (["envs.Cartpole.engine=mujocoo"], "did you mean mujoco"),
        (["env_name=Cartpol"], "did you mean Cartpole"),
    ],
)
def test_impossible_configurations_are_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as e:
        load_config(ROOT / "default_config_cartpole_shapers.yaml", overrides)
    assert said in str(e.value)


def test_a_synthetic_environment_of_a_physics_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="found 2, expected 0 or 1: 2 needs a task in a physics engine"):
        load_config(ROOT / "default_config_cartpole_syn_env.yaml", ["agents.gtn.synthetic_env_type=2"])


def test_a_run_does_not_go_on_with_edited_candidates(tmp_path: Path) -> None:
    path = folder(tmp_path, good=GOOD)
    c = config(path)
    (path / "good.py").write_text(NARROW)
    with pytest.raises(ValueError, match="not those that this run began with"):
        evaluate(c.data, torch.zeros(1, 1), torch.tensor([1]), PROXY)
    with pytest.raises(ConfigError, match="shapers_sha256: found other candidates"):
        config(path, f"envs.Cartpole.shapers_sha256={c.data['envs']['Cartpole']['shapers_sha256']}")


def test_a_candidate_that_cannot_be_loaded_is_announced(tmp_path: Path) -> None:
    warnings = config(folder(tmp_path, good=GOOD, torn="def compute_reward(")).warnings
    assert any("candidate torn will not take part: SyntaxError" in w for w in warnings)


@pytest.mark.slow
def test_workers_share_a_ranking_and_change_none_of_its_bytes(tmp_path: Path) -> None:
    """GTN_master.py with one worker and with two, each candidate in a chunk of its own or all in one."""
    path = folder(tmp_path, bad=BAD, good=GOOD, narrow=NARROW)
    written = []
    for workers, chunk in ((1, 3), (2, 1)):
        results = tmp_path / f"results{workers}"
        command = [
            sys.executable, str(ROOT / "GTN_master.py"), str(ROOT / "default_config_cartpole_shapers.yaml"), "--single",
            "--workers", str(workers), "--results-dir", str(results), "--set", *SMALL,
            f"envs.Cartpole.shapers={path}", "agents.gtn.max_iterations=2", "agents.gtn.backend=compiled",
            f"agents.gtn.chunk_size={chunk}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "bad is out: KeyError" in done.stdout and "failed 2 of 2" in done.stdout
        (run_dir,) = (p for p in results.iterdir() if (p / "scores.csv").exists())
        written.append((run_dir / "scores.csv").read_bytes())
        assert "rank  candidate" in (run_dir / "summary.txt").read_text()
    assert written[0] == written[1]


def graph_file(weight: float, bonus: float) -> str:
    """A reward without code: weight |pole angle| + bonus."""
    g = Graph()
    angle = g("abs.default", g.input("pole_angle"))
    total = g("add.Tensor", g("mul.Tensor", angle, {"param": 0}), {"param": 1})
    params = [{"name": "weight", "value": weight, "scale": 0.5}, {"name": "bonus", "value": bonus, "scale": 3.0}]
    return GraphFile.of("Cartpole", {"compute_reward": g.done("compute_reward", total)}, params).text()


def graphs(tmp_path: Path, **files: str) -> Path:
    path = folder(tmp_path)
    for name, text in files.items():
        (path / f"{name}.graph.json").write_text(text)
    return path


def test_a_graph_files_numbers_move_in_the_units_that_it_says(tmp_path: Path) -> None:
    candidate = load_candidate(graphs(tmp_path, a=graph_file(-1.0, 2.0)) / "a.graph.json")
    assert params_of(candidate, torch.tensor([2.0, -1.0])).tolist() == [0.0, -1.0]


def test_nes_moves_the_numbers_of_a_graph_file(tmp_path: Path) -> None:
    path = graphs(tmp_path, tuned=graph_file(-1.0, 2.0)) / "tuned.graph.json"
    resolved = config(path, "agents.gtn.max_iterations=1", "agents.gtn.num_workers=2", name="reward_shaper")
    assert not ranks(resolved.data)
    (tmp_path / "run").mkdir()
    Run(resolved, tmp_path / "run", Direct()).execute(table(1)[1])
    saved = yaml.safe_load((tmp_path / "run/params.yaml").read_text())
    again = load_candidate(next((tmp_path / "run").glob("*.graph.json")))
    assert again.params is not None and dict(zip(again.param_names, again.params.tolist())) == saved["params"]
    assert saved["shaper"] == "tuned.graph.json" and set(saved["params"]) == {"weight", "bonus"}


def test_a_candidate_that_fails_stands_behind_those_that_never_do(tmp_path: Path) -> None:
    rows = [("fragile", 9.0, ""), ("solid", 5.0, ""), ("worse", 4.0, ""), ("broken", math.nan, "raised")]
    lines = [f"{name},{score},{why}" for name, score, why in rows]
    lines += [f"{name},{score},{why}" for name, score, why in [("fragile", math.nan, "diverged"), *rows[1:]]]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["role,score,reason", *lines, ""]))
    ranked = read_ranking(path)
    assert [r.name for r in ranked] == ["solid", "worse", "fragile", "broken"]
    assert "3     fragile  9  failed 1 of 2: diverged" in ranking_text(ranked, "Cartpole", 2, 1.0)


def test_a_folder_of_graph_files_is_ranked(tmp_path: Path) -> None:
    path = graphs(tmp_path, good=graph_file(-1.0, 2.0), bad="{}", other=graph_file(-0.5, 1.0))
    resolved = config(path, "agents.gtn.max_iterations=1")
    (tmp_path / "run").mkdir()
    Ranking(resolved, tmp_path / "run", Direct()).execute(table(1)[1])
    ranked = {r.name: r for r in read_ranking(tmp_path / "run/scores.csv")}
    assert set(ranked) == {"good", "bad", "other"}
    assert ranked["good"].scores and ranked["other"].scores and "CannotLoad" in ranked["bad"].reasons[0]
