#!/usr/bin/env python3
"""Can a world be evolved to rank hyperparameters as the task does?

    python3 benchmarks/worlds/hyperparameter_ranks.py CONFIG --out DIR [--generations 60] [--begin model.pt]
    python3 benchmarks/worlds/hyperparameter_ranks.py CONFIG --out DIR --worlds model.pt ...    rank with these alone
    python3 benchmarks/worlds/hyperparameter_ranks.py --out DIR --table [--truth truth.json]

A world's score is Spearman's correlation, over 30 sets of hyperparameters, between what an agent with the set returns
on the task after training in the world and what --agents agents return after training on the task for 20 times the
steps. The figure is the same correlation over 50 other sets, as many agents each, with 95 % bootstrap intervals over
the sets.

  evolved    the centre of the search
  first      the world that the search began with: random weights, or --begin
  short      no world: agents trained on the task for as many steps as in the world
  again      no world: as many more agents trained on the task for the full steps: the highest that can be expected
  fit        no agents: least squares of what the 30 sets return on the task, by the logarithms of their numbers (of
             layers: the number)
  FILE       a world of --worlds, as it is

All agents are judged by greedy episodes on the task; steps of these are counted, too. Agents in a bandit are judged a
second time by what their greedy actions earn there, which takes no step on the task ("by the world's reward"). The
table also says what a choice is worth: the mean return on the task of the FIRST sets of an order. CONFIG is one of SEs
or bandits; its learner varies as VARY says, PPO as ppo_set says. A stopped command goes on with the next generation or
row.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from envolve.agents.common.hyper import draw  # noqa: E402
from envolve.agents.common.sections import LearnerSection, PPOSection, VarySection  # noqa: E402
from envolve.agents.greedy import policies  # noqa: E402
from envolve.agents.train import Hardware, of_one_step_episodes, train  # noqa: E402
from envolve.core.files import read_text  # noqa: E402
from envolve.core.statistics import pairs_interval, spearman  # noqa: E402
from envolve.envs.task import NEVER_SOLVED, make_task  # noqa: E402
from envolve.envs.worlds.contextual_bandit import ContextualBandit  # noqa: E402
from envolve.envs.worlds.file import WorldFileError, read_world, write_atomic  # noqa: E402
from envolve.outer.checkpoint import Progress, RunError, load_checkpoint, save_checkpoint  # noqa: E402
from envolve.outer.config import problem  # noqa: E402
from envolve.outer.config.load import load_config  # noqa: E402
from envolve.outer.search.nes import ORIG, RETEST, member_seeds  # noqa: E402
from envolve.outer.search.strategy import make_strategy  # noqa: E402
from envolve.outer.search.target import NetworkTarget, make_target  # noqa: E402

VARY = VarySection(vary_hp=True, vary_layers=True, lr_factor=10.0, train_steps_factor=1.0)
SETS, HELD_OUT = 30, 50
AGENTS = 10  # with each set, unless --agents says otherwise
CONTEXTS = 1000  # in which greedy actions are paid
LONGER = 20  # times the steps in the world that agents on the task have
FIRST = 5  # sets of an order, those that a user would try on the task
TESTS = 5  # greedy episodes of one agent
TRUTH, SEARCH, JUDGE, AGAIN = 300, 301, 302, 303  # counters of member_seeds
ROWS = ("evolved", "first", "short", "fit", "again")
NUMBERS = ("lr", "batch_size", "hidden_size", "hidden_layer")  # that VARY draws
OF_PPO = ("lr", "ppo_epochs", "minibatches", "eps_clip", "hidden_size", "hidden_layer")


class Trained(NamedTuple):
    """Agents [P] with one set."""

    returns: np.ndarray  # float64, means of test episodes on the task; NaN of one that diverged
    learner: LearnerSection
    weights: np.ndarray  # float32 [P, D]
    seeds: np.ndarray  # int64


class Study:
    """One configuration: its task, 80 sets of hyperparameters, and what they are worth on the task."""

    def __init__(
        self, data: dict[str, Any], out: Path, steps: int, agents: int = AGENTS, begin: Path | None = None
    ) -> None:
        """data: the resolved configuration; steps: of an agent in the world; agents: with each set; begin: the world
        that the search begins with. Raises RunError."""
        target = make_target(data)
        assert isinstance(target, NetworkTarget)
        self.data, self.out, self.steps, self.agents, self.target = data, out, steps, agents, target
        self.seed, self.gtn = data["seed"], problem.gtn_section(data)
        self.digest = hashlib.sha256(json.dumps([data, steps], sort_keys=True).encode()).hexdigest()
        self.section = problem.env_section(data)
        self.name, base, _ = problem.learner(data)
        base = dataclasses.replace(base, train_episodes=10**6, test_episodes=TESTS)
        keys = member_seeds(self.seed, RETEST, TRUTH, SETS + HELD_OUT)
        self.sets = [draw(base, keys[i : i + 1], VARY).member(0) for i in range(len(keys))]
        if isinstance(base, PPOSection):
            self.sets = [ppo_set(own, int(key)) for own, key in zip(self.sets, keys) if isinstance(own, PPOSection)]
        self.numbers = OF_PPO if isinstance(base, PPOSection) else NUMBERS
        self.task_steps = 0  # on the task, tests included
        self.search_digest = self.digest
        self.began: Tensor | None = None
        if begin is not None:
            self.began = read(begin, self)
            self.search_digest += hashlib.sha256(self.began.numpy().tobytes()).hexdigest()

    def begin(self, seed: int) -> Tensor:
        """The first centre, float32 [D]."""
        return self.target.begin(seed) if self.began is None else self.began

    def returns(self, which: Sequence[int], kind: str, steps: int, worlds: Tensor, seeds: np.ndarray) -> np.ndarray:
        """Trains an agent per world, float32 [P, D], with each set -> mean test returns on the task, float64
        [sets, P]; an agent that diverged has the worst return of all. seeds: int64 [sets, P]."""
        return no_worse(np.stack([self.trained(i, kind, steps, worlds, own).returns for i, own in zip(which, seeds)]))

    def trained(self, i: int, kind: str, steps: int, worlds: Tensor, seeds: np.ndarray) -> Trained:
        """The same with set i. seeds: int64 [P]."""
        task = make_task(self.data["env_name"], self.section.max_steps, NEVER_SOLVED)
        hyper: LearnerSection = dataclasses.replace(self.sets[i], train_steps=steps, early_out_min_steps=steps + 1)
        result = train(
            self.name, hyper, None, task, kind, self.section, worlds, seeds, False, self.gtn.backend, Hardware()
        )
        self.task_steps += int(result.real_steps.sum())
        returns = np.where(result.status == 0, result.test_return.mean(1), np.nan)
        return Trained(returns, hyper, result.weights, seeds)

    def rewards(self, flat: Tensor, agents: Sequence[Trained]) -> np.ndarray:
        """Mean reward of the agents' greedy actions in a bandit, float32 [D] -> float64 [sets, P]; an agent that
        diverged has the worst of all."""
        task = make_task(self.data["env_name"], self.section.max_steps)
        world = ContextualBandit(task, self.section, flat[None])
        u = np.random.default_rng(0).random((1, CONTEXTS, world.reset_uniforms))
        state = world.reset(torch.from_numpy(u))
        seen = world.observe(state)
        found = []
        for a in agents:
            acts = policies(self.name, of_one_step_episodes(a.learner, None), None, task, a.weights, a.seeds)
            found.append([float(world.step(state, act(seen))[1].mean()) for act in acts])
        return no_worse(np.where([np.isfinite(a.returns) for a in agents], found, np.nan))

    def on_task(self, which: Sequence[int], steps: int, counter: int) -> np.ndarray:
        """Mean of the agents with each set, trained on the task -> float64 [sets]."""
        seeds = self.keys(counter, len(which))
        return self.returns(which, "real", steps, torch.zeros(self.agents, 1), seeds).mean(1)

    def keys(self, counter: int, sets: int) -> np.ndarray:
        """Random seeds of the agents with each set, int64 [sets, agents]."""
        return member_seeds(self.seed, RETEST, counter, sets * self.agents).reshape(sets, self.agents)

    def truth(self) -> np.ndarray:
        """What each set is worth on the task, float64 [80]. Finished sets are in ``task/cells.jsonl``."""
        path, wanted = self.out / "truth.json", {"configuration": self.digest, "steps": LONGER * self.steps}
        wanted["agents"] = self.agents
        if not path.exists():
            seeds = self.keys(TRUTH + 1000, len(self.sets))

            def one(i: int) -> dict[str, Any]:
                before = self.task_steps
                found = self.trained(i, "real", LONGER * self.steps, torch.zeros(self.agents, 1), seeds[i])
                return {"set": i, **wanted, "returns": found.returns.tolist(), "task_steps": self.task_steps - before}

            folder = self.out / "task"
            cells.demand(folder, lambda row: wanted)
            cells.work(folder, [(i,) for i in range(len(self.sets))], one, lambda row: f"{np.mean(row['returns']):.4g}")
            rows = sorted(cells.results(folder, {"set": int, "returns": list}), key=lambda row: int(row["set"]))
            content = {
                **wanted, "returns": no_worse(np.array([r["returns"] for r in rows])).mean(1).tolist(),
                "task_steps": sum(r["task_steps"] for r in rows), "cpu_seconds": sum(r["cpu_seconds"] for r in rows),
                "sets": [{k: getattr(s, k) for k in self.numbers} for s in self.sets],
            }  # fmt: skip
            write_atomic(str(path), json.dumps(content).encode())
        found = json.loads(read_text(path))
        found.setdefault("agents", AGENTS)  # of files before --agents
        if any(found.get(key) != value for key, value in wanted.items()):
            raise RunError(f"{path}: found another configuration, other --steps or --agents; choose another --out")
        return np.array(found["returns"])

    def score(self, worlds: Tensor, generation: int, truth: np.ndarray) -> np.ndarray:
        """Correlation of each world, float64 [P], with one agent per set; all worlds have the same random seeds. A
        world in which all sets do equally well has -1."""
        own = member_seeds(self.seed, RETEST, SEARCH + 10 * generation, SETS)
        found = self.returns(range(SETS), "se", self.steps, worlds, np.repeat(own[:, None], len(worlds), 1))
        return np.nan_to_num([spearman(column, truth[:SETS]) for column in found.T], nan=-1.0)

    def search(self, generations: int) -> Tensor:
        """Evolves -> the centre, float32 [D]; goes on from search.pt."""
        path, truth, state = self.out / "search.pt", self.truth(), None
        if path.exists():
            state, _ = load_checkpoint(path, self.search_digest)
        strategy = make_strategy(self.gtn, self.seed, self.begin, self.target.mask(), state)
        while strategy.state.generation < generations:
            began, before, number = time.process_time(), self.task_steps, strategy.state.generation
            members = strategy.ask()
            scores = self.score(members.worlds, number, truth)
            strategy.tell(scores)
            centre = scores[[role == ORIG for role in members.roles]]
            save_checkpoint(path, strategy.state, Progress(strategy.centre), self.search_digest)
            row = {"generation": number + 1, "centre": float(centre.mean()), "mean": float(scores.mean()),
                   "best": float(scores.max()), "task_steps": self.task_steps - before,
                   "cpu_seconds": time.process_time() - began}  # fmt: skip
            with open(self.out / "curve.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"generation {number + 1}: centre {row['centre']:.2f}, all {row['mean']:.2f}", flush=True)
        return strategy.centre

    def fitted(self, truth: np.ndarray) -> np.ndarray:
        """Returns of the held-out sets as the others foretell them, float64 [50]. truth: float64 [80]."""
        *numbers, layers = np.array([[getattr(s, k) for k in self.numbers] for s in self.sets]).T  # layers may be 0
        inputs = np.column_stack((np.log(numbers).T, layers, np.ones(len(self.sets))))
        weights = np.linalg.lstsq(inputs[:SETS], truth[:SETS], rcond=None)[0]
        return np.asarray(inputs[SETS:] @ weights)

    def row(self, name: str, world: Tensor | None, steps: int | None = None) -> dict[str, Any]:
        """The correlation over the sets that the search has not seen. world: that agents train in; None: in none.
        steps: other than the study's, in a world or before a short test on the task."""
        whole, held = self.truth(), range(SETS, SETS + HELD_OUT)
        truth, steps = whole[SETS:], steps or self.steps
        began, self.task_steps = time.process_time(), 0
        rewards: dict[str, Any] = {}
        if world is not None:
            worlds = world.expand(self.agents, -1)
            agents = [self.trained(i, "se", steps, worlds, own) for i, own in zip(held, self.keys(JUDGE, HELD_OUT))]
            found = no_worse(np.stack([a.returns for a in agents])).mean(1)
            if self.section.contextual_bandit:
                earned = self.rewards(world, agents).mean(1)
                figure = [spearman(earned, truth), *pairs_interval(spearman, earned, truth)]
                rewards = {"by_reward": figure, "rewards": earned.tolist()}
        elif name == "fit":
            found = self.fitted(whole)
        else:
            short = name == "short"
            found = self.on_task(held, steps if short else LONGER * self.steps, JUDGE if short else AGAIN)
        low, high = pairs_interval(spearman, found, truth)
        return {
            "row": name, "spearman": spearman(found, truth), "low": low, "high": high, "returns": found.tolist(),
            "steps": {"again": LONGER * self.steps, "fit": 0}.get(name, steps), "task_steps": self.task_steps,
            **rewards, "cpu_seconds": time.process_time() - began,
        }  # fmt: skip


