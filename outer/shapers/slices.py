"""A ranking of shapers in slices: agents that are trained elsewhere, some at a time, and put together again.

All candidates of a ranking share one simulator, because that saves calls. Where every agent's bits are its own, with
compiled PPO on MuJoCo's CPU engine, any cut gives the bytes of one simulator. SAC, TD3 and the PyTorch path share
matrix products, and simulators on a GPU their sums: such a ranking is one slice.

Agents are numbered as in ``outer/shapers/run.py``: agent k of candidate c is number c K + k.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.kernels.building import ahead
from envolve.agents.shaped.training import (
    Metrics,
    ShapedResult,
    default_section,
    make_envs,
    make_learner,
    train_shaped,
)
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.shaping.candidate import Candidate, Failure, load_candidate
from envolve.envs.shaping.schedule import schedule_from
from envolve.outer.exchange.pairs import pack, unpack
from envolve.outer.names import HUMAN
from envolve.outer.search.nes import RETEST, member_seeds
from envolve.outer.shapers.run import RankingPlan, vars_of

SLICES_PER_SLOT = 2  # so that the last ones are short; more would cost more calls
LEARNER = "shaped_ppo"  # the kernels that slices need, where there are several
LOST = "NotTrained"  # kind of the failure of candidates whose slice was given up


@dataclass
class Dump:
    """A file that a simulation left, as ``envs/managers/guard.py`` makes it."""

    candidate: str
    name: str
    data: bytes

    def file_name(self) -> str:
        return self.name

    def content(self) -> bytes:
        return self.data


@dataclass
class Slice:
    """What came of some agents. ``result``: None if they were given up; ``failures``: by number within the slice."""

    agents: range
    result: Optional[ShapedResult]
    failures: Dict[int, Failure]
    dumps: List[Dump] = field(default_factory=list)


@dataclass
class Elsewhere:
    """What a ranking needs of environments that were not here: ``failures`` and sizes by number of the agent."""

    failures: Dict[int, Failure]
    observation_sizes: List[Optional[int]]
    action_sizes: List[Optional[int]]
    dumps: List[Dump]


def independent(p: RankingPlan) -> bool:
    """Whether an agent has the same bits whatever else is in its simulator."""
    return p.learner == "ppo" and p.engine == "mujoco" and p.device == "cpu" and p.backend in ("auto", "compiled")


def not_compiled() -> Optional[str]:
    """Why this machine has no kernels for slices, None if it has. Compiles them unless they are."""
    return ahead.why_not(LEARNER)


def cut(p: RankingPlan, slots: int) -> List[range]:
    """The agents of each slice. slots: workers that train slices side by side."""
    P = len(p.candidates) * p.K
    n = min(P, SLICES_PER_SLOT * max(1, slots)) if independent(p) else 1
    return [range(P * i // n, P * (i + 1) // n) for i in range(n)]


# ------------------------------------------------------------------------------------------------------- the plan


def files_of(p: RankingPlan) -> Dict[str, bytes]:
    """Candidates' files and, of a folder of them, the helpers beside them (``_name.py``), by name. Raises OSError."""
    paths = [Path(file) for _, file in p.candidates if file is not None]
    alone = p.settings["shapers"] is not None and os.path.isfile(p.settings["shapers"])
    helpers = [h for path in paths[:1] if not alone for h in sorted(path.parent.glob("_*")) if h.is_file()]
    return {path.name: read_plain(path, TEXT_BYTES) for path in [*paths, *helpers]}


def content_of(p: RankingPlan, files: Dict[str, bytes]) -> Dict[str, Any]:
    """The plan as plain values, for :func:`train`. files: SHA-256 of each is named, and no other will be executed."""
    return {
        "task": p.task.name,
        "candidates": [file for _, file in p.candidates],
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        "absolute": os.path.abspath(""),
        "types": list(p.settings["shaper_types"]),
        "K": p.K,
        "N": p.N,
        "iterations": p.iterations,
        "seed": p.seed,
        "learner": p.learner,
        "section": dict(vars(p.section)),
        "schedules": {name: vars_of(s) for name, s in p.schedules.items()},
        "engine": p.engine,
        "device": p.device,
        "backend": "compiled" if independent(p) else p.backend,
        "agents": {"gtn": {"num_threads_per_worker": p.threads}},  # as ``outer/exchange/evaluation.py`` reads it
    }


def unpacked(content: Dict[str, Any], held: Dict[str, bytes], folder: Path) -> None:
    """Writes the files that the plan names into a folder of this process. Raises ValueError for other bytes."""
    for name, sha256 in content["files"].items():
        data = held.get(name, b"")
        if os.path.basename(name) != name or hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"{name}: these are not the bytes that the ranking names")
        if not (folder / name).exists():
            (folder / name).write_bytes(data)


# ------------------------------------------------------------------------------------------------------- a slice


