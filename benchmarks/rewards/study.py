#!/usr/bin/env python3
"""Is evolving or tuning a reward worth anything? Searches and controls at equal environment steps.

    python3 benchmarks/rewards/study.py --out DIR [--tasks Cartpole ...] [--arms samples gp ...] [--seeds 5]
    python3 benchmarks/rewards/study.py --out DIR --estimate    CPU-hours, from one short training per task
    python3 benchmarks/rewards/study.py --out DIR --table       the table of what is there

A cell is (task, arm, seed). Every arm but two spends --budget trainings on its search; then fresh agents are trained
with what it found, and their score is the cell's. Each finished cell is a line of cells.jsonl in --out; the same
command goes on.

  human        the human's reward: no search. That of Cartpole is itself a constant
  constant     a reward of 1: no search. What is learned is no merit of the reward
  longer       the human's reward, its agents trained for all steps of the budget: no final training beside
  samples      independent replies of the pool; the best of them
  greedy, islands, elites    the searches of ``envolve write``, with the pool as the model (pool.py)
  gp           genetic programming over graphs of rewards: no model
  gp_human     the same with the human's reward among the parents
  nes, bohb, random          the numbers of the pool's first reply, tuned
  joint        reward, observation and end of random replies put together; its control is ``samples``

The unit of an interval is a seed: another order of the pool, other agents. The pool is no language model, so what is
compared is searches over rewards that people wrote. It takes one core. After Ctrl-C the same command goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import envolve.envs.physics  # noqa: E402, F401  registers the tasks
from benchmarks.common.cells import Row, add_flags, check_counts, demand, finish, results, work  # noqa: E402
from benchmarks.rewards.pool import KINDS, NAME, Entry, Pool, PoolVetter, load_pool, reward_alone  # noqa: E402
from envolve.agents.shaped.halving import Training  # noqa: E402
from envolve.agents.shaped.training import default_section  # noqa: E402
from envolve.core.statistics import interval, or_none  # noqa: E402
from envolve.envs.graph.file import GraphFile  # noqa: E402
from envolve.envs.physics.task import PHYSICS_TASKS  # noqa: E402
from envolve.envs.shaping.candidate import Candidate  # noqa: E402
from envolve.llm.evolution import Evolution, Settings  # noqa: E402
from envolve.llm.fitness import FINAL, judge  # noqa: E402
from envolve.llm.models.chat import Chat  # noqa: E402
from envolve.llm.run import human_graph  # noqa: E402
from envolve.llm.search.elites import Elites  # noqa: E402
from envolve.llm.search.genetic import Genetic  # noqa: E402
from envolve.llm.search.greedy import Greedy  # noqa: E402
from envolve.llm.search.individual import RewardSearch  # noqa: E402
from envolve.llm.search.islands import Islands  # noqa: E402
from envolve.llm.search.prompts import Brief  # noqa: E402
from envolve.llm.tune import Tuned, TuneSettings, tune  # noqa: E402
from envolve.llm.vetting.probe import make_probe  # noqa: E402
from envolve.outer.checkpoint import locked  # noqa: E402

TASKS = ("Cartpole", "HalfCheetah", "Reacher", "BallBalance", "Quadcopter")
CONTROLS, SEARCHES = ("human", "constant", "longer"), ("samples", "greedy", "islands", "elites", "gp", "gp_human")
TUNERS = ("nes", "bohb", "random")
ARMS = (*CONTROLS, *SEARCHES, *TUNERS, "joint")
GENETIC = ("gp", "gp_human")
BESIDE = ("human", "longer", "samples")  # what every arm is compared with
SAMPLES = 4  # candidates per iteration or generation
MOST = 10**5  # of any number


class Quiet:
    """Watcher that says nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@dataclasses.dataclass(frozen=True)
class Size:
    """budget: trainings of a search; iterations, envs: of a training; fresh: agents of the final score."""

    budget: int = 12
    iterations: int = 50
    envs: int = 64
    fresh: int = 3

    def training(self, task: str) -> Training:
        return Training(task, "ppo", default_section("ppo"), self.envs, self.iterations)

    @property
    def steps(self) -> int:
        """Environment steps of one training."""
        return self.iterations * self.envs * int(default_section("ppo").rollout_steps)


