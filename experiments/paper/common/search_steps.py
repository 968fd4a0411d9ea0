"""The steps of the task that a search over SEs sees: the tests of all the agents that it trains.

The search is repeated in this process, bit for bit as train_proxy.py makes it, for a run keeps its worlds and not what
its agents did. Early agents know nothing and late ones solve the task, so all skill levels are among them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.population import nets_of, stack, widest
from envolve.agents.common.result import TrainResult
from envolve.agents.train import algorithm
from envolve.core import torch_quick
from envolve.core.files import TORCH_BYTES, read_plain
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.envs.task import Task
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.paper.common.proxies import task_of
from envolve.experiments.paper.common.watched import Steps, walk_agents
from envolve.outer.config import problem
from envolve.outer.config.load import Config, ConfigError, environment_info
from envolve.outer.evaluate.members import Values
from envolve.outer.evaluate.networks import train_members, values_of
from envolve.outer.exchange.engine import Engine
from envolve.outer.reporting.report import LiveTable
from envolve.outer.run import Run, config_digest
from envolve.outer.search.nes import RETEST, generator
from envolve.outer.search.recipe import Recipe

SAMPLING = 3  # counter of the stream of RETEST that chooses steps


@dataclass
class Sample:
    """At most ``most`` of the rows that it is shown, each set of them equally likely: those with the lowest of numbers
    drawn for all (Vitter 1985, https://doi.org/10.1145/3147.3165, in blocks)."""

    most: int
    random: np.random.Generator
    steps: Steps | None = None
    agent: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # [n] agent of each step
    seen: int = 0
    _drawn: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, steps: Steps, agent: np.ndarray) -> None:
        self.seen += len(agent)
        drawn, owner = np.append(self._drawn, self.random.random(len(agent))), np.append(self.agent, agent)
        both = steps if self.steps is None else self.steps.append(steps)
        kept = np.argsort(drawn, kind="stable")[: self.most]
        self.steps, self.agent, self._drawn = both.take(kept), owner[kept], drawn[kept]


@dataclass
class SearchSteps:
    """Steps and results of one search."""

    steps: Steps  # in random order
    agent: np.ndarray  # int64 [n]: the agent of each, counted from the search's first
    seen: int  # steps of all tests; the rest was left out
    returns: list[float]  # mean test return of every agent, NaN where it failed
    generations: int
    solved: bool


class RecordedRun(Run):
    """A run that trains its members itself, all of a generation at once, and shows their tests to a sample."""

    def __init__(self, config: Config, run_dir: Path, sample: Sample, threads: int) -> None:
        super().__init__(config, run_dir, cast(Engine, None))  # no worker is asked
        if self.gtn.other_agents or self.gtn.horizon_generations:
            words = "found other_agents or horizon_generations, expected neither: it records one learner's full tests"
            raise ConfigError([f"{config.path}: agents.gtn: {words}"])
        self.sample, self.threads, self.returns = sample, threads, list[float]()

    def evaluate(
        self,
        worlds: Tensor,
        seeds: Tensor,
        mode: str,
        groups: Sequence[tuple[int, bool]] = (),
        recipe: Recipe | None = None,
    ) -> tuple[Values, list[str]]:
        result = train_members(self.config.data, worlds, seeds, mode, self.threads)
        steps, agent = test_steps(self.config, result, seeds.numpy())
        self.sample.add(steps, agent + len(self.returns))
        values = values_of(self.config.data, result)
        self.returns += values["mean_return"].tolist()
        reasons = values.pop("reason")
        return {name: value.numpy() for name, value in values.items()}, reasons


def test_steps(config: Config, result: TrainResult, keys: np.ndarray) -> tuple[Steps, np.ndarray]:
    """The tests that gave trained agents their returns, once more -> steps, and whose each is, int64 [n]. Agents that
    failed have none.

    Compiled agents and these compute the same up to rounding, which may turn a decision between equals.
    """
    name, section, vary = problem.learner(config.data)
    task, cls, hyper = task_of(config.data), algorithm(name), draw(section, keys, vary)
    agents, depth = nets_of(cls, task, hyper), np.maximum(1, hyper["hidden_layer"])
    parts: list[tuple[Steps, np.ndarray]] = []
    for layers in np.unique(depth[result.status == 0]):
        rows = np.flatnonzero((depth == layers) & (result.status == 0))
        own, group = [agents[i] for i in rows], hyper.take(rows)
        nets = widest(own)
        params = stack(torch.as_tensor(result.weights[rows]), own, nets)
        trained = cls(task, group, nets, params, torch.as_tensor(group["hidden_size"], dtype=torch.int64))
        steps, whose = walk_agents(
            task, trained, torch.as_tensor(keys[rows]), section.same_action_num, section.test_episodes
        )
        parts.append((steps, rows[whose]))
    if not parts:
        return no_steps(task), np.zeros(0, np.int64)
    steps = parts[0][0]
    for other, _ in parts[1:]:
        steps = steps.append(other)
    return steps, np.concatenate([whose for _, whose in parts])


def no_steps(task: Task) -> Steps:
    F, A = task.observation_size, task.action_size
    action = np.zeros((0, A), np.float32) if A else np.zeros(0, np.int64)
    empty = [np.zeros((0, F), np.float32) for _ in range(2)]
    return Steps(empty[0], action, empty[1], np.zeros(0, np.float32), np.zeros(0, np.float32))


def kept_search_steps(config: Config, most: int, threads: int, path: Path) -> SearchSteps:
    """``search_steps``, or what an earlier call left in the file ``path`` after the same search. Raises RunError,
    ValueError, OSError."""
    key = {"config": config_digest(config), "most": most, "versions": environment_info()}
    try:
        content = read_torch(read_plain(path, TORCH_BYTES))
        if content["key"] == key:
            print(f"{path}: search with seed {config.data['seed']} finished by an earlier call", file=sys.stderr)
            steps = Steps(**{name: column.numpy() for name, column in content["steps"].items()})
            return SearchSteps(steps, content["agent"].numpy(), **content["told"])
    except FileNotFoundError:
        pass
    except (TorchFileError, OSError, KeyError, TypeError, AttributeError) as e:
        print(f"{path}: {e}; this search is repeated", file=sys.stderr)
    found = search_steps(config, most, threads)
    columns = {name: torch.from_numpy(column) for name, column in vars(found.steps).items()}
    told = {name: value for name, value in vars(found).items() if name not in ("steps", "agent")}
    content = {"key": key, "steps": columns, "agent": torch.from_numpy(found.agent), "told": told}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(str(path), torch_quick.write(content))
    return found


def search_steps(config: Config, most: int, threads: int) -> SearchSteps:
    """Searches from the seed of ``config`` to its end. most: steps that are kept. Raises RunError, ValueError."""
    seed = config.data["seed"]
    sample = Sample(most, generator(seed, RETEST, SAMPLING))
    with tempfile.TemporaryDirectory() as folder:
        run = RecordedRun(config, Path(folder), sample, threads)
        with LiveTable(run.gtn.max_iterations, f"{config.data['env_name']}, search with seed {seed}") as table:
            run.search(table)
    if sample.steps is None or not len(sample.agent):
        raise ValueError(f"the search with seed {seed}: all agents failed, expected some that are tested")
    return SearchSteps(
        sample.steps, sample.agent, sample.seen, run.returns, run.strategy.state.generation, run.progress.solved
    )
