"""experiments/eval_shapers.py: what it ranks, what it writes, and what it says when it cannot."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import yaml

from envolve.agents.shaped.training import train_shaped
from envolve.envs.graph.file import GraphFile
from envolve.experiments import eval_shapers
from envolve.outer.shapers import run as shaper_run
from envolve.outer.shapers.video import VideoError
from tests.envs.graphs import Graph
from tests.experiments import command
from tests.outer.small import ROOT, default_sigint

GOOD = """
import torch

def compute_reward(state):
    upright = torch.cos(3 * state["pole_angle"])
    return upright, {"upright": upright}
"""
WIDE = """
import torch

def compute_observation(state):
    a, x = state["pole_angle"], state["cart_position"]
    return torch.stack([a.sin(), a.cos(), x, state["cart_velocity"], state["pole_angular_velocity"]], 1)

def compute_torque(action, state):
    return 9 * action[:, :1] + action[:, 1:]
"""
RAISES = """
def compute_reward(state):
    return state["pole_angel"]
"""
NAN = """
def compute_reward(state):
    return state["pole_angle"] / 0 * 0
"""
FILES = {"good": GOOD, "wide": WIDE, "raises": RAISES, "nan": NAN}
SMALL = ["--task", "Cartpole", "--num_envs_per_shaper", "8", "--iterations", "3", "--threads", "1"]
SMALL += ["--set", "hidden_size=16", "ppo_epochs=1"]


@pytest.fixture()
def folder(tmp_path):
    path = tmp_path / "shapers"
    path.mkdir()
    for name, text in FILES.items():
        (path / f"{name}.py").write_text(text)
    return path


@pytest.fixture()
def evaluate(capsys, tmp_path, folder, request):
    """-> exit code, stdout, stderr, content of the JSON file; the files are in tmp_path / "out"."""
    if request.function is not test_a_folder_is_ranked_and_what_failed_says_why:  # it looks at the picture
        request.getfixturevalue("undrawn")

    def call(*args):
        path = tmp_path / "out.json"
        (tmp_path / "out" / "candidates.json").unlink(missing_ok=True)  # a ranking that is there is not overwritten
        words = [*SMALL, "--shapers", folder, "--run-dir", tmp_path / "out", "--json", path, *args]
        return command.run(eval_shapers.main, words, capsys, path)

    return call


def by_name(content):
    return {c["name"]: c for c in content["candidates"]}


def test_a_folder_is_ranked_and_what_failed_says_why(evaluate, tmp_path):
    code, out, err, content = evaluate()
    assert code == 0
    found = by_name(content)
    assert set(found) == {"human", *FILES}
    scores = [c["score"] for c in content["candidates"]]
    assert scores[3:] == [None, None] and scores[:3] == sorted(scores[:3], reverse=True)
    assert [c["rank"] for c in content["candidates"]] == [1, 2, 3, None, None]
    for name, c in found.items():
        assert c["failed"] == (name in ("raises", "nan")) == bool(c["reason"]) == bool(c["kind"])
        assert len(c["episode_scores"]) == 8
        assert c["curve"]["steps"] == [s * c["curve"]["steps"][0] for s in (1, 2, 3)]
        if not c["failed"]:
            assert np.mean(c["episode_scores"]) == c["score"] == c["agent_scores"][0]
            assert c["interval"][0] <= c["score"] <= c["interval"][1]
            assert all(math.isfinite(x) for key in ("score", "reward") for x in c["curve"][key])
    assert (found["human"]["observation_size"], found["human"]["action_size"]) == (4, 1)
    assert (found["wide"]["observation_size"], found["wide"]["action_size"]) == (5, 2)
    assert found["wide"]["shapers"] == ["compute_observation", "compute_torque"]
    assert found["good"]["components"]["upright"] == found["good"]["curve"]["reward"]
    assert found["raises"]["kind"] == "KeyError" and found["raises"]["step"] == 0
    assert 'return state["pole_angel"]' in found["raises"]["traceback"]
    assert found["nan"]["kind"] == "NotFinite" and found["nan"]["traceback"] is None
    for name in ("raises", "nan"):
        assert err.count(f"candidate {name} is out") == 1
    assert "share of the time limit" in out and "pole_angel" in out
    assert content["task"] == "Cartpole" and content["complete"] and content["seed"] == 0
    assert content["settings"]["num_envs_per_shaper"] == 8 and content["hyperparameters"]["hidden_size"] == 16
    assert {"torch", "mujoco", "git"} <= set(content["versions"])
    assert content["environment_steps"] == 3 * found["good"]["curve"]["steps"][-1]  # of those that did not fail
    assert content["environment_steps_per_second"] > 0 and content["wall_seconds"] > 0

    folder = tmp_path / "out"
    assert {"events" if p.name.startswith("events.out.tfevents") else p.name for p in folder.iterdir()} == {
        "events",
        *("ranking.txt", "candidates.json", "curves.png"),
        *("config.yaml", "best.pt"),
    }
    assert json.loads((folder / "candidates.json").read_text()) == content
    assert yaml.safe_load((folder / "config.yaml").read_text())["hyperparameters"] == content["hyperparameters"]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "KeyError: 'pole_angel'" in (folder / "ranking.txt").read_text()
    best = torch.load(folder / "best.pt", weights_only=True)
    assert best["candidate"] == content["candidates"][0]["name"] and best["score"] == scores[0]
    assert best["weights"].numel() > 16


def test_the_same_seed_gives_the_same_scores_and_bad_candidates_change_none(evaluate):
    everyone = by_name(evaluate()[3])
    again = by_name(evaluate()[3])
    fine = by_name(evaluate("--candidates", "wide", "good.py")[3])
    alone = by_name(evaluate("--candidates", "wide", "--no-human")[3])
    other = by_name(evaluate("--candidates", "wide", "good", "--seed", 1)[3])
    assert set(fine) == {"human", "good", "wide"} and set(alone) == {"wide"}
    for name in fine:
        for part in ("episode_scores", "curve", "score", "interval"):
            assert everyone[name][part] == again[name][part] == fine[name][part], (name, part)
        assert other[name]["episode_scores"] != fine[name]["episode_scores"]
    assert alone["wide"]["episode_scores"] == fine["wide"]["episode_scores"]


def test_several_agents_per_candidate_are_averaged(evaluate):
    one, three = (by_name(evaluate("--seeds", k, "--candidates", "wide")[3]) for k in (1, 3))
    wide = three["wide"]
    assert len(wide["agent_scores"]) == 3 and len(wide["episode_scores"]) == 24
    assert wide["score"] == np.mean(wide["agent_scores"])
    assert wide["agent_scores"][0] == one["wide"]["score"] and len(set(wide["agent_scores"])) > 1
    low, high = wide["interval"]
    assert low < min(wide["agent_scores"]) < max(wide["agent_scores"]) < high, "three agents have not seen all there is"


def test_only_the_types_that_were_asked_for_count(evaluate, folder):
    """Files of a folder that replace something else are skipped; a file that was named, or replaces nothing, failed."""
    (folder / "misspelt.py").write_text(GOOD.replace("compute_reward", "compute_rewards"))
    code, out, _, content = evaluate("--shaper-types", "compute_reward", "--learning_iterations", 1)
    found = by_name(content)
    assert code == 0 and found["good"]["score"] is not None and found["good"]["curve"]["steps"] == [256]
    assert "wide" not in found and content["skipped"] == ["wide"] and "Skipped" in out
    assert found["misspelt"]["kind"] == "CannotLoad" and "compute_reward" in found["misspelt"]["reason"]
    named = by_name(evaluate("--shaper-types", "compute_reward", "--candidates", "wide", "--iterations", 1)[3])
    assert named["wide"]["kind"] == "CannotLoad" and "compute_observation" in named["wide"]["reason"]
    assert evaluate("--shaper-types", "compute_goal", "--shapers", folder / "good.py")[0] == 2


def test_without_any_score_the_exit_code_is_1(evaluate, tmp_path):
    code, out, _, content = evaluate("--no-human", "--candidates", "raises", "nan", "--video")
    assert code == 1 and [c["score"] for c in content["candidates"]] == [None, None]
    assert not (tmp_path / "out" / "best.pt").exists() and "best.pt" not in out


def test_a_schedule_changes_the_training(evaluate, tmp_path):
    path = tmp_path / "schedule.yaml"
    path.write_text("initial_range: {iters: [0, 2], values: [[0.0, 0.2], 0.05], mode: linear}\n")
    scheduled, plain = (evaluate("--candidates", "good", *args)[3] for args in (("--schedule", path), ()))
    assert by_name(scheduled)["good"]["curve"] != by_name(plain)["good"]["curve"]
    assert scheduled["schedules"]["initial_range"] == {
        "iters": [0, 2],
        "values": [[0.0, 0.2], [0.05, 0.05]],
        "mode": "linear",
    }


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--task", "Cartpol"], "'Cartpole'"),
        (["--shaper_types", "compute_rewards"], "did you mean compute_reward"),
        (["--shaper_types"], "--shaper-types"),
        (["--shapers", "{folder}s"], "shapers"),
        (["--candidates", "goood"], "did you mean good"),
        (["--num_envs_per_shaper", "0"], "at least 1"),
        (["--iterations", "0"], "at least 1"),
        (["--iterations", "many"], "many"),
        (["--set", "hiden_size=1"], "did you mean hidden_size"),
        (["--set", "lr=-1"], "> 0"),
        (["--set", "lr"], "key=value"),
        (["--schedule", "{folder}/none.yaml"], "cannot read"),
        (["--video", "film.avi"], ".gif"),
        (["--json", "{folder}"], "cannot write"),
        (["--learner", "dqn"], "dqn"),
        (["--engine", "bullet"], "bullet"),
    ],
)
def test_wrong_arguments_are_named_before_anything_runs(evaluate, folder, tmp_path, args, says):
    code, out, err, content = evaluate(*(a.format(folder=folder) for a in args))
    assert code == 2 and says in out + err and content is None and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("initial_rang: {iters: [0], values: [1]}", "did you mean initial_range"),
        ("initial_range: {iters: [5, 0], values: [1, 2]}", "rising"),
        ("initial_range: {iters: [0], values: [up]}", "number"),
        ("initial_range: 3", "values"),
    ],
)
def test_a_wrong_schedule_is_named(evaluate, tmp_path, text, says):
    path = tmp_path / "schedule.yaml"
    path.write_text(text)
    code, _, err, _ = evaluate("--schedule", path)
    assert code == 2 and says in err and "schedule.yaml" in err


def test_a_file_called_human_needs_another_name_or_the_humans_absence(evaluate, folder):
    (folder / "human.py").write_text(GOOD)
    code, _, err, _ = evaluate()
    assert code == 2 and "--no-human" in err
    code, _, _, content = evaluate("--no-human", "--candidates", "human")
    assert code == 0 and content["candidates"][0]["file"].endswith("human.py")


def test_a_film_of_the_best_policy(evaluate, tmp_path, monkeypatch):
    """Where there is no OpenGL everything else is done, and that is said."""
    pytest.importorskip("imageio")
    monkeypatch.setattr("envolve.outer.shapers.compare_film.SECONDS", 0.2)
    path = tmp_path / "film.gif"
    words = ["--candidates", "good", "--iterations", 1, "--video"]
    code, out, err, _ = evaluate(*words, path)
    assert code == 0
    if path.exists():
        assert path.read_bytes().startswith(b"GIF8") and str(path) in out
    else:
        assert "no film: " in err and "OpenGL" in err

    def none(*_):
        raise VideoError("no off-screen OpenGL")

    monkeypatch.setattr(eval_shapers, "film", none)
    code, out, err, content = evaluate(*words)
    assert code == 0 and "no film: no off-screen OpenGL" in err and content["complete"]


def test_a_fault_of_the_program_leaves_what_is_known(evaluate, tmp_path, monkeypatch):
    def train(*args):
        train_shaped(*args)
        raise RuntimeError("no memory left")

    monkeypatch.setattr(shaper_run, "train_shaped", train)
    with pytest.raises(RuntimeError, match="no memory left"):
        evaluate("--candidates", "good")
    content = json.loads((tmp_path / "out" / "candidates.json").read_text())
    assert not content["complete"] and len(by_name(content)["good"]["curve"]["score"]) == 3


@pytest.mark.slow
def test_ctrl_c_writes_what_is_known(tmp_path, folder):
    """From another folder, as a process of its own."""
    (folder / "_helper.py").write_text("this is no candidate")
    path = tmp_path / "out.json"
    command = [sys.executable, "eval_shapers.py", *SMALL, "--iterations", "1000000", "--shapers", str(folder)]
    process = subprocess.Popen(
        [*command, "--run-dir", str(tmp_path / "out"), "--json", str(path)],
        cwd=ROOT / "experiments",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=default_sigint,
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stderr:  # the failures, in the first iteration
        if "raises is out" in line:
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    content = json.loads(path.read_text())
    assert not content["complete"] and content == json.loads((tmp_path / "out" / "candidates.json").read_text())
    found = by_name(content)
    assert set(found) == {"human", *FILES} and all(c["score"] is None for c in found.values())
    assert found["raises"]["failed"] and found["raises"]["kind"] == "KeyError" and not found["good"]["failed"]
    assert "eval_shapers.py: stopped; what was known is written" in err and "Traceback" not in out + err


def test_a_folder_of_graph_files_is_ranked_as_files_of_code_are(evaluate, folder):
    for path in folder.glob("*.py"):
        path.unlink()
    for name, weight in (("tilted", 1.0), ("upright", -1.0)):
        g = Graph()
        x = g("mul.Tensor", g("abs.default", g.input("pole_angle")), {"param": 0})
        params = [{"name": "weight", "value": weight, "scale": 1.0}]
        text = GraphFile.of("Cartpole", {"compute_reward": g.done("compute_reward", x)}, params).text()
        (folder / f"{name}.graph.json").write_text(text)
    code, out, _, content = evaluate()
    assert code == 0 and "tilted" in out and "upright" in out
    assert {name for name in json.dumps(content).split('"') if name in ("tilted", "upright")} == {"tilted", "upright"}


def test_a_ranking_that_is_there_is_not_overwritten(folder, tmp_path, capsys):
    there = tmp_path / "out" / "candidates.json"
    there.parent.mkdir()
    there.write_text('{"complete": true}')
    with pytest.raises(SystemExit) as ended:
        sys.exit(eval_shapers.main([*map(str, SMALL), "--shapers", str(folder), "--run-dir", str(there.parent)]))
    assert ended.value.code == 2 and "true" in there.read_text()
    assert "--run-dir: found a complete ranking in" in capsys.readouterr().err
