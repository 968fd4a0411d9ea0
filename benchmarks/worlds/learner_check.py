#!/usr/bin/env python3
"""Which bugs and which details of a learner ``envolve.worlds.check_learner`` sees.

    python3 benchmarks/worlds/learner_check.py [--out DIR] [--only ppo dqn td3]     agents that are missing, the table
    python3 benchmarks/worlds/learner_check.py --out DIR --table                    the table of what is there
    python3 benchmarks/worlds/learner_check.py --out DIR --references               REFERENCES of worlds/check.py

Agents of Stable-Baselines3 are the reference. PPO, DQN and TD3 are written out in planted/, with the same
hyperparameters; their first agents, without any bug, must be Stable-Baselines3's equals. A bug is one wrong line. A
detail is a choice that is no bug, such as how weights begin. A *check* compares five agents with the reference: "seen"
means that the probability of shares as low as theirs (of a detail: as different) is less than 0.01, if the learners are
the same. Agents without a bug, five at a time, count false alarms. This project's learners are compared with the
reference, too (own_agents.py). Each finished agent is a line of cells.jsonl in
--out; the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common.cells import Row, add_flags, check_counts, demand, finish, results, work  # noqa: E402
from benchmarks.worlds.own_agents import agent_in  # noqa: E402
from benchmarks.worlds.planted import dqn, ppo, td3  # noqa: E402
from envolve.agents import peers  # noqa: E402
from envolve.outer.checkpoint import locked  # noqa: E402
from envolve.worlds.check import Act, LearnerCheck, WorldCheck, share  # noqa: E402
from envolve.worlds.shelf import open_world  # noqa: E402

CLEAN = "none"
LIBRARY = "library"
OWN = "own"  # of this project
SIZED = "library, two layers of 256"  # Stable-Baselines3's with the networks of this project's TD3 and DDPG
DETAILS: dict[str, dict[str, Any]] = {
    "weights begin as torch has them": {"orthogonal": False}, "Adam's eps of 1e-8": {"adam_eps": 1e-8},
    "advantages as they are": {"normalise": False}, "gradients as long as they are": {"max_grad": float("inf")},
    "learning rate that falls": {"anneal": True}, "ReLU": {"activation": nn.ReLU}, "half of the epochs": {"epochs": 5},
    "minibatches of 128": {"minibatches": 16}, "no clipping": {"clip": 1e6}, "an entropy bonus": {"entropy": 0.01},
}  # fmt: skip
AGENTS = 5  # of a check


@dataclass(frozen=True)
class Learner:
    """A learner, its worlds and its steps. own: this project's, of ``own_agents.SETTINGS``; bugs: of the script in
    planted/; None: there is none."""

    worlds: tuple[str, ...]
    steps: int
    references: int  # agents of the library, and of this project
    own: str | None = None
    sized: bool = False  # this project's has other networks: it is compared with SIZED
    bugs: dict[str, str] | None = None
    details: tuple[str, ...] = ()


CARTPOLES = ("CartPole-v1-bandit", "CartPole-v1-bandit-2")
LEARNERS = {
    "ppo": Learner(CARTPOLES, 10_240, 20, "ppo", bugs=ppo.BUGS, details=tuple(DETAILS)),
    "ppo_continuous": Learner(("Swimmer-v5-bandit",), 10_240, 20, "ppo"),
    "a2c": Learner(CARTPOLES, 10_240, 20),
    "dqn": Learner(CARTPOLES, 10_240, 20, bugs=dqn.BUGS),
    "td3": Learner(("Pendulum-v1-bandit",), 2560, 10, "td3", True, td3.BUGS),
    "sac": Learner(("Pendulum-v1-bandit",), 2560, 10, "sac"),
    "ddpg": Learner(("Pendulum-v1-bandit",), 2560, 10, "ddpg", True),
}


def agent(learner: str, variant: str, world: str, seed: int) -> Act:
    """Trains one agent. variant: LIBRARY, SIZED, OWN, CLEAN, a bug or a detail."""
    it, env_id = LEARNERS[learner], f"envolve/{world}"
    if variant in (LIBRARY, SIZED):
        return library_agent(learner, env_id, it.steps, seed, {"net_arch": [256, 256]} if variant == SIZED else None)
    if variant == OWN and it.own is not None:
        return agent_in(world, it.own, it.steps, seed)
    bug = variant if it.bugs and variant in it.bugs else CLEAN
    if learner == "ppo":
        settings = replace(ppo.Settings(), **DETAILS.get(variant, {}))
        return greedy(ppo.train(env_id, it.steps, seed, bug, settings))
    if learner == "dqn":
        return greedy(dqn.train(env_id, it.steps, seed, bug))
    actor, space = td3.train(env_id, it.steps, seed, bug), open_world(world).action.space
    assert isinstance(space, Box)
    return lambda x: td3.of_space(output(actor, x), space)


def library_agent(learner: str, env_id: str, steps: int, seed: int, policy: dict[str, Any] | None = None) -> Act:
    """policy: arguments of its networks, other than the defaults."""
    algorithm, env = peers.algorithm(learner.split("_")[0]), gymnasium.make(env_id)
    model = algorithm("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs=policy).learn(steps)
    return lambda x: model.predict(x, deterministic=True)[0]


def output(net: nn.Sequential, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.as_tensor(x, dtype=torch.float32).flatten()).numpy()


def greedy(net: nn.Sequential) -> Act:
    return lambda x: output(net, x).argmax()


def one(learner: str, variant: str, world: str, seed: int) -> Row:
    """Trains an agent and says which share of the world's reward it earns; None: it has no finite numbers."""
    began = time.process_time()
    earned: float | None
    try:
        act = agent(learner, variant, world, seed)
        trained = time.process_time() - began
        earned = share(act, world)
    except ValueError:  # a distribution, or an action, without finite numbers: what the bug did
        trained, earned = time.process_time() - began, None
    row = {"learner": learner, "variant": variant, "world": world, "seed": seed, "share": earned}
    return {**row, "training_seconds": trained, **trains(row)}


