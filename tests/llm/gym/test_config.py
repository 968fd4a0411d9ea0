"""The seed's YAML loads as it is; what is wrong is named with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.llm.gym.config import load_gym_config, parse_gym_config
from envolve.llm.gym.sections import algo_params
from envolve.outer.config.yaml_lines import ConfigError
from tests.test_layout import ROOT

SEED = """\
eureka:
  backend: 'openai' # 'ollama' or 'openai'
  model: 'gpt-4o' # name of the model (from ollama or openai models)
  temperature: 1.0 # the higher it is, the more random the output will be
  iterations: 5 # number of total iterations
  samples: 8 # number of samples to generate per iteration, they will run in parallel, so consider your HW
  sleep_time_per_iteration: 5 # sleep time between iterations in minutes
  use_initial_reward_prompt: false # if available, use the initial reward prompt provided in the environment folder
  pretraining_with_best_model: true # use best model weights for pretraining the next iteration set of models

environment:
  name: 'bipedal_walker' # name of the environment folder
  max_episode_steps: 1600 # maximum number of steps per episode (truncate the episode)
  class_name: 'BipedalWalker' # name of the gymnasium environment class
  kwargs: null # kwargs to pass to the environment class
  benchmark: 'BipedalWalker-v3' # if benchmark available, train the agent with the same params to compare

experiment:
  parent: 'experiments' # parent folder where the experiments will be saved
  name: 'bipedal_walker_gpt4o' # name of the experiment folder
  use_datetime: true # use datetime in the experiment folder name

rl:
  algo: 'ppo' # 'ppo', 'sac', 'dqn', 'td3', 'ddpg'
  algo_params: # hyperparameters for the algorithm (it depends on the algorithm, same as in sb3)
    policy: 'MlpPolicy'
    learning_rate: 0.0003
    n_steps: 2048
    batch_size: 64
    n_epochs: 10
    gamma: 0.999
    gae_lambda: 0.95
    clip_range: 0.2
    ent_coef: 0.0
    vf_coef: 0.5
    max_grad_norm: 0.5
  architecture: # architecture of the networks (it depends on the algorithm, same as in sb3)
    net_arch: {'pi': [64, 64], 'vf': [64, 64]}
    activation_fn: 'ReLU'
    share_features_extractor: false
  training:
    torch_compile: true # compile the model with torch.compile to be faster
    seed: 0 # seed for reproducibility
    eval:
      seed: 5 # seed for evaluation
      num_episodes: 2 # number of episodes to evaluate
      num_evals: 10 # number of evaluations to perform during training
    total_timesteps: 1_000_000 # total timesteps to train the agent
    device: 'cuda' # 'cuda' or 'cpu'
    num_envs: 4 # number of environments to run in parallel
    state_stack: 1 # number of frames to stack
    is_atari: false # if the environment is an atari game
  evaluation:
    seed: 10 # seed for final evaluation
    num_episodes: 10 # number of episodes to evaluate
    save_gif: true # save gif of the best model
"""
BESIDE = SEED.replace("\n  evaluation:\n    seed: 10", "\nevaluation:\n    seed: 10")


@pytest.mark.parametrize("text", [SEED, BESIDE], ids=["evaluation in rl", "evaluation beside rl"])
def test_the_seeds_yaml_loads_as_it_is(text: str) -> None:
    config = parse_gym_config(text.encode(), "seed.yml")
    assert config.rl.training.total_timesteps == 1_000_000
    assert config.environment.kwargs is None and config.rl.training.multithreaded is False
    assert config.rl.evaluation.seed == 10 and config.rl.training.eval.seed == 5
    params = algo_params(config)
    assert params["n_steps"] == 2048 and params["policy"] == "MlpPolicy" and len(params) == 11


def problems(*overrides: str, text: str = SEED) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse_gym_config(text.encode(), "seed.yml", overrides)
    return error.value.problems


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("samples: 8", "sampels: 8", "seed.yml:6 eureka.sampels: found an unknown key, expected a known one, did"),
        ("samples: 8", "samples: eight", "seed.yml:6 eureka.samples: found 'eight', expected a valid integer"),
        ("samples: 8", "samples: 0", "seed.yml:6 eureka.samples: found 0, expected greater than or equal to 1"),
        ("'openai' #", "'openai2' #", "seed.yml:2 eureka.backend: found 'openai2', expected one of ollama, openai"),
        ("algo: 'ppo'", "algo: 'pp0'", "seed.yml:24 rl.algo: found 'pp0', expected one of ppo, sac, dqn, td3, ddpg"),
        ("n_steps: 2048", "n_stepz: 1", "seed.yml:28 rl.algo_params.n_stepz: found an unknown key, expected a"),
        ("    seed: 0 #", "    seed: -1 #", "seed.yml:43 rl.training.seed: found -1, expected greater than or equal"),
        ("'cuda' #", "'gpu' #", "seed.yml:49 rl.training.device: found 'gpu', expected other text (cpu, cuda"),
        ("'ReLU'", "'Relu'", "seed.yml:39 rl.architecture.activation_fn: found 'Relu', expected a class of torch.nn"),
        ("'vf': [64, 64]", "'qf': [64]", "rl.architecture.net_arch: found a mapping with pi, qf, expected a"),
        ("1_000_000", "3", "rl.training.total_timesteps: found 3, expected at least num_evals (10)"),
        ("  model: 'gpt-4o'", "  #", "seed.yml:1 eureka.model: found nothing, expected this key"),
        ("name: 'bipedal_walker' #", "name: '../x' #", "environment.name: found '../x', expected other text (a folder"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(old: str, new: str, expected: str) -> None:
    assert old in SEED
    found = problems(text=SEED.replace(old, new))
    assert len(found) == 1 and expected in found[0], found


def test_all_problems_at_once_and_overrides_are_named() -> None:
    found = problems(
        "rl.algo_params.gama=1", "eureka.samples=x", "nothing", text=SEED.replace("samples: 8", "samples: x")
    )
    assert len(found) == 3 and all(f.startswith("--set") for f in found), found


def test_overrides_are_yaml() -> None:
    config = parse_gym_config(SEED.encode(), "s", ["rl.training.total_timesteps=2_000", "evaluation.save_gif=false"])
    assert config.rl.training.total_timesteps == 2000 and not config.rl.evaluation.save_gif


@pytest.mark.parametrize("algo", ["sac", "dqn", "td3", "ddpg"])
def test_each_algorithm_has_its_own_parameters(algo: str) -> None:
    shared = ["rl.architecture.net_arch=[64]", f"rl.algo={algo}"]
    found = problems(*shared)  # PPO's own are still there
    assert any("n_epochs: found an unknown key" in f for f in found)
    config = parse_gym_config(SEED.encode(), "s", [*shared, "rl.algo_params={policy: MlpPolicy, buffer_size: 1e4}"])
    assert algo_params(config) == {"policy": "MlpPolicy", "buffer_size": 10_000}


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yml")), ids=lambda p: p.name)
def test_shipped_configurations_load(path) -> None:
    load_gym_config(path)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_configuration_or_a_config_error(data: bytes) -> None:
    try:
        parse_gym_config(data, "x.yml")
    except ConfigError as e:
        assert e.problems


KEYS = ["eureka", "environment", "experiment", "rl", "evaluation", "training", "algo", "algo_params", "eval", "x"]
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["ppo", "sac", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


@given(TREES)
def test_any_tree_is_a_configuration_or_a_config_error(tree: object) -> None:
    import yaml

    try:
        parse_gym_config(yaml.safe_dump(tree).encode(), "x.yml")
    except ConfigError as e:
        assert e.problems
