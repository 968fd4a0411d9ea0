"""What every search promises, for every back end: plain values, no trial lost, the same asks after the same tells."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.outer.hpo.hyperband import ladder
from envolve.outer.hpo.search import BACKENDS, make_search, plain, rounded
from tests.examples import examples, some_slow

CS = pytest.importorskip("ConfigSpace", reason="ConfigSpace is not installed")
pytest.importorskip("hpbandster", reason="hpbandster is not installed")
pytest.importorskip("optuna", reason="optuna is not installed")

ROOT = Path(__file__).parents[3]
SEARCHES = [("bohb", "hyperband"), ("bohb", "aggressive"), ("optuna", "hyperband"), ("optuna", "aggressive"),
            ("random", "hyperband")]  # fmt: skip
every_search = pytest.mark.parametrize("backend, bracket", some_slow(SEARCHES, SEARCHES[1:3] + SEARCHES[4:]))


def mixed_space():
    """Everything that a study may ask for, under names such as studies have."""
    space = CS.ConfigurationSpace()
    space.add(
        [
            CS.Float("agents.ddqn.lr", (1e-5, 1e-1), log=True),
            CS.Float("x", (-2, 3)),
            CS.Integer("batch", (64, 256)),
            CS.Integer("units", (1, 1000), log=True),
            CS.Categorical("flag", [True, False]),
            CS.Categorical("kind", ["ddqn", "icm", "td3"]),
            CS.Categorical("mixed", [True, False, 2, "two", 0.5]),
            CS.Categorical("only", [7]),
            CS.Constant("fixed", 3),
        ]
    )
    beta, gate = CS.Float("icm.beta", (0, 1)), CS.Integer("icm.gate", (1, 4))
    space.add([beta, gate])
    space.add(CS.InCondition(beta, space["kind"], ["icm", "td3"]))
    space.add(CS.GreaterThanCondition(gate, beta, 0.5))
    return space


def loss_of(values):
    return abs(math.log10(values["agents.ddqn.lr"]) + 3) + values["flag"] + abs(values.get("icm.beta", 1) - 0.4)


def search(backend, bracket, seed=0, space=None, budgets=(1, 27, 3), random_fraction=1 / 3):
    space = mixed_space() if space is None else space
    return make_search(backend, space, budgets, bracket=bracket, seed=seed, random_fraction=random_fraction)


def legal(values):
    """Of mixed_space, with the very types that were declared."""
    assert json.loads(json.dumps(values)) == values and list(map(type, values)) == [str] * len(values)
    assert type(values["agents.ddqn.lr"]) is float and 1e-5 <= values["agents.ddqn.lr"] <= 1e-1
    assert type(values["x"]) is float and -2 <= values["x"] <= 3
    assert type(values["batch"]) is int and 64 <= values["batch"] <= 256
    assert type(values["units"]) is int and 1 <= values["units"] <= 1000
    assert values["flag"] is True or values["flag"] is False
    assert type(values["kind"]) is str and values["kind"] in ("ddqn", "icm", "td3")
    assert (values["mixed"], type(values["mixed"])) in [(v, type(v)) for v in (True, False, 2, "two", 0.5)]
    assert (values["only"], type(values["only"])) == (7, int) == (values["fixed"] + 4, type(values["fixed"]))
    assert ("icm.beta" in values) == (values["kind"] != "ddqn")
    assert ("icm.gate" in values) == (values.get("icm.beta", 0) > 0.5)
    assert type(values.get("icm.gate", 1)) is int and 1 <= values.get("icm.gate", 1) <= 4


@every_search
def test_values_are_plain_and_only_those_that_are_active(backend, bracket):
    found, seen = search(backend, bracket), []
    for k in range(80):
        trial = found.ask()
        legal(trial.values)
        assert trial.id == k and type(trial.budget) is float and trial.budget in ladder(1, 27, 3)
        assert all(type(n) is int for n in trial.config_id) and type(trial.model_based) is bool
        seen.append(trial)
        found.tell(trial.id, np.float32(loss_of(trial.values)))  # a float of NumPy is welcome
    assert {t.values["kind"] for t in seen} == {"ddqn", "icm", "td3"}
    assert len({json.dumps(t.values) for t in seen if t.rung == 0}) == len([t for t in seen if t.rung == 0])
    proposed = [t.model_based for t in seen if t.rung == 0]
    assert sum(proposed) == found.model_picks and len(proposed) == found.model_picks + found.random_picks
    assert (found.model_picks > 10) is (backend != "random")
    if backend == "random":
        assert {t.budget for t in seen} == {27.0} and {t.rung for t in seen} == {0}


@every_search
def test_a_promoted_configuration_keeps_its_values_and_name(backend, bracket):
    """An integer is rounded once, not at every rung."""
    found, first, last = search(backend, bracket), {}, {}
    for _ in range(60):
        trial = found.ask()
        if trial.rung == 0:
            assert trial.config_id not in first
            first[trial.config_id] = trial
        else:
            before = last[trial.config_id]
            same = dataclasses.replace(trial, id=before.id, budget=before.budget, rung=before.rung)
            assert same == before and trial.rung == before.rung + 1 and trial.budget == pytest.approx(before.budget * 3)
            assert [type(v) for v in trial.values.values()] == [type(v) for v in before.values.values()]
        last[trial.config_id] = trial
        found.tell(trial.id, loss_of(trial.values))
    assert {t.rung for t in last.values()} == ({0} if backend == "random" else {0, 1, 2, 3})


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_no_trial_is_lost_whatever_the_order(backend, data):
    """Asks and tells in any order, failures among them; afterwards the same order asks the same."""
    bracket, seed = data.draw(st.sampled_from(["hyperband", "aggressive"])), data.draw(st.integers(-3, 2**33))
    steps = data.draw(st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=60))
    fails = data.draw(st.sampled_from([1, 2, 3, 7, 1000]))

    def play(noise):
        found, out, seen = search(backend, bracket, seed), [], []
        for ask, k in steps:
            if noise:
                np.random.rand()  # noqa: NPY002
                random.random()
            if ask or not out:
                out.append(found.ask())
                legal(out[-1].values)
                seen.append(out[-1])
            else:
                trial = out.pop(k % len(out))
                bad = (trial.id + 1) % fails == 0
                found.tell(trial.id, [math.nan, math.inf, -math.inf][k % 3] if bad else loss_of(trial.values))
        assert sorted(found.out) == sorted(t.id for t in out) and [t.id for t in seen] == list(range(len(seen)))
        return seen

    seen = play(False)
    pairs = [(t.config_id, t.budget) for t in seen]
    assert len(set(pairs)) == len(pairs), "the same configuration at the same budget, twice"
    if fails == 1:
        assert {t.rung for t in seen} <= {0}, "a failure was promoted"
    assert play(True) == seen


@st.composite
def spaces(draw):
    """Any mixture of parameters with any bounds, some of them active under some values of an earlier one."""
    space, categorical = CS.ConfigurationSpace(), []
    for i in range(draw(st.integers(1, 6))):
        kind, log = draw(st.sampled_from(["float", "integer", "categorical"])), draw(st.booleans())
        if kind == "float":
            low = draw(st.floats(1e-6, 1.0) if log else st.floats(-1e3, 1e3))
            parameter = CS.Float(f"f{i}", (low, low + draw(st.floats(1e-5, 1e6))), log=log)
        elif kind == "integer":
            low = draw(st.integers(1, 9) if log else st.integers(-9, 9))
            parameter = CS.Integer(f"i{i}", (low, low + draw(st.integers(1, 2000))), log=log)
        else:
            choices = draw(st.lists(st.sampled_from([0, 7, -2.5, "a", "b", "c"]), min_size=1, max_size=4, unique=True))
            parameter = CS.Categorical(f"c{i}", choices)
        space.add(parameter)
        if categorical and draw(st.booleans()):
            parent = draw(st.sampled_from(categorical))
            allowed = draw(st.lists(st.sampled_from(parent.choices), min_size=1, unique=True))
            space.add(CS.InCondition(parameter, parent, allowed))
        if kind == "categorical":
            categorical.append(parameter)
    return space


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=examples(10), deadline=None)
@given(st.data())
def test_any_space_is_searched(backend, data):
    """Also where all losses are the same, or differ by 300 orders of magnitude."""
    space, seed = data.draw(spaces()), data.draw(st.integers(0, 9))
    losses = data.draw(st.sampled_from([[0.0], [1e300, -1e300, 1e-300], [3.0, math.nan, 1.0, 2.0]]))
    found = search(backend, "hyperband", seed, space, (1, 9, 3))
    for k in range(40):
        trial = found.ask()
        legal_there = CS.Configuration(space, trial.values)  # raises where a value is illegal, or one is not active
        assert json.loads(json.dumps(trial.values)) == trial.values == dict(legal_there) | trial.values
        found.tell(trial.id, losses[k % len(losses)])
    if backend == "bohb":
        assert found.failed_picks == found.undefined_ratios == 0


@every_search
def test_a_search_is_resumed_by_telling_it_again(backend, bracket):
    found, again, told = search(backend, bracket, 5), search(backend, bracket, 5), []
    for k in range(50):
        trial = found.ask()
        told.append(math.nan if k % 9 == 4 else loss_of(trial.values))
        found.tell(trial.id, told[-1])
    for loss in told:
        again.tell(again.ask().id, loss)
    assert (found.model_picks > 4) is (backend != "random")
    assert [found.ask() for _ in range(10)] == [again.ask() for _ in range(10)]
    other = search(backend, bracket, 6)
    assert [other.ask().values for _ in range(3)] != [search(backend, bracket, 5).ask().values for _ in range(3)]


@every_search
def test_others_random_numbers_and_the_callers_space_are_left_alone(backend, bracket):
    space, untouched = mixed_space(), mixed_space()
    space.seed(3), untouched.seed(3)
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.rand(3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    found = search(backend, bracket, space=space)
    for _ in range(30):
        found.tell(found.ask().id, 1.0)
    np.testing.assert_array_equal(np.random.rand(3), expected)  # noqa: NPY002
    assert space.sample_configuration() == untouched.sample_configuration()


@every_search
def test_only_trials_that_are_out_may_be_told(backend, bracket):
    found = search(backend, bracket)
    trial = found.ask()
    found.tell(trial.id, 1.0)
    for wrong in (trial.id, 99):
        with pytest.raises(KeyError, match=f"trial {wrong} was not asked for"):
            found.tell(wrong, 1.0)


@pytest.mark.parametrize("arguments, message", [
    ({"backend": "bobh"}, r"back end: found 'bobh'; expected bohb, optuna, random \(did you mean bohb\?\)"),
    ({"bracket": "agressive"}, r"bracket: found 'agressive'; expected hyperband, aggressive \(did you mean aggressive"),
    ({"random_fraction": 1.5}, "random_fraction: found 1.5; expected 0 to 1"),
    ({"budgets": (9, 3, 3)}, "budgets: found 9, 3, eta 3"),
    ({"budgets": (9, 3, 3), "backend": "random"}, "budgets: found 9, 3, eta 3"),
    ({"budgets": (1, 9, 2.5), "backend": "optuna"}, "eta: found 2.5; expected a whole number"),
])  # fmt: skip
def test_wrong_arguments_are_refused(arguments, message):
    given = {"backend": "bohb", "bracket": "hyperband", "budgets": (1, 9, 3), **arguments}
    with pytest.raises(ValueError, match=message):
        search(**given)


@pytest.mark.parametrize("backend", BACKENDS)
def test_spaces_that_cannot_be_searched_are_refused(backend):
    space = CS.ConfigurationSpace()
    space.add(
        [
            CS.OrdinalHyperparameter("size", ["small", "large"]),
            CS.Float("fine", (0, 1)),
            CS.Float("tiny", (1e-12, 1e-10), log=True),
            CS.NormalFloatHyperparameter("bell", 0, 1, lower=-3, upper=3),
        ]
    )
    with pytest.raises(ValueError) as e:
        search(backend, "hyperband", space=space)
    for text in ("size: found an ordinal", "bell: found NormalFloat", "tiny: found a range from 1e-12"):
        assert text in str(e.value)
    assert "fine" not in str(e.value)
    if backend == "random":
        assert search(backend, "hyperband", space=CS.ConfigurationSpace()).ask().values == {}
    else:
        with pytest.raises(ValueError, match="no parameter; expected one at least"):
            search(backend, "hyperband", space=CS.ConfigurationSpace(), budgets=(1, 9, 3))


def test_plain():
    given = {"a": np.float64(0.5), "b": np.str_("s"), "c": np.True_, "d": np.int64(3), "e": 1, "f": "t"}
    found = plain(given)
    assert found == given and [type(v) for v in found.values()] == [float, str, bool, int, int, str]


@pytest.mark.slow
def test_nothing_depends_on_the_order_of_sets():
    """Strings hash otherwise in every process."""
    code = (
        "from tests.outer.hpo.test_search import *\n"
        "for names in SEARCHES:\n"
        "    found = search(*names, 4)\n"
        "    for k in range(90):\n"
        "        trial = found.ask()\n"
        "        print(trial)\n"
        "        found.tell(trial.id, loss_of(trial.values))\n"
    )
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT,
                       env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1] and said[0].count("Trial(") == 90 * len(SEARCHES)


def test_optuna_has_a_bracket_for_every_rung():
    """Its own count of brackets is one short where log(243) / log(3) is 4.999..."""
    found = search("optuna", "hyperband", budgets=(1, 243, 3))
    first = found.ask()
    brackets = [found._bracket(SimpleNamespace(number=k)) for k in range(2000)]
    shares = np.bincount(brackets) / 2000
    assert first.config_id[0] == brackets[0] and first.budget == found.budgets[brackets[0]]
    assert len(shares) == 6 and (np.diff(shares) < 0).all() and 0.5 < shares[0] < 0.65 and shares[5] > 0


@pytest.mark.parametrize("bracket", some_slow(["hyperband", "aggressive"], ["hyperband"]))
def test_optuna_stops_what_is_worse(bracket):
    found, told = search("optuna", bracket), {}
    for _ in range(150):
        trial = found.ask()
        told[trial.config_id, trial.rung] = loss = loss_of(trial.values)
        found.tell(trial.id, loss)
    at = {b: [loss for (name, rung), loss in told.items() if name[0] == b and rung == 0] for b in range(4)}
    on = {b: [loss for (name, rung), loss in told.items() if name[0] == b and rung == 1] for b in range(4)}
    assert 0.1 < len(on[0]) / len(at[0]) < 0.8 and np.mean(on[0]) < np.mean(at[0])
    assert [len(at[b]) > 0 for b in range(4)] == ([True] * 4 if bracket == "hyperband" else [True, False, False, False])
    assert not on[3], "nothing lies above the full budget"


@every_search
def test_values_survive_the_last_bits_of_another_processor(backend, bracket, monkeypatch):
    """exp and log differ there. A log that was written here must fit what the search asks for elsewhere."""
    here = search(backend, bracket, 2)
    expected = []
    for _ in range(50):
        expected.append(here.ask())
        here.tell(expected[-1].id, loss_of(expected[-1].values))
    draws = np.random.default_rng(0)

    def a_bit_off(f):
        def g(*args, **kwargs):
            return f(*args, **kwargs) * (1 + 2**-52 * draws.integers(-2, 3))

        return g

    for name in ("exp", "log", "log10", "sqrt"):
        monkeypatch.setattr(np, name, a_bit_off(getattr(np, name)))
    there = search(backend, bracket, 2)
    for trial in expected:
        assert there.ask() == trial
        there.tell(trial.id, loss_of(trial.values))


def test_rounded():
    assert rounded(0.1234567894321, 0, 1) == 0.123456789 and rounded(1 / 3, 1 / 3, 1) == 1 / 3
    assert rounded(123456789012.0, 0, 123456789011.5) == 123456789000 and type(rounded(1.0, 0, 1)) is float


def test_optuna_is_quiet(caplog, capfd):
    caplog.set_level(logging.DEBUG, logger="envolve")
    found = search("optuna", "hyperband")
    for _ in range(20):
        trial = found.ask()
        found.tell(trial.id, loss_of(trial.values))
    assert capfd.readouterr() == ("", "")
    assert any("optuna" in r.getMessage() and r.levelno == logging.DEBUG for r in caplog.records)