def trains(row: Row) -> Row:
    """How long the agent of a row trains."""
    return {"steps": LEARNERS[row["learner"]].steps}


def finished(out: Path) -> list[Row]:
    return results(out, {"learner": str, "variant": str, "world": str, "seed": int, "training_seconds": float})


def shares(rows: Sequence[Row], learner: str, variant: str, world: str) -> tuple[float, ...]:
    """By seed. An agent that failed is below all others."""
    found = [r for r in rows if (r["learner"], r["variant"], r["world"]) == (learner, variant, world)]
    found.sort(key=lambda r: int(r["seed"]))
    return tuple(-np.inf if r["share"] is None else float(r["share"]) for r in found)


def by_world(rows: Sequence[Row], learner: str, variant: str) -> dict[str, tuple[float, ...]]:
    return {w: shares(rows, learner, variant, w) for w in LEARNERS[learner].worlds}


def compared(
    rows: Sequence[Row], learner: str, own: Mapping[str, Sequence[float]], beside: str = LIBRARY
) -> LearnerCheck:
    worlds = (WorldCheck(w, tuple(s), shares(rows, learner, beside, w)) for w, s in own.items() if s)
    return LearnerCheck(learner, LEARNERS[learner].steps, tuple(worlds))


def table(rows: Sequence[Row]) -> str:
    """Markdown, a table for each learner: its agents without a bug, then its bugs and details."""
    tables = []
    for learner, it in LEARNERS.items():
        library, sized, own, clean = (by_world(rows, learner, kind) for kind in (LIBRARY, SIZED, OWN, CLEAN))
        if not any(library.values()):
            continue
        head = ["`" + learner + "`", *it.worlds, "p, worse", "p, different", "seen"]
        lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), line("Stable-Baselines3's", library, None)]
        if any(sized.values()):
            lines.append(line("the same, two layers of 256", sized, compared(rows, learner, sized), two_sided=True))
        if any(own.values()):
            beside = SIZED if it.sized else LIBRARY
            lines.append(line("this project's", own, compared(rows, learner, own, beside), two_sided=True))
        if any(clean.values()):
            lines.append(line("the same, written out", clean, compared(rows, learner, clean)))
            for variant in (*(it.bugs or {}), *it.details):
                own = by_world(rows, learner, variant)
                if any(own.values()):
                    lines.append(line(variant, own, compared(rows, learner, own), two_sided=variant in it.details))
            lines.append(false_alarms(rows, learner, clean))
        seconds = np.median([r["training_seconds"] for r in rows if r["learner"] == learner])
        tables.append("\n".join(lines) + f"\n\nCPU seconds of an agent, median: {seconds:.1f}")
    return "\n\n".join(tables)


