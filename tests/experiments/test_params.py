"""The examples of train_distributed.py are what they say they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envolve.distributed.files.curriculum import apply, check
from envolve.distributed.files.params_file import freeze, load_train_params

FOLDER = Path(__file__).parents[2] / "experiments" / "params"
EXAMPLES = [  # two files, actions, environment steps for each gradient step
    ("quadruped_params.py", "quadruped.json", 8, 1),
    ("half_cheetah_params.py", "half_cheetah.json", 6, 1),
    ("reacher_params.py", "reacher.json", 2, 16),
]


def loaded(params: str, config: str) -> Any:
    return load_train_params(FOLDER / params, FOLDER / config)


@pytest.mark.parametrize("params, config, actions, ratio", EXAMPLES)
def test_every_example_loads_and_steps(params: str, config: str, actions: int, ratio: int, tmp_path: Path) -> None:
    p = freeze(tmp_path / "run", FOLDER / params, FOLDER / config)
    env = p.collect_env(worker=0, seed=1)
    check(env, p.curriculum.courses)
    obs, _ = env.reset(seed=1)
    assert env.action_space.shape == (actions,) and env.observation_space.contains(obs)
    judged = p.eval_env(0, 2, env)
    judged.reset(seed=2)
    assert env.observation_space.contains(judged.step(env.action_space.sample())[0])
    assert p.num_steps_per_iter == round(p.horizon * p.n_train_episodes_per_iter / ratio)


def test_there_is_no_example_without_a_test() -> None:
    listed = {name for params, config, _, _ in EXAMPLES for name in (params, config)}
    assert {p.name for p in FOLDER.iterdir() if p.suffix in (".py", ".json")} == {*listed, "__init__.py"}


def test_the_quadrupeds_curriculum_ends_where_it_is_judged() -> None:
    p = loaded("quadruped_params.py", "quadruped.json")
    env, judged = p.collect_env(0, 0).unwrapped, p.eval_env(0, 0).unwrapped
    names = ("mass", "friction", "noise")
    begin = {name: getattr(env, name) for name in names}
    assert begin == {name: p.env_config["env"][name] for name in names} and judged.mass > env.mass
    last = p.num_iter - 1
    apply(env, {**p.curriculum.changes(None, last), **p.curriculum.at_reset(last)})
    assert {name: getattr(env, name) for name in names} == {name: getattr(judged, name) for name in names}


def test_the_cheetahs_episodes_last_as_long_as_the_json_says() -> None:
    env = loaded("half_cheetah_params.py", "half_cheetah.json").collect_env(0, 0)
    assert env.spec.max_episode_steps == 1000