def no_worse(returns: np.ndarray) -> np.ndarray:
    """Returns [...] in which an agent that diverged (NaN) has the worst of all."""
    return np.where(np.isfinite(returns), returns, np.nanmin(returns))


def ppo_set(section: PPOSection, key: int) -> PPOSection:
    """The section with other numbers that only PPO has: epochs log-uniform in [3, 30], minibatches of a rollout 8, 16,
    ..., 128, and the bound of the policy's ratio log-uniform in [0.1, 0.4]. key: the set's random seed."""
    rng = np.random.default_rng(key)
    epochs, clip = (float(np.exp(rng.uniform(*np.log(ends)))) for ends in ((3, 30), (0.1, 0.4)))
    return dataclasses.replace(
        section, ppo_epochs=round(epochs), minibatches=2 ** int(rng.integers(3, 8)), eps_clip=clip
    )


def read(path: Path, study: Study) -> Tensor:
    """A world for the study, float32 [D]. Raises RunError."""
    try:
        found = read_world(str(path)).flat
    except WorldFileError as e:
        raise RunError(str(e)) from None
    size = len(study.target.begin(0))
    if len(found) != size:
        raise RunError(f"{path}: found a world of {len(found)} numbers, expected {size}")
    return found


def first(order: np.ndarray, truth: np.ndarray) -> float:
    """Mean return on the task of the FIRST sets of an order, both float64 [sets]."""
    return float(truth[np.argsort(-order, kind="stable")[:FIRST]].mean())


