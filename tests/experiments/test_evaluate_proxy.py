"""experiments/evaluate_proxy.py: what it trains, what it writes, and what it says when it cannot."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys

import pytest
import torch

from envolve.core.statistics import interquartile_mean
from envolve.envs.task import make_task
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.world import init_world
from envolve.experiments import evaluate_proxy
from envolve.outer.config import problem
from envolve.outer.evaluate.networks import BUDGET, EARLY_OUT, REAL
from envolve.outer.search.nes import member_seeds
from tests.experiments import command
from tests.outer.reporting.events import scalars
from tests.outer.small import ROOT, cartpole, cliff


def save(path, config):
    data = config.data
    kind = "rn" if problem.gtn_section(data).synthetic_env_type else "se"
    section = problem.env_section(data)
    task = make_task(data["env_name"], section.max_steps, section.solved_reward)
    budget = problem.learner(data)[1].train_steps
    save_world(str(path), kind, task.name, init_world(kind, task, section, torch.tensor([1]))[0], data, budget=budget)
    return str(path)


@pytest.fixture(scope="module")
def rn(tmp_path_factory):
    return save(tmp_path_factory.mktemp("rn") / "model.pt", cliff())


@pytest.fixture(scope="module")
def se(tmp_path_factory):
    """An SE evolved for 60 steps, with DDQN_vary. Trains on the real task for 20 episodes at most."""
    config = cartpole("agents.gtn.agent_name=DDQN_vary", "agents.ddqn.train_episodes=20", "agents.ddqn.lr=0.001")
    return save(tmp_path_factory.mktemp("se") / "model.pt", config)


@pytest.fixture()
def measure(capsys, tmp_path):
    """-> exit code, stdout, stderr, content of the JSON file."""

    def call(*args):
        path = tmp_path / "figures.json"
        words = [*args, *([] if "--json" in args else ["--json", path])]
        return command.run(evaluate_proxy.main, words, capsys, path)

    return call


def test_both_columns(measure, rn, tmp_path):
    code, out, err, content = measure(rn, "--agents", 6, "--tensorboard", tmp_path / "events")
    assert code == 0
    assert "in the evolved world" in out and "on the real task" in out and "6 ql agents" in err
    assert content["settings"]["num_agents"] == 6 and content["agent"] == "ql" and "torch" in content["versions"]
    for column, mode in (("proxy", EARLY_OUT), ("real", REAL)):
        c = content[column]
        assert c["mode"] == mode and c["num_agents"] == 6 and c["failed"] == 0 and c["reasons"] == [""] * 6
        assert len(c["returns"]) == len(c["train_steps"]) == len(c["test_returns"]) == 6
        for name, raw in (("return", c["returns"]), ("train_steps", c["train_steps"])):
            ends = c[f"mean_{name}_interval"]
            assert (ends is None) == (len(set(raw)) == 1) == (c[f"{name}_unseen_share"] is not None)
            assert c[f"mean_{name}"] == pytest.approx(sum(raw) / 6)
            assert ends is None or ends[0] <= c[f"mean_{name}"] <= ends[1]
            assert c[f"iqm_{name}"] == pytest.approx(interquartile_mean(raw))
        assert [sum(t) / len(t) for t in c["test_returns"]] == pytest.approx(c["returns"])
    assert content["proxy"]["train_steps"] != content["real"]["train_steps"]
    for column in ("proxy", "real"):
        found, c = scalars(tmp_path / "events" / column), content[column]
        assert found["return"] == [(i, pytest.approx(r, abs=1e-3)) for i, r in enumerate(c["returns"])]
        assert [step for step, _ in found["train_steps"]] == list(range(6))


def test_deterministic_for_a_seed(measure, rn):
    first, again, other, threads = (
        measure(rn, "--agents", 4, *args)[3] for args in ((), ("--seed", 0), ("--seed", 1), ("--threads", 1))
    )
    assert first["proxy"] == again["proxy"] == threads["proxy"] and first["real"] == again["real"] == threads["real"]
    assert first["proxy"]["train_steps"] != other["proxy"]["train_steps"]


def test_seeds_are_none_of_the_evolutions():
    used = {s for purpose in range(1, 6) for g in range(3) for s in member_seeds(0, purpose, g, 40).tolist()}
    assert not used & set(member_seeds(0, evaluate_proxy.RETEST, 0, 40).tolist())


def test_each_world_has_agents_of_its_own(measure, tmp_path, monkeypatch):
    """Else 10 worlds x 40 agents would be 40 draws of hyperparameters and not 400."""
    seen = []
    real = evaluate_proxy.evaluate
    recorded = lambda config, worlds, keys, *rest: seen.append(keys) or real(config, worlds, keys, *rest)  # noqa: E731
    monkeypatch.setattr(evaluate_proxy, "evaluate", recorded)
    for i in range(2):
        config = cliff()
        section = problem.env_section(config.data)
        flat = init_world("rn", make_task("Cliff", section.max_steps), section, torch.tensor([i]))[0]
        save_world(str(tmp_path / "model.pt"), "rn", "Cliff", flat, config.data)
        assert measure(tmp_path / "model.pt", "--agents", 3)[0] == 0
    assert len({s for seeds in seen for s in seeds.tolist()}) == 12


def test_prices(measure, tmp_path):
    """What the evolution has cost is in the world's file; of an earlier version's it is unknown."""
    config = cliff()
    section = problem.env_section(config.data)
    flat = init_world("rn", make_task("Cliff", section.max_steps), section, torch.tensor([1]))[0]
    for spent, words in ((123_456, "123,456 real steps were spent on evolving"), (None, "were not recorded")):
        save_world(str(tmp_path / "model.pt"), "rn", "Cliff", flat, config.data, evolution_steps=spent)
        code, out, _, content = measure(tmp_path / "model.pt", "--agents", 4)
        assert code == 0 and words in out and "Price per agent: " in out and content["evolution_steps"] == spent
        assert ("fewer" in out or "more training" in out) == content["comparable"] == (content["why_not"] is None)
        assert "failures, the others" in out


def test_steps_until_solved_are_counted_both_ways(measure, rn, monkeypatch):
    real = evaluate_proxy.evaluate

    def solved(*args):
        values = real(*args)
        values["train_steps"] = torch.tensor([100, 110, 130])
        values["first_solved_steps"] = torch.tensor([40.0, 60.0, math.nan], dtype=torch.float64)
        return values

    monkeypatch.setattr(evaluate_proxy, "evaluate", solved)
    _, out, _, content = measure(rn, "--agents", 3, "--no-real")
    c = content["proxy"]
    assert c["first_solved_steps"] == [40, 60, None] and c["rule_fires_steps"] == [100, 110, None]
    assert (c["mean_first_solved_steps"], c["mean_rule_fires_steps"]) == (50, 105)
    assert "first test of the window" in out and "when the rule fires" in out and "2 of 3" in out


def test_no_interval_of_steps_reaches_below_zero(measure, rn, monkeypatch):
    real = evaluate_proxy.evaluate
    few = {"train_steps": torch.tensor([20, 90, 400])}
    monkeypatch.setattr(evaluate_proxy, "evaluate", lambda *args: real(*args) | few)
    c = measure(rn, "--agents", 3, "--no-real")[3]["proxy"]
    assert c["mean_train_steps_interval"][0] == c["iqm_train_steps_interval"][0] == 0


def test_a_task_without_a_mark_has_no_failures(measure, tmp_path):
    world = save(tmp_path / "model.pt", cliff("envs.Cliff.solved_reward=1e9", "agents.gtn.rn_objective=mean_return"))
    _, out, _, content = measure(world, "--agents", 3)
    assert "failures" not in out and "agents with at least" not in out and "do not solve" not in out
    assert content["failures_proxy"] == 0


def test_no_real(measure, rn):
    code, out, _, content = measure(rn, "--agents", 2, "--no-real")
    assert code == 0 and "real" not in content and "on the real task" not in out.split("\n", 1)[1]


def test_budget_and_early_out(measure, se):
    """By default at the budget the SE was evolved for; its own early-out rule goes beyond."""
    budget = measure(se, "--agents", 3, "--no-real")[3]
    assert budget["budget"] == 60 and budget["proxy"]["mode"] == BUDGET and budget["proxy"]["train_steps"] == [60] * 3
    assert measure(se, "--agents", 3, "--no-real", "--stop", "budget")[3]["proxy"] == budget["proxy"]
    early = measure(se, "--agents", 3, "--no-real", "--stop", "early-out")[3]["proxy"]
    assert early["mode"] == EARLY_OUT and min(early["train_steps"]) > 60


def test_vary_hp(measure, rn, monkeypatch):
    seen = []
    real = evaluate_proxy.evaluate
    monkeypatch.setattr(evaluate_proxy, "evaluate", lambda config, *args: seen.append(config) or real(config, *args))
    plain = measure(rn, "--agents", 4)[3]
    varied = measure(rn, "--agents", 4, "--vary-hp")[3]
    assert [c["agents"]["gtn"]["agent_name"] for c in seen] == ["ql", "ql", "ql_vary", "ql_vary"]
    assert seen[2]["agents"]["ql_vary"]["vary_hp"] and varied["proxy"]["train_steps"] != plain["proxy"]["train_steps"]


def test_without_vary_hp_a_varied_agent_is_not_varied(measure, se, monkeypatch):
    seen = []
    real = evaluate_proxy.evaluate
    monkeypatch.setattr(evaluate_proxy, "evaluate", lambda config, *args: seen.append(config) or real(config, *args))
    assert measure(se, "--agents", 1, "--no-real")[0] == 0
    assert seen[0]["agents"]["gtn"]["agent_name"] == "ddqn"


def test_an_agent_that_is_asked_for_with_vary_is_varied(measure, rn):
    by_name, by_flag = measure(rn, "--agents", 4, "--agent", "ql_vary", "--no-real"), None
    by_flag = measure(rn, "--agents", 4, "--agent", "ql", "--vary-hp", "--no-real")
    plain = measure(rn, "--agents", 4, "--agent", "ql", "--no-real")
    assert by_name[3]["proxy"] == by_flag[3]["proxy"] != plain[3]["proxy"]


def test_another_learner(measure, rn):
    """In any case; QL_cb reads the section of QL, as in the original."""
    code, _, err, content = measure(rn, "--agent", "QL_cb", "--agents", 2, "--no-real")
    assert code == 0 and content["agent"] == "ql_cb" and "is missing" not in err


def test_another_learner_trains_for_the_worlds_budget(measure, tmp_path):
    config = cliff("agents.gtn.synthetic_env_type=0", "agents.ql.train_steps=77")
    del config.data["agents"]["sarsa"]
    path = save(tmp_path / "model.pt", config)
    code, _, err, content = measure(path, "--agent", "sarsa", "--agents", 3, "--no-real")
    assert code == 0 and "agents.sarsa is missing; every value of it is the default" in err
    assert content["proxy"]["mode"] == BUDGET and max(content["proxy"]["train_steps"]) <= 77


def test_random_episodes_do_not_take_the_whole_budget(measure, tmp_path):
    """Ten random episodes are a default of discrete TD3. An SE of 50 steps, evolved for two episodes of them and some:
    as one of 200 steps that is evolved for 450."""
    config = cartpole("agents.ddqn.train_steps=115", "envs.CartPole-v0.max_steps=50")
    path = save(tmp_path / "model.pt", config)
    words = (path, "--agent", "td3_discrete", "--agents", 2, "--no-real", "--threads", 1)
    code, out, err, content = measure(*words)
    assert code == 0 and min(content["proxy"]["updates"]) > 0 and "made no update" not in out
    assert "agents.td3_discrete.init_episodes is 1, not the default 10: random episodes count towards" in err
    config.data["agents"]["td3_discrete"] = {"init_episodes": 450}
    code, out, err, content = measure(save(tmp_path / "model.pt", config), *words[1:])
    assert code == 0 and content["proxy"]["updates"] == [0, 0] and "is 1, not" not in err
    assert "2 of 2 agents in the evolved world made no update" in out and "agents.td3_discrete.init_episodes" in out


def test_failed_agents_are_counted_and_left_out(measure, rn, monkeypatch):
    real = evaluate_proxy.evaluate

    def some_fail(*args):
        values = real(*args)
        values["mean_return"][1] = values["test_returns"][1] = math.nan
        values["reason"][1] = "the world's output is not finite"
        return values

    monkeypatch.setattr(evaluate_proxy, "evaluate", some_fail)
    code, out, _, content = measure(rn, "--agents", 3, "--no-real")
    c = content["proxy"]
    assert code == 0 and c["failed"] == 1 and c["returns"][1] is None and "of these broke, in no figure above" in out
    assert c["mean_train_steps"] == pytest.approx((c["train_steps"][0] + c["train_steps"][2]) / 2)


def test_all_agents_fail(measure, rn, monkeypatch):
    real = evaluate_proxy.evaluate

    def all_fail(*args):
        values = real(*args)
        values["mean_return"][:] = values["test_returns"][:] = math.nan
        return values

    monkeypatch.setattr(evaluate_proxy, "evaluate", all_fail)
    code, out, _, content = measure(rn, "--agents", 2, "--no-real")
    assert code == 0 and "mean_return" not in content["proxy"] and content["proxy"]["returns"] == [None, None]


# -------------------------------------------------------------------------------- what cannot be done


@pytest.mark.parametrize(
    "args,expected",
    [
        (["--agent", "dqn"], "--agent: found 'dqn', expected an agent that exists: .* did you mean ddqn"),
        (["--agent", "sarsaa"], "did you mean sarsa"),
        (["--agents", 0], "--agents: found 0, expected at least 1"),
        (["--seed", -1], "--seed: found -1, expected at least 0"),
        (["--threads", -1], "--threads: found -1, expected at least 0"),
        (["--stop", "budget"], "--stop budget: .*model.pt was evolved without a training budget"),
        (["--json", "/nonexistent/figures.json"], "--json: cannot write /nonexistent/figures.json, expected a file in"),
        (["--tensorboard", "/dev/null/events"], "--tensorboard: cannot write /dev/null/events, expected a folder"),
        (["--json", "/tmp"], "--json: cannot write /tmp, expected a file in a folder that exists"),
    ],
)
def test_bad_arguments(measure, rn, args, expected):
    code, out, err, _ = measure(rn, *args)
    assert code == 2 and out == "" and len(err.splitlines()) == 1
    assert re.search(expected, err), err


def test_an_agent_that_cannot_learn_the_task(measure, se):
    code, out, err, _ = measure(se, "--agent", "ql")
    assert code == 2 and out == "" and len(err.splitlines()) == 1
    assert "--agent: found ql, expected a learner for CartPole-v0, which has discrete actions and no finite set" in err


def test_json_on_a_full_disk(measure, rn):
    """The figures are on the screen all the same."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    code, out, err, _ = measure(rn, "--agents", 2, "--no-real", "--json", "/dev/full")
    assert code == 1 and "training steps, mean" in out and "cannot write /dev/full: No space left on device" in err


