"""compare_proxies.py and transfer.py: which agents train where, and what is written of it."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from envolve.agents.common.hyper import draw
from envolve.experiments.paper import compare_proxies, train_proxy, transfer
from envolve.experiments.paper.common import comparison
from envolve.experiments.paper.common.data import load
from envolve.experiments.paper.common.learners import PUBLISHED, rn_learner
from envolve.experiments.paper.common.proxies import task_of
from envolve.experiments.paper.common.training import steps_to_solved
from envolve.outer.config.load import load_config
from envolve.outer.search.nes import member_seeds
from tests.experiments import command
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, CLIFF, GRIDWORLD_FILE
from tests.outer.test_run import Direct

RNS = ("--set", *CLIFF, "agents.gtn.max_iterations=2", "agents.gtn.comparison_agents=0")
SES = ("--set", *CARTPOLE, "agents.gtn.max_iterations=1", "agents.ddqn.train_episodes=12")
FEW = ("--worlds", 2, "--agents", 2)


@pytest.fixture(autouse=True)
def no_workers(monkeypatch, undrawn):
    monkeypatch.setattr(train_proxy, "exchange", lambda args, kind: contextlib.nullcontext(Direct()))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two RNs of modes 1 and 2, two SEs of each kind."""
    folder = tmp_path_factory.mktemp("results")
    patch = pytest.MonkeyPatch()
    patch.setattr(train_proxy, "exchange", lambda args, kind: contextlib.nullcontext(Direct()))
    patch.setattr("envolve.outer.run.learning_curve", lambda *args, **more: None)
    for words in (
        (GRIDWORLD_FILE, "--mode", 1, *RNS),
        (GRIDWORLD_FILE, "--mode", 2, *RNS),
        (CARTPOLE_FILE, "--vary-hp", "False", *SES),
        (CARTPOLE_FILE, "--vary-hp", "True", *SES),
    ):
        assert train_proxy.main([str(w) for w in (*words, "--runs", 2, "--results-dir", folder)]) == 0
    patch.undo()
    return folder


@pytest.fixture()
def call(capsys, tmp_path, results):
    """-> exit code, stdout, stderr, Data or None."""

    def run(main, *words, results_dir=results):
        path = tmp_path / "out.json"
        words = [*words, "--results-dir", results_dir, "--threads", 1, *(() if "--json" in words else ("--json", path))]
        code, out, err, _ = command.run(main, words, capsys, tmp_path / "none")
        data = load(path) if path.exists() else None
        path.unlink(missing_ok=True)
        return code, out, err, data

    return run


def test_curves_in_rns_and_on_the_task(call, results):
    code, out, err, data = call(
        compare_proxies.main, GRIDWORLD_FILE, "--modes", -1, 0, 1, 2, *FEW, "--agent-set", "train_episodes=12", *RNS
    )
    assert code == 0 and "solved, rule fires" in out and "4 of 4 ql_cb agents" in err
    assert (data.experiment, data.task, data.quick) == ("compare_proxies", "Cliff", False)
    assert list(data.series) == ["mode -1", "mode 0", "mode 1", "mode 2"]
    assert data.settings["agent"] == "ql" and data.settings["seed"] == 0 and data.settings["agents"] == 2
    for mode, q in data.series.items():
        assert q["failed"] == [""] * 4 and len(q["return"]) == 4
        assert len(q["steps_to_solved_first_test"]) == len(q["steps_to_solved_rule_fires"]) == 4
        for i in range(4):  # nothing ends early
            assert len(q["episode_return"][i]) == len(q["episode_length"][i]) == 12
            assert sum(q["episode_length"][i]) == q["train_steps"][i]
        evolved = mode in ("mode 1", "mode 2")
        assert len(q["world"]) == 4 * evolved and len(set(q["world"])) == 2 * evolved
        assert all(f"mode{mode[-1]}/seed" in path for path in q["world"])
    hyperparameters = data.settings["hyperparameters"]
    assert hyperparameters["mode 2"]["train_episodes"] == 12 and hyperparameters["mode 2"]["eps_init"] == 0.1
    curves = {mode: q["episode_length"] for mode, q in data.series.items()}
    assert len({str(c) for c in curves.values()}) == 4, "each mode has its own rewards"


def test_evolution_is_priced_and_steps_are_compared_only_of_like_returns(call):
    """RNs after two generations teach nothing yet: no sentence about fewer steps."""
    _, out, _, data = call(
        compare_proxies.main, GRIDWORLD_FILE, "--modes", 0, 2, *FEW, "--agent-set", "train_episodes=12", *RNS
    )
    spent = data.settings["evolution_steps"]["mode 2"]
    assert len(spent) == 2 and all(n > 0 for n in spent.values())
    assert f"{sum(spent.values()):,}" in out and "real steps were spent on evolving" in out
    assert "No comparison of steps: agents from" in out and "fewer" not in out


