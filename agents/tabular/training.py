"""Q-learning and SARSA on finite tasks, for a whole population.

``train_tabular`` trains one agent per member and tests it on the real task. ``backend="torch"`` runs the readable loop
of ``agents/tabular/loop.py``, ``"compiled"`` its twin ``agents/kernels/tabular.py``. Both return the same bits, and a
member's result depends on its key, its hyperparameters and its world only.

Axes: P members, S states, A actions.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Tuple

import numpy as np
import torch

from envolve.agents.common.hyper import Hyper
from envolve.agents.common.result import WORLD_DIVERGED, TrainResult
from envolve.agents.common.sections import TabularSection
from envolve.agents.tabular import loop as tabular_loop
from envolve.agents.tabular.loop import PER_MEMBER, Setting, Tables

ALGORITHMS = ("ql", "ql_cb", "sarsa", "sarsa_cb")  # _cb: count-based exploration bonus
KINDS = ("real", "se", "rn")


class RewardNoise(NamedTuple):
    """Standard deviations of the Gaussian noise on a reward: ``reward_noise`` of world and task."""

    world: float = 0.0
    task: float = 0.0


NO_NOISE = RewardNoise()


def train_tabular(
    algorithm: str,
    hyper: Hyper,
    world_tables: Tuple[Any, Any, Any],
    task_tables: Tuple[Any, Any, Any, int],
    kind: str,
    max_steps: int,
    solved_reward: float,
    test_each: bool,
    keys: np.ndarray,
    backend: str = "compiled",
    threads: int = 1,
    noise: RewardNoise = NO_NOISE,
) -> TrainResult:
    """Train one agent per member, then test it greedily on the real task.

    algorithm: one of ``ALGORITHMS``; hyper: of a ``TabularSection``. kind: "real", "se" or "rn", what the world is; an
    SE's done is the raw output of its done_net, which ends the episode above 0.5 and lets the target bootstrap below.
    world_tables: next state, reward, done [P or 1, S, A] (arrays, or tensors on the CPU). task_tables: the same [S, A],
    and the start state. A world with a NaN or infinite entry is not trained in: WORLD_DIVERGED.
    keys: int64 [P]. test_each: test after every training episode and stop when solved.
    threads: members are shared among this many ("compiled" only; the result does not depend on it).

    Returns a TrainResult whose weights are Q [P, S * A]; updates counts changes of one table entry.
    Raises ValueError for an unknown algorithm, kind or back end, shapes that do not fit and states out of range.
    """
    for value, known in ((algorithm, ALGORITHMS), (kind, KINDS), (backend, ("compiled", "torch"))):
        if value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
    keys = np.ascontiguousarray(keys, np.int64)
    members, (states, actions) = len(keys), np.shape(task_tables[1])
    for table in world_tables:
        if np.shape(table) not in ((members, states, actions), (1, states, actions)):
            raise ValueError(f"world table {np.shape(table)}: expected [{members} or 1, {states}, {actions}]")
    for name in PER_MEMBER:
        if np.shape(hyper[name]) != (members,):
            raise ValueError(f"{name} {np.shape(hyper[name])}: expected [{members}]")
    world, task, start = _flat(world_tables), _flat(task_tables[:3]), int(task_tables[3])
    reached = np.concatenate([world.next_state.ravel(), task.next_state.ravel(), [start]])
    if reached.min() < 0 or reached.max() >= states:  # the kernel does not check its indices
        raise ValueError(f"states {reached.min()} to {reached.max()}: expected 0 to {states - 1}")
    setting = Setting(
        algorithm,
        hyper,
        world,
        task,
        float(noise.world),
        float(noise.task),
        start,
        actions,
        kind == "se",
        int(max_steps),
        float(solved_reward),
        bool(test_each),
    )
    weights = np.zeros((members, states * actions), np.float32)
    result = TrainResult.before_training(weights, hyper.section.train_episodes, hyper.section.test_episodes)
    sound = np.isfinite(world.reward).all(1) & np.isfinite(world.done).all(1)
    result.status[~np.broadcast_to(sound, members)] = WORLD_DIVERGED
    if backend == "compiled":
        _train_compiled(setting, keys, result, threads)
    else:
        tabular_loop.train(setting, torch.from_numpy(keys), result)
    return result


def _flat(tables: Tuple[Any, ...]) -> Tables:
    arrays = (np.ascontiguousarray(t, dtype) for t, dtype in zip(tables, (np.int32, np.float32, np.float32)))
    return Tables(*(a.reshape(-1, a.shape[-2] * a.shape[-1]) for a in arrays))


def _train_compiled(setting: Setting, keys: np.ndarray, result: TrainResult, threads: int) -> None:
    from envolve.agents.kernels.tabular import TRAIN_MEMBERS
    from envolve.agents.kernels.tabular_records import Drawn, Results, Rules, Steps

    h: TabularSection = setting.hyper.section  # type: ignore[assignment]
    integers = ("batch_size", "train_steps")
    values = (np.ascontiguousarray(setting.hyper[n], np.int64 if n in integers else np.float64) for n in PER_MEMBER)
    drawn = Drawn(keys.view(np.uint64), *values)
    rules = Rules(
        published=bool(h.published_sarsa),
        train_episodes=int(h.train_episodes),
        init_episodes=int(h.init_episodes),
        skip=int(h.same_action_num),
        window=int(h.early_out_num),
        change=float(h.early_out_virtual_diff),
        min_n=int(h.early_out_min_steps),
        bootstrap=bool(h.bootstrap_time_limit),
        synthetic=setting.synthetic,
        max_steps=setting.max_steps,
        solved_reward=setting.solved_reward,
        test_each=setting.test_each,
        start=setting.start,
        num_actions=setting.actions,
    )
    world = Steps(*setting.world, np.float32(setting.world_noise))
    next_state, reward, done = (table[0] for table in setting.task)
    task = Steps(next_state, reward, done, np.float32(setting.task_noise))
    results = Results(
        q_tables=result.weights,
        episode_return=result.episode_return,
        episode_length=result.episode_length,
        test_return=result.test_return,
        steps=result.train_steps,
        updates=result.updates,
        episodes=result.episodes,
        real_steps=result.real_steps,
        status=result.status,
    )

    def share(lo: int, hi: int) -> None:
        TRAIN_MEMBERS[setting.algorithm](lo, hi, drawn, rules, world, task, results)

    if threads == 1:
        share(0, len(keys))
    else:
        bounds = np.linspace(0, len(keys), min(len(keys), 4 * threads) + 1).astype(int).tolist()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, bounds[:-1], bounds[1:]))
