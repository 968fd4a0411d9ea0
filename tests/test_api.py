"""``import envolve``: instant, documented, typed; and each function once, at a small size."""

from __future__ import annotations

import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import envolve
from envolve.agents.off_policy.ddqn import DDQN
from envolve.api import whole
from envolve.outer.config.load import config_of, load_config
from envolve.outer.search.openai_es import OpenAIES
from tests.outer.small import CLIFF, GRIDWORLD_FILE
from tests.test_layout import ROOT, python_3_8

SMALL = {"agents.gtn.max_iterations": 2, "agents.gtn.num_workers": 2, "agents.gtn.comparison_agents": 2}


def test_import_loads_nothing() -> None:
    code = "import sys, envolve; print(sorted({'torch', 'numpy', 'yaml', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(python_3_8() is None, reason="no Python 3.8 on this machine")
def test_python_3_8_imports_it() -> None:
    code = "import envolve; assert envolve.__version__; assert 'evolve' in dir(envolve)"
    subprocess.run([str(python_3_8()), "-c", code], cwd=ROOT, check=True)


def test_every_public_name_exists_and_is_documented() -> None:
    for name in envolve.__all__:
        value = getattr(envolve, name)
        assert name.startswith("__") or inspect.getdoc(value), name
        assert name in dir(envolve)
    with pytest.raises(AttributeError, match="no attribute 'evovle'; it has"):
        envolve.evovle  # noqa: B018


def test_dict_is_a_configuration_and_problems_name_its_keys() -> None:
    raw = yaml.safe_load(GRIDWORLD_FILE.read_text())
    assert config_of(raw, CLIFF).data == load_config(GRIDWORLD_FILE, CLIFF).data
    raw["agents"]["gtn"]["search"] = "randm"
    raw["agents"]["gtn"]["noise_std"] = -1
    with pytest.raises(envolve.ConfigError) as caught:
        envolve.evolve(raw)
    assert "configuration agents.gtn.noise_std: found -1" in str(caught.value)
    assert "agents.gtn.search: found 'randm'" in str(caught.value) and "did you mean random" in str(caught.value)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "config: found nothing, expected a YAML file"),
        ({"config": 5}, "config: found 5, expected a YAML file"),
        (
            {"config": "CartPole-v1"},
            "config: found no file CartPole-v1; an environment is written as gymnasium:CartPole",
        ),
        ({"config": "my_env.py:Line"}, "an environment is written as gymnasium:my_env.py:Line"),
        ({"config": "no_such.yaml"}, "no_such.yaml: found no readable file"),
        ({"config": "x.yaml", "resume": "y"}, "resume goes on with the configuration of its run: found config"),
        ({"resume": "/nowhere"}, "resume: found no config.yaml in '/nowhere'"),
        ({"config": GRIDWORLD_FILE, "workers": 0}, "workers: found 0, expected a whole number of at least 1 and at"),
        ({"config": GRIDWORLD_FILE, "workers": 1.5}, "workers: found 1.5, expected a whole number"),
        ({"config": GRIDWORLD_FILE, "seed": "one"}, "seed: found 'one', expected a whole number"),
        ({"config": GRIDWORLD_FILE, "overrides": "agents.gtn.max_iterations=x"}, "max_iterations: found 'x', expected"),
        ({"config": "gymnasium:CartPole-v1", "minutes": 0}, "minutes: found 0, expected at least 0.05"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: dict, words: str) -> None:
    with pytest.raises(envolve.ConfigError) as caught:
        envolve.evolve(**arguments)
    assert words in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    raw = yaml.safe_load(GRIDWORLD_FILE.read_text())
    raw["agents"]["gtn"].update(max_iterations=np.int64(3), noise_std=np.float64(0.25))
    gtn = config_of(raw).data["agents"]["gtn"]
    assert (gtn["max_iterations"], gtn["noise_std"]) == (3, 0.25) and type(gtn["max_iterations"]) is int
    assert whole("seed", np.int64(2), 1) == 2 and type(whole("seed", np.int64(2))) is int