def test_hyperparameter_draws_differ_between_worlds(call, monkeypatch):
    """And on the task; the same world has the same, whichever others stand beside it."""
    seen = {}

    def recorded(learner, task, kind, section, worlds, seeds, *args):
        seen[args[-1]] = [draw(learner.section, seeds[i : i + 2], learner.vary)["lr"].tolist() for i in (0, 2)]
        return inner(learner, task, kind, section, worlds, seeds, *args)

    inner = comparison.train_agents
    monkeypatch.setattr(comparison, "train_agents", recorded)
    words = (CARTPOLE_FILE, "--learners", "ddqn", "--evolved", "fixed", *SES)
    assert call(compare_proxies.main, *words, *FEW)[0] == 0
    rates = [lr for rows in seen.values() for row in rows for lr in row]
    assert len(rates) == 8 and len(set(rates)) == 8
    first = seen["ddqn fixed"][0]
    assert call(compare_proxies.main, *words, "--worlds", 1, "--agents", 2)[0] == 0
    assert seen["ddqn fixed"][0] == first


def test_the_same_again_and_other_seeds(call):
    words = (GRIDWORLD_FILE, "--modes", 0, 2, *FEW, "--agent-set", "train_episodes=12", *RNS)
    one, again, other = (call(compare_proxies.main, *words, "--seed", s)[3] for s in (0, 0, 1))
    assert one.series == again.series and one.series["mode 0"] != other.series["mode 0"]


def test_an_interrupted_comparison_goes_on(call, results, monkeypatch):
    """The series finished before Ctrl-C are not trained again, and the data are those of a call that was not
    interrupted; other arguments begin anew."""
    words = (GRIDWORLD_FILE, "--modes", 0, 1, 2, *FEW, "--agent-set", "train_episodes=12", *RNS)
    whole = call(compare_proxies.main, *words)[3]
    trained, inner = [], comparison.train_agents

    def interrupted(*args):
        trained.append(args[-1])
        if len(trained) == 2:
            raise KeyboardInterrupt
        return inner(*args)

    monkeypatch.setattr(comparison, "train_agents", interrupted)
    assert call(compare_proxies.main, *words)[0] == 130
    code, _, err, again = call(compare_proxies.main, *words)
    assert code == 0 and "mode 0: finished by an earlier call" in err
    assert [t[:6] for t in trained] == ["mode 0", "mode 1", "mode 1", "mode 2"]
    assert {**again.series} == {**whole.series}
    trained[:] = [0, 0]
    call(compare_proxies.main, *words)
    assert len(trained) == 5, "nothing is left of a call that was completed"


def test_vary_hp_and_other_learners(call, results):
    words = (GRIDWORLD_FILE, "--modes", 2, *FEW, "--agent-set", "train_episodes=12", *RNS)
    plain = call(compare_proxies.main, *words)[3].series["mode 2"]
    code, _, err, data = call(transfer.main, *words, "--vary-hp")
    assert code == 0 and "ql_vary agents" in err and data.settings["vary_hp"] is True
    assert data.experiment == "transfer" and data.series["mode 2"]["episode_length"] != plain["episode_length"]
    code, _, err, data = call(transfer.main, *words, "--agent", "SARSA")
    assert code == 0 and "sarsa agents" in err and data.settings["hyperparameters"]["mode 2"]["eps_init"] == 0.01
    code, _, err, data = call(transfer.main, *words)
    assert code == 2 and "found neither --vary-hp nor --agent" in err and data is None
    code, _, err, data = call(transfer.main, *words, "--agent", "ddqm")
    assert code == 2 and "--agent: found 'ddqm', expected a learner of Cliff" in err and "did you mean ddqn" in err


def test_agents_in_ses_of_both_kinds_and_on_the_task(call):
    code, out, err, data = call(compare_proxies.main, CARTPOLE_FILE, *FEW, "--learners", "ddqn", *SES)
    assert code == 0 and list(data.series) == ["ddqn real", "ddqn fixed", "ddqn varied"]
    for title, q in data.series.items():
        assert len(q["return"]) == 4 and q["failed"] == [""] * 4 and "episode_return" not in q
        assert [sum(t) / len(t) for t in q["test_returns"]] == pytest.approx(q["return"])
        assert (q["train_steps"] == [60] * 4) == (title != "ddqn real")  # the budget that the SEs were evolved for
        assert all(f"_{title[5:]}/seed" in path for path in q.get("world", []))
    assert data.settings["vary_hp"] is True
    words = ("--learners", "ddqn", "--stop", "early-out", "--agent-set", "train_episodes=3", *SES)
    code, _, _, data = call(compare_proxies.main, CARTPOLE_FILE, *FEW, *words)
    assert code == 0 and min(data.series["ddqn fixed"]["train_steps"]) > 60
    code, _, err, _ = call(compare_proxies.main, CARTPOLE_FILE, *FEW, "--modes", 1, *SES)
    assert code == 2 and "--modes: found [1], expected none" in err


