"""The configuration of an evolution that ``envolve evolve`` plans, and of the experts that its world begins with."""

from __future__ import annotations

import math
from typing import Any

from envolve.outer.auto.choice import Choice
from envolve.outer.auto.facts import Facts
from envolve.outer.auto.report_plan import TESTS
from envolve.outer.config.distilled import CONFIRMED, DISTILLED
from envolve.outer.config.problem import ARS, EXPERT_SUFFIX
from envolve.outer.distil.begin import PUPILS, TRIES
from envolve.outer.names import VARY_SUFFIX
from envolve.outer.search.searches import NES_KEYS, SEARCHES
from envolve.worlds.shelf import ZOO_BYTES

LEAST_GENERATIONS = 3
LEAST_EXPERT, MOST_EXPERT = 3_000, 150_000  # their training steps
MOST_LINEAR, MOST_PPO = 2_000_000, 2_000_000  # steps of experts that seldom learn
FIT_SECONDS = 6.0  # of fitting one world to an expert, its pupils included
PUPILS_FROM = 180.0  # seconds of all experts, from which pupils choose among their worlds
LINEAR_STEP, PPO_STEP = 4e-5, 5e-5  # seconds of a step of these beside the environment's own
SETTLED = 50  # episodes whose mean return ends an expert's training: of fewer it is often luck
EXPERT_EPS, EXPERT_EXPLORES = 0.05, 0.3  # lowest exploration rate, and after which share of the episodes it is reached
PPO = "ppo"
PPO_EXPERT = {
    "num_envs": 16, "rollout_steps": 128, "minibatches": 8, "ppo_epochs": 10, "lr": 1e-3, "anneal_lr": True,
    "advantage": "gae", "norm_advantage": True, "max_grad_norm": 0.5, "adam_eps": 1e-5, "orthogonal_init": True,
    "activation_fn": "tanh", "hidden_size": 64, "hidden_layer": 2,
}  # fmt: skip
LINEAR = {"directions": 4, "top": 2, "step_size": 0.05, "noise_std": 0.1, "test_episodes": TESTS}
# A bandit of integers or codes stores LEAST_STORED to STORED contexts, about STORED_NUMBERS numbers at most. No network
# draws such contexts from noise.
LEAST_STORED, STORED, STORED_NUMBERS = 64, 1024, 150_000
# Noise and step of the search; smaller where a unit of a world adds up more than INPUTS features, and in a distilled
# world: noise of 0.05 undoes most of what such a world teaches, and the search then mends what it broke itself.
NOISE, STEP, INPUTS = 0.05, 0.02, 16
DISTILLED_NOISE, DISTILLED_STEP = 0.02, 0.01
CHUNK = 18
HORIZON_FROM = 400  # steps of an episode from which tests begin shorter
HIDDEN, LEAST_HIDDEN = 32, 16  # units of a world's networks
HEAD_BYTES = 2_000  # of a file of the zoo, beside its numbers