def test_evolve_stop_resume_load_evaluate(tmp_path: Path, warm: None) -> None:
    raw = yaml.safe_load(GRIDWORLD_FILE.read_text())
    result = envolve.evolve(
        raw, seed=3, workers=1, results_dir=tmp_path, overrides=[*CLIFF, "agents.gtn.max_iterations=2"], progress=False
    )
    assert result.run_dir.parent == tmp_path and result.world.name == "model.pt" and result.generations == 2
    assert len(result.scores) == 2 and len(result.real_returns) == 3 and result.score == max(result.scores)
    for arguments, words in (
        ({"max_steps": 0}, "max_steps: found 0"),
        ({"gamma": 5.0}, "gamma: found 5.0, expected above 0"),
        ({"gamma": math.nan}, "gamma: found nan"),
        ({"code_from": "/nowhere"}, "found no readable file"),
    ):
        with pytest.raises(envolve.ConfigError, match=words):
            envolve.load_world(result.world, **arguments)
    assert envolve.load_world(result.world, code_from=tmp_path).max_steps > 0, "the folder of the runs"
    observation, _ = envolve.load_world(result.world).reset(seed=0)
    assert observation == 36
    figures = envolve.evaluate(result.world, agents=2, real=False, threads=1)
    assert figures.agent == "ql" and len(figures.world.returns) == 2 and figures.real is None
    with pytest.raises(envolve.ConfigError, match="^agent: found 'dqnn', expected an agent that exists"):
        envolve.evaluate(result.world, agent="dqnn")


def test_a_file_that_exits_when_it_is_imported_does_not_end_the_script(tmp_path: Path) -> None:
    path = tmp_path / "exits_at_once.py"
    path.write_text("import argparse\nargparse.ArgumentParser().parse_args(['--what'])")
    with pytest.raises(envolve.ConfigError, match=r"exits_at_once.py:2: SystemExit: 2"):
        config_of({**yaml.safe_load(GRIDWORLD_FILE.read_text()), "env_name": f"{path}:Line"})


def test_class_in_the_running_script_is_for_the_master_only(monkeypatch) -> None:
    class Here(envolve.Task):
        pass

    with pytest.raises(envolve.PluginError, match="class Here: found no reset"):
        envolve.register_task("Here", Here)
    from envolve.outer.search.random_search import RandomSearch

    class Mine(RandomSearch):
        """Registered by a class."""

    monkeypatch.setattr(Mine, "__module__", "__main__")
    envolve.register_search("MineHere", Mine)
    config = load_config(GRIDWORLD_FILE, [*CLIFF, "agents.gtn.search=MineHere"])
    assert "plugins" not in config.data
    with pytest.raises(envolve.PluginError, match="random is the name of a built-in search"):
        envolve.register_search("random", Mine)


@pytest.mark.parametrize("name", ["gtn", "expert", "ars", "ddqn_expert"])
def test_a_learner_takes_no_section_that_is_another_ones(name: str) -> None:
    with pytest.raises(envolve.PluginError, match=f"agents.{name} is another section already"):
        envolve.register_learner(name, DDQN)


@pytest.mark.parametrize("name", ["Expert", "ARS_expert", "DDQN", "ddqn_expert", "DDQN_vary", "gtn"])
def test_a_search_takes_no_section_that_is_another_ones(name: str) -> None:
    with pytest.raises(envolve.PluginError, match=f"agents.{name.lower()} is another section already"):
        envolve.register_search(name, OpenAIES)


def test_rank_returns_names_and_scores(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("def compute_reward(self):\n    return -(self.pole_pos ** 2), {}\n")
    ranks = envolve.rank(
        tmp_path,
        task="Cartpole",
        iterations=1,
        environments=4,
        threads=1,
        results_dir=tmp_path,
        progress=False,
        overrides={"rollout_steps": 4, "hidden_size": 8},
    )
    assert {r.name for r in ranks} == {"human", "good"}
    assert ranks[0].score >= 0 or ranks[0].failure


def test_class_of_a_module_takes_its_file_along(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import my_task

    envolve.register_task("PointMass", my_task.PointMass)
    config = yaml.safe_load((ROOT / "examples" / "my_own.yaml").read_text())
    config["env_name"] = "PointMass"
    config["agents"]["gtn"].update(agent_name="DDQN", search="nes")
    config["agents"]["ddqn"] = config["agents"].pop("expectedsarsa")
    config["agents"]["ddqn"].pop("target_eps")
    data = config_of(config).data
    assert data["env_name"] == "PointMass" and list(data["plugins"]) == ["my_task.py"]
    monkeypatch.setattr(my_task.PointMass, "__module__", "__main__")
    envolve.register_task("PointMass", my_task.PointMass)
    with pytest.raises(envolve.ConfigError, match="env_name: found PointMass, which is defined in the running script"):
        envolve.evolve(config)


def test_the_installed_command_finds_modules_of_the_current_folder_after_all_others(tmp_path: Path) -> None:
    """Workers and the children that measure get their path from it."""
    script = tmp_path / "bin" / "envolve"
    script.parent.mkdir()
    script.write_text(
        "import sys\nfrom envolve import __main__ as door\n"
        "door.load = lambda words: lambda: print(sys.path[-1], sys.path.count(sys.path[-1])) or 0\ndoor.main()\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path.resolve()), "1"] and done.returncode == 0, done
