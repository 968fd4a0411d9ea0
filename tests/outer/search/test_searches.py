"""The built-in searches beside NES: formulas by hand, a sphere, the same bytes after a stop, refusals in one line."""

from __future__ import annotations

import copy
import importlib.util
import io
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import envolve.outer.run
from envolve.core.torch_file import read_torch
from envolve.outer.checkpoint import load_checkpoint
from envolve.outer.config.load import ConfigError, load_config
from envolve.outer.config.section import GTNSection
from envolve.outer.run import config_digest
from envolve.outer.search import searches
from envolve.outer.search.cma import CMA, CMASection, memory
from envolve.outer.search.nes import ORIG
from envolve.outer.search.openai_es import OpenAIES, OpenAIESSection
from envolve.outer.search.random_search import RandomSection
from envolve.outer.search.search import OwnState
from envolve.outer.search.searches import SEARCHES
from envolve.outer.search.snes import SNES, SNESSection, utilities
from envolve.outer.search.strategy import SearchError, make_strategy
from tests.outer.small import CARTPOLE, CARTPOLE_FILE, CLIFF, GRIDWORLD_FILE, ROOT, default_sigint
from tests.outer.test_run import Direct, failing, files, go

BUILT_IN = sorted(SEARCHES.built_in)
D = 12
PLAIN = "default_config_cartpole_syn_env.yaml"


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    monkeypatch.setattr(envolve.outer.run, "learning_curve", lambda path, *a, **k: Path(path).write_text("picture"))


def strategy(name, state=None, settings=None, mask=None, **section):
    section = GTNSection(**{"search": name, "num_workers": 12, "num_orig_evals": 1, "noise_std": 0.2, **section})
    settings = settings or (searches.settings_of(name, {}) if name in SEARCHES else None)
    mask = torch.ones(D) if mask is None else mask
    return make_strategy(section, 5, lambda seed: torch.ones(D), mask, state, settings)


def sphere(worlds: torch.Tensor) -> np.ndarray:
    return -(worlds.double() ** 2).sum(1).numpy()


def climb(search, generations):
    for _ in range(generations):
        search.tell(sphere(search.ask().worlds))
    return search


def stored(search) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(vars(search.state)), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("name", BUILT_IN)
def test_sphere_improves(name):
    settings = {"openai_es": OpenAIESSection(lr=0.05, weight_decay=0.0)}.get(name)
    search = strategy(name, settings=settings)
    before = sphere(search.centre[None])[0]
    after = sphere(climb(search, 60).centre[None])[0]
    assert after > (0.85 if name == "random" else 0.05) * before, (before, after)  # from -12


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("stop", [0, 1, 7])
def test_state_goes_through_a_file_to_the_same_bytes(name, stop):
    whole, stopped = climb(strategy(name), 12), climb(strategy(name), stop)
    again = strategy(name, OwnState(**read_torch(stored(stopped))))
    assert torch.equal(again.centre, stopped.centre)
    assert stored(climb(again, 12 - stop)) == stored(whole)
    assert torch.equal(again.ask().worlds, whole.ask().worlds)


@pytest.mark.parametrize("name", BUILT_IN)
def test_frozen_numbers_stay_and_a_flat_generation_is_no_error(name):
    mask = torch.ones(D)
    mask[3:7] = 0
    search = strategy(name, mask=mask)
    for _ in range(3):
        population = search.ask()
        assert bool((population.worlds[:, 3:7] == 1).all()) and population.worlds.dtype == torch.float32
        free = population.worlds[1:][:, mask.bool()]
        assert len(torch.unique(free, dim=0)) == len(free), "no two worlds are the same"
        search.tell(np.zeros(len(population.worlds)))
        assert bool(search.centre.isfinite().all())


@pytest.mark.parametrize("name", BUILT_IN)
def test_restart_begins_from_a_new_world_with_new_noise(name):
    section = GTNSection(search=name, num_workers=6, num_orig_evals=1)
    worlds = iter([1.0, 1.0, 7.0])
    search = make_strategy(section, 5, lambda seed: torch.full((D,), next(worlds)), torch.ones(D))
    first = search.ask().worlds
    search.renew()
    assert search.state.restarts == 1 and search.state.generation == 1
    assert torch.equal(search.centre, torch.full((D,), 7.0))
    assert not torch.allclose(search.ask().worlds - 7, first - 1)


