"""outer/hpo/study*.py: what a study says, what is refused and in which words, and what its digest is over."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from envolve.envs.outside.build import class_in_file
from envolve.envs.outside.measure import _measure
from envolve.envs.task import make_task
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.world import world_size
from envolve.outer.config import problem
from envolve.outer.config.load import Config, load_config, store_config
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.study import Study, dump_study, read_study

ROOT = Path(__file__).resolve().parents[3]
BASE = "default_config_cartpole_syn_env_paper.yaml"
GOOD: dict[str, Any] = {
    "config": str(ROOT / BASE),
    "set": {"agents.gtn.quit_when_solved": True, "agents.gtn.num_workers": 4},
    "evaluate": "nes",
    "loss": "generations",
    "repeats": 3,
    "search": {"backend": "bohb", "parallel": 2, "seed": 5},
    "budget": {"unit": "generations", "least": 5, "most": 45, "eta": 3},
    "stop": {"full_evaluations": 20},
    "space": {
        "agents.gtn.step_size": {"range": [0.1, 1], "log": True},
        "agents.gtn.mirrored_sampling": {"choices": [True, False]},
        "agents.ddqn.batch_size": {"range": [64, 256]},
        "agents.ddqn.gamma": {"one_minus": [0.001, 0.1], "log": True},
    },
}


ON_MIRRORED = {"agents.gtn.mirrored_sampling": [True]}


def write(tmp_path: Path, content: object, name: str = "s.yaml") -> Path:
    path = tmp_path / name
    text = content if isinstance(content, (str, bytes)) else yaml.safe_dump(content, sort_keys=False)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def changed(dotted: str, value: object) -> dict[str, Any]:
    """GOOD with one key set ("search/seed"), or without it (value ...)."""
    out = copy.deepcopy(GOOD)
    *sections, key = dotted.split("/")
    at = out
    for section in sections:
        at = at[section]
    if value is ...:
        del at[key]
    else:
        at[key] = value
    return out


def read(tmp_path: Path, content: object, *overrides: str) -> Study:
    return read_study(write(tmp_path, content), overrides)


def problems(tmp_path: Path, content: object, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content, *overrides)
    assert caught.value.problems
    return [p.replace(str(tmp_path / "s.yaml"), "FILE") for p in caught.value.problems]


def test_a_study_holds_what_its_file_says(tmp_path: Path) -> None:
    study = read(tmp_path, GOOD)
    assert (study.name, study.path) == ("s", str(tmp_path / "s.yaml"))
    assert (study.evaluate, study.loss, study.repeats, study.agents, study.worlds) == ("nes", "generations", 3, 10, ())
    assert (study.backend, study.bracket, study.seed, study.parallel) == ("bohb", "hyperband", 5, 2)
    assert study.random_fraction == pytest.approx(1 / 3)
    assert (study.budget.unit, study.budget.least, study.budget.most, study.budget.eta) == ("generations", 5, 45, 3)
    assert (study.full_evaluations, study.trials) == (20, None)
    gtn = problem.gtn_section(study.config.data)
    assert (gtn.quit_when_solved, gtn.num_workers) == (True, 4)
    assert len(study.digest) == 64


def test_the_base_is_found_from_the_file_and_may_be_in_it(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "base.yaml").write_bytes((ROOT / BASE).read_bytes())
    relative = read_study(write(tmp_path / "studies", changed("config", "../base.yaml")))
    inline = read(tmp_path, changed("config", yaml.safe_load((ROOT / BASE).read_text())))
    assert relative.digest == inline.digest == read(tmp_path, GOOD).digest


CORRIDOR = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0
        return np.array([0], np.float32), {}

    def step(self, action):
        self.x = max(0, self.x + (1 if action else -1))
        return np.array([self.x], np.float32), -1.0, self.x == 5, False, {}
"""