def test_tampered_model(measure, rn, tmp_path):
    data = open(rn, "rb").read()
    path = tmp_path / "model.pt"
    for damaged in (b"", data[:1000], data[:-2000] + bytes(2000), b"no model"):
        path.write_bytes(damaged)
        code, out, err, _ = measure(path)
        assert code == 1 and out == "" and len(err.splitlines()) == 1 and f"evaluate_proxy.py: {path}: " in err
    content = torch.load(rn, weights_only=True)
    next(iter(content["model"].values()))[0, 0] += 1
    torch.save(content, path)
    code, _, err, _ = measure(path)
    assert code == 1 and "the file was changed or damaged" in err


def test_missing_model(measure, tmp_path):
    code, _, err, _ = measure(tmp_path / "model.pt")
    assert code == 2 and "found no" in err and len(err.splitlines()) == 1


def test_stored_configuration_is_checked(measure, tmp_path):
    """Checksummed bytes can still hold anything: what is in agents is checked as in a YAML file."""
    for change, expected in (
        (lambda agents: agents["gtn"].update(unheard_of=1), "agents.gtn.unheard_of: found an unknown key"),
        (lambda agents: agents["ql"].update(alpha="high"), "agents.ql.alpha: found 'high'"),
        (lambda agents: agents.pop("gtn"), "found no section agents.gtn"),
    ):
        config = cliff()
        path = tmp_path / "model.pt"
        section = problem.env_section(config.data)
        task = make_task("Cliff", section.max_steps, section.solved_reward)
        flat = init_world("rn", task, section, torch.tensor([1]))[0]
        change(config.data["agents"])
        save_world(str(path), "rn", "Cliff", flat, config.data)
        code, out, err, _ = measure(path)
        assert code == 2 and out == "" and expected in err and f"{path}: config: " in err