def test_a_learner_without_a_section_shares_what_it_can(call):
    code, _, _, data = call(transfer.main, CARTPOLE_FILE, *FEW, "--agent", "duelingddqn", *SES)
    assert code == 0 and data.settings["vary_hp"] is False
    assert list(data.series) == ["duelingddqn real", "duelingddqn fixed", "duelingddqn varied"]
    h = data.settings["hyperparameters"]["duelingddqn fixed"]
    assert (h["batch_size"], h["hidden_size"], h["feature_dim"], h["train_steps"]) == (8, 8, 128, 60)
    assert data.settings["hyperparameters"]["duelingddqn real"]["train_steps"] == 0


def test_what_is_missing_is_said_before_the_work(call, tmp_path):
    code, _, err, data = call(compare_proxies.main, GRIDWORLD_FILE, *FEW, "--modes", 0, 6, *RNS)
    assert code == 2 and data is None and "mode 0" not in err
    assert "mode6: found 0 finished runs" in err and "experiments/paper/train_proxy.py" in err and "--mode 6" in err
    code, _, err, _ = call(compare_proxies.main, GRIDWORLD_FILE, "--modes", 3, *RNS)
    assert code == 2 and "--modes: found 3" in err and "no info vector" in err
    for words, expected in (
        (("--agents", 0), "--agents: found 0"),
        (("--agent-set", "alfa=1"), "no hyperparameter of ql"),
        (("--agent-set", "alpha=2"), "agents.ql.alpha: found 2.0, expected"),
        (("--stop", "now"), "--stop: found"),
    ):
        code, _, err, _ = call(compare_proxies.main, GRIDWORLD_FILE, *FEW, "--modes", 2, *words, *RNS)
        assert code == 2 and expected in err


def test_quick_evolves_what_is_missing_and_leaves_full_data_alone(call, tmp_path):
    words = (GRIDWORLD_FILE, "--modes", 0, 6, "--quick", "--agents", 1, *RNS)
    out = tmp_path / "paper" / "compare_proxies" / "Cliff.json"
    code, _, err, data = call(compare_proxies.main, *words, "--json", out, results_dir=tmp_path)
    assert code == 0 and "too few worlds yet; evolving" in err and load(out).quick
    assert "mode6_quick/seed" in load(out).series["mode 6"]["world"][0]
    content = out.read_text().replace('"quick": true', '"quick": false')
    out.write_text(content)
    code, _, err, _ = call(compare_proxies.main, *words, "--json", out, results_dir=tmp_path)
    assert code == 2 and "found the data of a full experiment" in err and out.read_text() == content


def test_published_agents_have_valid_values():
    for (env_name, name), values in PUBLISHED.items():
        file = {
            "Cliff": "gridworld",
            "CartPole-v0": "cartpole",
            "MountainCarContinuous-v0": "mountain_car_continuous",
            "HalfCheetah-v3": "halfcheetah",
            "Pendulum-v0": "pendulum",
        }[env_name]
        data = load_config(GRIDWORLD_FILE.parent / f"default_config_{file}_reward_env_paper.yaml").data
        for quick in (False, True):
            who = rn_learner(data, task_of(data), name, curious=False, vary=True, settings=[], quick=quick)
            expected = values["train_episodes"]
            assert (who.section.train_episodes < expected) if quick else (who.section.train_episodes == expected)
            assert who.section.train_steps == (1500 if quick and env_name == "HalfCheetah-v3" else 0)
            assert who.section.init_episodes < who.section.train_episodes


def test_steps_to_solved_by_hand():
    q = {
        "episode_return": [[0, 5, 5, 5, 0], [5, 0, 5, 0, 5], [5, 5], np.array([5, 5, 5], np.float32)],
        "episode_length": [[3, 4, 5, 6, 7], [1, 1, 1, 1, 1], [2, 2], [7, 8, 9]],
    }
    both = steps_to_solved(q, 5, window=3)
    first, fires = both["steps_to_solved_first_test"], both["steps_to_solved_rule_fires"]
    assert (first[0], fires[0]) == (3 + 4, 3 + 4 + 5 + 6) and (first[3], fires[3]) == (7, 7 + 8 + 9)
    assert all(math.isnan(x) for x in first[1:3] + fires[1:3])
    late = {"episode_return": [[-50.0, 20.0, 20.0, 20.0, 20.0]], "episode_length": [[1, 18, 4, 4, 4]]}
    both = steps_to_solved(late, -10, window=3)
    assert both["steps_to_solved_first_test"] == [19], "the mean of the first three solves, the first test does not"
    assert both["steps_to_solved_rule_fires"] == [23]


def test_test_seeds_are_none_of_the_evolutions():
    from envolve.outer.search.nes import RETEST

    used = {s for purpose in range(1, 6) for g in range(3) for s in member_seeds(0, purpose, g, 100).tolist()}
    assert not used & set(member_seeds(0, RETEST, 0, 400).tolist())