def line(name: str, own: Mapping[str, Sequence[float]], found: LearnerCheck | None, two_sided: bool = False) -> str:
    """own: shares by world; empty where no agent has trained."""
    said = [f"{np.mean(s):.3f} ({min(s):.3f} to {max(s):.3f}; {len(s)})" if s else "" for s in own.values()]
    if found is None:
        return f"| {' | '.join([name, *said])} | | | |"
    seen = "no" if (found.same if two_sided else found.ok) else "yes"
    return f"| {' | '.join([name, *said])} | {found.worse:.2g} | {found.different:.2g} | {seen} |"


def false_alarms(rows: Sequence[Row], learner: str, clean: Mapping[str, Sequence[float]]) -> str:
    """Checks of AGENTS agents without a bug each, beside the reference."""
    n = min(len(s) // AGENTS for s in clean.values())
    checks = [
        compared(rows, learner, {w: s[i * AGENTS : (i + 1) * AGENTS] for w, s in clean.items()}) for i in range(n)
    ]
    worse, other = (sum(not getattr(c, name) for c in checks) for name in ("ok", "same"))
    blank = "| " * len(clean)
    return f"| no bug, {AGENTS} at a time: alarms {blank}| {worse} of {n} | {other} of {n} | |"


def references(rows: Sequence[Row]) -> str:
    """The Python of REFERENCES."""
    lines = []
    for learner, it in LEARNERS.items():
        found = {w: s for w, s in by_world(rows, learner, LIBRARY).items() if s}
        if found:
            lines.append(f'    "{learner}": Reference({it.steps:_}, {{')
            for world, own in found.items():
                numbers = textwrap.wrap(" ".join(f"{x:.4f}," for x in own), 100)
                lines += [f'        "{world}": (', *(f"            {line}" for line in numbers), "        ),"]
            lines.append("    }),")
    return "\n".join(lines)


def cells_of(only: Sequence[str], worlds: Sequence[str], clean: int, seeds: int) -> list[tuple[str, str, str, int]]:
    """All agents: the reference and those without a bug first."""
    out = []
    for learner in only:
        it = LEARNERS[learner]
        kinds = {LIBRARY: it.references}
        kinds |= dict.fromkeys([SIZED] * it.sized + [OWN] * (it.own is not None), it.references)
        if it.bugs is not None:
            kinds |= {CLEAN: clean, **dict.fromkeys((*it.bugs, *it.details), seeds)}
        own = [w for w in it.worlds if w in worlds]
        out += [(learner, variant, w, seed) for w in own for variant, n in kinds.items() for seed in range(n)]
    return out


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser, "learner_check", seeds=AGENTS)
    parser.add_argument("--clean", type=int, default=20, help="agents without a bug (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=LEARNERS, default=list(LEARNERS), metavar="LEARNER")
    parser.add_argument("--worlds", nargs="+", default=sorted({w for k in LEARNERS.values() for w in k.worlds}),
                        metavar="WORLD", help="default: all")  # fmt: skip
    parser.add_argument("--references", action="store_true", help="print the Python of worlds/check.py")
    args = parser.parse_args(argv)
    check_counts(parser, {"--seeds": [args.seeds], "--clean": [args.clean]}, 10**4)
    args.table = args.table or args.references  # nothing is run for either
    said = references if args.references else table

    def go() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        wanted = cells_of(args.only, args.worlds, args.clean, args.seeds)
        names = {variant.replace(" ", "_"): variant for _, variant, _, _ in wanted}  # of cells: without spaces
        cells = [(k, variant.replace(" ", "_"), world, seed) for k, variant, world, seed in wanted]
        with locked(args.out):
            demand(args.out, trains)
            work(args.out, cells, lambda k, variant, world, seed: one(k, names[variant], world, seed), shown)

    return finish("learner_check", args, go, lambda: said(finished(args.out)))


def shown(row: Row) -> str:
    return "failed" if row["share"] is None else f"{row['share']:.3f}"


if __name__ == "__main__":
    sys.exit(main())
