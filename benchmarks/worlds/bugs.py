#!/usr/bin/env python3
"""Which worlds see which bugs: a learner with one planted bug, trained in a world of the zoo and on the task.

    python3 benchmarks/worlds/bugs.py [--out DIR] [--seeds 5] [--clean 15]      all runs that are missing, and the table
    python3 benchmarks/worlds/bugs.py --out DIR --table                         the table of what is there

The learner is PPO (planted/ppo.py). A bug is one wrong line, marked by the bug's name. An *alarm* is a run whose agent
returns less on the task than every one of the first ten runs without a bug. By chance alone, one run of eleven raises
it. The other runs without a bug count false alarms. In a world there is a second alarm, without the task: by the share
of the reward that the agent earns (envolve.worlds.share). Each finished run is a line of cells.jsonl in --out; the same
command goes on. learner_check.py compares several agents at once, which sees more.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import envolve.worlds  # noqa: E402  registers the worlds
from benchmarks.common.cells import Row, add_flags, check_counts, finish, results, work  # noqa: E402
from benchmarks.worlds.planted.ppo import BUGS, Settings, train  # noqa: E402
from envolve.core.statistics import interval  # noqa: E402
from envolve.outer.checkpoint import locked  # noqa: E402
from envolve.worlds.check import share  # noqa: E402

CLEAN = "none"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an agent trains, for how many steps, and the task that it is tested on."""

    env_id: str
    steps: int
    task: str

    @property
    def title(self) -> str:
        own = self.env_id.removeprefix(f"{envolve.worlds.NAMESPACE}/")
        return f"{own}{' itself' * (own == self.task)}, {self.steps:,} steps"


def is_world(env_id: str) -> bool:
    return env_id.startswith(f"{envolve.worlds.NAMESPACE}/")


PLACES = {
    "cartpole_bandit": Place("envolve/CartPole-v1-bandit", 20_480, "CartPole-v1"),
    "acrobot_bandit": Place("envolve/Acrobot-v1-bandit", 20_480, "Acrobot-v1"),
    "cartpole": Place("CartPole-v1", 20_480, "CartPole-v1"),
    "cartpole_longer": Place("CartPole-v1", 102_400, "CartPole-v1"),
}
MOST = 10**5  # runs of a kind
CALIBRATION = 10  # runs without a bug that set the mark
SETTINGS = Settings(
    num_envs=32, rollout=32, minibatches=4, lr=1e-3, entropy=0.005, value=0.25, orthogonal=False
)  # its bug of the entropy has twenty times the factor, with the wrong sign
EPISODES = 10
RETURN, SHARE = "return", "share"  # what an alarm goes by


def test(actor: nn.Sequential, task: str, episodes: int = EPISODES) -> float:
    """Mean return of the greedy policy on the task."""
    env, returns = gymnasium.make(task), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=2**30 + episode)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(int(greedy(actor, observation)))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def greedy(actor: nn.Sequential, observation: np.ndarray) -> np.ndarray:
    """Most probable actions, int64 [...], for observations [..., F]."""
    with torch.no_grad():
        return actor(torch.as_tensor(observation, dtype=torch.float32)).argmax(-1).numpy()


def one(name: str, bug: str, seed: int) -> Row:
    """Trains and tests one agent at a place."""
    place, began = PLACES[name], time.process_time()
    try:
        actor = train(place.env_id, place.steps, seed, bug, SETTINGS)
        trained = time.process_time() - began
        value: float | None = test(actor, place.task)
        earned = share(lambda x: greedy(actor, x), place.env_id) if is_world(place.env_id) else None
    except ValueError:  # a distribution without finite numbers: what the bug did
        trained, value, earned = time.process_time() - began, None, None
    return {"place": name, "bug": bug, "seed": seed, "return": value, "share": earned, "training_seconds": trained}


def finished(out: Path) -> list[Row]:
    return results(out, {"place": str, "bug": str, "seed": int, "training_seconds": float})