def configuration(facts: Facts, choice: Choice, world: str, learner: str, search: str) -> dict[str, Any]:
    """The configuration, without what depends on the number of generations."""
    smaller = _smaller(facts) if world == "bandit" else 1.0
    gtn: dict[str, Any] = {
        "mode": "single", "agent_name": learner, "synthetic_env_type": 1 if world == "rn" else 0,
        "max_iterations": LEAST_GENERATIONS, "num_workers": 32,
        "noise_std": round(NOISE * smaller, 4), "step_size": round(STEP * smaller, 4),
        "estimator": "antithetic", "iterate_averaging": 0.8, "num_orig_evals": 8, "common_random_numbers": True,
        "confirm_agents": 20, "chunk_size": CHUNK, "comparison_agents": 0, "search": search,
        "quit_when_solved": True,
    }  # fmt: skip
    if search in SEARCHES.built_in:  # none of them reads what is nes's own
        gtn = {key: value for key, value in gtn.items() if key not in NES_KEYS}
    if world != "rn" and facts.max_steps >= HORIZON_FROM and facts.early_signal and search != "random":
        gtn["horizon_start"] = facts.max_steps // 5
    if world == "se":
        gtn.update(collapse_generations=20, max_restarts=2)
    if world == "rn":
        gtn.update(num_workers=8, num_orig_evals=4, rn_objective="auc", confirm_agents=0, chunk_size=10)
    name = learner.lower().removesuffix(VARY_SUFFIX)
    agents: dict[str, Any] = {"gtn": gtn, name: _learner_section(facts, name, world)}
    if learner.lower().endswith(VARY_SUFFIX):
        agents[name + VARY_SUFFIX] = {
            "vary_hp": True, "vary_layers": False, "lr_factor": 10.0 if name in ("ddqn", "duelingddqn") else 3.0,
            "train_steps_factor": 1.8,
        }  # fmt: skip
    section: dict[str, Any] = {"hidden_size": HIDDEN, "hidden_layer": 1, "activation_fn": "leakyrelu"}
    if world == "bandit":
        section["hidden_size"] = _hidden(facts)
        section["contextual_bandit"] = True
    elif world == "se":
        section["done_bias"] = -1.0
    else:
        section["reward_env_type"] = 2
    return {"env_name": facts.env, "seed": choice.seed, "agents": agents, "envs": {facts.env: section}}


def add_expert(config: dict[str, Any], facts: Facts, choice: Choice, seconds: float) -> float:
    """Adds the experts that a distilled world begins with, for as many steps as fit into ``seconds`` -> the seconds
    that they are expected to take. Every worker trains one of each kind."""
    kinds = ("sac", PPO, ARS) if facts.continuous else ("ddqn", PPO)
    fits = len(kinds) * FIT_SECONDS * (1 + facts.features / 100)
    chosen_by = PUPILS if seconds >= max(PUPILS_FROM, 2 * len(TRIES) * fits) else "return"
    fits *= len(TRIES) if chosen_by == PUPILS else 1
    seconds = max(seconds - fits, seconds / 2)
    agents, spent = config["agents"], 0.0
    for i, name in enumerate(kinds):
        one, most = _of_expert(facts, name)
        steps = two_digits(int(min(most, max(LEAST_EXPERT, (seconds - spent) / (len(kinds) - i) / one))))
        agents[name + EXPERT_SUFFIX] = _expert_section(facts, name, steps)
        spent += steps * one
    count = len(kinds) * max(1, min(choice.workers, facts.cores))
    gtn = agents["gtn"]
    gtn.update(init=DISTILLED, keep=CONFIRMED)
    gentle = {"noise_std": DISTILLED_NOISE, "step_size": DISTILLED_STEP}
    gtn.update({key: round(value * _smaller(facts), 4) for key, value in gentle.items() if key in gtn})
    if facts.whole:
        config["envs"][facts.env]["stored_contexts"] = _stored(facts)
    agents["expert"] = {"learner": " ".join(kinds), "agents": count, "chosen_by": chosen_by}
    return spent + fits


def _smaller(facts: Facts) -> float:
    """Factor of the search's noise and step."""
    return min(1.0, math.sqrt(INPUTS / facts.features))