@pytest.mark.slow
def test_as_a_command_from_elsewhere(rn, tmp_path):
    command = [sys.executable, str(ROOT / "experiments" / "evaluate_proxy.py"), rn, "--agents", "2", "--no-real"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "training steps, mean" in done.stdout and "Traceback" not in done.stderr
    command[2:] = ["--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "--agents" in done.stdout and "Examples:" in done.stdout


def test_if_every_agent_fails_it_says_why(measure, rn, monkeypatch):
    """Without a traceback of the statistics, which have nothing to count."""
    real = evaluate_proxy.evaluate

    def failing(config, worlds, keys, *rest):
        values = real(config, worlds, keys, *rest)
        values["mean_return"].fill_(math.nan)
        return {**values, "reason": ["the paint is out"] * len(keys)}

    monkeypatch.setattr(evaluate_proxy, "evaluate", failing)
    code, out, _, content = measure(rn, "--agents", 2)
    assert code == 0 and "No comparison: every agent in the evolved world failed: the paint is out." in out
    assert content["proxy"]["returns"] == [None, None] and "comparable" not in content


def test_a_folder_that_is_none(measure, rn, tmp_path):
    code, _, err, _ = measure(rn, "--plugins", tmp_path / "nowhere")
    assert code == 2 and "--plugins: found" in err and "expected a folder" in err