def number(row: Row, key: str = RETURN) -> float:
    """Its return, or its share of a world's reward; a run that failed is below every mark."""
    return -np.inf if row[key] is None else float(row[key])


def table(rows: Sequence[Row]) -> str:
    """Markdown: alarms per bug and place, false alarms, and the seconds of a run."""
    places = [p for p in PLACES if any(r["place"] == p for r in rows)]
    columns = [(p, key) for p in places for key in ((RETURN, SHARE) if is_world(PLACES[p].env_id) else (RETURN,))]
    by = {p: {b: [r for r in rows if (r["place"], r["bug"]) == (p, b)] for b in (CLEAN, *BUGS)} for p in places}
    marks = {
        (p, key): min((number(r, key) for r in by[p][CLEAN] if r["seed"] < CALIBRATION), default=np.nan)
        for p, key in columns
    }

    def line(first: str, runs: Mapping[str, Sequence[Row]]) -> str:
        return f"{first} | " + " | ".join(alarms(runs[p], key, marks[p, key]) for p, key in columns) + " |"

    titles = (PLACES[p].title + ", by its reward" * (key == SHARE) for p, key in columns)
    lines = ["| bug | place in the learner | " + " | ".join(titles) + " |", "|" + "---|" * (2 + len(columns))]
    lines += [line(f"| {bug} | {where}", {p: by[p][bug] for p in places}) for bug, where in BUGS.items()]
    lines.append(line("| all |", {p: [r for bug in BUGS for r in by[p][bug]] for p in places}))
    fresh = {p: [r for r in by[p][CLEAN] if r["seed"] >= CALIBRATION] for p in places}
    lines.append(line("| no bug (false alarms) |", fresh))
    known = (usual([number(r, key) for r in by[p][CLEAN]], marks[p, key]) for p, key in columns)
    lines.append("| return, or share, without a bug | | " + " | ".join(known) + " |")
    spent = (np.median([r["training_seconds"] for r in rows if r["place"] == p]) for p, _ in columns)
    lines.append("| CPU seconds of a run, median | | " + " | ".join(f"{s:.1f}" for s in spent) + " |")
    return "\n".join(lines)


def usual(known: Sequence[float], mark: float) -> str:
    """Mean and interval of runs without a bug, and the mark that they set."""
    if not known:
        return "-"
    ends = interval(known) if len(known) > 1 else (np.nan, np.nan)
    digits = 0 if abs(mark) > 2 else 3
    return "{} [{}, {}], mark {}".format(*(f"{x:.{digits}f}" for x in (np.mean(known), *ends, mark)))


def alarms(rows: Sequence[Row], key: str, mark: float) -> str:
    return f"{sum(number(r, key) < mark for r in rows)} of {len(rows)}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser, "bugs", seeds=5)
    parser.add_argument("--clean", type=int, default=15, help="runs without a bug (default: %(default)s)")
    parser.add_argument("--only-places", nargs="+", choices=PLACES, default=list(PLACES), metavar="PLACE",
                        help="default: all, of which cartpole_longer takes half of the time")  # fmt: skip
    args = parser.parse_args(argv)
    check_counts(parser, {"--seeds": [args.seeds], "--clean": [args.clean]}, MOST)
    if args.clean <= CALIBRATION:
        parser.error(f"--clean: found {args.clean}, expected at least {CALIBRATION + 1}")

    def go() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        runs = {CLEAN: args.clean, **dict.fromkeys(BUGS, args.seeds)}
        seeds = range(max(runs.values()))
        names = {bug.replace(" ", "_"): bug for bug in runs}
        cells = ((p, n, s) for s in seeds for n, bug in names.items() if s < runs[bug] for p in args.only_places)
        with locked(args.out):
            work(args.out, cells, lambda place, name, seed: one(place, names[name], seed), shown)

    return finish("bugs", args, go, lambda: table(finished(args.out)))


def shown(row: Row) -> str:
    return f"{number(row):.1f}"


if __name__ == "__main__":
    sys.exit(main())
