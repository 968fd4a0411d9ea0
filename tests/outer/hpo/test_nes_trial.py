"""A configuration judged by runs: a promoted one goes on where it stopped, whoever stopped it."""

from __future__ import annotations

import math

import pytest

from envolve.outer.checkpoint import locked
from envolve.outer.hpo.nes_trial import MEASURED, NESTrials, measured, shortfall
from tests.outer.hpo.small import study, trial
from tests.outer.small import CARTPOLE_FILE
from tests.outer.test_run import Direct


def evaluate(s, folder, *trials, direct=None):
    direct = direct or Direct()
    return [NESTrials(s, folder, direct)(t) for t in trials], [generation for generation, _, _ in direct.calls]


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ("scores.csv", "model.pt")}


def test_a_promoted_configuration_goes_on_from_its_checkpoint(tmp_path):
    s = study(tmp_path)
    (first, second, third), generations = evaluate(s, tmp_path / "a", trial(1), trial(3, 1), trial(9, 2))
    assert generations == list(range(1, 10)), "every generation is computed once"
    (straight,), _ = evaluate(s, tmp_path / "b", trial(9))
    assert third == straight and first.loss != third.loss
    assert contents(tmp_path / "a/0_4/run_0") == contents(tmp_path / "b/0_4/run_0")
    assert third.info["generations"] == 9 and third.loss == -third.info["best_score"]
    assert second.info["generations"] == 3 and second.info["steps"] < third.info["steps"]


def test_a_trial_that_was_measured_is_not_computed_again(tmp_path):
    s = study(tmp_path)
    (one, again), generations = evaluate(s, tmp_path / "a", trial(3), trial(3))
    assert one == again and generations == [1, 2, 3]
    (tmp_path / "a/0_4/run_0" / MEASURED).unlink()  # killed after the last checkpoint, before it could say so
    (after,), generations = evaluate(s, tmp_path / "a", trial(3))
    assert after == one and generations == []


@pytest.mark.parametrize("stop_at", [0, 1, 4])
def test_an_interrupted_trial_is_finished_by_the_next_master(tmp_path, stop_at):
    s = study(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        evaluate(s, tmp_path / "a", trial(6), direct=Direct(stop_at=stop_at))
    (result,), generations = evaluate(s, tmp_path / "a", trial(6))
    assert generations == list(range(stop_at + 1, 7))
    assert [result] == evaluate(s, tmp_path / "b", trial(6))[0]


def test_who_was_thought_dead_and_still_holds_the_folder_is_left_alone(tmp_path):
    s = study(tmp_path)
    (one,), _ = evaluate(s, tmp_path / "a", trial(3))
    before = contents(tmp_path / "a/0_4/run_0")
    with locked(tmp_path / "a/0_4/run_0"):
        (two,), generations = evaluate(s, tmp_path / "a", trial(9, 1))
    assert generations == list(range(4, 10)), "the copy goes on from the checkpoint"
    assert contents(tmp_path / "a/0_4/run_0") == before
    assert [two] == evaluate(s, tmp_path / "b", trial(9))[0]
    assert measured(tmp_path / "a/0_4/run_0_2").keys() == {3.0, 9.0}
    assert one.info["generations"] == 3


def test_a_folder_that_is_further_is_not_taken_for_the_smaller_budget(tmp_path):
    s = study(tmp_path)
    evaluate(s, tmp_path / "a", trial(9))
    (small,), generations = evaluate(s, tmp_path / "a", trial(1))
    assert generations == [1] and small.info["generations"] == 1
    assert [small] == evaluate(s, tmp_path / "b", trial(1))[0]


@pytest.mark.parametrize("name", ["checkpoint.pt", MEASURED, "config.yaml"])
def test_a_damaged_folder_is_begun_anew(tmp_path, name):
    s = study(tmp_path)
    (one,), _ = evaluate(s, tmp_path / "a", trial(3))
    (tmp_path / "a/0_4/run_0" / name).write_bytes(b"{")
    (again,), generations = evaluate(s, tmp_path / "a", trial(3))
    assert generations == [1, 2, 3] and again == one


@pytest.mark.parametrize("unit, least", [("steps", 500), ("episodes", 60)])
def test_budgets_of_steps_and_episodes(tmp_path, unit, least):
    s = study(tmp_path, budget={"unit": unit, "least": least, "most": 3 * least, "eta": 3})
    (small, large), _ = evaluate(s, tmp_path / "a", trial(least), trial(3 * least, 1))
    assert small.info[unit] >= least and large.info[unit] >= 3 * least
    assert small.info["generations"] < large.info["generations"] < 9, "the budget ends it, not max_iterations"


def test_repeats_are_other_seeds_and_their_mean_counts(tmp_path):
    s = study(tmp_path, repeats=2)
    (result,), _ = evaluate(s, tmp_path / "a", trial(2))
    rows = [measured(tmp_path / f"a/0_4/run_{r}")[2.0] for r in (0, 1)]
    assert rows[0] != rows[1]
    assert result.loss == pytest.approx(sum(row["loss"] for row in rows) / 2)


def test_a_configuration_without_any_score_has_failed(tmp_path):
    def fail(chunk, values):
        values["score"][:] = math.nan
        values["reason"] = ["diverged"] * len(chunk.seeds)
        return values

    (result,), _ = evaluate(study(tmp_path), tmp_path / "a", trial(2), direct=Direct(fail))
    assert result.loss == math.inf and "every agent failed" in result.error


def test_generations_to_the_solution_and_what_is_short_of_it(tmp_path):
    s = study(
        tmp_path,
        loss="generations",
        config=str(CARTPOLE_FILE),
        space={"agents.gtn.noise_std": {"range": [0.01, 1]}},
        set={
            "agents.gtn.num_workers": 2,
            "agents.gtn.num_orig_evals": 2,
            "agents.gtn.max_iterations": 3,
            "agents.ddqn.train_steps": 40,
            "agents.ddqn.early_out_min_steps": 40,
            "agents.ddqn.test_episodes": 1,
            "agents.ddqn.batch_size": 8,
            "agents.ddqn.hidden_size": 8,
            "envs.CartPole-v0.hidden_size": 8,
            "agents.gtn.backend": "torch",
            "agents.gtn.quit_when_solved": True,
            "agents.gtn.agent_name": "DDQN",
        },
        budget={"unit": "generations", "least": 1, "most": 3, "eta": 3},
    )
    small = trial(3)
    small.values.clear()
    small.values["agents.gtn.noise_std"] = 0.05
    (result,), _ = evaluate(s, tmp_path / "a", small)
    assert result.info["solved"] == 0
    assert result.loss == pytest.approx(3 * (1 + shortfall(result.info["best_score"], 195.0)))

    def solve(chunk, values):
        values["score"][:] = 200.0
        return values

    (result,), generations = evaluate(s, tmp_path / "b", small, direct=Direct(solve))
    assert result.loss == 1.0 and generations == [1]


def test_shortfall():
    assert shortfall(200, 195) == shortfall(195, 195) == 0
    assert shortfall(-500, -100) == pytest.approx(0.8) and shortfall(-math.inf, -100) == 1
    assert shortfall(0, 195) == 0.5 < shortfall(-50, 195) < 1