def table(out: Path, path: Path | None) -> str:
    """path: truth.json of the study, where it is not in the folder."""
    path = path or out / "truth.json"
    truth = np.array(json.loads(read_text(path))["returns"])[SETS:] if path.exists() else None
    rows = cells.results(out, {"row": str, "spearman": float, "low": float, "high": float, "task_steps": int})
    lines = [
        f"| | Spearman over 50 sets | by the world's reward | return of the first {FIRST} | "
        "of the first by the world's reward | steps of an agent | on the task, tests included | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = {name: i for i, name in enumerate(ROWS)}
    for r in sorted(rows, key=lambda r: (order.get(r["row"], -1), r["row"], r["steps"])):
        steps = f"{r['steps']:,} | {r['task_steps']:,} | {r['cpu_seconds']:.0f}"
        figures = [said(r["spearman"], r["low"], r["high"]), by_reward(r)]
        figures += [chosen(r[key], truth) if key in r else "" for key in ("returns", "rewards")]
        lines.append(f"| {r['row']} | {' | '.join(figures)} | {steps} |")
    return "\n".join(lines)


def said(value: float, low: float, high: float, places: int = 2) -> str:
    return f"{value:.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def chosen(found: list[float], truth: np.ndarray | None) -> str:
    """What the first sets return on the task, by an order of what was found. Rows of a test may have other sets."""
    if truth is None or len(found) != len(truth):
        return ""
    order = np.array(found)
    return said(first(order, truth), *pairs_interval(first, order, truth), places=0)


def by_reward(row: cells.Row) -> str:
    return said(*row["by_reward"]) if "by_reward" in row else ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, nargs="?", help="a configuration of SEs or bandits")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=500, help="of an agent in the world (default: %(default)s)")
    parser.add_argument("--also", type=int, nargs="+", default=[], metavar="STEPS",
                        help="numbers of steps, in worlds and on the task, after which to rank as well")  # fmt: skip
    parser.add_argument("--agents", type=int, default=AGENTS, help="with each set (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=60, help="(default: %(default)s)")
    parser.add_argument("--begin", type=Path, metavar="FILE", help="model.pt with which the search begins")
    parser.add_argument("--worlds", type=Path, nargs="+", default=[], metavar="FILE", help="no search: model.pt files")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--table", action="store_true", help="print the table of what is there and stop")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="truth.json of a table, if it is in another folder")
    args = parser.parse_args(argv)
    if args.config is None and not args.table:
        parser.error("CONFIG: found none, expected a configuration of SEs or bandits")
    cells.check_counts(
        parser,
        {"--steps": [args.steps], "--also": args.also, "--agents": [args.agents], "--generations": [args.generations]},
        10**7,
    )

    def go() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        study = Study(load_config(args.config, args.set).data, args.out, args.steps, args.agents, args.begin)
        worlds = {str(path): read(path, study) for path in args.worlds}
        if not worlds:
            first = study.begin(int(member_seeds(study.seed, RETEST, TRUTH, 1)[0]))
            worlds = {"evolved": study.search(args.generations), "first": first}
        names: list[tuple[Any, ...]] = [(name,) for name in (*worlds, "short", "fit", "again")]
        names += [(name, steps) for steps in args.also for name in (*worlds, "short")]
        cells.work(args.out, names, lambda name, *steps: study.row(name, worlds.get(name), *steps), shown)

    return cells.finish("hyperparameter_ranks", args, go, lambda: table(args.out, args.truth))


def shown(row: cells.Row) -> str:
    reward = f", by the world's reward {by_reward(row)}" if "by_reward" in row else ""
    return f"Spearman {said(row['spearman'], row['low'], row['high'])}{reward}"


if __name__ == "__main__":
    sys.exit(main())
