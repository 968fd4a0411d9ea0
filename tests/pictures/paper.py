"""Data for the figures of the paper, of the size and with the outliers of real ones: Cliff's returns reach -10,000."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from envolve.envs.worlds.world import RealTask, tables
from envolve.experiments.paper.common.data import Data
from envolve.experiments.paper.common.grids import gridworld
from envolve.experiments.paper.figures import modules
from envolve.experiments.paper.pictures import step_size, success
from envolve.outer.hpo.trial import Record, Trial, TrialResult

MODES = ("mode 0", "mode 1", "mode 2", "mode 5", "mode 6", "mode -1")
LEVELS = {  # task -> returns at first, at the end, the noise of one test
    "Cliff": (-1500.0, -13.0, 3.0),
    "CartPole-v0": (20.0, 195.0, 6.0),
    "MountainCarContinuous-v0": (-35.0, 90.0, 8.0),
    "Pendulum-v0": (-1500.0, -160.0, 40.0),
    "HalfCheetah-v3": (-300.0, 3200.0, 300.0),
    "Acrobot-v1": (-500.0, -85.0, 5.0),
}
OWN = {"batch_size": 128, "lr": 0.001, "hidden_size": 128, "hidden_layer": 2}
FACTORS = (0.33, 0.58, 1.0, 1.73, 3.0)


def draws(name: str) -> np.random.Generator:
    return np.random.default_rng([ord(c) for c in name])


def made(experiment: str, task: str, series: dict[str, Any], quick: bool = False, **settings: Any) -> Data:
    return Data(experiment, task, settings, quick, series, 1.0, {})


def curves(task: str, agent: str, **settings: Any) -> Data:
    """Ten agents of each mode; an agent that failed, and on Cliff agents that step over its edge until an episode
    ends."""
    rng, (first, last, noise), series = draws(task), LEVELS[task], {}
    length = {"Cliff": 50, "HalfCheetah-v3": 1000}.get(task, 200)
    episodes = 100 if task == "Cliff" else 60
    for place, mode in enumerate(MODES):
        returns, lengths = [], []
        for _ in range(10):
            t = np.arange(episodes) / (6 + 4 * place)
            r = last + (first - last) * np.exp(-t) + noise * rng.standard_normal(episodes)
            if task == "Cliff":
                r = np.minimum(r, -13.0)
                r[rng.random(episodes) < 0.08 * np.exp(-t / 3)] = -10_000.0
            returns.append(r.tolist())
            lengths.append([length] * episodes)
        series[mode] = {"episode_return": returns, "episode_length": lengths, "failed": [""] * 10}
        if mode not in ("mode 0", "mode -1"):
            series[mode]["world"] = [f"w{i // 2}" for i in range(10)]
    series["mode 0"]["episode_return"][0][-1] = math.nan
    return made("compare_proxies", task, series, agent=agent, **settings)


def agents_of_ses(
    task: str, learners: tuple[str, ...] = ("ddqn", "duelingddqn", "td3_discrete"), vary_hp: bool = True
) -> Data:
    rng, (first, last, noise), series = draws(task), LEVELS[task], {}
    for i, name in enumerate(learners):
        for where, good, steps in (("real", 0.8, 17_000), ("varied", 0.93, 6_500), ("fixed", 0.75, 9_000)):
            middle = first + (last - first) * rng.beta(12 * good, 12 * (1 - good) + i, 50)
            tests = np.minimum(middle[:, None] + noise * rng.standard_normal((50, 10)), max(first, last) + 5)
            took = rng.gamma(5, steps / 5, 50)
            series[f"{name} {where}"] = {"return": tests.mean(1).tolist(), "test_returns": tests.tolist(),
                                         "train_steps": took.tolist()}  # fmt: skip
            if where != "real":
                series[f"{name} {where}"]["world"] = [f"w{k // 10}" for k in range(50)]
    return made("compare_proxies", task, series, vary_hp=vary_hp)


def correlation(task: str) -> Data:
    rng, (first, last, _) = draws(task), LEVELS[task]
    quality, series = rng.beta(3, 1.2, 20), {}
    for where, spread in (("se", 0.06), ("real", 0.12)):
        share = np.clip(np.repeat(quality, 10) + spread * rng.standard_normal(200), 0, 1.02)
        returns = (first + (last - first) * share).tolist()
        returns[3] = math.nan
        series[where] = {"set": [i for i in range(20) for _ in range(10)], "return": returns,
                         "failed": ["", "", "", "it broke", *[""] * 196]}  # fmt: skip
    series["correlation"] = {"spearman": [0.81, 0.55, 0.93], "kendall": [0.64, 0.4, 0.8], "pearson": [0.87, 0.7, 0.95]}
    return made("correlation", task, series, agents=10, agent="ddqn", steps=5000)


def grid_data(task: str) -> Data:
    rng, world = draws(task), gridworld(task)
    next_state, reward, *_ = (t[0].numpy() for t in tables(RealTask(world, 1)))
    series: dict[str, Any] = {"task": {"next_state": next_state.tolist(), "reward": reward.tolist()}}
    series["SE"] = {
        "next_state": rng.integers(0, len(reward), reward.shape).tolist(),
        "reward": (reward + 4 * rng.standard_normal(reward.shape)).tolist(),
    }
    for where in ("task", "SE"):
        series[f"agents, {where}"] = {
            "q": (rng.standard_normal((10, *reward.shape)) + reward).tolist(),
            "return": [0.82 - 0.01 * (i % 3) for i in range(10)],
            "train_steps": rng.integers(200, 900, 10).tolist(),
        }
    return made("gridworld", task, series, agent="ql")


def histograms(task: str, count: int) -> Data:
    rng, series = draws(task), {}
    for place, label in enumerate(("SE in training", "task in tests", "SE, asked as in tests")):
        states = rng.standard_normal((4000, count)) * (0.3 + 0.5 * place) + 0.4 * place
        states[0] = 1e6  # an SE may run away
        reward = np.ones(4000) if place == 1 else 1 + 0.3 * rng.standard_normal(4000)
        series[label] = {"next_state": states.tolist(), "reward": reward.tolist(), "steps": [52_310 * (1 + place)]}
    series["agents"] = {"return": [190.0 + i % 7 for i in range(10)], "train_steps": [5000] * 10}
    return made("histograms", task, series, agent="ddqn")


def sensitivity(task: str, side: str) -> Data:
    rng, (first, last, _), series = draws(task), LEVELS[task], {}
    names = ("alpha", "gamma") if task == "Cliff" else tuple(OWN)
    own = {"alpha": 1.0, "gamma": 0.3} if task == "Cliff" else OWN
    grids: dict[str, list[Any]] = {
        n: [1, 2, 3] if n == "hidden_layer" else [round(own[n] * f, 6) for f in FACTORS] for n in names
    }
    for name, values in grids.items():
        for where in (side, "real"):
            rows = [v for v in values for _ in range(20)]
            far = np.array([abs(math.log(v / own[name])) for v in rows])
            lost = np.clip(far * (0.15 if where == side else 0.4) + 0.05 * rng.standard_normal(len(rows)), 0, 1)
            series[f"{where} {name}"] = {
                "value": rows,
                "return": (last + (first - last) * lost).tolist(),
                "train_steps": (8000 * (1 + far) * (0.3 if where == side else 1)).tolist(),
                "failed": [""] * len(rows),
            }
            if where == side:
                series[f"{where} {name}"]["world"] = [f"w{k % 4}" for k in range(len(rows))]
    settings = {"grids": grids, "own": own, "agent": "ql" if task == "Cliff" else "ddqn",
                "hyperparameters": {"real": {"train_episodes": 1000}}}  # fmt: skip
    return made("hyperparameter_sensitivity", task, series, **settings)


def inference(task: str) -> Data:
    rng, series = draws(task), {}
    for kind, ms in (("real", 0.21), ("se", 0.35), ("rn", 0.52)):
        for what, factor in (("single", 1.0), ("batched", 0.004)):
            each = ms * factor * (1 + 0.08 * rng.random(10))
            series[f"{kind} {what}"] = {"ms_per_step": each.tolist(), "ms_per_call": each.tolist()}
    return made("inference_time", task, series, batch=1000, device="cpu")


def noise(task: str, count: int) -> Data:
    rng, (first, last, spread), series = draws(task), LEVELS[task], {}
    series["no noise"] = {"return": (last + spread * rng.standard_normal(20)).tolist()}
    levels = np.logspace(-2, 2, 25)
    for i, label in enumerate([*(str(k) for k in range(count)), "reward", "done"]):
        borne = 10 ** (i / 3 - 0.8)
        share = 1 / (1 + (np.repeat(levels, 20) / borne) ** 2)
        returns = first + (last - first) * share + spread * rng.standard_normal(len(share))
        series[label] = {"return": returns.tolist(), "noise_over_std": np.repeat(levels, 20).tolist(), "std": [0.3]}
    return made("noise_threshold", task, series, agent="ddqn")


def heat() -> Data:
    rng, task = draws("heat"), gridworld("Cliff")
    rows, columns = len(task.layout), len(task.layout[0])
    series = {}
    for mode in ("mode 0", "mode 1", "mode 2", "mode 6"):
        visits = rng.gamma(0.3, 1.0, (20, rows * columns))
        visits[:, rows * columns - columns] += 3
        series[mode] = {"visits": visits.tolist(), "return": [-13.0 - i % 4 for i in range(20)]}
    return made("heatmap", "Cliff", series, agent="sarsa", episodes=50)


def learned() -> Data:
    rng, task = draws("learned"), gridworld("Cliff")
    reward = tables(RealTask(task, 1))[1][0].numpy().astype(float)
    series: dict[str, Any] = {"task": {"reward": [reward.tolist()]}}
    for mode in ("mode 1", "mode 2", "mode 6"):
        series[mode] = {"reward": [(reward + 3 * rng.standard_normal(reward.shape)).tolist() for _ in range(10)]}
    return made("learned_reward", "Cliff", series)


def fitted(task: str, count: int) -> Data:
    own, series, rng = agents_of_ses(task), {}, draws(f"fitted {task}")
    for label, q in own.series.items():
        name, where = label.rsplit(" ", 1)
        if where in ("real", "varied"):
            series[label] = q
        for other, loss in (("model-based", 0.3), ("done fitted", 0.6)) if where == "varied" else ():
            first = LEVELS[task][0]
            series[f"{name} {other}"] = {**q, "return": [first + (r - first) * loss for r in q["return"]]}
    falling = np.exp(-np.arange(30) / 8)
    fit: dict[str, Any] = {"fitted_to": [20_000], "held_out": [2_000], "search": [0, 1, 0, 1, 0]}
    for net, level in (("state_net", 1e-3), ("reward_net", 1e-5), ("done_net", 1e-2)):
        for part, factor in (("train", 1.0), ("held out", 1.3)):
            fit[f"{net} {part}"] = [(level * factor * (0.02 + falling) * (1 + 0.1 * rng.random(30))).tolist()] * 5
    fit |= {"output_error": [[0.01] * (count + 2)] * 5, "output_change": [[0.2] * count] * 5}
    series |= {"fit": fit, "steps": {"seen": [812_345.0] * 5, "agents": [640.0] * 5}}
    learners = list(dict.fromkeys(label.rsplit(" ", 1)[0] for label in own.series))
    return made("model_based_baseline", task, series, learners=learners, worlds=5)


def study() -> step_size.Study:
    rng, records = draws("study"), []
    for i in range(200):
        transform, mirrored, divided = int(rng.integers(8)), bool(rng.integers(2)), bool(rng.integers(2))
        step = float(10 ** rng.uniform(-2, 2))
        far = abs(math.log10(step / (10 if divided else 0.3)))
        loss = 4 + 18 * far + rng.exponential(6) + 4 * (transform == 4)
        values = {step_size.TRANSFORM: transform, step_size.STEP: step, step_size.MIRRORED: mirrored,
                  step_size.DIVIDED: divided}  # fmt: skip
        result = TrialResult(math.inf if i % 40 == 7 else loss, {}, "it broke" * (i % 40 == 7))
        records.append(Record(Trial(i, (0, 0, i), values, 50.0), result, 0.0, 0.0, 1.0))
    return step_size.Study(records, False)


def evolutions(task: str) -> success.Runs:
    rng, runs = draws(f"success {task}"), {}
    first, last, spread = LEVELS.get(task, (-5.0, 0.9, 0.4))
    for i in range(40):
        t = np.arange(30 + i) / rng.uniform(4, 16)
        curve = last + (first - last) * np.exp(-t) + spread * rng.standard_normal(len(t))
        runs[f"run{i}"] = curve.tolist()
    runs["run3"] = [math.nan] * 5
    return success.Runs(runs, False)


def unseen(task: str, name: str) -> Data:
    rng, (first, last, _), series = draws(f"{task} {name}"), LEVELS[task], {}
    kinds = ("ddqn", "duelingddqn", "td3_discrete", "ppo", "sb3_dqn", "sb3_ppo", "sb3_a2c")
    for i, kind in enumerate(kinds):
        for where, good in (("real", (0.9, 0.97, 0.5, 0.9, 0.03, 0.8, 0.4)[i]), ("worlds", 0.98)):
            share = rng.beta(10 * good, 10 * (1 - good), 30)
            series[f"{kind} {where}"] = {"return": (first + (last - first) * share).tolist()}
        series[f"{kind} worlds"]["world"] = [f"w{k // 3}" for k in range(30)]
    mark = first + 0.97 * (last - first)
    return made("unseen_agents", task, series, kinds=list(kinds), mark=round(mark), seen=["ddqn"], steps=5000)


def data_of(name: str, variant: str) -> list[Any]:
    """What the figure is drawn from. Raises KeyError for a figure that has no data here."""
    task = variant.partition("_")[0]
    count = {"CartPole-v0": 4, "Acrobot-v1": 6}.get(task, 0)
    if name == "transfer" and "_se_" not in variant:
        own = variant.partition("_")[2]
        return [curves(task, "ddqn" if own == "vary_hp" else own, vary_hp=own == "vary_hp")]
    makers: dict[str, Any] = {
        "compare": lambda: curves(task, "ddqn"),
        "correlation": lambda: correlation(task),
        "generalization_gap": lambda: agents_of_ses(task, vary_hp=False),
        "gridworld": lambda: grid_data(task),
        "heatmap": heat,
        "histograms": lambda: histograms(task, count),
        "hyperparameter_sensitivity": lambda: sensitivity(task, "rn" if task == "Cliff" else "se"),
        "inference_time": lambda: inference(task),
        "learned_reward": learned,
        "model_based_baseline": lambda: fitted(task, count),
        "noise_threshold": lambda: noise(task, count),
        "se": lambda: agents_of_ses(task, ("ddqn",) if variant.endswith("bandit") else ("ddqn", "duelingddqn", "ppo")),
        "step_size": study,
        "success": lambda: evolutions(task),
        "transfer": lambda: agents_of_ses(task, ("ppo",)),
        "unseen_agents": lambda: unseen(task, variant),
    }
    return [] if name == "score_transforms" else [makers[name]()]


def figures() -> dict[str, tuple[Any, str]]:
    """Name of the picture -> its module and variant, all of them."""
    return {f"{n}_{v}" if v else n: (m, v) for n, m in modules().items() for v in m.NEEDS}
