"""``init: distilled``: what it asks for, what a worker answers, and how a run begins with it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envolve.envs.outside.task import OutsideTask
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.best_paid import greedy
from envolve.envs.worlds.file import read_world
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError, config_of
from envolve.outer.distil import bandit, begin
from envolve.outer.distil.begin import TRIES, spread
from envolve.outer.distil.first_world import best_expert
from envolve.outer.distil.policy import of_observation, play
from envolve.outer.distil.pupils import COSTS, OF_EACH, judged
from envolve.outer.evaluate.networks import BUDGET, DISTIL, evaluate
from envolve.outer.run import config_digest
from envolve.outer.search.nes import CHOOSING, COMPARISON, EXPERTS, fresh_seeds, member_seeds
from tests.outer.test_run import Direct, files, go

CARTPOLE: dict[str, Any] = {
    "env_name": "CartPole-v0", "seed": 0,
    "agents": {
        "gtn": {"agent_name": "DDQN", "init": "distilled", "num_workers": 2, "max_iterations": 1, "num_orig_evals": 2,
                "comparison_agents": 0, "estimator": "antithetic"},
        "expert": {"agents": 2},
        "ddqn_expert": {"train_steps": 4000, "train_episodes": 200, "hidden_size": 32, "hidden_layer": 1, "lr": 2e-3,
                        "eps_init": 1.0, "eps_min": 0.02, "eps_decay": 0.9, "gamma": 0.99, "test_episodes": 5},
        "ddqn": {"train_steps": 1500, "train_episodes": 1500, "hidden_size": 32, "hidden_layer": 1, "lr": 2e-3,
                 "eps_init": 1.0, "eps_min": 0.05, "eps_decay": 0.998, "init_episodes": 0, "test_episodes": 5},
    },
    "envs": {"CartPole-v0": {"contextual_bandit": True, "hidden_size": 32, "hidden_layer": 1}},
}  # fmt: skip


def changed(**agents: Any) -> dict[str, Any]:
    raw = copy.deepcopy(CARTPOLE)
    for key, values in agents.items():
        raw["agents"].setdefault(key, {}).update(values)
    return raw


WHOLE = bandit.minimise


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes every fit so many times shorter: nine of ten seconds of these tests were fits."""

    def shorten(times: int) -> None:
        monkeypatch.setattr(bandit, "minimise", lambda flat, loss, steps: WHOLE(flat, loss, max(1, steps // times)))

    return shorten


EXPERT_SEEDS = torch.from_numpy(member_seeds(0, COMPARISON, EXPERTS, 2))  # of a run of CARTPOLE


@pytest.fixture(scope="module")
def taught() -> Callable[[int], dict[str, Any]]:
    """What a worker answers where fits are so many times shorter."""

    @lru_cache(maxsize=None)
    def answer(times: int) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bandit, "minimise", lambda flat, loss, steps: WHOLE(flat, loss, steps // times))
            return evaluate(config_of(CARTPOLE, (), "test").data, torch.zeros(2, 1), EXPERT_SEEDS, DISTIL)

    return answer


def test_contexts_of_a_finite_task_come_as_often_as_they_were_visited(
    monkeypatch: pytest.MonkeyPatch, short: Callable[[int], None]
) -> None:
    """Three states as one-hot codes beside a feature that never changed. Its reward is not looked at."""
    short(10)
    task, section = make_task("CartPole-v0"), EnvSection(contextual_bandit=True, hidden_size=32, hidden_layer=1)
    monkeypatch.setattr(type(task), "codes", ((0, 3),))
    share = torch.tensor([0.6, 0.1, 0.3])
    states = torch.eye(3).repeat_interleave((1000 * share).long(), 0)
    contexts = torch.cat((states, torch.zeros(1000, 1)), 1)
    flat = bandit.fit_bandit(task, section, contexts, lambda x: x[:, :3].argmax(1) % 2, 5, steps=10)
    world = synthetic_world(task, section, flat[None])
    drawn = world.reset(torch.rand(1, 4000, 4, generator=torch.Generator().manual_seed(0)))[0]
    assert 0.5 * (drawn[:, :3].mean(0) - share).abs().sum() < 0.1  # total variation
    assert drawn[:, 3].abs().mean() < 0.1


@pytest.mark.parametrize("times, share", [pytest.param(1, 0.8, marks=pytest.mark.slow), (50, 0.3)])
def test_an_experts_world_is_greedily_as_good_as_the_expert(
    times: int, share: float, short: Callable[[int], None], taught: Callable[[int], dict[str, Any]]
) -> None:
    """A world that teaches nothing gives 0.05."""
    short(times)
    data, values = config_of(CARTPOLE, (), "test").data, taught(times)
    again = evaluate(data, torch.zeros(1, 1), EXPERT_SEEDS[1:], DISTIL)
    assert torch.equal(values["world"][1:], again["world"]), "a member's world depends on its chunk"
    best = int(values["score"].argmax())
    assert values["score"][best] > 100, values["score"]
    assert (values["real_steps"] > 4000).all(), "training, tests and contexts"
    task = make_task("CartPole-v0")
    world = synthetic_world(task, problem.env_section(data), values["world"][best : best + 1])
    found = play(task, greedy(world), np.array([9]), 20).returns.mean()
    assert found > share * float(values["score"][best]), (found, values["score"])


@pytest.mark.parametrize(
    "agents, env, words",
    [
        ({}, {"contextual_bandit": False}, "is taught by a bandit"),
        ({"expert": {"learner": "ddpq"}}, {}, "did you mean ddqn"),
        ({"expert": {"learner": "ql"}}, {}, "a learner with networks for CartPole-v0"),
        ({"expert": {"learner": "duelingddqn"}}, {}, "no section agents.duelingddqn_expert"),
        ({"ddqn_expert": {"train_steps": 0}}, {}, "the expert's budget of steps"),
        ({"expert": {"agents": 0}}, {}, "agents.expert.agents"),
        ({"gtn": {"init": "destilled"}}, {}, "did you mean distilled"),
    ],
)
def test_what_cannot_be_distilled_is_said(agents: dict[str, Any], env: dict[str, Any], words: str) -> None:
    raw = changed(**agents)
    raw["envs"]["CartPole-v0"].update(env)
    with pytest.raises(ConfigError, match=words):
        config_of(raw, (), "test")


def test_runs_that_began_before_there_was_a_choice_go_on() -> None:
    raw = changed(gtn={"init": "random"})
    config = config_of(raw, (), "test")
    before = config_digest(config)
    del config.data["agents"]["gtn"]["init"]
    assert config_digest(config) == before
    assert config_digest(config_of(CARTPOLE, (), "test")) != before


@pytest.mark.parametrize("name, key", [("td3", "twin"), ("ppo", "squash")])
def test_runs_that_began_before_learners_had_these_keys_go_on(name: str, key: str) -> None:
    raw = {"env_name": "Pendulum-v0", "agents": {"gtn": {"agent_name": name}, name: {}}, "envs": {"Pendulum-v0": {}}}
    config = config_of(raw, (), "test")
    before = config_digest(config)
    assert config.data["agents"][name].pop(key) is True
    assert config_digest(config) == before
    config.data["agents"][name][key] = False
    assert config_digest(config) != before


def test_runs_that_began_before_contexts_were_stored_go_on() -> None:
    config = config_of(CARTPOLE, (), "test")
    before = config_digest(config)
    assert config.data["envs"]["CartPole-v0"].pop("stored_contexts") == 0
    assert config_digest(config) == before
    config.data["envs"]["CartPole-v0"]["stored_contexts"] = 9
    assert config_digest(config) != before


def test_noise_on_contexts_is_in_units_of_each_feature_and_spares_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("CartPole-v0")
    states = torch.tensor([1.0, 10.0, 0.1, 0.0]) * torch.randn(20_000, 4, generator=torch.Generator().manual_seed(0))
    assert spread(task, states, 0.0, 5) is states
    added = spread(task, states, 0.5, 5) - states
    assert torch.allclose(added.std(0), 0.5 * states.std(0), rtol=0.05)
    assert torch.equal(spread(task, states, 0.5, 5), spread(task, states, 0.5, 5))
    assert not torch.equal(spread(task, states, 0.5, 5), spread(task, states, 0.5, 6))
    monkeypatch.setattr(type(task), "codes", ((0, 2),))
    assert torch.equal(spread(task, states, 0.5, 5)[:, :2], states[:, :2])


def test_a_run_begins_with_the_best_experts_world_and_counts_its_steps(
    tmp_path: Path, short: Callable[[int], None], taught: Callable[[int], dict[str, Any]]
) -> None:
    short(50)
    config = config_of(CARTPOLE, (), "test")
    said, _ = go(config, tmp_path / "first")
    assert "training 2 ddqn experts, 4,000 steps each, on CartPole-v0" in said
    world = read_world(str(tmp_path / "first" / "model.pt"))
    assert world.score > 40, "agents that learn nothing reach 10"
    assert world.evolution_steps is not None and world.evolution_steps > 8000
    values = taught(50)
    assert torch.equal(world.flat, values["world"][int(values["score"].argmax())]), "the first generation's centre"
    first = read_world(str(tmp_path / "first" / "distilled.pt"))
    assert torch.equal(first.flat, world.flat) and first.score == float(values["score"].max())
    assert first.evolution_steps == int(values["real_steps"].sum()) < world.evolution_steps


def test_pupils_choose_the_expert_and_its_contexts(
    tmp_path: Path, short: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    short(250)
    brief = {"ddqn_expert": {"train_steps": 1500}, "ddqn": {"train_steps": 400, "train_episodes": 400}}
    config = config_of(changed(expert={"chosen_by": "pupils"}, **brief), (), "test")
    seeds, pupils = fresh_seeds(0, EXPERTS, 2), fresh_seeds(0, CHOOSING, OF_EACH)
    able, means, steps = [], [], 0
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(begin, "judged", lambda data, worlds, threads: seen.append(worlds) or judged(data, worlds, 1))
    found = evaluate(config.data, torch.zeros(2, 1), seeds, DISTIL)
    for noise in (0.0, 0.3):
        plain = config_of(changed(expert={"context_noise": noise}, **brief), (), "test")
        some = evaluate(plain.data, torch.zeros(2, 1), seeds, DISTIL)["world"]
        assert all(any(torch.equal(world, other) for other in worlds) for world, worlds in zip(some, seen))
    assert [len(worlds) for worlds in seen] == [len(TRIES)] * 2
    for worlds in seen:
        for world in worlds:
            tested = evaluate(config.data, world.expand(OF_EACH, -1), pupils, BUDGET)
            able.append(world)
            means.append(float(tested["score"].mean()))
            steps += int(tested["real_steps"].sum())
    assert len(set(means)) == len(means)
    said, _ = go(config, tmp_path / "whole")
    assert "the first world teaches the expert with the best pupils (ddqn" in said
    first = read_world(str(tmp_path / "whole" / "distilled.pt"))
    assert torch.equal(first.flat, able[int(np.argmax(means))])
    assert first.evolution_steps == int(found["real_steps"].sum()) > steps + 2 * 1500
    with pytest.raises(KeyboardInterrupt):
        go(config, tmp_path / "stopped", dispatcher=Direct(stop_at=1))
    go(config, tmp_path / "stopped", resume=True)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_a_failed_pupil_counts_as_the_worst_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.arange(2.0 * OF_EACH, dtype=torch.float64)
    scores[-1] = torch.nan
    made = {"score": scores, **{name: torch.ones(2 * OF_EACH, dtype=torch.int64) for name in COSTS}}
    monkeypatch.setattr("envolve.outer.evaluate.networks.evaluate", lambda *args: made)
    means, spent = judged({"seed": 0}, torch.zeros(2, 5), 1)
    assert means.tolist() == [scores[:OF_EACH].mean(), scores[OF_EACH:-1].sum() / OF_EACH]
    assert spent == dict.fromkeys(COSTS, 2 * OF_EACH)


@pytest.mark.parametrize("returns, taught, best", [
    ([1.0, 3.0, 2.0], None, 1), ([1.0, 3.0, 2.0], [5.0, 1.0, 4.0], 0), ([1.0, 3.0, 2.0], [math.nan, 1.0, 4.0], 2),
    ([1.0, 3.0, 2.0], [4.0, 1.0, 4.0], 2),  # equal pupils: the better expert
])  # fmt: skip
def test_the_best_expert(returns: list[float], taught: list[float] | None, best: int) -> None:
    assert best_expert(np.array(returns), None if taught is None else np.array(taught)) == best


def test_an_on_policy_learner_may_be_the_expert(short: Callable[[int], None]) -> None:
    """PPO of 16 environments; its world is greedily nearly as good. A world that teaches nothing gives 10."""
    short(20)
    section = {"num_envs": 16, "rollout_steps": 64, "minibatches": 8, "ppo_epochs": 10, "advantage": "gae", "lr": 3e-3,
               "norm_advantage": True, "orthogonal_init": True, "train_steps": 15_000, "train_episodes": 15_000,
               "test_episodes": 5}  # fmt: skip
    data = config_of(changed(expert={"learner": "ppo", "agents": 1}, ppo_expert=section), (), "test").data
    values = evaluate(data, torch.zeros(1, 1), EXPERT_SEEDS[:1], DISTIL)
    assert float(values["score"][0]) > 150 and values["real_steps"][0] >= 15_000
    task = make_task("CartPole-v0")
    world = synthetic_world(task, problem.env_section(data), values[begin.WORLD])
    assert play(task, greedy(world), np.array([3]), 10).returns.mean() > 100


def test_learners_of_experts_take_turns() -> None:
    raw = changed(expert={"learner": "DDQN duelingddqn", "agents": 3}, duelingddqn_expert={"train_steps": 50})
    data = config_of(raw, (), "test").data
    assert [problem.expert(own)[0] for own in problem.experts(data)] == ["ddqn", "duelingddqn", "ddqn"]
    assert problem.expert(data)[1].train_steps == 4000 and data["agents"]["expert"]["learner"] == "ddqn duelingddqn"
    with pytest.raises(ConfigError, match=r"agents.expert.learner.*ars"):
        config_of(changed(expert={"learner": "ddqn ars"}), (), "test")


def test_a_run_that_is_stopped_trains_its_experts_once_more_only_if_they_were_not_ready(
    tmp_path: Path, short: Callable[[int], None]
) -> None:
    short(200)
    few = {"ddqn_expert": {"train_steps": 400}, "ddqn": {"train_steps": 100}}
    config = config_of(changed(gtn={"max_iterations": 2}, **few), (), "test")
    whole = tmp_path / "whole"
    go(config, whole)
    for stop in (0, 1, 2):  # in the experts, in the first generation, in the second
        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            go(config, folder, dispatcher=Direct(stop_at=stop))
        said, _ = go(config, folder, resume=True)
        assert ("training 2 ddqn experts" in said) == (stop == 0)
        assert files(folder) == files(whole)
        assert (folder / "distilled.pt").read_bytes() == (whole / "distilled.pt").read_bytes()


@pytest.mark.parametrize("gain, kept", [(5.0, "former"), (0.1, "latter"), (-5.0, "latter"), (math.nan, "latter")])
def test_the_best_world_is_kept_if_fresh_agents_confirm_that_it_beats_the_first(
    gain: float, kept: str, tmp_path: Path, short: Callable[[int], None]
) -> None:
    """Generation 2 has the highest score. gain: of fresh agents in its world, whose standard error is 2.3."""
    short(500)
    gtn = {"max_iterations": 3, "keep": "confirmed", "confirm_agents": 4}
    config = config_of(changed(gtn=gtn, ddqn_expert={"train_steps": 100}, ddqn={"train_steps": 20}), (), "test")
    counted = []

    def scored(chunk: Any, values: dict[str, Any]) -> dict[str, Any]:
        if chunk.mode == DISTIL:
            return values
        if chunk.mode != BUDGET:
            return {**values, "score": 9 + (chunk.generation == 2) + torch.arange(len(chunk.seeds)).double() / 100}
        counted.append(int(values["real_steps"].sum()))
        best = gain + torch.tensor([-4.0, 4.0, -4.0, 4.0]).double()
        return {**values, "score": torch.cat((best + 10, torch.full((4,), 10.0).double()))}

    said, _ = go(config, tmp_path / "whole", dispatcher=Direct(scored))
    assert f"in the world of generation 2, 10 in the first one, so the {kept} is kept" in said
    first, model = (read_world(str(tmp_path / "whole" / name)) for name in ("distilled.pt", "model.pt"))
    assert torch.equal(first.flat, model.flat) == (kept == "latter")
    assert model.score == (10.0 if kept == "latter" else 15.0)
    before = counted.copy()
    go(config, tmp_path / "whole", resume=True, dispatcher=Direct(scored))
    assert files(tmp_path / "whole")[0] and counted == 2 * before
    assert read_world(str(tmp_path / "whole" / "model.pt")).evolution_steps == model.evolution_steps


@pytest.mark.parametrize("gtn, words", [
    ({"init": "random", "keep": "confirmed"}, r"keep: found confirmed, expected best or last: only a run with init"),
    ({"keep": "confirmed", "confirm_agents": 1}, r"confirm_agents: found 1, expected at least 2 for keep: confirmed"),
])  # fmt: skip
def test_a_first_world_to_compare_with_and_agents_for_it_are_demanded(gtn: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(changed(gtn=gtn), (), "test")


@pytest.mark.parametrize("search", ["nes", "random"])
def test_after_a_collapse_a_resumed_run_and_one_that_never_stopped_begin_from_the_same_world(
    search: str, tmp_path: Path, short: Callable[[int], None]
) -> None:
    """A random one: neither the world that experts taught nor another one than in one go."""
    short(500)
    gtn = {"max_iterations": 3, "num_workers": 4, "collapse_generations": 1, "search": search, "estimator": "published"}
    config = config_of(changed(gtn=gtn, ddqn_expert={"train_steps": 100}, ddqn={"train_steps": 20}), (), "test")

    def flat(chunk: Any, values: dict[str, Any]) -> dict[str, Any]:  # from the second generation on
        return {**values, "score": 150.0 * (chunk.generation < 2) * torch.arange(len(chunk.seeds)).double()}

    said, _ = go(config, tmp_path / "whole", dispatcher=Direct(flat))
    assert said.count("collapsed") == 1 and "generation 2: the world collapsed" in said
    for stop in (2, 3):  # in the second generation, in the third
        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            go(config, folder, dispatcher=Direct(flat, stop_at=stop))
        go(config, folder, resume=True, dispatcher=Direct(flat))
        assert files(folder) == files(tmp_path / "whole")


def test_a_lost_first_world_is_one_line(tmp_path: Path, short: Callable[[int], None]) -> None:
    """Random search draws around it."""
    short(500)
    gtn = {"max_iterations": 2, "num_workers": 4, "search": "random"}
    raw = changed(gtn=gtn, ddqn_expert={"train_steps": 100}, ddqn={"train_steps": 20})
    del raw["agents"]["gtn"]["estimator"]
    config = config_of(raw, (), "test")
    with pytest.raises(KeyboardInterrupt):
        go(config, tmp_path, dispatcher=Direct(stop_at=2))
    (tmp_path / "distilled.pt").unlink()
    with pytest.raises(RunError, match="distilled.pt.*needs it to go on"):
        go(config, tmp_path, resume=True)


@pytest.mark.parametrize("shape, words", [(None, "no returns of pupils"), ((1, 3), r"returns of pupils \[2, 3\]")])
def test_returns_of_pupils_that_do_not_fit_are_one_line(
    tmp_path: Path, short: Callable[[int], None], shape: tuple[int, ...] | None, words: str
) -> None:
    short(500)

    def other(chunk: Any, values: dict[str, Any]) -> dict[str, Any]:
        left = {k: v for k, v in values.items() if k != begin.TAUGHT}
        return left if shape is None else {**left, begin.TAUGHT: torch.zeros(shape, dtype=torch.float64)}

    raw = changed(expert={"chosen_by": "pupils"}, ddqn_expert={"train_steps": 100}, ddqn={"train_steps": 20})
    config = config_of(raw, (), "test")
    with pytest.raises(RunError, match=f"workers sent {words}, expected one of each of the 2 experts"):
        go(config, tmp_path, dispatcher=Direct(other))


@pytest.mark.parametrize(
    "world, words",
    [
        (None, "no worlds"),
        (torch.zeros(1, 3), r"torch.float32 \[3\]"),
        (torch.full((1, 1), torch.nan), r"torch.float32 \[1\]"),
    ],
)
def test_worlds_that_do_not_fit_are_one_line(
    tmp_path: Path, short: Callable[[int], None], world: torch.Tensor | None, words: str
) -> None:
    short(500)

    def other(chunk: Any, values: dict[str, Any]) -> dict[str, Any]:
        left = {k: v for k, v in values.items() if k != begin.WORLD}
        return left if world is None else {**left, begin.WORLD: world}

    config = config_of(changed(ddqn_expert={"train_steps": 100}), (), "test")
    with pytest.raises(RunError, match=f"workers distilled {words}, expected finite numbers, float32"):
        go(config, tmp_path, dispatcher=Direct(other))


def test_a_run_says_why_no_expert_has_a_world(tmp_path: Path, short: Callable[[int], None]) -> None:
    short(500)

    def fail(chunk: Any, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "score": values["score"] * float("nan"), "reason": ["it diverged"]}

    with pytest.raises(RunError, match="all experts failed, the first because it diverged"):
        go(config_of(changed(ddqn_expert={"train_steps": 100}), (), "test"), tmp_path / "run", dispatcher=Direct(fail))


def test_returns_of_an_environment_from_outside_are_its_own(warm) -> None:
    raw = {
        "env_name": "gymnasium:Pendulum-v1",
        "seed": 0,
        "agents": {"gtn": {"agent_name": "TD3"}, "td3": {}},
        "envs": {"gymnasium:Pendulum-v1": {}},
    }
    config_of(raw, (), "test")
    task = make_task("gymnasium:Pendulum-v1")
    assert isinstance(task, OutsideTask) and task.reward_scale != 1
    policy = of_observation(task, lambda x: torch.zeros(*x.shape[:2], 1))
    played = play(task, policy, np.array([1]), 3)
    assert (played.returns < -500).all() and played.steps.tolist() == [600]
    assert not task._live, "environments were not given back"
