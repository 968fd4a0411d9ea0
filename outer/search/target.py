"""Target of an evolution as the outer loop sees it: the length of its vector, its beginning, its mask, its files. One
class for worlds made of networks, one for shapers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union

import torch
import yaml
from torch import Tensor

from envolve.core.statistics import or_none
from envolve.envs.graph.file import GraphFile
from envolve.envs.physics.task import physics_task
from envolve.envs.section import EnvSection
from envolve.envs.shaping.candidate import GRAPH
from envolve.envs.shaping.section import candidates_of, shaper_files
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.file import MODEL, WorldFile, WorldFileError, read_world, save_world, write_atomic
from envolve.envs.worlds.units import Units, in_units, observed, units_of
from envolve.envs.worlds.world import init_world, world_nets
from envolve.outer.config import problem
from envolve.outer.config.section import RN, SHAPER, GTNSection
from envolve.outer.evaluate.networks import exploration
from envolve.outer.evaluate.shapers import candidate_of, world_length
from envolve.outer.reporting.comparison import random_return
from envolve.outer.reporting.names import objective
from envolve.outer.search.nes import Population


class NetworkTarget:
    """Synthetic environment or reward network."""

    def __init__(self, data: dict[str, Any], gtn: GTNSection) -> None:
        self.data, self.gtn, self.section = data, gtn, problem.env_section(data)
        self.task = make_task(data["env_name"], self.section.max_steps, self.section.solved_reward)
        self.kind = "rn" if gtn.synthetic_env_type == RN else "se"
        self.name, self.solved_reward = self.task.name, self.task.solved_reward
        self.is_return = self.kind == "se" or gtn.rn_objective == "mean_return"
        self.score_label = objective("mean_return" if self.is_return else gtn.rn_objective)
        self.unit = ""
        self.units: Units | None = None

    def floor(self) -> float | None:
        """Reference for agents' returns: the return of a random policy; None: all its episodes failed."""
        found = random_return(self.task)
        return or_none(found)

    def real_learner(self) -> str:
        """Differences between agents on the task and agents in worlds; "": none."""
        name, hyper, _ = problem.learner(self.data)
        return exploration(name, hyper, self.section.contextual_bandit)

    def begin(self, seed: int) -> Tensor:
        """Fresh vector, [D]."""
        return init_world(self.kind, self.task, self.section, torch.tensor([seed]))[0]

    def given(self, path: str) -> WorldFile:
        """The world in a file, which has networks as this run's. Raises WorldFileError."""
        world = read_world(path)
        found = _words(world.kind, world.task(), world.section)
        expected = _words(self.kind, self.task, self.section)
        if found != expected:
            raise WorldFileError(f"{path}: found {found}, expected {expected}")
        return world

    def measure(self, first: Callable[[], Tensor]) -> None:
        """Takes the units in which the search moves from its first world, [D], if agents see normalised observations:
        a step then changes what they see of every feature alike, however large it is in the task's units."""
        if self.section.normalised:
            self.units = units_of(self.task, self.section, first())

    def vector(self, world: Tensor) -> Tensor:
        """A world in the units of the search, [D]."""
        return world if self.units is None else in_units(self.task, self.section, world, self.units)

    def worlds(self, vectors: Tensor) -> Tensor:
        """Worlds of the search in the units of the task, [P, D]."""
        if self.units is None:
            return vectors
        mean, deviation = self.units.mean, self.units.deviation
        return torch.stack([observed(self.task, self.section, flat, mean, deviation) for flat in vectors])

    def mask(self) -> Tensor:
        """Mask: 1 where the search may change a number: everywhere, except PReLU slopes unless they are evolved."""
        parts = []
        for _, shape in world_nets(self.kind, self.task, self.section):
            part = torch.ones(shape.size)
            if shape.slope_slots and not self.gtn.evolve_prelu:
                part[-shape.slope_slots :] = 0
            parts.append(part)
        return torch.cat(parts)

    def members(self, population: Population) -> Population:
        """All that the search asked for, and no more."""
        return population

    def save(
        self, run_dir: Path, world: Tensor, score: float, solved: bool, real_steps: int | None, name: str = MODEL
    ) -> None:
        """world: in the task's units. real_steps: steps of the task spent on the evolution; None: unknown. name: of the
        file."""
        _, hyper, _ = problem.learner(self.data)
        save_world(
            str(run_dir / name),
            self.kind,
            self.name,
            world,
            self.data,
            budget=hyper.train_steps,  # training much longer can undo what the world taught
            score=score,
            solved=solved,
            evolution_steps=real_steps,
        )


