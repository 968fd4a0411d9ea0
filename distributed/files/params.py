"""Base class of a user's training parameters: a class ``TrainParams`` with the environment's constructor and
hyperparameters.

    class TrainParams(TrainParamsBase):
        num_steps_per_iter = 500

        def env_ctor(self, seed, **kwargs):
            return gymnasium.make("HalfCheetah-v5", **kwargs)

The names are those of the ``rl`` folder of https://github.com/isl-org/0shot-object-insertion. In an iteration, all
collectors add transitions, ``num_steps_per_iter`` gradient steps follow, and all collectors get the new policy.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envolve.agents.goal.crl_energy import ENERGY_NAMES, takes_future_action
from envolve.agents.goal.crl_section import CRLSection
from envolve.core.option import option
from envolve.core.registry import nearest
from envolve.distributed.files.curriculum import Curriculum, check, curriculum_from
from envolve.outer.config.schema import expected
from envolve.outer.config.yaml_lines import ConfigError, show

ALGORITHMS = ("SAC", "TD3", "CRL")
HORIZON = "horizon"  # of the JSON, which may have it, too: an environment often needs it to end its episodes
NEAR = 0.85  # how like a field's name a name must be for it to count as a slip


# Fields of train_goal.py that mean the same here. MRN is left out: it needs a later action, which rows do not have
CRL_FIELDS = (
    "energy_fn", "contrastive_loss_fn", "logsumexp_penalty", "l2_penalty", "no_resubs", "use_c_target",
    "exploration_coef", "random_goals", "disable_entropy_actor", "use_ln", "repr_dim", "skip_connections", "activation",
    "policy_std", "target_entropy",
)  # fmt: skip
ENERGIES = tuple(name for name in ENERGY_NAMES if not takes_future_action(name))
EXPLORING = ("l2", "norm", "dot")  # energies whose actor may be paid for |phi|


def of_crl(name: str, choices: Sequence[str] | None = None) -> Any:
    """Option of contrastive RL's section as a field of TrainParams."""
    f = {f.name: f for f in dataclasses.fields(CRLSection)}[name]
    return option(
        f.default, f"CRL: {f.metadata['help']}", choices=choices or f.metadata["choices"], **f.metadata["limits"]
    )


class ParamsError(ConfigError):
    """Raised for wrong user parameters; a command ends with exit code 2."""

    def __init__(self, *problems: str) -> None:
        super().__init__(list(problems))


