from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from envolve.agents.goal.crl_section import CRLSection
from envolve.distributed.files.params import ParamsError, TrainParamsBase, flat, led_to
from envolve.distributed.files.params_file import CONFIG_FILE, PARAMS_FILE, freeze, frozen, load_train_params
from envolve.distributed.programs.contrastive import section_of
from envolve.outer.config.yaml_lines import ConfigError
from tests.distributed.toy import GoalSteps, Steps

SOURCE = """
import gymnasium
from envolve.distributed.files.params import TrainParamsBase

class TrainParams(TrainParamsBase):
    num_iter = 7
    hidden = (32, 16)

    def env_ctor(self, seed, *args, **kwargs):
        return gymnasium.make("Pendulum-v1", g=self.env_config["g"], **kwargs)

    def collect_env_args_kwargs(self, worker):
        return (), {"max_episode_steps": 10 + worker}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    params, config = tmp_path / "my_params.py", tmp_path / "my.json"
    params.write_text(SOURCE)
    config.write_text('{\n  "g": 5.0,\n  "horizon": 200,\n  "train_params": {"gamma": 0.9}\n}\n')
    return params, config


class Pendulum(TrainParamsBase):
    def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> Any:
        return gymnasium.make("Pendulum-v1")


def test_defaults_are_the_published_ones() -> None:
    p = Pendulum()
    assert (p.gamma, p.actor_lr, p.critic_lr, p.alpha_lr, p.tau) == (0.99, 3e-4, 3e-4, 3e-4, 0.005)
    assert (p.target_update_period, p.log_alpha_init, p.hidden, p.batch_size) == (1, 1.0, (256, 256), 256)
    assert (p.num_iter, p.num_steps_per_iter, p.n_episodes_in_buffer, p.n_buffer_init_episodes) == (1000, 50, 350, 30)
    assert (p.n_train_episodes_per_iter, p.n_eval_episodes, p.eval_period, p.checkpoint_period) == (1, 5, 250, 250)
    assert p.log_period == 10 and p.algorithm == "SAC" and p.buffer_size == 350_000


def test_values_come_from_the_json_then_the_class_then_the_base(files: tuple[Path, Path]) -> None:
    p = load_train_params(*files)
    assert (p.gamma, p.num_iter, p.hidden, p.tau, p.horizon) == (0.9, 7, (32, 16), 0.005, 200)
    assert p.env_config["g"] == 5.0


def test_a_dataclass_and_a_plain_class_mean_the_same() -> None:
    class Plain(Pendulum):
        num_iter = 3
        mine: int = 5

    @dataclasses.dataclass
    class Decorated(Pendulum):
        num_iter = 3
        mine: int = 5

    assert (Plain().num_iter, Decorated().num_iter, Plain(num_iter=4).num_iter, Decorated().mine) == (3, 3, 4, 5)
    assert dataclasses.replace(Plain(), gamma=0.5).gamma == 0.5


@pytest.mark.parametrize(
    "values, said",
    [
        ({"gamma": 1.5}, r"Pendulum.gamma: found 1.5, expected a number > 0 and < 1"),
        ({"actor_lr": "3e-4"}, r"actor_lr: found '3e-4', expected a number > 0"),
        ({"num_iter": 0}, r"num_iter: found 0, expected an integer >= 1"),
        ({"num_iter": True}, r"num_iter: found true, expected an integer"),
        ({"num_iter": 2.5}, r"num_iter: found 2.5, expected an integer"),
        ({"tau": float("nan")}, r"tau: found nan"),
        ({"algorithm": "sac"}, r"algorithm: found 'sac', expected one of SAC, TD3, CRL"),
        ({"hidden": (256, 0)}, r"hidden: found \(256, 0\), expected one or more positive integers"),
        ({"hidden": 256}, r"hidden: found 256"),
        ({"no_resubs": 1}, r"no_resubs: found 1, expected true or false"),
        ({"repr_dim": 0}, r"repr_dim: found 0, expected an integer >= 1 and <= 16384 \(CRL: outputs of"),
        ({"energy_fn": "mrn"}, r"energy_fn: found 'mrn', expected one of l2, norm"),
        ({"activation": "swish"}, r"Pendulum.activation: found 'swish' with algorithm SAC, expected CRL"),
        ({"algorithm": "CRL", "batch_size": 1}, r"Pendulum.batch_size: found 1, expected 2 or more"),
        ({"algorithm": "CRL", "exploration_coef": 1, "energy_fn": "l1"}, r"exploration_coef: found 1.0 with energy_fn"),
        ({"batchsize": 8}, r"found the field 'batchsize', expected a known one; nearest: batch_size"),
        ({"env_config": [1]}, r"env_config: found \[1\]"),
        ({"env_config": {"horizon": "x"}}, r"horizon: found 'x', expected an integer"),
        ({"horizon": 2, "n_episodes_in_buffer": 3}, r"found 2 x 3 = 6 steps, expected batch_size = 256 or more"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ParamsError, match=said):
        Pendulum(**values)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ParamsError) as e:
        Pendulum(gamma=2, tau=2)
    assert len(e.value.problems) == 2


def test_a_slip_in_the_name_of_an_attribute_is_found() -> None:
    with pytest.raises(ParamsError, match="Slip.num_iters: found no such field, expected num_iter"):

        class Slip(TrainParamsBase):
            num_iters = 3


def test_environments_are_made_with_the_users_arguments(files: tuple[Path, Path]) -> None:
    p = load_train_params(*files)
    env = p.collect_env(worker=3, seed=0)
    assert env.spec is not None and env.spec.max_episode_steps == 13 and env.unwrapped.g == 5.0  # type: ignore
    assert p.eval_env(0, 0, env).spec.max_episode_steps == 200  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: gymnasium.make("CartPole-v1"), "found the action space Discrete"),
        (lambda: 3, "found int, expected a gymnasium.Env"),
        (lambda: gymnasium.wrappers.ReshapeObservation(gymnasium.make("Pendulum-v1"), (3, 1)), "FlattenObservation"),
    ],
)
def test_environments_nobody_can_learn_in_are_refused(make: Any, said: str) -> None:
    class Wrong(TrainParamsBase):
        def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> Any:
            return make()

    with pytest.raises(ParamsError, match=said):
        Wrong().collect_env(0, 0)


def test_a_curriculum_of_what_the_environment_has_not_is_refused_before_the_run() -> None:
    course = {"iters": [10**6], "range": [0.0, 1.0]}
    assert Pendulum(env_config={"curriculum": {"g": course}}).collect_env(0, 0)
    with pytest.raises(ConfigError, match="curriculum.gee: found none in .*nearest: g"):
        Pendulum(env_config={"curriculum": {"gee": course}}).collect_env(0, 0)


def test_what_a_policy_sees() -> None:
    assert flat([1, 2]).tolist() == [1, 2] and flat(np.arange(3.0)).dtype == np.float32
    parts = {"observation": [1.0, 2.0], "achieved_goal": [9.0], "desired_goal": [3.0]}
    assert flat(parts).tolist() == [1, 2, 3]
    assert led_to(parts).tolist() == [9] and led_to([1, 2]).tolist() == [1, 2]


def test_no_env_ctor_and_wrong_arguments() -> None:
    with pytest.raises(ParamsError, match="env_ctor: found nothing"):
        TrainParamsBase().collect_env(0, 0)

    class Wrong(Pendulum):
        def eval_env_args_kwargs(self, worker: int, collect_env: Any) -> Any:
            return {"a": 1}

    with pytest.raises(ParamsError, match=r"eval_env_args_kwargs: found .* expected \(args, kwargs\)"):
        Wrong().eval_env(0, 0)


def test_contrastive_defaults_are_those_of_train_goal() -> None:
    section = section_of(Pendulum(algorithm="CRL", log_alpha_init=0, gamma=0.9, hidden=(8, 8, 8)))
    assert section == CRLSection(discounting=0.9, h_dim=8, n_hidden=3)
    assert section_of(Pendulum(algorithm="CRL", no_resubs=True, log_alpha_init=0)).no_resubs is True


def test_crl_wants_as_many_numbers_achieved_as_desired() -> None:
    class Uneven(Pendulum):
        def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> Any:
            env = GoalSteps(Steps())
            env.observation_space["desired_goal"] = gymnasium.spaces.Box(-1, 1, (3,))
            return env

    with pytest.raises(ParamsError, match="found 2 and 3 numbers in achieved_goal and desired_goal"):
        Uneven(algorithm="CRL").collect_env(0, 0)


def test_crl_wants_goals() -> None:
    with pytest.raises(ParamsError, match="expected for CRL a Dict of observation, achieved_goal, desired_goal"):
        Pendulum(algorithm="CRL").collect_env(0, 0)


# --------------------------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize(
    "text, said",
    [
        ('{\n "a": 1,\n "b": }', r"my.json:3:7: found malformed JSON"),
        ("[1]", r"my.json: found \[1\], expected an object"),
        ('{"a": 1,\n\t"a": 2}', r"my.json:2: key 'a'|my.json:2"),
        ('{"g": 1,\n "train_params": {\n "gama": 1}}', r"my.json:3: train_params.gama: .*nearest: gamma"),
        ('{"g": 1, "train_params": 3}', r"my.json:1: train_params: found 3"),
        ('{"g": 1, "train_params": {"gamma": 3}}', r"my.json:1: train_params.gamma: found 3, expected a number > 0"),
        ('{"horizon": 9,\n"train_params": {"horizon": 8}}', r"my.json:2: train_params.horizon: found 8, expected 9"),
        ('{"g": 1,\n\n"horizon": 1.5}', r"my.json:3: horizon: found 1.5, expected an integer"),
        ('{"curriculum": {\n"g": {\n"range": [1, 2, 3]}}}', r"(?s)my.json:2: .*my.json:3: curriculum.g.range: found"),
    ],
)
def test_json_errors_have_lines(files: tuple[Path, Path], text: str, said: str) -> None:
    files[1].write_text(text)
    with pytest.raises(ParamsError, match=said):
        load_train_params(*files)


@pytest.mark.parametrize(
    "text, said",
    [
        ("x = 1\nclass TrainParams(:\n", r"my_params.py:2: SyntaxError"),
        ("x = 1\n\ny = 1 / 0\n", r"my_params.py:3: ZeroDivisionError"),
        ("class TrainParam: pass\n", r"found no class TrainParams \(but TrainParam\)"),
        ("class TrainParams: pass\n", r"which is not a TrainParamsBase"),
        ("import helper_of_mine\n", r"my_params.py:1: .*it lies beside the file"),
        ("raise SystemExit(3)\n", r"my_params.py:1: SystemExit: 3"),
    ],
)
def test_errors_of_the_users_file_have_its_lines(files: tuple[Path, Path], text: str, said: str) -> None:
    files[0].write_text(text)
    files[0].with_name("helper_of_mine.py").write_text("")
    before = list(sys.path)
    with pytest.raises(ParamsError, match=said):
        load_train_params(*files)
    assert sys.path == before


def test_files_that_are_not_there(tmp_path: Path, files: tuple[Path, Path]) -> None:
    with pytest.raises(FileNotFoundError):
        load_train_params(tmp_path / "nobody.py", files[1])
    with pytest.raises(ParamsError, match="found no params.py"):
        frozen(tmp_path)


def test_a_resume_uses_the_copies(files: tuple[Path, Path], tmp_path: Path, caplog: Any) -> None:
    exp = tmp_path / "run"
    first = freeze(exp, *files, changes={"num_iter": 2})
    assert (first.num_iter, first.gamma) == (2, 0.9)
    assert (exp / PARAMS_FILE).read_bytes() == files[0].read_bytes()
    assert json.loads((exp / CONFIG_FILE).read_text())["train_params"] == {"gamma": 0.9, "num_iter": 2}
    assert not caplog.records
    assert freeze(tmp_path / "short", *files, changes={"horizon": 20}).env_config["horizon"] == 20
    freeze(exp, *files, changes={"num_iter": 2})
    assert not caplog.records  # the same files again
    files[0].write_text(SOURCE.replace("(32, 16)", "(8,)"))
    files[1].write_text('{"g": 1}')
    again = freeze(exp, *files)
    assert dataclasses.asdict(again) == dataclasses.asdict(first) == dataclasses.asdict(frozen(exp))
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 2
    freeze(exp, files[0], None)
    assert caplog.messages[-1] == f"no JSON is given; the run continues with {exp / CONFIG_FILE}, with which it started"


def test_a_run_that_cannot_begin_leaves_no_folder(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="gamma: found 3"):
        freeze(tmp_path / "run", *files, changes={"gamma": 3})
    assert not (tmp_path / "run").exists()


def test_without_a_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    p = freeze(tmp_path / "run", files[0], None)
    assert p.env_config == {} and p.horizon == 1000