def _words(kind: str, task: Task, section: EnvSection) -> str:
    """``se of CartPole-v0, init_net 4-32-4 leakyrelu, reward_net 6-32-1 leakyrelu``."""
    nets = world_nets(kind, task, section)
    chains = (f"{name} {'-'.join(map(str, net.widths()))} {net.activation}" for name, net in nets)
    own = f" of type {section.reward_env_type}" if kind == "rn" else ""
    return f"{kind}{own} of {task.name}, {', '.join(chains)}"


class ShaperTarget:
    """Numeric parameters of one candidate file."""

    kind, is_return = "shaper", True

    def __init__(self, data: dict[str, Any], gtn: GTNSection) -> None:
        section = problem.shaped_section(data)
        task = physics_task(data["env_name"])
        self.name, self.score_label, self.unit = task.name, f"score, {task.score_unit}", task.score_unit
        self.solved_reward = math.inf if section.solved_reward is None else section.solved_reward
        self.candidates = candidates_of(section, data["env_name"])
        self.path = shaper_files(section, data["env_name"])[0]
        self.graphs: GraphFile | None = None  # content of a graph file, once it is needed

    def floor(self) -> float | None:
        return None  # what a random policy scores is not known, nor is it compared

    def measure(self, first: Callable[[], Tensor]) -> None:
        """Shapers have no units."""

    def vector(self, world: Tensor) -> Tensor:
        return world

    def worlds(self, vectors: Tensor) -> Tensor:
        return vectors

    def real_learner(self) -> str:
        return ""

    def begin(self, seed: int) -> Tensor:
        return torch.zeros(world_length(self.candidates))

    def mask(self) -> Tensor:
        mask = torch.ones(world_length(self.candidates))
        mask[0] = 0  # which file it is
        return mask

    def members(self, population: Population) -> Population:
        """All that the search asked for, and no more."""
        return population

    def save(self, run_dir: Path, psi: Tensor, score: float, solved: bool, real_steps: int | None) -> None:
        """Writes params.yaml: the numbers by name, to be copied into PARAMS; for a graph file, also the file with these
        numbers."""
        best = candidate_of(self.candidates, psi)
        assert best.params is not None
        named = dict(zip(best.param_names, best.params.tolist()))
        content = {"shaper": self.path.name, "score": score, "params": named}
        write_atomic(str(run_dir / "params.yaml"), yaml.safe_dump(content, sort_keys=False).encode())
        if self.path.name.endswith(GRAPH):
            self.graphs = self.graphs or GraphFile.read(self.path)
            write_atomic(str(run_dir / self.path.name), self.graphs.with_values(best.params.tolist()).text().encode())


def ranks(data: dict[str, Any]) -> bool:
    """True if a run over shapers compares files; a single file with PARAMS is evolved instead."""
    if problem.gtn_section(data).synthetic_env_type != SHAPER:
        return False
    files = shaper_files(problem.shaped_section(data), data["env_name"])
    return len(files) > 1 or candidates_of(problem.shaped_section(data), data["env_name"])[0].params is None


WorldTarget = Union[NetworkTarget, ShaperTarget]  # of a run


def make_target(data: dict[str, Any]) -> WorldTarget:
    gtn = problem.gtn_section(data)
    return (ShaperTarget if gtn.synthetic_env_type == SHAPER else NetworkTarget)(data, gtn)