@dataclass(init=False)
class TrainParamsBase:
    """Base class of a user's ``TrainParams``: define ``env_ctor``, and override fields as plain class attributes, as in
    the example above. Raises ParamsError, which names field, found and expected."""

    env_config: dict[str, Any] = field(default_factory=dict)  # what the JSON holds
    algorithm: str = option("SAC", "learning algorithm", choices=ALGORITHMS)
    gamma: float = option(
        0.99,
        "discount factor; CRL: the goal is the state k steps later, with probability proportional to gamma^k",
        gt=0,
        lt=1,
    )
    actor_lr: float = option(3e-4, "Adam learning rate of the actor", gt=0)
    critic_lr: float = option(3e-4, "Adam learning rate of the critics; CRL: of the encoders", gt=0)
    alpha_lr: float = option(3e-4, "SAC, CRL: Adam learning rate of the temperature", gt=0)
    tau: float = option(0.005, "SAC, TD3: coefficient of the soft update of the target critics", gt=0, le=1)
    target_update_period: int = option(
        1,
        "SAC, TD3: gradient steps between updates of the targets; TD3 makes them only where its actor learns, too: at "
        "every second step",
        ge=1,
        le=10**6,
    )
    log_alpha_init: float = option(1.0, "SAC, CRL: initial logarithm of the temperature", ge=-20, le=20)
    hidden: tuple[int, ...] = field(
        default=(256, 256), metadata={"help": "units per hidden layer of actor and critics; CRL: of actor and encoders"}
    )
    energy_fn: str = of_crl("energy_fn", choices=ENERGIES)
    contrastive_loss_fn: str = of_crl("contrastive_loss_fn")
    logsumexp_penalty: float = of_crl("logsumexp_penalty")
    l2_penalty: float = of_crl("l2_penalty")
    no_resubs: bool = of_crl("no_resubs")
    use_c_target: bool = of_crl("use_c_target")
    exploration_coef: float = of_crl("exploration_coef")
    random_goals: float = of_crl("random_goals")
    disable_entropy_actor: bool = of_crl("disable_entropy_actor")
    use_ln: bool = of_crl("use_ln")
    repr_dim: int = of_crl("repr_dim")
    skip_connections: int = of_crl("skip_connections")
    activation: str = of_crl("activation")
    policy_std: str = of_crl("policy_std")
    target_entropy: float = of_crl("target_entropy")
    num_iter: int = option(1000, "number of iterations", ge=1, le=10**9)
    num_steps_per_iter: int = option(50, "gradient steps per iteration", ge=1, le=10**6)
    batch_size: int = option(256, "transitions per gradient step", ge=1, le=65536)
    horizon: int = option(
        1000, "steps after which an episode is cut off; horizon in the JSON file has priority", ge=1, le=10**6
    )
    n_episodes_in_buffer: int = option(350, "replay buffer capacity in episodes of horizon steps", ge=1, le=10**7)
    n_train_episodes_per_iter: int = option(
        1, "episodes of horizon steps that all collectors add per iteration", ge=1, le=10**5
    )
    n_eval_episodes: int = option(5, "episodes per evaluation", ge=1, le=10**5)
    eval_period: int = option(250, "iterations between evaluations", ge=1, le=10**9)
    checkpoint_period: int = option(250, "iterations between checkpoints", ge=1, le=10**9)
    log_period: int = option(10, "iterations between log lines", ge=1, le=10**9)
    n_buffer_init_episodes: int = option(
        30, "random episodes of horizon steps before the first iteration", ge=1, le=10**6
    )

    def __init_subclass__(cls) -> None:
        """Treats ``num_iter = 500`` in a class body like ``num_iter: int = 500``, with and without @dataclass."""
        super().__init_subclass__()
        base = {f.name: f.type for f in dataclasses.fields(TrainParamsBase)}
        own = cls.__dict__.get("__annotations__", {})
        for name, value in list(vars(cls).items()):
            if name in base:
                own.setdefault(name, base[name])
            elif name not in own and not name.startswith("_") and isinstance(value, (bool, int, float, str, tuple)):
                near = nearest(name, base, NEAR)
                if near:
                    raise ParamsError(f"{cls.__name__}.{name}: found no such field, expected {near}")
        cls.__annotations__ = own

    def __init__(self, **values: Any) -> None:
        """values: fields to override; the others have the class's values. @dataclass gives a subclass its own
        __init__."""
        fields = {f.name: f for f in dataclasses.fields(self)}
        for name in values:
            if name not in fields:
                near = nearest(name, fields, 0.0)
                raise ParamsError(
                    f"{type(self).__name__}: found the field {name!r}, expected a known one; nearest: {near}"
                )
        for name, f in fields.items():
            if name in values:
                value = values[name]
            elif hasattr(type(self), name):
                value = getattr(type(self), name)
            elif f.default_factory is not dataclasses.MISSING:
                value = f.default_factory()
            else:
                raise ParamsError(f"{type(self).__name__}.{name}: found nothing, expected a value")
            setattr(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        if not isinstance(self.env_config, Mapping):
            raise ParamsError(f"env_config: found {show(self.env_config)}, expected what a JSON object holds")
        if HORIZON in self.env_config:
            self.horizon = self.env_config[HORIZON]
        try:
            curriculum_from(self.env_config)
        except ConfigError as e:
            raise ParamsError(*e.problems) from None
        problems = [text for f in dataclasses.fields(TrainParamsBase) if (text := self._wrong(f))]
        problems += [] if problems else self._together()
        if problems:
            raise ParamsError(*problems)

    def _wrong(self, f: dataclasses.Field[Any]) -> str:
        """Problem with a field's value; "" if it is valid, and then converted to the field's type."""
        value = getattr(self, f.name)
        of_json = f.name == HORIZON and HORIZON in self.env_config
        where = f.name if of_json else f"{type(self).__name__}.{f.name}"
        if f.name == "env_config":
            return ""
        if f.name == "hidden":
            if not isinstance(value, (list, tuple)) or not value or not all(_fits(v, int) and v >= 1 for v in value):
                return f"{where}: found {show(value)}, expected one or more positive integers, such as (256, 256)"
            self.hidden = tuple(map(int, value))
            return ""
        kind: type = type(f.default)
        choices, limits = f.metadata["choices"], f.metadata["limits"]
        fits = _fits(value, kind) and (not choices or value in choices)
        if not fits or not all(getattr(operator, name)(value, limit) for name, limit in limits.items()):
            return f"{where}: found {show(value)}, expected {expected(TrainParamsBase, f.name)}"
        setattr(self, f.name, kind(value))
        return ""

    def _together(self) -> list[str]:
        cls = type(self).__name__
        if self.algorithm != "CRL":
            defaults = {f.name: f.default for f in dataclasses.fields(TrainParamsBase)}
            for name in CRL_FIELDS:
                if getattr(self, name) != defaults[name]:
                    found = f"{show(getattr(self, name))} with algorithm {self.algorithm}"
                    return [f"{cls}.{name}: found {found}, expected CRL, which alone has it"]
        else:
            if self.batch_size < 2:
                return [f"{cls}.batch_size: found {self.batch_size}, expected 2 or more: CRL tells samples apart"]
            if self.exploration_coef and self.energy_fn not in EXPLORING:
                expected = f"0, or energy_fn one of {', '.join(EXPLORING)}"
                return [
                    f"{cls}.exploration_coef: found {self.exploration_coef} with energy_fn {self.energy_fn}, "
                    f"expected {expected}"
                ]
        if self.buffer_size < self.batch_size:
            found = f"{self.horizon} x {self.n_episodes_in_buffer} = {self.buffer_size} steps"
            return [f"horizon x n_episodes_in_buffer: found {found}, expected batch_size = {self.batch_size} or more"]
        return []

    @property
    def units(self) -> int:
        """Width of each hidden layer. Raises ParamsError."""
        if len(set(self.hidden)) != 1:
            raise ParamsError(f"hidden: found {self.hidden}, expected layers of one width, such as (256, 256)")
        return self.hidden[0]

    @property
    def buffer_size(self) -> int:
        """Replay buffer capacity in steps."""
        return self.horizon * self.n_episodes_in_buffer

    @property
    def curriculum(self) -> Curriculum:
        """Curriculum of the JSON; empty without one."""
        return curriculum_from(self.env_config)

    # ------------------------------------------------------------------------------------------- the user's methods

    def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """Makes a new environment; the arguments come from the two methods below. ``env_config`` is available."""
        raise NotImplementedError

    def collect_env_args_kwargs(self, worker: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of env_ctor, besides the seed, for collector ``worker``."""
        return (), {}

    def eval_env_args_kwargs(self, worker: int, collect_env: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of env_ctor, besides the seed, for evaluations. collect_env: the environment of the collector, or
        None."""
        return (), {}

    # ------------------------------------------------------------------------------------- what the programs call

    def collect_env(self, worker: int, seed: int) -> gymnasium.Env[Any, Any]:
        """Checks an environment. Raises ParamsError, and ConfigError for a curriculum of parameters that it does not
        have."""
        env = self._built(seed, "collect_env_args_kwargs", self.collect_env_args_kwargs(worker))
        check(env, self.curriculum.courses)
        return env

    def eval_env(self, worker: int, seed: int, collect_env: Any = None) -> gymnasium.Env[Any, Any]:
        """Checks the results of the methods. Raises ParamsError."""
        return self._built(seed, "eval_env_args_kwargs", self.eval_env_args_kwargs(worker, collect_env))

    def _built(self, seed: int, method: str, arguments: Any) -> gymnasium.Env[Any, Any]:
        cls = type(self).__name__
        if type(self).env_ctor is TrainParamsBase.env_ctor:
            raise ParamsError(f"{cls}.env_ctor: found nothing, expected env_ctor(self, seed, ...) -> gymnasium.Env")
        try:
            args, kwargs = arguments
            args, kwargs = tuple(args), dict(kwargs)
        except (TypeError, ValueError):
            found = show(arguments)
            raise ParamsError(f"{cls}.{method}: found {found}, expected (args, kwargs), a tuple and a dict") from None
        env = self.env_ctor(seed, *args, **kwargs)
        check_env(env, self.algorithm, f"{cls}.env_ctor")
        return env


def _fits(value: Any, kind: type) -> bool:
    """True if a value fits the type: integers and numpy's numbers count as numbers, booleans do not."""
    if kind is str:
        return isinstance(value, str)
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        return False
    whole = math.isfinite(value) and (kind is float or isinstance(value, numbers.Integral))
    return whole or (kind is int and isinstance(value, float) and value.is_integer())


def fields_help() -> str:
    """Help text with a line for each field: name, default, meaning."""
    lines = []
    for f in dataclasses.fields(TrainParamsBase):
        if "help" in f.metadata:
            choices = f.metadata.get("choices")
            among = f"; one of {', '.join(choices)}" if choices else ""
            lines.append(f"  {f.name} = {f.default!r}: {f.metadata['help']}{among}")
    return "\n".join(lines)


def check_env(env: Any, algorithm: str, where: str) -> None:
    """Raises ParamsError unless the environment fits a learner: bounded actions in one row of numbers, and observations
    in one row, or for CRL in Gymnasium-Robotics' three parts (observation, achieved_goal, desired_goal)."""
    if not isinstance(env, gymnasium.Env):
        raise ParamsError(f"{where}: found {type(env).__name__}, expected a gymnasium.Env")
    action, seen = env.action_space, env.observation_space
    if not _row(action) or not np.isfinite(action.low).all() or not np.isfinite(action.high).all():  # type: ignore
        raise ParamsError(f"{where}: found the action space {action}, expected a bounded Box with one axis")
    if algorithm == "CRL":
        goals = ("observation", "achieved_goal", "desired_goal")
        if not isinstance(seen, spaces.Dict) or not all(name in seen.spaces and _row(seen[name]) for name in goals):
            wanted = f"a Dict of {', '.join(goals)}, each a Box with one axis"
            raise ParamsError(f"{where}: found the observation space {seen}, expected for CRL {wanted}")
        achieved, desired = (spaces.flatdim(seen[name]) for name in goals[1:])
        if achieved != desired:
            sizes = f"{achieved} and {desired} numbers"
            raise ParamsError(f"{where}: found {sizes} in achieved_goal and desired_goal, expected as many in both")
    elif not _row(seen):
        hint = "gymnasium.wrappers.FlattenObservation makes one of any"
        raise ParamsError(f"{where}: found the observation space {seen}, expected a Box with one axis; {hint}")


def flat(obs: Any) -> np.ndarray:
    """Policy input made from an observation, float32 [F]; for CRL observation and desired goal."""
    parts = [obs["observation"], obs["desired_goal"]] if isinstance(obs, Mapping) else [obs]
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


def led_to(obs: Any) -> np.ndarray:
    """Stored part of the next observation; for CRL the achieved goal."""
    return np.asarray(obs["achieved_goal"] if isinstance(obs, Mapping) else obs, np.float32)


def _row(space: Any) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0