@pytest.mark.parametrize("name", ["nes", *BUILT_IN])
def test_after_a_restart_a_stored_state_goes_on_around_the_new_world(name):
    """Random search draws around its first world, and frozen numbers are that world's."""
    section = GTNSection(search=name, num_workers=6, num_orig_evals=1, step_size=0.1)
    mask = torch.ones(D)
    mask[3:7] = 0

    def made(state=None):
        return make_strategy(section, 5, lambda seed: torch.full((D,), float(seed % 1000)), mask, state)

    whole = made()
    whole.renew()
    climb(whole, 1)
    again = made(copy.deepcopy(whole.state))
    assert torch.equal(again.ask().worlds, whole.ask().worlds)
    assert torch.equal(again.centre, whole.centre)


@pytest.mark.parametrize("name", ["nes", *BUILT_IN])
def test_a_generation_without_scores_is_counted_and_moves_nothing(name):
    search = climb(strategy(name), 2)
    before, asked = search.centre.clone(), search.ask().worlds
    search.skip()
    assert search.state.generation == 3 and torch.equal(search.centre, before)
    assert not torch.equal(search.ask().worlds, asked), "other random numbers"
    again = strategy(name, copy.deepcopy(search.state))
    assert torch.equal(climb(again, 2).centre, climb(search, 2).centre)


@pytest.mark.parametrize("name", ["nes", *BUILT_IN])
def test_worlds_per_generation_are_what_the_description_says(name):
    search = strategy(name)
    roles = search.ask().roles
    assert len(roles) - roles.count(ORIG) == searches.worlds_of(name, search.section)[0]


# ------------------------------------------------------------------------------------------------ formulas by hand