def test_the_base_may_name_files_of_the_users_own_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment and a search: the folder of the search then has all that another process needs."""

    def measured(
        name: str, section: dict[str, Any], seed: int, path: str
    ) -> dict[str, Any]:  # in no process of its own
        return _measure(name, section, seed, class_in_file(name, section["sha256"]))

    monkeypatch.setattr("envolve.outer.config.outside.measure", measured)
    name, base, run_dir = "gymnasium:my_corridor.py:Corridor", tmp_path / "base", tmp_path / "run"
    for folder in (base, run_dir):
        folder.mkdir()
    (base / "my_corridor.py").write_text(CORRIDOR)
    (base / "my_search.py").write_bytes((ROOT / "examples" / "my_search.py").read_bytes())
    raw = {
        "env_name": name,
        "agents": {"gtn": {"agent_name": "DDQN", "search": "my_search.py:MyES"}, "ddqn": {}},
        "envs": {name: {"hidden_size": 8, "max_steps": 12}},
    }
    write(base, raw, "base.yaml")
    content = {**GOOD, "config": "base/base.yaml", "set": {}, "space": {"agents.gtn.noise_std": {"range": [0.1, 1]}}}
    study = read(tmp_path, {**content, "loss": "score"})
    member = study.member_config({"agents.gtn.noise_std": 0.5})
    assert member.data["agents"]["gtn"]["search"] == "MyES" and "sha256" in member.data["envs"][name]
    store_config(run_dir, study.config)
    (run_dir / "study.yaml").write_text(dump_study(study))
    assert (run_dir / "my_corridor.py").read_text() == CORRIDOR and (run_dir / "my_search.py").is_file()
    assert read_study(run_dir / "study.yaml").digest == study.digest
    (run_dir / "my_corridor.py").write_text(CORRIDOR + "# changed")
    with pytest.raises(ConfigError, match="another version of my_corridor.py"):
        read_study(run_dir / "study.yaml")
    content["config"] = {**raw, "env_name": "gymnasium:my_corridoor.py:Corridor"}
    assert any("did you mean" in problem for problem in problems(tmp_path / "base", content))


def test_a_member_is_the_base_with_the_values_of_a_trial(tmp_path: Path) -> None:
    study = read(tmp_path, GOOD)
    values = {"agents.gtn.step_size": 0.5, "agents.gtn.mirrored_sampling": False, "agents.ddqn.batch_size": 100}
    member = study.member_config({**values, "1-agents.ddqn.gamma": 0.01})
    expected = copy.deepcopy(study.config.data)
    expected["agents"]["gtn"].update(step_size=0.5, mirrored_sampling=False)
    expected["agents"]["ddqn"].update(batch_size=100, gamma=0.99)
    assert isinstance(member, Config) and member.data == expected
    assert study.config.data["agents"]["gtn"]["step_size"] == 0.148  # the base stays as it was
    (tmp_path / "member.yaml").write_text(yaml.safe_dump(member.data))
    assert load_config(tmp_path / "member.yaml").data == member.data


@pytest.mark.parametrize(
    "values, words",
    [
        ({"agents.gtn.step_size": 2.0}, "found 2.0 (float), expected a number from 0.1 to 1.0"),
        ({"agents.gtn.step_size": "0.5"}, "found '0.5' (str)"),
        ({"agents.ddqn.batch_size": 64.0}, "found 64.0 (float), expected an integer from 64 to 256"),
        ({"agents.gtn.mirrored_sampling": 1}, "found 1 (int), expected one of true, false"),
        ({"agents.ddqn.lr": 0.1}, "agents.ddqn.lr: found an unknown parameter"),
        ({"1-agents.ddqn.gamma": None}, "found nothing (NoneType)"),
    ],
)
def test_values_that_are_no_point_of_the_space_are_refused(tmp_path: Path, values: dict, words: str) -> None:
    study = read(tmp_path, GOOD)
    good = {"agents.gtn.step_size": 0.5, "agents.gtn.mirrored_sampling": False, "agents.ddqn.batch_size": 100}
    good["1-agents.ddqn.gamma"] = 0.01
    with pytest.raises(ConfigError, match="expected") as caught:
        study.member_config({**good, **values})
    assert len(caught.value.problems) == 1 and words in caught.value.problems[0]
    del good["agents.gtn.step_size"]
    with pytest.raises(ConfigError, match="agents.gtn.step_size: found nothing, expected a value"):
        study.member_config(good)


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("config", ..., "FILE:1 config: found nothing, expected a value: a study needs config, evaluate"),
        ("config", 3, "FILE:1 config: found 3, expected the path of a configuration"),
        ("config", "default_config_cartpole_syn_env.yml", "found no readable file"),
        ("config", {"env_name": "CartPole-v0"}, "FILE:1 envs: found nothing, expected a mapping"),
        ("set", {"agents.gtn.noise_std": 0}, "FILE:3 agents.gtn.noise_std: found 0, expected a number > 0"),
        ("set", {"agents.gtn.noise": 1}, "FILE:3 set.agents.gtn.noise: found an unknown key"),
        ("set", {"agents.gtn.time_max": 1}, "found a key of the original that is ignored here (wall-clock"),
        ("set", [1], "FILE:2 set: found [1], expected a mapping"),
        ("set", {"agents.gtn.quit_when_solved": False}, "FILE:5 loss: found generations, expected score, or"),
        ("set", {"agents.gtn.step_size": 1}, "space.agents.gtn.step_size: found a key that is under set, too"),
        ("evaluate", "agents", "FILE:5 evaluate: found 'agents', expected one of nes, agent"),
        ("evaluate", "agent", "FILE:6 loss: found 'generations', expected one of steps, episodes, return, because"),
        ("loss", "steps", "FILE:6 loss: found 'steps', expected one of generations, score, because evaluate is nes"),
        ("loss", 1, "FILE:6 loss: found 1, expected one of generations, score, steps, episodes, return"),
        ("repeats", 0, "FILE:7 repeats: found 0, expected an integer >= 1"),
        ("agents", 5, "agents: found 5, expected no such key: only evaluate agent or goal reads it"),
        ("worlds", "x.pt", "worlds: found 'x.pt', expected no such key: only evaluate agent reads it"),
        ("search/backend", "bhob", "FILE:9 search.backend: found 'bhob', expected one of bohb, optuna, random"),
        ("search/paralel", 2, "search.paralel: found an unknown key, expected a key of search, did you mean parallel"),
        ("search", 3, "FILE:8 search: found 3, expected a mapping"),
        ("budget/unit", "agents", "FILE:13 budget.unit: found 'agents', expected one of generations, steps"),
        ("budget/unit", ..., "FILE:12 budget.unit: found nothing, expected one of generations"),
        ("budget/least", ..., "FILE:12 budget.least: found nothing, expected a number"),
        ("budget/least", 0, "FILE:14 budget.least: found 0, expected a number >= 1"),
        ("budget/least", 50, "FILE:15 budget.most: found 45, expected at least the least, 50"),
        ("budget/most", 500, "FILE:15 budget.most: found 500, expected at most agents.gtn.max_iterations"),
        ("budget/eta", 1, "FILE:16 budget.eta: found 1, expected a number > 1"),
        ("stop", {}, "FILE:17 stop: found nothing that ends the search, expected full_evaluations or trials"),
        ("stop", {"trials": 1.5}, "FILE:18 stop.trials: found 1.5, expected an integer >= 1"),
        ("space", {}, "FILE:19 space: found no key, expected at least one that varies"),
        ("spaces", {}, "spaces: found an unknown key, expected a key of a study, did you mean space"),
        ("trials", 5, "trials: found an unknown key, expected a key of a study, did you mean stop.trials"),
        ("space/agents.gtn.max_iterations", {"range": [1, 5]}, "found what the budget sets, expected a key other"),
        ("space/agents.gtn.quit_when_solved", {"choices": [True, False]}, "it in one of them"),
        ("space/agents.td3.lr", {"range": [0.1, 0.2]}, "found a key that this configuration does not read"),
        ("space/envs.Cliff.hidden_size", {"range": [1, 2]}, "found a key that this configuration does not read"),
        ("space/agents.gtn.agent_name", {"choices": ["DDQN", "TD3"]}, "agents.gtn.agent_name: found TD3, expected"),
    ],
)
def test_what_is_refused(tmp_path: Path, key: str, value: object, words: str) -> None:
    found = problems(tmp_path, changed(key, value))
    assert any(words in text for text in found), found
    assert all(": found " in text and ", expected " in text for text in found), found


def test_what_is_written_reads_back_to_the_same_digest(tmp_path: Path) -> None:
    study = read(tmp_path, GOOD)
    (tmp_path / "elsewhere").mkdir()
    again = read_study(write(tmp_path / "elsewhere", dump_study(study), "study.yaml"))
    assert (again.digest, again.config.data, again.space) == (study.digest, study.config.data, study.space)
    assert (again.full_evaluations, again.trials) == (20, None)


def test_all_problems_of_all_files_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text((ROOT / BASE).read_text().replace("noise_std: 0.0124", "noise_std: -1"))
    content = changed("config", "base.yaml")
    content["search"]["backend"], content["spice"] = "bhob", 1
    content["space"]["agents.gtn.step_size"] = {"range": [0, 1]}
    found = problems(tmp_path, content)
    assert len(found) == 4
    assert any(f"{tmp_path}/base.yaml:18 agents.gtn.noise_std: found -1" in text for text in found)
    assert [text for text in found if "space.agents.gtn.step_size.range.0: found 0, expected a number > 0" in text]


def test_what_is_no_study(tmp_path: Path) -> None:
    assert "found an empty file, expected a study" in problems(tmp_path, "")[0]
    assert "found [1, 2], expected a study" in problems(tmp_path, "[1, 2]")[0]
    assert "malformed YAML" in problems(tmp_path, "a: [")[0]
    write(tmp_path, GOOD, "cartpole.yaml")
    with pytest.raises(ConfigError, match=r"found no readable file .*, did you mean .*/cartpole\.yaml"):
        read_study(tmp_path / "cartpol.yaml")
    (tmp_path / "base.yaml").write_text("3")
    found = problems(tmp_path, changed("config", "base.yaml"))
    assert f"{tmp_path}/base.yaml:1: found 3, expected a configuration" in found[0]


# ------------------------------------------------------------------------------------------------ digest


@pytest.mark.parametrize(
    "override",
    [
        "search.seed=6", "search.parallel=3", "search.backend=random", "search.bracket=aggressive", "repeats=2",
        "search.random_fraction=0.5", "loss=score", "budget.least=4", "budget.most=44", "budget.eta=2",
        "budget.unit=steps", "agents.ddqn.lr=0.002", "seed=1", "envs.CartPole-v0.max_steps=100",
    ],
)  # fmt: skip
def test_the_digest_changes_with_what_decides_results(tmp_path: Path, override: str) -> None:
    assert read(tmp_path, GOOD, override).digest != read(tmp_path, GOOD).digest


@pytest.mark.parametrize(
    "key, value",
    [
        ("space/agents.gtn.step_size", {"range": [0.1, 0.9], "log": True}),
        ("space/agents.gtn.step_size", {"range": [0.1, 1]}),
        ("space/agents.gtn.step_size", {"range": [0.1, 1], "log": True, "when": ON_MIRRORED}),
        ("space/agents.gtn.mirrored_sampling", {"choices": [False, True]}),
        ("space/agents.ddqn.gamma", {"range": [0.9, 0.999]}),
        ("space/agents.ddqn.gamma", ...),
    ],
)
def test_the_digest_changes_with_the_space(tmp_path: Path, key: str, value: object) -> None:
    assert read(tmp_path, changed(key, value)).digest != read(tmp_path, GOOD).digest


def test_the_digest_is_not_over_paths_comments_order_or_the_end(tmp_path: Path) -> None:
    digest = read(tmp_path, GOOD).digest
    assert read(tmp_path, GOOD, "stop.full_evaluations=90", "stop.trials=7").digest == digest
    assert read(tmp_path, changed("stop", {"trials": 3})).digest == digest
    assert read(tmp_path, changed("space", dict(reversed(GOOD["space"].items())))).digest == digest
    assert read(tmp_path, "# a comment\n" + yaml.safe_dump(GOOD)).digest == digest
    assert read(tmp_path, changed("budget/least", 5.0)).digest == digest  # the same value in other words
    (tmp_path / "base.yaml").write_text((ROOT / BASE).read_text())
    assert read(tmp_path, changed("config", "base.yaml")).digest == digest


# ------------------------------------------------------------------------------------------------ overrides


def test_overrides_of_the_study_and_of_its_configuration(tmp_path: Path) -> None:
    changes = ("search.seed=7", "stop.trials=3", "agents.gtn.num_workers=8", "envs.CartPole-v0.hidden_size=5")
    study = read(tmp_path, GOOD, *changes)
    assert (study.seed, study.trials, study.full_evaluations) == (7, 3, 20)
    assert problem.gtn_section(study.config.data).num_workers == 8  # which set says as well
    assert problem.env_section(study.config.data).hidden_size == 5


def test_a_path_in_an_override_is_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "base.yaml").write_text((ROOT / BASE).read_text())
    monkeypatch.chdir(tmp_path / "here")
    assert read(tmp_path, GOOD, "config=base.yaml").config.path == str(tmp_path / "here" / "base.yaml")


@pytest.mark.parametrize(
    "override, words",
    [
        ("search.sed=3", "--set 'search.sed': found an unknown key, expected a dotted key, did you mean search.seed"),
        ("search.seed", "--set 'search.seed': found no '=', expected key=value"),
        ("search.seed=-1", "--set search.seed: found -1, expected an integer >= 0"),
        ("space.agents.ddqn.lr=3", "found an unknown key"),
        ("agents.gtn.noise_std=0", "--set agents.gtn.noise_std: found 0, expected a number > 0"),
        ("agents.gtn.step_size=1", "space.agents.gtn.step_size: found a key that is under set, too"),
        ("loss=steps", "--set loss: found 'steps', expected one of generations, score"),
        ("config={a: 1}", "found an unknown key"),
        ("config=[", "malformed YAML"),
        ("stop=3", "found an unknown key"),
    ],
)
def test_overrides_that_are_refused(tmp_path: Path, override: str, words: str) -> None:
    assert any(words in text for text in problems(tmp_path, GOOD, override))


# ------------------------------------------------------------------------------------------------ worlds

SMALL = {"least": 1, "most": 9, "eta": 3}
ALONE = {
    **{key: GOOD[key] for key in ("config", "search", "stop")},
    "evaluate": "agent",
    "loss": "return",
    "agents": 4,
    "budget": {"unit": "steps", "least": 100, "most": 900, "eta": 3},
    "space": {"agents.ddqn.lr": {"range": [1e-4, 1e-2], "log": True}},
}


def save(path: Path, study: Study, fill: float = 0.0) -> None:
    data, section = study.config.data, problem.env_section(study.config.data)
    flat = torch.full((world_size("se", make_task(data["env_name"]), section),), fill)
    save_world(str(path), "se", data["env_name"], flat, data)


def test_agents_alone(tmp_path: Path) -> None:
    study = read(tmp_path, ALONE)
    assert (study.evaluate, study.loss, study.agents, study.repeats, study.worlds) == ("agent", "return", 4, 1, ())
    assert read(tmp_path, {**ALONE, "worlds": "real"}).digest == study.digest
    (tmp_path / "copy.yaml").write_text(dump_study(study))
    assert read_study(tmp_path / "copy.yaml").digest == study.digest


def test_worlds_are_files_whose_bytes_count_and_whose_paths_do_not(tmp_path: Path) -> None:
    study = read(tmp_path, ALONE)
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "model.pt", study, fill=float(name == "a"))
    both = read(tmp_path, {**ALONE, "worlds": "*/model.pt"})
    assert both.worlds == (str(tmp_path / "a" / "model.pt"), str(tmp_path / "b" / "model.pt"))
    assert both.digest != study.digest
    assert read(tmp_path, {**ALONE, "worlds": ["a/model.pt", "b/*.pt", "a/*.pt"]}).digest == both.digest
    assert read(tmp_path, {**ALONE, "worlds": ["b/model.pt", "a/model.pt"]}).digest != both.digest  # agent i, world i
    one = read(tmp_path, {**ALONE, "worlds": "a/model.pt"})
    (tmp_path / "a" / "model.pt").rename(tmp_path / "moved.pt")
    assert read(tmp_path, {**ALONE, "worlds": "moved.pt"}).digest == one.digest
    again = read_study(write(tmp_path / "b", dump_study(read(tmp_path, {**ALONE, "worlds": "moved.pt"})), "copy.yaml"))
    assert (again.digest, again.worlds) == (one.digest, (str(tmp_path / "moved.pt"),))
    save(tmp_path / "moved.pt", study, fill=0.5)
    assert read(tmp_path, {**ALONE, "worlds": "moved.pt"}).digest != one.digest


def test_worlds_that_are_refused(tmp_path: Path) -> None:
    study = read(tmp_path, ALONE)
    save(tmp_path / "cartpole.pt", study)
    (tmp_path / "junk.pt").write_bytes(b"junk")
    found = problems(tmp_path, {**ALONE, "worlds": ["none*.pt", "junk.pt", "cartpole.pt"]})
    assert len(found) == 2
    assert "FILE:22 worlds: found 'none*.pt', expected files that exist" in found[0]
    assert found[1].startswith("FILE:22 worlds: ") and "junk.pt" in found[1]
    acrobot = str(ROOT / "default_config_acrobot_syn_env_paper.yaml")
    found = problems(tmp_path, {**ALONE, "config": acrobot, "worlds": "cartpole.pt"})
    assert "found a world of CartPole-v0 in" in found[0] and "expected Acrobot-v1" in found[0]
    of_task = {**ALONE, "space": {"envs.CartPole-v0.max_steps": {"range": [50, 200]}}}
    read(tmp_path, of_task)
    found = problems(tmp_path, {**of_task, "worlds": "cartpole.pt"})  # a world's file tells its own
    assert "envs.CartPole-v0.max_steps: found a key of worlds or of the outer loop" in found[0]
    for wrong in (3, [], [1], {"a": 1}, None):
        assert "expected real, or a file of a world" in problems(tmp_path, {**ALONE, "worlds": wrong})[0]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"repeats": 2}, "repeats: found 2, expected no such key: only evaluate nes reads it"),
        ({"budget": {**SMALL, "unit": "generations"}}, "budget.unit: found 'generations', expected"),
        ({"budget": {**SMALL, "unit": "agents"}}, "agents: found 4, expected no such key: the budget"),
        ({"space": {"agents.gtn.step_size": {"range": [0.1, 1]}}}, "found a key of worlds or of the outer"),
        ({"space": {"envs.CartPole-v0.hidden_size": {"range": [1, 9]}}}, "found a key of worlds or of the outer"),
        ({"space": {"agents.ddqn.train_steps": {"range": [1, 9]}}}, "found what the budget sets, expected a key"),
        ({"config": str(ROOT / "default_config_cartpole_shapers.yaml")}, "evaluate: found agent, expected nes"),
    ],
)  # fmt: skip
def test_what_is_refused_of_agents_alone(tmp_path: Path, change: dict, words: str) -> None:
    assert any(words in text for text in problems(tmp_path, {**ALONE, **change}))


def test_a_reward_network_is_never_solved(tmp_path: Path) -> None:
    found = problems(tmp_path, changed("config", str(ROOT / "default_config_cartpole_reward_env_paper.yaml")))
    assert any("FILE:6 loss: found generations, expected score: only a synthetic environment" in text for text in found)


def test_a_folder_of_candidates_is_ranked_and_one_is_searched(tmp_path: Path) -> None:
    study = {
        **GOOD, "config": str(ROOT / "default_config_cartpole_shapers.yaml"), "loss": "score", "set": {},
        "budget": {**SMALL, "unit": "generations"}, "space": {"agents.gtn.noise_std": {"range": [0.01, 1]}},
    }  # fmt: skip
    found = problems(tmp_path, study)
    assert any("config: found envs.Cartpole.shapers with several candidates" in text for text in found), found
    read(tmp_path, {**study, "config": str(ROOT / "default_config_cartpole_reward_shaper.yaml")})


def test_the_copy_in_a_folder_of_results_keeps_the_names_of_the_first(tmp_path):
    """Else every look at a study changed its summary and its best.yaml."""
    first = read_study(ROOT / "configs/spaces/agents_ql_cb_cliff.yaml")
    copy = tmp_path / "study.yaml"
    for _ in range(2):
        copy.write_text(dump_study(first))
        again = read_study(copy)
        assert (again.name, again.path, again.digest) == ("agents_ql_cb_cliff", first.path, first.digest)
        assert again.config.path == first.config.path and dump_study(again) == copy.read_text()
        first = again
