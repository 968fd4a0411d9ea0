"""experiments/auto_shape.py as a command: recorded, replayed, resumed, and against a server that misbehaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from experiments import auto_shape, eval_shapers
from llm.search.individual import HUMAN
from llm.vetting import jail
from tests.experiments.command import run
from tests.llm import scripted_server as scripted
from tests.outer.small import ROOT

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason="no jail here")
CARTPOLE = f"replay:{ROOT / 'experiments' / 'recordings' / 'cartpole.jsonl'}"
SMALL = ["--task", "Cartpole", "--num_envs_per_shaper", 8, "--iterations", 4, "--threads", 1, "--retest", 2]
SMALL += ["--set", "hidden_size=8", "ppo_epochs=1"]
GOOD = """```python
def compute_reward(state):
    weight = 2.0
    return weight * torch.cos(state['pole_angle'])
```"""
HOSTILE = """```python
import os
def compute_reward(state):
    os.system('touch pwned')
    return state['x']
```"""
FILES = (
    "config.yaml", "calls.jsonl", "ledger.json", "individuals.jsonl", "summary.txt", "result.json", "scores.png",
    "lineage.png", "lineage.txt", "best.py", "best.graph.json", "transcript/README.md",
)  # fmt: skip


def shape(capsys, tmp_path, *words):
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "out.json"
    return run(auto_shape.main, [*words, "--results_dir", tmp_path / "results", "--json", path], capsys, path)


def only_run(tmp_path) -> Path:
    (folder,) = (tmp_path / "results").iterdir()
    return folder


def test_a_recorded_run_and_what_it_leaves(tmp_path, capsys):
    words = [*SMALL, "--num_iters", 2, "--shapers_per_iter", 4, "--tune", "nes", "--tune_generations", 1]
    words += ["--tune_population", 3, "--halving", 2, "--mode", "islands", "--islands", 2]
    code, out, _, result = shape(capsys, tmp_path, *words, "--llm", CARTPOLE)
    assert code == 0 and 0 < result["best"]["score"] <= 1 and result["human"]["operator"] == HUMAN
    assert result["candidates"] == 8 and result["verdicts"]["trained"] >= 4 and result["environment_steps"] > 0
    assert sum(result["verdicts"].values()) == 8 and any(f["tuned"] for f in result["finals"])
    folder = only_run(tmp_path)
    for name in FILES:
        assert (folder / name).stat().st_size > 0, name
    assert "iteration 2/2" in out and "Last test" in out
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["arguments"]["halving"] == 2 and config["versions"]["torch"]

    # the finished run is its own recording, and gives the same scores without the first one
    code, _, _, again = shape(capsys, tmp_path / "again", *words, "--llm", f"replay:{folder / 'calls.jsonl'}")
    same = ("best", "human", "finals", "candidates", "verdicts", "environment_steps")
    assert code == 0 and all(again[key] == result[key] for key in same)

    # --resume of a finished run trains nothing but the last test again
    before = (folder / "individuals.jsonl").read_bytes()
    code, _, _, resumed = run(auto_shape.main, ["--resume", folder, "--json", tmp_path / "r"], capsys, tmp_path / "r")
    assert code == 0 and (folder / "individuals.jsonl").read_bytes() == before
    assert all(resumed[key] == result[key] for key in same)

    # best.py and best.graph.json are candidates, and the same one
    scores = []
    for name in ("best.py", "best.graph.json"):
        out_json = tmp_path / "eval.json"
        command = ["--shapers", folder / name, "--no-human", "--out", tmp_path / "eval", "--json", out_json]
        small = [w for w in SMALL if w not in ("--retest", 2)]
        code, _, _, ranked = run(eval_shapers.main, [*small, *command], capsys, out_json)
        assert code == 0
        scores.append(ranked["candidates"][0]["score"])
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path, capsys, monkeypatch):
    words = [*SMALL, "--num_iters", 2, "--shapers_per_iter", 2, "--llm", CARTPOLE]
    _, _, _, whole = shape(capsys, tmp_path / "whole", *words)
    import llm.evolution

    evaluate, calls = llm.evolution.evaluate, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        evaluate(*args)

    with monkeypatch.context() as patch:
        patch.setattr(llm.evolution, "evaluate", interrupted)
        code, _, err, _ = shape(capsys, tmp_path, *words)
    folder = only_run(tmp_path)
    assert code == 130 and f"--resume {folder}" in err
    code, _, _, result = run(auto_shape.main, ["--resume", folder, "--json", tmp_path / "r"], capsys, tmp_path / "r")
    assert code == 0 and result["best"] == whole["best"] and result["verdicts"] == whole["verdicts"]


def test_a_server_that_misbehaves_costs_its_answers_only(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("llm.models.chat.FIRST_WAIT", 0.01)
    answers = [
        scripted.limited("0"), scripted.good(GOOD),  # a call each, with its attempts
        scripted.error(500, "out of order"), scripted.malformed(), scripted.good(HOSTILE),
        scripted.truncated("```python\ndef compute_reward(state):\n    return torch.cos(sta"),
        scripted.slow(GOOD, 3.0), scripted.good("I would rather write a poem."),
        scripted.good(GOOD.replace("cos", "sin")),
    ]  # fmt: skip
    with scripted.ScriptedServer(answers) as server:
        words = [*SMALL, "--num_iters", 1, "--shapers_per_iter", 5, "--parallel", 1, "--timeout", 1]
        code, _, err, result = shape(capsys, tmp_path, *words, "--llm", "scripted", "--base_url", server.url)
    assert code == 0 and result["candidates"] == 5 and result["best"]["score"] > 0
    assert result["verdicts"] == {"trained": 2, "extract": 2, "allowlist": 1}
    assert "Rate limit" in err and not list(tmp_path.rglob("pwned"))
    rejected = [json.loads(line) for line in (only_run(tmp_path) / "individuals.jsonl").read_text().splitlines()]
    assert all(i["rejection"][1] for i in rejected if i["rejection"])


def test_a_budget_ends_a_run_that_has_results(tmp_path, capsys):
    with scripted.ScriptedServer([scripted.good(GOOD, tokens=(3000, 100))] * 9) as server:
        words = [*SMALL, "--num_iters", 3, "--shapers_per_iter", 1, "--max_tokens", 200, "--budget_tokens", 8000]
        code, out, _, result = shape(capsys, tmp_path, *words, "--llm", "m", "--base_url", server.url, "--parallel", 1)
    assert code == 0 and "budget" in result["stopped"] and result["candidates"] in (2, 3)
    assert result["best"]["score"] > 0 and "Stopped early" in out


def test_nothing_that_works_is_said(tmp_path, capsys):
    recording = tmp_path / "r.jsonl"
    recording.write_text(json.dumps({"reply": "no code"}) + "\n")
    words = [*SMALL, "--num_iters", 1, "--shapers_per_iter", 1, "--llm", f"replay:{recording}"]
    code, out, _, result = shape(capsys, tmp_path, *words)
    assert code == 1 and result["best"] is None and "extract 1" in out


@pytest.mark.parametrize(
    "words,expected",
    [
        (["--task", "Cartpol"], "nearest: 'Cartpole'"),
        (["--shaper_types", "compute_rewad"], "did you mean compute_reward"),
        (["--task", "Cartpole", "--shaper_types", "compute_goal"], "has no goals"),
        (["--num_iters", 0], "--num_iters: found 0, expected at least 1"),
        (["--halving", 2, "--learner", "sac"], "sac cannot go on"),
        (["--price", "gpt-4o=cheap"], "MODEL=IN,OUT"),
        (["--resume", "/nonexistent"], "cannot read /nonexistent/config.yaml"),
        (["--config", "/nonexistent.yml"], "/nonexistent.yml"),
        (["--set", "lrr=1"], "lrr"),
    ],
)
def test_wrong_arguments(capsys, words, expected):
    code, _, err, _ = run(auto_shape.main, words, capsys, Path("/nonexistent"))
    assert code == 2 and expected in err


def test_a_missing_key_leaves_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, _, err, _ = shape(capsys, tmp_path, *SMALL)
    assert code == 1 and "OPENAI_API_KEY" in err and not (tmp_path / "results").exists()