def test_snes_by_hand():
    mask = torch.ones(3)
    search = SNES(3, mask, torch.tensor([1.0, 2.0, 3.0]), 0, GTNSection(num_workers=4, noise_std=0.5), SNESSection())
    worlds = search.ask().double()
    s = (worlds - torch.tensor([1.0, 2.0, 3.0])) / 0.5
    raw = [max(0.0, math.log(3) - math.log(k)) for k in (1, 2, 3, 4)]
    u = [x / sum(raw) - 1 / 4 for x in raw]
    ranked = [u[2], u[0], u[3], u[1]]  # of the scores below
    search.tell(np.array([0.3, 9.0, -2.0, 5.0]))
    g_mean = sum(r * row for r, row in zip(ranked, s))
    g_sigma = sum(r * (row**2 - 1) for r, row in zip(ranked, s))
    rate = (3 + math.log(3)) / (5 * math.sqrt(3))
    torch.testing.assert_close(search.mean, torch.tensor([1.0, 2.0, 3.0]).double() + 0.5 * g_mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(search.sigma, 0.5 * torch.exp(rate / 2 * g_sigma), atol=1e-6, rtol=0)


def test_utilities_share_between_equal_scores_and_sum_to_zero():
    assert abs(utilities(np.array([3.0, 1.0, 2.0, 2.0])).sum()) < 1e-12
    shared = utilities(np.array([3.0, 2.0, 2.0, 1.0, 0.0, -1.0]))
    assert shared[1] == shared[2] and shared[0] > shared[1] > shared[3]
    assert np.abs(utilities(np.zeros(6))).max() < 1e-15 and np.isfinite(utilities(np.zeros(1))).all()


def test_openai_es_by_hand():
    section, init = GTNSection(num_workers=2, noise_std=0.1), torch.tensor([1.0, -2.0])
    search = OpenAIES(2, torch.ones(2), init, 0, section, OpenAIESSection(lr=0.5, weight_decay=0.25))
    worlds = search.ask().double()
    eps = (worlds[:2] - init) / 0.1
    torch.testing.assert_close(worlds[2:], init - 0.1 * eps, atol=1e-6, rtol=0)
    search.tell(np.array([4.0, 1.0, 2.0, 3.0]))  # centred ranks 1/2, -1/2, -1/6, 1/6
    g = ((1 / 2 + 1 / 6) * eps[0] + (-1 / 2 - 1 / 6) * eps[1]) / 4 - 0.25 * init
    torch.testing.assert_close(search.moment1, 0.1 * g, atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(search.theta, init + 0.5 * g.sign(), atol=1e-5, rtol=0)  # Adam's first step


@pytest.mark.parametrize("name", ["cma", "sep_cma"])
def test_worlds_have_the_covariance_that_the_package_has_adapted(name):
    search = climb(strategy(name), 20).search
    c, search.section = search.cma, GTNSection(search=name, num_workers=20_000)
    drawn = np.cov((search.ask().double().numpy() - c._mean).T) / c._sigma**2
    expected = np.diag(c._C) if name == "sep_cma" else c._C
    assert np.abs(drawn - expected).max() < 0.06 * np.abs(expected).max()


def test_the_update_of_cma_is_the_packages():
    """Step for step, also where a negative weight or a long path counts, with float64's rounding between them."""
    package = pytest.importorskip("cmaes")
    search = strategy("cma", num_workers=10).search
    theirs = package.CMA(mean=search.cma._mean.copy(), sigma=search.cma._sigma, population_size=10, seed=0)
    target, stalled = np.linspace(-3, 5, len(theirs._mean)), 0
    for generation in range(60):
        search.generation = generation
        search.ask()
        scores = -np.sum(np.arange(1, len(target) + 1) ** 2 * (search.points - target) ** 2, axis=1)
        theirs.tell([(x, -score) for x, score in zip(search.points, scores)])
        search.tell(scores)
        ours = search.cma
        for name in ("_mean", "_sigma", "_p_sigma", "_pc", "_C", "_g"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-7, atol=1e-9, err_msg=name)
        settled = np.linalg.norm(ours._p_sigma) / math.sqrt(1 - (1 - ours._c_sigma) ** (2 * (ours._g + 1)))
        stalled += settled >= (1.4 + 2 / (len(target) + 1)) * ours._chi_n
    assert 0 < stalled < 60, "both branches of the path"


def test_random_draws_around_the_start_or_the_best():
    for around, near in (("start", torch.ones(D)), ("best", None)):
        search = climb(strategy("random", settings=RandomSection(around), noise_std=0.1), 30)
        middle = search.search.centre if near is None else near
        assert float((search.ask().worlds[1:] - middle).abs().max()) <= 0.1 * 3**0.5 + 1e-6


# ------------------------------------------------------------------------------------------------ in a run


@pytest.mark.parametrize("name", BUILT_IN)
def test_run_on_cliff_goes_on_to_the_same_bytes(tmp_path, name):
    config = load_config(GRIDWORLD_FILE, [*CLIFF, "envs.Cliff.hidden_size=4", f"agents.gtn.search={name}"])
    go(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(config, tmp_path / "stopped", dispatcher=Direct(stop_at=3))
    go(config, tmp_path / "stopped", resume=True)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_a_generation_in_which_all_failed_is_no_record(tmp_path):
    """This RN's scores are about -3,600: a record of 0 for "none" would never be beaten, and the search be stuck."""
    config = load_config(GRIDWORLD_FILE, [*CLIFF, "agents.gtn.search=random", "agents.gtn.max_iterations=3"])
    go(config, tmp_path / "run", dispatcher=Direct(failing(lambda generation, i: generation == 1)))
    state, _ = load_checkpoint(tmp_path / "run" / "checkpoint.pt", config_digest(config))
    assert state.generation == 3 and -5000 < state.values["best_score"] < 0


@pytest.mark.parametrize("name", BUILT_IN)
def test_run_of_a_cartpole_se_goes_on_to_the_same_bytes(tmp_path, name):
    words = [w for w in CARTPOLE if not any(f".{key}=" in w for key in searches.NES_KEYS)]
    config = load_config(CARTPOLE_FILE, [*words, "agents.gtn.num_workers=4", f"agents.gtn.search={name}"])
    go(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(config, tmp_path / "stopped", dispatcher=Direct(stop_at=2))
    go(config, tmp_path / "stopped", resume=True)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_single_killed_goes_on_to_the_same_bytes(tmp_path, name):
    words = [w for w in CARTPOLE if not any(f".{key}=" in w for key in searches.NES_KEYS)]
    words += ["agents.gtn.num_workers=4", "agents.gtn.max_iterations=12", f"agents.gtn.search={name}"]

    def master(*arguments):
        command = [sys.executable, str(ROOT / "GTN_master.py"), *map(str, arguments), "--workers", "1"]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=default_sigint
        )

    def only(folder):
        (run,) = [p for p in folder.iterdir() if (p / "config.yaml").exists()]
        return run

    begin = (CARTPOLE_FILE, "--single", "--set", *words, "--results-dir")
    whole = master(*begin, tmp_path / "whole")
    assert whole.wait(180) == 0, whole.stdout.read()
    killed = master(*begin, tmp_path / "killed")
    until = time.monotonic() + 180
    while not list((tmp_path / "killed").glob("*/checkpoint.pt")):
        assert killed.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    again = master("--resume", only(tmp_path / "killed"))
    assert again.wait(180) == 0, again.stdout.read()
    assert files(only(tmp_path / "killed")) == files(only(tmp_path / "whole"))


# ------------------------------------------------------------------------------------------------ refusals


def refused(*overrides, file=ROOT / PLAIN) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    assert len(caught.value.problems) == 1, caught.value.problems
    assert "\n" not in caught.value.problems[0]
    return caught.value.problems[0]


def written(tmp_path: Path, gtn: str, more: str = "") -> Path:
    path = tmp_path / "mine.yaml"
    text = f"env_name: Cliff\nagents:\n  gtn: {{agent_name: QL, synthetic_env_type: 1, {gtn}}}\n  ql: {{}}\n"
    path.write_text(text + more + "envs:\n  Cliff: {reward_env_type: 2}\n")
    return path


def test_keys_of_nes_with_another_search_are_refused_where_both_are_set(tmp_path):
    found = refused(file=written(tmp_path, "search: snes, step_size: 0.5"))
    assert "mine.yaml:3 agents.gtn.step_size: found 0.5, expected 1.0, its default, with search snes" in found
    assert "only nes reads it; snes has agents.snes.lr_mean" in found
    found = refused("agents.gtn.search=sep_cma", "agents.gtn.mirrored_sampling=false")
    assert "--set agents.gtn.mirrored_sampling" in found
    assert "sep_cma draws num_workers worlds and never mirrors" in found
    found = refused("agents.gtn.search=openai_es", "agents.gtn.mirrored_sampling=false")
    assert "openai_es always mirrors" in found


@pytest.mark.parametrize("name", BUILT_IN)
def test_search_on_top_of_a_file_for_nes_ignores_its_keys_and_says_so(name):
    config = load_config(ROOT / PLAIN, [f"agents.gtn.search={name}", "agents.gtn.num_workers=16"])
    (said,) = [w for w in config.warnings if "only search nes reads them" in w]
    assert "agents.gtn.step_size" in said and "agents.gtn.estimator" in said and name in said
    gtn = config.data["agents"]["gtn"]
    assert gtn["estimator"] == "published" and gtn["step_size"] == 1.0 and gtn["noise_std"] == 0.05


def test_nes_keeps_its_keys_and_gets_no_section():
    config = load_config(ROOT / PLAIN)
    assert config.data["agents"]["gtn"]["step_size"] == 0.02 and not set(BUILT_IN) & set(config.data["agents"])


def test_settings_are_checked_and_the_nearest_key_is_named(tmp_path):
    found = refused(file=written(tmp_path, "search: snes", "  snes: {lr_meen: 2}\n"))
    assert "mine.yaml:5 agents.snes.lr_meen: found an unknown key" in found and "did you mean lr_mean" in found
    assert "agents.openai_es.beta1: found 1.0, expected a number" in refused(
        "agents.gtn.search=openai_es", "agents.openai_es.beta1=1.0"
    )
    assert "did you mean start" in refused("agents.gtn.search=random", "agents.random.around=strt")
    assert "did you mean sep_cma" in refused("agents.gtn.search=sepcma")
    assert "did you mean agents.snes.lr_sigma" in refused("agents.gtn.search=snes", "agents.snes.lr_sigm=1")
    config = load_config(ROOT / PLAIN, ["agents.gtn.search=snes", "agents.snes.lr_mean=2"])
    assert config.data["agents"]["snes"] == {"lr_mean": 2.0, "lr_sigma": 0.0}


def test_cma_refuses_worlds_that_are_too_large_and_names_sep_cma():
    found = refused("agents.gtn.search=cma", "agents.cma.max_gib=0.4")
    assert "agents.gtn.search: found cma, whose covariance of 2,247 numbers takes about 0.5 GiB" in found
    assert "expected at most 0.4 GiB (agents.cma.max_gib): sep_cma, which needs no matrix" in found
    load_config(ROOT / PLAIN, ["agents.gtn.search=cma", "agents.gtn.num_workers=64"])
    assert memory(1500) == pytest.approx(194 * 2**20, rel=0.1)  # measured
    with pytest.raises(SearchError, match="agents.gtn.search: found cma, whose covariance .* sep_cma"):
        strategy("cma", settings=CMASection(max_gib=1e-6))


def test_too_few_worlds_and_a_missing_package_are_one_line(monkeypatch):
    assert "agents.gtn.num_workers: found 3, expected at least 4" in refused(
        "agents.gtn.search=sep_cma", "agents.gtn.num_workers=3"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None)
    found = refused("agents.gtn.search=cma", "agents.gtn.num_workers=8")
    assert "expected the package cmaes, which is not installed: pip install 'envolve[cma]'" in found
    assert CMA.refusal(5, GTNSection(), CMASection()) is not None
    load_config(ROOT / PLAIN, ["agents.gtn.search=snes"])


@pytest.mark.parametrize("name", BUILT_IN)
def test_state_of_another_shape_is_refused_in_one_line(name):
    state = climb(strategy(name), 2).state
    for key, value in state.values.items():
        for bad in ("text", float("nan"), torch.zeros(3), torch.full((D,), float("inf")), torch.zeros(D).int()):
            if bad == "text" or type(value) is not type(bad) or isinstance(bad, torch.Tensor) or bad != bad:
                with pytest.raises(SearchError) as caught:
                    strategy(name, OwnState(name, {**state.values, key: bad}, 2))
                assert "\n" not in str(caught.value) and key in str(caught.value)
        with pytest.raises(SearchError):
            strategy(name, OwnState(name, {k: v for k, v in state.values.items() if k != key}, 2))


def test_own_search_may_have_settings_too(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import dataclasses, envolve\n@dataclasses.dataclass(frozen=True)\nclass Section:\n"
        "    width: float = envolve.option(0.5, 'of a draw', gt=0)\n"
        "class Mine(envolve.Search):\n    section_class = Section\n"
        "    def ask(self): return self.centre + self.settings.width * self.noise(4)\n"
        "    def tell(self, scores): self.centre = self.centre + 0\n"
        "    def state(self): return {}\n    def restore(self, state): pass\n"
    )
    gtn = "search: mine.py:Mine, step_size: 0.5, max_iterations: 2, num_workers: 3, comparison_agents: 0"
    config = load_config(written(tmp_path, gtn, "  mine: {width: 0.25}\n"))
    assert config.data["agents"]["mine"] == {"width": 0.25}
    assert config.data["agents"]["gtn"]["step_size"] == 0.5, "a search of the user's own may read every key"
    go(config, tmp_path / "run")
    assert "did you mean width" in refused(file=written(tmp_path, gtn, "  mine: {widht: 1}\n"))
    assert "found 0, expected a number > 0 (of a draw)" in refused("agents.mine.width=0", file=written(tmp_path, gtn))
