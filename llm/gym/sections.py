"""Sections of a configuration of ``evolution.py`` with their allowed values. ``config.py`` reads them.

The layout, and the names below ``rl``, are those of https://github.com/rsanchezmo/stable-eureka; what is null or left
out in ``algo_params`` and ``architecture`` is Stable-Baselines3's own default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic import BeforeValidator, ConfigDict, Field


def _whole(value: Any) -> Any:
    """Accepts 1e6, a float in YAML, as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=2**53)]
Seed = Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=2**32)]
Whole = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=2**53)]
Steps = Annotated[int, BeforeValidator(_whole), Field(ge=-1, le=2**53)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Widths = list[Count]


class Section(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=(), frozen=True)


class Eureka(Section):
    backend: Literal["ollama", "openai", "replay"] = Field(description="who writes the rewards")
    model: str = Field(min_length=1, description="name of the model; with backend 'replay' the recording's file")
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    iterations: Count = 5
    samples: Count = 8
    sleep_time_per_iteration: NotNegative | None = Field(0.0, description="minutes between iterations, ollama only")
    use_initial_reward_prompt: bool = False
    pretraining_with_best_model: bool = False
    skip_copies: bool = Field(True, description="do not train a reward that was trained before (not with pretraining)")
    finalists: Whole = Field(3, description="best attempts that are trained anew at the end")
    final_seeds: Whole = Field(3, description="trainings of each finalist; 0: no last test")


class Environment(Section):
    name: str = Field(pattern=r"^[\w.-]+$", description="a folder under envs/")
    max_episode_steps: Count | None = None
    class_name: str = Field(pattern=r"^[A-Za-z]\w*$", description="the class in env_code/env.py")
    kwargs: dict[str, Any] | None = None
    benchmark: str | None = Field(None, description="id of a Gymnasium environment to train beside")


class Experiment(Section):
    parent: str = Field("results", min_length=1)
    name: str = Field(pattern=r"^[\w. -]+$", description="name of the folder of results")
    use_datetime: bool = True


class Architecture(Section):
    net_arch: Widths | dict[Literal["pi", "vf", "qf"], Widths] | None = Field(
        None, description="widths such as [64, 64], or {'pi': [64, 64], 'vf': [64, 64]} (off-policy: 'qf')"
    )
    activation_fn: str | None = Field(None, description="a class of torch.nn, e.g. ReLU or Tanh")
    share_features_extractor: bool | None = None


class TrainingEvaluation(Section):
    seed: Seed = 5
    num_episodes: Count = 2
    num_evals: Count = 10


class Training(Section):
    torch_compile: bool = False
    seed: Seed = 0
    eval: TrainingEvaluation = TrainingEvaluation()
    total_timesteps: Count = 1_000_000
    device: str = Field("cpu", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$", description="cpu, cuda, cuda:0 or auto")
    num_envs: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1024)] = 4
    state_stack: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1024)] = 1
    is_atari: bool = False
    multithreaded: bool = Field(False, description="one process per environment")


class Evaluation(Section):
    seed: Seed = 10
    num_episodes: Count = 10
    save_gif: bool = True


class RL(Section):
    algo: Literal["ppo", "sac", "dqn", "td3", "ddpg"]
    algo_params: dict[str, Any]
    architecture: Architecture = Field(default_factory=Architecture)  # type: ignore[arg-type]
    training: Training
    evaluation: Evaluation = Evaluation()


class GymConfig(Section):
    """Checked configuration; every section is frozen."""

    eureka: Eureka
    environment: Environment
    experiment: Experiment
    rl: RL


# ------------------------------------------------------------ algo_params: Stable-Baselines3's own names, per algorithm


class _Params(Section):
    policy: Literal["MlpPolicy", "CnnPolicy", "MultiInputPolicy"] = "MlpPolicy"
    learning_rate: Positive | None = None
    batch_size: Count | None = None
    gamma: Fraction | None = None


class _StateDependentNoise(Section):
    """Exploration option, not in stable-eureka, needed for MountainCarContinuous's published settings."""

    use_sde: bool | None = None
    sde_sample_freq: Steps | None = None


class PPOParams(_Params, _StateDependentNoise):
    n_steps: Count | None = None
    n_epochs: Count | None = None
    gae_lambda: Fraction | None = None
    clip_range: Positive | None = None
    ent_coef: NotNegative | None = None
    vf_coef: NotNegative | None = None
    max_grad_norm: Positive | None = None


class _OffPolicy(_Params):
    buffer_size: Count | None = None
    learning_starts: Whole | None = None
    tau: Fraction | None = None
    train_freq: Count | None = None
    gradient_steps: Steps | None = None


class SACParams(_OffPolicy, _StateDependentNoise):
    target_update_interval: Count | None = None
    ent_coef: NotNegative | Annotated[str, Field(pattern=r"^auto(_\d+(\.\d+)?)?$")] | None = None
    target_entropy: float | Literal["auto"] | None = None


class DQNParams(_OffPolicy):
    target_update_interval: Count | None = None
    exploration_fraction: Fraction | None = None
    exploration_initial_eps: Fraction | None = None
    exploration_final_eps: Fraction | None = None
    max_grad_norm: Positive | None = None


class TD3Params(_OffPolicy):
    policy_delay: Count | None = None
    target_policy_noise: NotNegative | None = None
    target_noise_clip: NotNegative | None = None


ALGO_PARAMS: dict[str, type[Section]] = {
    "ppo": PPOParams,
    "sac": SACParams,
    "dqn": DQNParams,
    "td3": TD3Params,
    "ddpg": _OffPolicy,
}
HEADS = {"ppo": {"pi", "vf"}, "sac": {"pi", "qf"}, "td3": {"pi", "qf"}, "ddpg": {"pi", "qf"}, "dqn": set()}


def algo_params(config: GymConfig) -> dict[str, Any]:
    """The parameters that are set, as Stable-Baselines3's class takes them; ``policy`` among them. What is null or
    missing is Stable-Baselines3's own default."""
    params = ALGO_PARAMS[config.rl.algo].model_validate(config.rl.algo_params)
    return {k: v for k, v in params.model_dump().items() if v is not None}