SIZES = [field.name for field in dataclasses.fields(Size)]


def cell(task: str, arm: str, seed: int, size: Size, out: Path) -> Row:
    """Runs one cell -> its figures. Its folder keeps what an interrupted one has done."""
    folder = out / task / arm / f"seed_{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    training = size.training(task)
    found, steps = _searched(task, arm, seed, size, out, folder)
    final = replace(training, agents=size.fresh)
    if arm == "longer":
        final = replace(final, iterations=size.budget * training.iterations)
    (worth,), _ = judge(final, [found], seed, FINAL)
    score = worth.score
    return {
        "task": task, "arm": arm, "seed": seed, "score": or_none(score),
        "agent_scores": worth.agent_scores if math.isfinite(score) else [], "failure": worth.failure,
        "search_steps": steps, "final_steps": worth.steps, **dataclasses.asdict(size),
    }  # fmt: skip


def _searched(task: str, arm: str, seed: int, size: Size, out: Path, folder: Path) -> tuple[Candidate, int]:
    """What the arm comes to, and the environment steps of its search."""
    training = size.training(task)
    if arm in ("human", "longer"):
        return Candidate("human"), 0
    if arm == "constant":
        return constant(task).candidate(), 0
    if arm in GENETIC:
        return _evolved(task, arm, seed, size, [], folder)
    if arm in ("greedy", "islands", "elites"):
        return _evolved(task, arm, seed, size, load_pool(task, out), folder)
    entries = load_pool(task, out)
    pool = Pool(entries, seed)
    order = [entries[pool.order[k % len(entries)]] for k in range(size.budget)]
    if arm in TUNERS:
        base = next((e for e in order if reward_params(e)), None)
        if base is None:
            raise ValueError(f"{task}: no reply of the pool has numbers to tune")
        graph_file = reward_alone(base)
        tuned = _tuned(training, graph_file.candidate(), arm, seed, size, folder / "tune.jsonl")
        return graph_file.with_values(tuned.params.tolist()).candidate(), tuned.steps
    files = [reward_alone(e) for e in order] if arm == "samples" else joint(task, entries, seed, size.budget)
    candidates = [f.candidate(f"c{k}") for k, f in enumerate(files)]
    worths, _ = judge(training, candidates, seed, (FINAL[0] + 1, 0))
    best = max(range(len(worths)), key=lambda k: worths[k].score if math.isfinite(worths[k].score) else -math.inf)
    return candidates[best], sum(w.steps for w in worths)


def _tuned(training: Training, candidate: Candidate, arm: str, seed: int, size: Size, log_file: Path) -> Tuned:
    """Tunes for the steps of the budget, to half a generation. Its log keeps finished generations."""
    generations = 0
    while True:
        generations += 1
        # NES has pairs around the point itself
        s = TuneSettings(arm, generations=generations, population=SAMPLES + (arm == "nes"))
        tuned = tune(training, candidate, s, seed, 0, log_file)
        if tuned.steps * (1 + 0.5 / generations) >= size.budget * size.steps:
            return tuned