def _stored(facts: Facts) -> int:
    """The number of contexts that a bandit stores. Where all features are codes, one for each combination is enough."""
    most = min(STORED, max(LEAST_STORED, STORED_NUMBERS // facts.features))
    return min(most, max(LEAST_STORED, facts.combinations)) if facts.combinations else most


def _of_expert(facts: Facts, name: str) -> tuple[float, int]:
    """Seconds of one training step of an expert, and the most steps that it trains for."""
    if name == ARS:
        return facts.step_seconds + LINEAR_STEP, MOST_LINEAR
    if name == PPO:
        return facts.step_seconds + PPO_STEP, MOST_PPO
    return facts.expert_seconds, MOST_EXPERT


def _expert_section(facts: Facts, name: str, steps: int) -> dict[str, Any]:
    """Hyperparameters of an expert."""
    if name == ARS:
        return {"train_steps": steps, **LINEAR}
    own: dict[str, Any] = {
        "train_steps": steps, "train_episodes": steps, "test_episodes": TESTS, "early_out_num": SETTLED,
    }  # fmt: skip
    if name == PPO:
        bounded = {"squash": False, "action_std": 1.0} if facts.continuous else {}
        own["init_episodes"] = SETTLED  # so that the rule begins with as many
        return {**own, **PPO_EXPERT, "ent_coef": 0.0 if facts.continuous else 0.01, **bounded}
    own.update(batch_size=64, gamma=0.99, tau=0.01, rb_size=100_000)
    if name == "sac":
        first = max(1, min(20, round(1000 / facts.random_length)))
        return {**own, "lr": 1e-3, "hidden_size": 64, "hidden_layer": 1, "init_episodes": first}
    decay = EXPERT_EPS ** (1 / max(1.0, EXPERT_EXPLORES * steps / facts.likely_length))
    return {
        **own, "lr": 5e-4, "hidden_size": 128, "hidden_layer": 2, "init_episodes": 1,
        "eps_init": 1.0, "eps_min": EXPERT_EPS, "eps_decay": round(decay, 4),
    }  # fmt: skip


def two_digits(count: int) -> int:
    """The count without what follows its first two digits: most differences of a machine's speed leave it alone."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return count // unit * unit


def _learner_section(facts: Facts, name: str, world: str) -> dict[str, Any]:
    """Hyperparameters of the inner learner: those of the shipped bandits, smaller where there are none."""
    tests = inner_tests(facts)
    out: dict[str, Any] = {
        "train_episodes": 3000, "train_steps": 1500, "test_episodes": tests, "batch_size": 64, "gamma": 0.99,
        "lr": 1e-3, "hidden_size": 64, "hidden_layer": 1,
        "init_episodes": 0, "bootstrap_time_limit": False,
    }  # fmt: skip
    if name in ("ddqn", "duelingddqn"):
        out.update(tau=0.01, eps_init=1.0, eps_min=0.05, eps_decay=0.998, rb_size=100_000)
    elif name in ("td3", "sac", "td3_discrete"):
        out.update(init_episodes=100, tau=0.02, rb_size=100_000)
        if name == "td3":
            out.update(action_std=0.3, train_steps=1000, batch_size=32, hidden_size=32, lr=2e-3)  # a dear learner
    elif name == "ppo":
        out = {
            "train_episodes": 3000, "train_steps": 2000, "test_episodes": tests, "hidden_size": 64, "hidden_layer": 1,
            "rollout_steps": 250, "ppo_epochs": 10, "minibatches": 4, "advantage": "gae", "norm_advantage": True,
            "lr": 1e-3,
        }  # fmt: skip
    if world == "se" and name != "ppo":
        out.update(eps_decay=0.95) if "eps_decay" in out else out.update(init_episodes=1)
        out.update(train_episodes=1500, early_out_num=5, early_out_virtual_diff=0.1, early_out_min_steps=1500)
    if world == "rn":
        out["train_episodes"] = max(10, min(200, 20_000 // facts.max_steps))
        if "train_steps" in out:
            out["train_steps"] = 0
        if "eps_decay" in out:
            out.update(eps_decay=0.9, eps_min=0.01)
        out["test_episodes"] = 1
    return out


def _hidden(facts: Facts) -> int:
    """Hidden units of a bandit: fewer than usual if only then its file is small enough for the zoo."""
    # drawing an observation takes F inputs and F outputs, paying the action F + A inputs and one output
    weights_per_unit = 3 * facts.features + (facts.action_size or facts.num_actions) + 4
    fit = (ZOO_BYTES - HEAD_BYTES) // 4 // weights_per_unit // 4 * 4
    return min(HIDDEN, fit) if fit >= LEAST_HIDDEN else HIDDEN


def inner_tests(facts: Facts) -> int:
    """Test episodes of an agent of the inner loop."""
    return max(2, min(4, int(1000 / facts.longest)))
