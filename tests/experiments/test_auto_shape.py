"""experiments/auto_shape.py as a command: recorded, replayed, resumed, and against a server that misbehaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from envolve.experiments import auto_shape, eval_shapers
from envolve.llm.ranges import RANGES
from envolve.llm.search.individual import HUMAN
from envolve.llm.vetting.jail import locks as jail
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


def test_a_short_recorded_run_and_what_it_leaves(tmp_path, capsys, warm, undrawn):
    """The next test does the same with everything that a run can do."""
    words = [*SMALL, "--num_iters", 1, "--shapers_per_iter", 2, "--iterations", 2, "--llm", CARTPOLE]
    code, out, _, result = shape(capsys, tmp_path, *words)
    assert code == 0 and result["best"]["score"] > 0 and result["human"]["operator"] == HUMAN
    assert result["candidates"] == 2 == sum(result["verdicts"].values()) and "iteration 1/1" in out
    folder = only_run(tmp_path)
    for name in FILES:
        assert (folder / name).stat().st_size > 0, name
    out_json = tmp_path / "eval.json"
    command = ["--shapers", folder / "best.graph.json", "--no-human", "--run-dir", tmp_path / "eval"]
    small = [w for w in SMALL if w not in ("--retest", 2)]
    code, _, _, ranked = run(eval_shapers.main, [*small, *command, "--json", out_json], capsys, out_json)
    assert code == 0 and ranked["candidates"][0]["score"] >= 0


@pytest.mark.slow
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
        command = ["--shapers", folder / name, "--no-human", "--run-dir", tmp_path / "eval", "--json", out_json]
        small = [w for w in SMALL if w not in ("--retest", 2)]
        code, _, _, ranked = run(eval_shapers.main, [*small, *command], capsys, out_json)
        assert code == 0
        scores.append(ranked["candidates"][0]["score"])
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path, capsys, monkeypatch):
    words = [*SMALL, "--num_iters", 2, "--shapers_per_iter", 2, "--llm", CARTPOLE]
    _, _, _, whole = shape(capsys, tmp_path / "whole", *words)
    import envolve.llm.training

    evaluate, calls = envolve.llm.training.evaluate, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        evaluate(*args)

    with monkeypatch.context() as patch:
        patch.setattr(envolve.llm.training, "evaluate", interrupted)
        code, _, err, _ = shape(capsys, tmp_path, *words)
    folder = only_run(tmp_path)
    assert code == 130 and f"--resume {folder}" in err
    code, _, _, result = run(auto_shape.main, ["--resume", folder, "--json", tmp_path / "r"], capsys, tmp_path / "r")
    assert code == 0 and result["best"] == whole["best"] and result["verdicts"] == whole["verdicts"]


def test_a_server_that_misbehaves_costs_its_answers_only(tmp_path, capsys, monkeypatch, warm):
    monkeypatch.setattr("envolve.llm.models.attempts.FIRST_WAIT", 0.01)
    for picture in ("lineage_picture", "scores_picture"):  # the test above looks at them
        monkeypatch.setattr(f"envolve.llm.reporting.report.{picture}", lambda *_: None)
    answers = [
        scripted.limited("0"), scripted.good(GOOD),  # a call each, with its attempts
        scripted.error(500, "out of order"), scripted.malformed(), scripted.good(HOSTILE),
        scripted.truncated("```python\ndef compute_reward(state):\n    return torch.cos(sta"),
        scripted.slow(GOOD, 3.0), scripted.good("I would rather write a poem."),
        scripted.good(GOOD.replace("cos", "sin")),
    ]  # fmt: skip
    with scripted.ScriptedServer(answers) as server:
        words = [*SMALL, "--num_iters", 1, "--shapers_per_iter", 5, "--parallel", 1, "--timeout", 1, "--repairs", 0]
        words += ["--iterations", 2]
        code, _, err, result = shape(capsys, tmp_path, *words, "--llm", "scripted", "--base_url", server.url)
    assert code == 0 and result["candidates"] == 5 and result["best"]["score"] > 0
    assert result["verdicts"] == {"trained": 2, "extract": 2, "allowlist": 1}
    assert "Rate limit" in err and not list(tmp_path.rglob("pwned"))
    rejected = [json.loads(line) for line in (only_run(tmp_path) / "individuals.jsonl").read_text().splitlines()]
    assert all(i["rejection"][1] for i in rejected if i["rejection"])


@pytest.mark.slow
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


KEY = "sk-not-to-be-seen-0123"


def test_a_dead_model_stops_the_run_at_once(tmp_path, capsys, monkeypatch):
    """One line: the reason and how to go on. Nothing is trained, and the key is nowhere."""
    monkeypatch.setenv("LLM_API_KEY", KEY)
    with scripted.ScriptedServer([scripted.error(401, f"Incorrect API key {KEY}")]) as server:
        words = [*SMALL, "--num_iters", 2, "--shapers_per_iter", 2, "--llm", "m", "--base_url", server.url]
        code, out, err, _ = shape(capsys, tmp_path, *words)
        asked = len(server.requests)
    folder = only_run(tmp_path)
    [line] = [line for line in err.splitlines() if "401" in line]
    assert code == 1 and f"--resume {folder}" in line and "0 of 2 calls are answered" in line and asked <= 2
    assert "training" not in out and not (folder / "individuals.jsonl").exists() and KEY not in out + err
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY in path.read_text(errors="replace")]


@pytest.mark.slow
def test_a_run_whose_calls_failed_ends_as_if_they_had_not(tmp_path, capsys, monkeypatch):
    """Dead at first, then an outage in the middle of the second iteration, then mended: the same scores, and each call
    paid for once."""
    monkeypatch.setattr("envolve.llm.models.attempts.FIRST_WAIT", 0.01)
    failing, answered = {}, []

    def script(content):
        number = content["seed"]
        if number in failing:
            return failing[number]
        answered.append(number)
        return scripted.good(GOOD.replace("2.0", f"{number + 1}.5").replace("cos", ("cos", "sin")[number % 2]))

    same = ("best", "human", "finals", "candidates", "verdicts", "environment_steps")
    with scripted.ScriptedServer(script) as server:
        words = [*SMALL, "--num_iters", 2, "--shapers_per_iter", 2, "--llm", "m", "--base_url", server.url]
        _, _, _, whole = shape(capsys, tmp_path / "whole", *words)
        answered.clear()
        failing.update(dict.fromkeys(range(4), scripted.error(401, "Incorrect API key")))
        assert shape(capsys, tmp_path / "cut", *words)[0] == 1
        folder = only_run(tmp_path / "cut")
        failing.clear()
        failing[3] = scripted.error(500, "out of order")
        code, _, err, _ = run(auto_shape.main, ["--resume", folder], capsys, tmp_path / "r")
        assert code == 1 and "1 of 2 calls are answered and kept; " in err and f"--resume {folder}" in err
        failing.clear()
        words = ["--resume", folder, "--json", tmp_path / "r"]
        code, _, _, result = run(auto_shape.main, words, capsys, tmp_path / "r")
    assert code == 0 and all(result[key] == whole[key] for key in same) and sorted(answered) == [0, 1, 2, 3]
    for name in ("individuals.jsonl", "best.py", "best.graph.json", "lineage.txt", "transcript/README.md"):
        assert (folder / name).read_bytes() == (only_run(tmp_path / "whole") / name).read_bytes(), name


@pytest.mark.parametrize(
    "words,expected",
    [
        (["--task", "Cartpol"], "nearest: 'Cartpole'"),
        (["--shaper_types", "compute_rewad"], "did you mean compute_reward"),
        (["--task", "Cartpole", "--shaper_types", "compute_goal"], "has no goals"),
        (["--num_iters", 0], "--num-iters: found 0, expected at least 1"),
        (["--halving", 2, "--learner", "sac"], "sac cannot continue"),
        (["--tune_every", 2], "found no --tune nes or bohb"),
        (["--tune_every", 2, "--tune", "nes", "--mode", "steady"], "--mode steady, which has no iterations"),
        (["--cascade", 0.5, "--halving", 2], "--cascade: found --halving"),
        (["--mode", "gp", "--edits", 0.5], "--edits: found --mode gp"),
        (["--price", "gpt-4o=cheap"], "MODEL=IN,OUT"),
        (["--resume", "/nonexistent"], "cannot read /nonexistent/config.yaml"),
        (["--config", "/nonexistent.yml"], "/nonexistent.yml"),
        (["--set", "lrr=1"], "lrr"),
        (["--llm", "replay:nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--llm", "lama"], "unknown model 'lama'"),
        (["--llm", "m", "--base_url", "localhost"], "base URL 'localhost'"),
        (["--llm", "m", "--base_url", "http://x", "--budget_usd", 1], "price of 'm' is unknown"),
        (["--config", ROOT / "configs" / "bipedal_walker.yml", "--num_iters", 3], "--num-iters: has no effect with"),
    ],
)
def test_wrong_arguments(capsys, words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err, _ = run(auto_shape.main, words, capsys, Path("/nonexistent"))
    assert code == 2 and expected in err and "Traceback" not in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [[], ["--config", ROOT / "configs" / "mountain_car_continuous.yml"]])
@pytest.mark.parametrize("name", RANGES)
def test_numbers_that_cannot_be(name, mode, capsys, tmp_path, monkeypatch):
    """Not a number, infinite, below and above, in both modes: one line, and no folder."""
    monkeypatch.chdir(tmp_path)
    wanted, kind = RANGES[name], auto_shape.Args.__dataclass_fields__[name].type
    values = [-1, wanted.most * 2 + 1] + [0] * (wanted.above or wanted.least > 0)
    if "float" in str(kind):
        values += ["nan", "inf", "-inf"]
    for value in values:
        text = str(int(value)) if isinstance(value, float) and "int" in str(kind) else str(value)
        code, _, err, _ = run(auto_shape.main, [*mode, f"--{name}={text}"], capsys, tmp_path / "none")
        lines = [line for line in err.splitlines() if f"--{name.replace('_', '-')}: found" in line]
        assert code == 2 and len(lines) == 1 and "expected" in lines[0] and "Traceback" not in err, value
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_keeps_its_arguments(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"arguments": {"task": "Cartpole", "num_iters": 5}}))
    words = ["--resume", tmp_path, "--num_iters", 7, "--task", "Ant", "--timeout", 20]
    code, _, err, _ = run(auto_shape.main, words, capsys, tmp_path / "none")
    assert code == 2 and "--num-iters: found 7, expected 5, with which the run was begun" in err
    assert "--task: found Ant" in err and "timeout" not in err
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"arguments": {"task": "Cartpole", "seeds": "many"}}))
    code, _, err, _ = run(auto_shape.main, ["--resume", tmp_path], capsys, tmp_path / "none")
    assert code == 2 and "config.yaml: arguments.seeds: found 'many', expected a whole number" in err


def test_a_missing_key_leaves_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, _, err, _ = shape(capsys, tmp_path, *SMALL)
    assert code == 2 and "OPENAI_API_KEY" in err and not (tmp_path / "results").exists()
