"""outer/hpo/study*.py: what a study says, what is refused and in which words, and what its digest is over."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from outer import problem
from outer.config import Config, load_config
from outer.hpo.study import Study, dump_study, read_study
from outer.yaml_lines import ConfigError

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
        ("agents", 5, "agents: found 5, expected no such key: only evaluate agent reads it"),
        ("worlds", "x.pt", "worlds: found 'x.pt', expected no such key: only evaluate agent reads it"),
        ("search/backend", "bhob", "FILE:9 search.backend: found 'bhob', expected one of bohb, optuna, random"),
        ("search/paralel", 2, "search.paralel: found an unknown key, expected a key of search, did you mean parallel"),
        ("search", 3, "FILE:8 search: found 3, expected a mapping"),
        ("budget/unit", "agents", "FILE:13 budget.unit: found 'agents', expected one of generations, steps"),
        ("budget/unit", ..., "FILE:12 budget.unit: found nothing, expected one of generations"),
        ("budget/least", ..., "FILE:12 budget.least: found nothing, expected a number"),
        ("budget/least", 0, "FILE:14 budget.least: found 0, expected a number >= 1"),
        ("budget/least", 50, "FILE:15 budget.most: found 45, expected at least the least, 50"),
        ("budget/eta", 1, "FILE:16 budget.eta: found 1, expected a number > 1"),
        ("stop", {}, "FILE:17 stop: found nothing that ends the search, expected full_evaluations or trials"),
        ("stop", {"trials": 1.5}, "FILE:18 stop.trials: found 1.5, expected an integer >= 1"),
        ("space", {}, "FILE:19 space: found no key, expected at least one that varies"),
        ("spaces", {}, "spaces: found an unknown key, expected a key of a study, did you mean space"),
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