def _evolved(task: str, arm: str, seed: int, size: Size, entries: list[Entry], folder: Path) -> tuple[Candidate, int]:
    cls = PHYSICS_TASKS[task]
    brief = Brief(cls, "", ("compute_reward",))
    search: RewardSearch
    if arm in GENETIC:
        probe = make_probe(task)
        search = Genetic(cls, probe.state, SAMPLES, seed, human_graph(cls, probe) if arm == "gp_human" else None)
    elif arm == "greedy":
        search = Greedy(brief, SAMPLES, [NAME])
    elif arm == "islands":
        search = Islands(brief, SAMPLES, [NAME], seed, islands=2)
    else:
        search = Elites(brief, SAMPLES, [NAME], seed)
    # no finalists: the cell has a test of its own
    s = Settings(max(1, size.budget // SAMPLES), size.training(task), seed, novelty=2.0, finalists=0)
    backends = {} if arm in GENETIC else {NAME: Pool(entries, seed)}
    vetter: Any = None if arm in GENETIC else PoolVetter(entries)
    with locked(folder), Chat(backends, folder / "calls.jsonl", parallel=1) as chat:
        result = Evolution(s, folder, search, chat, vetter, Quiet()).run()
    best = search.best()
    if best is None or best.graph_file is None:
        raise ValueError(f"{task}, {arm}, seed {seed}: nothing that the search tried has a score")
    return best.graph_file.candidate(), result.steps


def reward_params(entry: Entry) -> list[Any]:
    """Numbers of the entry's reward that can be tuned."""
    text = json.dumps(entry.graph_file["functions"]["compute_reward"])
    return [p for k, p in enumerate(entry.graph_file["params"]) if f'{{"param": {k}}}' in text]


def constant(task: str) -> GraphFile:
    """A reward of 1 in every step."""
    nodes = [{"op": "aten.mul.Tensor", "args": [{"in": 0}, 0.0]}, {"op": "aten.add.Tensor", "args": [{"node": 0}, 1.0]}]
    graph = {"inputs": ["progress"], "nodes": nodes, "outputs": [{"node": 1}], "names": ["total"]}
    return GraphFile.of(task, {"compute_reward": graph})


def joint(task: str, entries: list[Entry], seed: int, count: int) -> list[GraphFile]:
    """Reward, observation and end of random replies together, the task's own where a reply has none."""
    rng = np.random.default_rng([seed, 1])
    out = []
    for _ in range(count):
        functions: dict[str, Any] = {}
        for kind in KINDS:
            having = [g for e in entries if (g := e.of(kind)) is not None]
            if having and (kind == "compute_reward" or rng.random() < 0.7):
                functions[kind] = having[int(rng.integers(len(having)))]
        out.append(GraphFile.of(task, functions))
    return out


# ---------------------------------------------------------------------------------------------------------- the figures


def finished(out: Path) -> list[Row]:
    kinds = {"task": str, "arm": str, "seed": int, "search_steps": int, "cpu_seconds": float}
    return results(out, {**kinds, **dict.fromkeys(SIZES, int)})


def table(rows: list[Row]) -> str:
    """Three tables with a row per arm: final scores by task, with 95 % intervals over seeds and how many seeds; the
    differences from the human's of the same seed; all tasks together, with intervals over tasks."""
    human = {(r["task"], r["seed"]): r["score"] for r in rows if r["arm"] == "human"}

    def score(own: list[Row]) -> str:
        fine = [r["score"] for r in own if r["score"] is not None]
        lost = f", {len(own) - len(fine)} failed" if len(fine) < len(own) else ""
        return f"{_with_interval(fine, _bounds(own[0]['task']))}; {len(own)}{lost}"

    def gap(own: list[Row]) -> str:
        pairs = [(r["score"], human.get((r["task"], r["seed"]))) for r in own if r["arm"] != "human"]
        return _with_interval([a - b for a, b in pairs if a is not None and b is not None])

    return "\n".join([*_by_task(rows, "score; seeds", score), "", *_by_task(rows, "minus the human's", gap), "",
                      *_together(rows)])  # fmt: skip


def _by_task(rows: list[Row], title: str, shown: Callable[[list[Row]], str]) -> list[str]:
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    lines = [f"| {title} | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    for arm in ARMS:
        own = [[r for r in rows if (r["task"], r["arm"]) == (task, arm)] for task in tasks]
        if any(own):
            lines.append(f"| {arm} | {' | '.join(shown(cell) if cell else '-' for cell in own)} |")
    return lines


def _together(rows: list[Row]) -> list[str]:
    """A row per arm over all tasks: its level, 0 at the constant reward and 1 at the human's, as a mean over tasks, and
    how many of its cells are above those of three others with the same task and seed. A failure is below all."""
    found = {(r["task"], r["arm"], r["seed"]): -math.inf if r["score"] is None else r["score"] for r in rows}
    ends = {}
    for task in dict.fromkeys(r["task"] for r in rows):
        low, high = (
            float(np.mean([s for (t, a, _), s in found.items() if (t, a) == (task, arm)] or [math.nan]))
            for arm in ("constant", "human")
        )
        if high > low:  # of Cartpole they are equal
            ends[task] = low, high
    found = {key: score for key, score in found.items() if key[0] in ends}
    lines = [
        f"| over {', '.join(ends) or 'no task'} | level | " + " | ".join(f"above {o}" for o in BESIDE) + " | CPU-s |",
        "|---|---|---|" + "---|" * len(BESIDE),
    ]
    for arm in ARMS:
        levels = []
        for task, (low, high) in ends.items():
            own = [s for (t, a, _), s in found.items() if (t, a) == (task, arm) and math.isfinite(s)]
            levels += [(float(np.mean(own)) - low) / (high - low)] if own else []
        counts = []
        for other in BESIDE:
            pairs = [(s, found[t, other, k]) for (t, a, k), s in found.items() if a == arm and (t, other, k) in found]
            wins, equal = sum(a > b for a, b in pairs), sum(a == b for a, b in pairs)
            told = f"{wins} of {len(pairs)}" + (f", {equal} equal" if equal else "")
            counts.append("-" if arm == other or not pairs else told)
        if levels:
            spent = float(np.mean([r["cpu_seconds"] for r in rows if r["arm"] == arm and r["task"] in ends]))
            lines.append(f"| {arm} | {_with_interval(levels)} | {' | '.join(counts)} | {spent:.0f} |")
    return lines


def _bounds(task: str) -> tuple[float, float] | None:
    """The worst and the best score, where they are known."""
    share = task in PHYSICS_TASKS and PHYSICS_TASKS[task].score_unit.startswith("share")
    return (0.0, 1.0) if share else None


def _with_interval(x: list[float], bounds: tuple[float, float] | None = None) -> str:
    if not x:
        return "-"
    low, high = interval(x, bounds=bounds) if len(x) > 1 else (math.nan, math.nan)
    return f"{np.mean(x):.3g}" + (f" ({low:.3g} to {high:.3g})" if math.isfinite(low) else "")


def estimate(tasks: list[str], arms: list[str], seeds: int, size: Size) -> str:
    """CPU-hours of the study, from the CPU time of one training of two agents per task, the second of two runs."""
    lines, whole = [], 0.0
    for task in tasks:
        small = replace(size.training(task), agents=2, iterations=max(2, size.iterations // 10))
        seconds = 0.0
        for _ in range(2):  # the first compiles
            began = time.process_time()
            (worth,), _ = judge(small, [Candidate("human")], 0, FINAL)
            seconds = (time.process_time() - began) / worth.steps
        trainings = 0
        for arm in arms:
            search = 0 if arm in CONTROLS else size.budget
            trainings += search + size.fresh * (size.budget if arm == "longer" else 1)
        hours = trainings * size.steps * seconds * seeds / 3600
        lines.append(f"{task}: {1 / seconds:,.0f} steps per CPU second, {hours:.1f} h")
        whole += hours
    return "\n".join([*lines, f"together {whole:.1f} CPU-hours for {len(arms)} arms and {seeds} seeds"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_flags(parser, "study", seeds=5)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=sorted(PHYSICS_TASKS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    for field in dataclasses.fields(Size):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    parser.add_argument("--estimate", action="store_true", help="say what the study will cost, and end")
    args = parser.parse_args(argv)
    size = Size(args.budget, args.iterations, args.envs, args.fresh)
    numbers = {"seeds": args.seeds, **dataclasses.asdict(size)}
    check_counts(parser, {f"--{name}": [value] for name, value in numbers.items()}, MOST)
    if size.budget % SAMPLES:
        parser.error(f"--budget: found {size.budget}, expected a multiple of {SAMPLES}")

    def go() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        demand(args.out, lambda row: dataclasses.asdict(size))
        # all arms of a seed first: a part of the study is a smaller study
        cells = ((t, a, s) for s, t, a in itertools.product(range(args.seeds), args.tasks, args.arms))
        work(args.out, cells, lambda task, arm, seed: cell(task, arm, seed, size, args.out), shown)

    if args.estimate:
        return finish("study", args, lambda: None, lambda: estimate(args.tasks, args.arms, args.seeds, size))
    return finish("study", args, go, lambda: table(finished(args.out)))


def shown(row: Row) -> str:
    return "failed" if row["score"] is None else f"{row['score']:.4g}"


if __name__ == "__main__":
    sys.exit(main())
