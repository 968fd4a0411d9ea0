"""Tuning through the ordinary exchange (docs/exchange.md): each generation goes to worker processes, here or anywhere.

The folder of the run gets a configuration of ``GTN_master.py`` and the graph file that it names, so that anybody may go
on with them; more workers may join: python3 GTN_worker.py 0 <ID> --sync-dir <folder>/sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from envolve.agents.shaped.halving import Training
from envolve.envs.graph.file import GraphFile
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.load import load_config
from envolve.outer.evaluate.members import evaluate_members
from envolve.outer.evaluate.networks import PROXY
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.local_workers import LocalWorkers


class Workers:
    """``score`` evaluates points of one graph file. Opens the exchange and starts ``count`` workers."""

    def __init__(self, training: Training, graph_file: GraphFile, number: int, folder: Path, count: int) -> None:
        """number: of the tuning. Raises ConfigError, ExchangeError, OSError."""
        self.training, self.generation = training, 0
        graph = folder / f"tune_{number}.graph.json"
        write_atomic(str(graph), graph_file.without_source().text().encode())
        self.config = folder / f"tune_{number}.yaml"
        write_atomic(str(self.config), yaml.safe_dump(self._content(graph, count), sort_keys=False).encode())
        load_config(self.config)  # finds problems before a worker is needed
        self.dispatcher = Dispatcher(str(folder / "sync"), 0, folder.resolve().name)
        self.workers = LocalWorkers(count, str(folder / "sync"), 0, folder)

    def _content(self, graph: Path, count: int) -> dict[str, Any]:
        t = self.training
        gtn = {"synthetic_env_type": 2, "agent_name": t.learner.upper(), "chunk_size": 8, "mode": "multi"}
        own = {
            "shapers": str(graph.resolve()), "num_envs_per_shaper": t.num_envs, "iterations": t.iterations,
            "engine": t.engine,
        }  # fmt: skip
        agents = {"gtn": {**gtn, "backend": t.backend}, t.learner: dict(vars(t.section))}
        return {"env_name": t.task, "device": t.device, "seed": 0, "agents": agents, "envs": {t.task: own}}

    def __enter__(self) -> Workers:
        self.dispatcher.__enter__()
        try:
            self.workers.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.dispatcher.on_wait = self.workers.poll
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.workers.close()
        self.dispatcher.__exit__(kind, error, trace)

    def score(self, points: Tensor, iterations: int, keys: Sequence[int]) -> tuple[np.ndarray, int]:
        """Train an agent with each key at each point u [D] -> mean scores float64 [P], NaN where one failed, and the
        environment steps. Raises RunError, ExchangeError."""
        config = load_config(self.config, [f"envs.{self.training.task}.iterations={iterations}"])
        self.generation += 1
        worlds = torch.cat((torch.zeros(len(points), 1), points), 1).repeat_interleave(len(keys), 0)
        seeds = torch.tensor(list(keys) * len(points))
        values, _ = evaluate_members(self.dispatcher, config, self.generation, worlds, seeds, PROXY)
        return values["score"].reshape(len(points), -1).mean(1), int(values["train_steps"].sum())