def train(content: Dict[str, Any], folder: Path, agents: range, threads: int) -> bytes:
    """Trains and judges these agents in one simulator -> what :func:`slice_of` reads. folder: of the candidates' files.
    Raises SimulatorError, ValueError."""
    K, given = content["K"], content["candidates"]
    own = {c: _candidate(given[c], folder, content["types"]) for c in {a // K for a in agents}}
    keys = [member_seeds(content["seed"], RETEST, purpose, K).tolist() for purpose in (0, 1)]
    agent_keys, env_keys = ([part[a % K] for a in agents] for part in keys)
    section = type(default_section(content["learner"]))(**content["section"])
    schedules = {name: schedule_from(spec) for name, spec in content["schedules"].items()}
    members = [own[a // K] for a in agents]
    engine, device = content["engine"], content["device"]
    envs = make_envs(content["task"], members, content["N"], env_keys, engine, threads, device, schedules)
    try:
        learner = make_learner(content["learner"], envs, section, np.array(agent_keys), content["backend"], threads)
        result = train_shaped(envs, learner, content["iterations"])
        names = {i: given[a // K] for i, a in enumerate(agents)}
        failures = {i: _as_here(f, names[i], folder, content["absolute"]) for i, f in envs.failures.items()}
        dumps = [(d.candidate, d.file_name(), d.content()) for d in getattr(envs, "dumps", [])]
    finally:
        envs.task.sim.close()
    return _encoded(result, failures, dumps)


def _candidate(file: Optional[str], folder: Path, types: Sequence[str]) -> Candidate:
    return Candidate(HUMAN) if file is None else load_candidate(folder / os.path.basename(file), types)


def _as_here(failure: Failure, file: Optional[str], folder: Path, absolute: str) -> Failure:
    """The failure with the file's name where the ranking was begun: Python prints it as absolute in tracebacks."""
    if file is None:
        return failure
    there = str(folder / os.path.basename(file))
    traceback = failure.traceback.replace(there, os.path.normpath(os.path.join(absolute, file)))
    return failure._replace(reason=failure.reason.replace(there, file), traceback=traceback)


def _encoded(result: ShapedResult, failures: Dict[int, Failure], dumps: Sequence[Tuple[str, str, bytes]]) -> bytes:
    curve = result.curve
    return pack({
        "score": torch.from_numpy(result.episode_score),
        "steps": result.steps,
        "sizes": [list(result.observation_sizes), list(result.action_sizes)],
        "failures": {str(i): list(f) for i, f in failures.items()},
        "policies": [{name: _own(x) for name, x in policy.items()} for policy in result.policies],
        "curve": {
            "steps": [p.steps for p in curve],
            **{k: torch.from_numpy(np.array([getattr(p, k) for p in curve])) for k in ("score", "reward", "episodes")},
            "components": json.dumps([p.components for p in curve]),
        },
        "dumps": [[who, name, torch.frombuffer(bytearray(data), dtype=torch.uint8)] for who, name, data in dumps],
    })  # fmt: skip


def _own(x: Tensor) -> Tensor:
    return x.detach().cpu().clone().contiguous()


def slice_of(data: bytes, agents: range) -> Slice:
    """Raises Rejected."""
    content = unpack(data, "a slice")
    curve, failures = content["curve"], {int(i): Failure(*f) for i, f in content["failures"].items()}
    parts = (curve[k].numpy() for k in ("score", "reward", "episodes"))
    rows = zip(curve["steps"], *parts, json.loads(curve["components"]))
    scores = content["score"].numpy()
    result = ShapedResult(
        scores.mean(1),
        scores,
        [failures.get(i) for i in range(len(agents))],
        [Metrics(k, steps, *row) for k, (steps, *row) in enumerate(rows, 1)],
        content["policies"],
        content["sizes"][0],
        content["sizes"][1],
        content["steps"],
    )
    dumps = [Dump(who, name, file.numpy().tobytes()) for who, name, file in content["dumps"]]
    return Slice(agents, result, failures, dumps)


def given_up(agents: range, why: str) -> Slice:
    return Slice(agents, None, {i: Failure(LOST, why, "", -1) for i in range(len(agents))})


# ------------------------------------------------------------------------------------------------------- together


def together(P: int, N: int, slices: Sequence[Slice]) -> Tuple[ShapedResult, Elsewhere]:
    """The result of P agents, as one simulator would have it; NaN where a slice is missing or was given up."""
    done = [(s.agents, s.result) for s in slices if s.result is not None]
    longest = max((r for _, r in done), key=lambda r: len(r.curve), default=None)
    scores, policies = np.full((P, N), np.nan), [{} for _ in range(P)]  # type: ignore[var-annotated]
    failures: Dict[int, Failure] = {}
    sizes: Tuple[List[Any], List[Any]] = ([None] * P, [None] * P)
    for s in slices:
        failures.update({s.agents[i]: f for i, f in s.failures.items()})
    for agents, r in done:
        at = slice(agents.start, agents.stop)
        scores[at], policies[at] = r.episode_score, r.policies
        sizes[0][at], sizes[1][at] = r.observation_sizes, r.action_sizes
    curve = []
    for k, progress in enumerate([] if longest is None else longest.curve):
        score, reward, episodes = np.full(P, np.nan), np.full(P, np.nan), np.zeros(P, dtype=np.int64)
        components: List[Dict[str, float]] = [{} for _ in range(P)]
        for agents, r in done:
            if k < len(r.curve):  # else all of them are out
                at, p = slice(agents.start, agents.stop), r.curve[k]
                score[at], reward[at], episodes[at], components[at] = p.score, p.reward, p.episodes, p.components
        curve.append(Metrics(k + 1, progress.steps, score, reward, episodes, components))
    steps = 0 if longest is None else longest.steps
    told = [failures.get(i) for i in range(P)]
    result = ShapedResult(scores.mean(1), scores, told, curve, policies, sizes[0], sizes[1], steps)
    return result, Elsewhere(failures, sizes[0], sizes[1], [d for s in slices for d in s.dumps])
