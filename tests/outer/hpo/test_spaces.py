"""configs/spaces/: every shipped study is read, its samples are configurations, and its ranges are the published ones.

The table is from the original's scripts (github.com/automl/learning_environments, experiments/), which searched
1 - gamma and 1 - eps_decay as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envolve.agents.goal.crl_section import CRLSection
from envolve.outer.config import problem
from envolve.outer.hpo.search import values_of
from envolve.outer.hpo.study import dump_study, read_study

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "configs" / "spaces").glob("*.yaml"))
ACTIVATIONS = {"tanh", "relu", "leakyrelu", "prelu"}
BOTH = {True, False}


def log(low: float, high: float) -> tuple[float, float, bool]:
    return low, high, True


def even(low: float, high: float) -> tuple[float, float, bool]:
    return low, high, False


def prefixed(prefix: str, table: dict[str, Any]) -> dict[str, Any]:
    """Dotted key -> range (low, high, whether it is logarithmic) or set of choices."""
    return {f"{prefix}.{key}": value for key, value in table.items()}


def gtn(noise: tuple, step: tuple = log(0.1, 1), **more: Any) -> dict[str, Any]:
    table = {"score_transform_type": set(range(8)), "step_size": step, "mirrored_sampling": BOTH, "noise_std": noise}
    return prefixed("agents.gtn", {**table, **more})


def net(task: str, size: tuple = log(48, 192), layers: tuple = even(1, 2)) -> dict[str, Any]:
    return prefixed(f"envs.{task}", {"activation_fn": ACTIVATIONS, "hidden_size": size, "hidden_layer": layers})


NETS = {"activation_fn": ACTIVATIONS, "hidden_size": log(48, 192), "hidden_layer": even(1, 2)}
EPS = {"eps_init": log(0.8, 1), "eps_min": log(0.005, 0.05), "1-eps_decay": log(0.01, 0.2)}
DDQN = {
    "init_episodes": log(1, 20), "batch_size": even(64, 256), "1-gamma": log(0.001, 0.1), "lr": log(1e-4, 5e-3),
    "tau": log(0.005, 0.05), **EPS, **NETS,
}  # fmt: skip
TD3 = {
    "batch_size": even(64, 256), "1-gamma": log(0.001, 0.1), "lr": log(1e-4, 5e-3), "tau": log(0.005, 0.05),
    "policy_delay": even(1, 3), **NETS, "action_std": log(0.05, 0.2), "policy_std": log(0.1, 0.4),
    "policy_std_clip": log(0.25, 1), "early_out_virtual_diff": log(0.01, 0.1),
}  # fmt: skip
TD3_CMC_SE = {**TD3, "lr": log(1e-5, 5e-2), "action_std": log(0.05, 0.6), "policy_std": log(0.1, 0.6)}
PPO = {
    "update_episodes": log(1, 100), "1-gamma": log(0.001, 0.1), "vf_coef": log(0.1, 2), "eps_clip": log(0.05, 1), **NETS
}  # fmt: skip
ICM = {
    "beta": log(0.001, 1), "eta": log(0.001, 1), "feature_dim": log(16, 256), "hidden_size": log(16, 256),
}  # fmt: skip
CMC, CHEETAH = "MountainCarContinuous-v0", "HalfCheetah-v3"


def without(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


PUBLISHED: dict[str, dict[str, Any]] = {
    "cartpole_syn_env": {**gtn(log(0.01, 1)), **prefixed("agents.ddqn", DDQN), **net("CartPole-v0")},
    "acrobot_syn_env": {**gtn(log(0.01, 1)), **prefixed("agents.ddqn", DDQN), **net("Acrobot-v1")},
    "mountain_car_syn_env": {
        **gtn(log(0.005, 0.05), log(0.5, 1)),
        **prefixed("agents.ddqn", {**DDQN, "1-gamma": log(0.001, 0.01), "same_action_num": even(1, 5)}),
        **net("MountainCar-v0"),
    },
    "mountain_car_continuous_reward_env": {
        **gtn(log(0.001, 1)), **prefixed("agents.td3", {**TD3, "same_action_num": even(1, 3)}), **net(CMC),
    },
    "halfcheetah_reward_env": {**gtn(log(0.001, 1)), **prefixed("agents.td3", TD3), **net(CHEETAH)},
    "pendulum_reward_env": {**gtn(log(0.001, 1)), **prefixed("agents.td3", TD3), **net("Pendulum-v0")},
    "mountain_car_continuous_syn_env": {
        **gtn(log(0.001, 1)),
        **prefixed("agents.td3", {**TD3_CMC_SE, "init_episodes": log(1, 100), "batch_size": even(32, 256)}),
        **net(CMC, layers=even(1, 3)),
    },
    "mountain_car_continuous_syn_env_v2": {
        **without(gtn(log(0.001, 1)), "agents.gtn.mirrored_sampling"),
        **prefixed("agents.td3", {**without(TD3_CMC_SE, "batch_size", *NETS), "same_action_num": even(2, 3)}),
    },
    "halfcheetah_syn_env": {
        **gtn(log(0.001, 1), nes_step_size=BOTH, num_grad_evals=even(1, 5)),
        "agents.td3.early_out_virtual_diff": log(0.01, 0.1), **net(CHEETAH, log(32, 256), even(1, 4)),
    },
    "cartpole_vary_hp": {"agents.ddqn_vary.vary_hp": BOTH},
    "acrobot_vary_hp": {"agents.ddqn_vary.vary_hp": BOTH},
    "halfcheetah_vary_hp": {"agents.td3_vary.vary_hp": BOTH},
    "gridworld_step_size": without(
        gtn(log(0, 1), log(0.01, 100), nes_step_size=BOTH), "agents.gtn.noise_std"
    ),
    "agents_duelingddqn_cartpole": prefixed("agents.duelingddqn", {
        "init_episodes": log(1, 20), "batch_size": log(64, 512), "1-gamma": log(0.001, 0.1), "lr": log(1e-4, 0.1),
        "tau": log(0.001, 0.1), **EPS, "rb_size": log(1000, 1_000_000), **NETS, "hidden_size": log(32, 256),
        "feature_dim": log(32, 256), "early_out_num": log(1, 5),
    }),
    "agents_td3_discrete_cartpole": prefixed("agents.td3_discrete", {
        "init_episodes": log(1, 20), "batch_size": log(64, 512), "1-gamma": log(0.001, 0.1), "lr": log(1e-6, 0.1),
        "tau": log(0.001, 0.1), "policy_delay": even(1, 5), "hidden_size": log(64, 512), "activation_fn": ACTIVATIONS,
        "action_std": log(0.01, 10), "policy_std": log(0.01, 10), "policy_std_clip": log(0.01, 10),
        "gumbel_softmax_hard": BOTH, "gumbel_softmax_temp": log(0.001, 10), "use_layer_norm": BOTH,
    }),
    "agents_ddqn_icm_cartpole": prefixed("agents.icm", {"lr": log(1e-5, 1e-3), **ICM}),
    "agents_td3_icm_mountain_car_continuous": prefixed("agents.icm", {"lr": log(1e-6, 1e-3), **ICM}),
    "agents_ppo_icm_halfcheetah": prefixed("agents.icm", {"lr": log(1e-6, 1e-3), **ICM}),
    "agents_td3_halfcheetah": prefixed("agents.td3", {
        "init_episodes": log(1, 50), "batch_size": even(32, 256), "1-gamma": log(0.001, 0.1), "lr": log(1e-5, 5e-3),
        "tau": log(0.001, 0.05), "policy_delay": even(1, 5), "activation_fn": ACTIVATIONS, "hidden_size": log(48, 256),
        "hidden_layer": even(1, 3), "action_std": log(0.01, 1), "policy_std": log(0.01, 1),
        "policy_std_clip": log(0.01, 1), "early_out_virtual_diff": log(0.001, 0.1),
    }),
    "agents_td3_halfcheetah_after": prefixed("agents.td3", {**TD3, "same_action_num": even(1, 3)}),
    "agents_ppo_halfcheetah": prefixed("agents.ppo", {
        **PPO, "ppo_epochs": log(1, 80), "lr": log(1e-5, 1e-2), "ent_coef": log(0.001, 0.1), "action_std": log(0.01, 2),
    }),
    "agents_td3_pendulum": prefixed("agents.td3", TD3),
    "agents_ppo_pendulum": prefixed("agents.ppo", {
        **PPO, "ppo_epochs": log(20, 200), "lr": log(1e-4, 1e-2), "ent_coef": log(0.002, 0.05),
        "action_std": log(0.1, 2), "early_out_virtual_diff": log(0.01, 0.1),
    }),
    "agents_ql_cb_cliff": {"agents.ql.beta": log(1e-4, 2)},
    "agents_ql_gridworld": prefixed("agents.ql", {
        "alpha": log(0.01, 1), "1-gamma": log(0.005, 0.5), "eps_init": log(0.01, 1), "eps_min": log(0.005, 0.05),
        "1-eps_decay": log(0.005, 0.5),
    }),
    "goals_crl_reacher": prefixed("learner", {  # JaxGCRL's sweep.yml: the first two; 0.96 to 0.99, and all losses
        "1-discounting": log(0.003, 0.3), "policy_lr": log(1e-4, 3e-3), "critic_lr": log(1e-4, 3e-3),
        "contrastive_loss_fn": {"infonce", "infonce_backward", "symmetric_infonce", "flatnce", "dpo"},
        "logsumexp_penalty": log(0.001, 1),
    }),
}  # fmt: skip


OURS = {  # learners tuned on the task itself (experiments/paper/tuned_baseline.py)
    "real_cartpole_ddqn", "real_acrobot_ddqn", "real_cliff_ql", "real_pendulum_td3", "real_mountain_car_continuous_td3",
    "real_halfcheetah_td3",
}  # fmt: skip


def test_what_is_published_is_shipped_and_nothing_else_but_ours() -> None:
    assert {path.stem for path in SHIPPED} == {*PUBLISHED, *OURS}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_a_shipped_study(path: Path, tmp_path: Path) -> None:
    study = read_study(path)
    assert study.config.warnings == []
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert all("#" in line and len(line) <= 120 for line in lines) and ".py" in "".join(lines[:6])

    found = {}
    for p in study.space.parameters:
        section, _, name = p.key.rpartition(".")
        found[f"{section}.{'1-' * p.one_minus}{name}"] = set(p.choices) if p.choices else (p.low, p.high, p.log)
    if path.stem in OURS:
        assert study.evaluate == "agent" and not study.worlds and all(key.startswith("agents.") for key in found)
    else:
        assert found == PUBLISHED[path.stem]

    space = study.space.config_space
    space.seed(1)
    for sample in space.sample_configuration(20):
        member = study.member_config(values_of(sample))
        if study.evaluate == "goal":
            CRLSection(**member.data["learner"])
            continue
        problem.learner(member.data)
        problem.env_section(member.data)

    (tmp_path / "copy.yaml").write_text(dump_study(study))
    assert read_study(tmp_path / "copy.yaml").digest == study.digest


def test_studies_differ() -> None:
    digests = [read_study(path).digest for path in SHIPPED[:6]]
    assert len(set(digests)) == len(digests)
