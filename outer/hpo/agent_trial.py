"""Evaluates a configuration by agents alone, trained on the real task or in worlds that were evolved before."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envolve.core.files import TABLE_BYTES, read_plain
from envolve.envs.task import make_task
from envolve.envs.worlds.file import WorldFile, read_world, write_atomic
from envolve.outer.config.load import Config
from envolve.outer.config.problem import env_section, learner_key, split_agent_name
from envolve.outer.config.section import RN, SE
from envolve.outer.evaluate.members import evaluate_members
from envolve.outer.evaluate.networks import BUDGET, REAL_BUDGET
from envolve.outer.exchange.engine import Engine
from envolve.outer.hpo.nes_trial import shortfall
from envolve.outer.hpo.reading.sections import BUDGET_KEYS
from envolve.outer.hpo.study import Study
from envolve.outer.hpo.trial import Trial, TrialResult
from envolve.outer.search.nes import TRIAL, member_seeds

log = logging.getLogger("envolve")

FIGURES = ("mean_return", "train_steps", "episodes", "updates")
LIMITS = BUDGET_KEYS["agent"]  # what a budget in these units sets


class AgentTrials:
    """Evaluates trials with the workers of one ``dispatcher``: agent i of every configuration has the same seed and
    the same world. With a budget of agents a promoted configuration keeps those that it has, which lie in
    ``<folder>/<bracket>_<number>/agents.json``; with a budget of steps or episodes they are trained anew, because a
    training is one call that cannot be continued."""

    def __init__(self, study: Study, folder: Path, dispatcher: Engine) -> None:
        """Raises WorldFileError."""
        self.study, self.folder, self.dispatcher = study, folder, dispatcher
        self.worlds = [read_world(path) for path in study.worlds]
        if study.budget.unit in LIMITS:
            log.info("a promoted configuration trains its agents anew: a training cannot be continued")

    def __call__(self, trial: Trial) -> TrialResult:
        """Evaluates one trial. Raises ConfigError, RunError, ExchangeError, OSError."""
        study, bracket, number = self.study, trial.config_id[0], trial.config_id[2]
        config = study.member_config(trial.values)
        count = round(trial.budget) if study.budget.unit == "agents" else study.agents
        stored = self.folder / f"{bracket}_{number}" / "agents.json"
        agents = self._stored(stored, config) if study.budget.unit == "agents" else []
        if len(agents) < count:
            agents += self._train(config, trial, len(agents), count)
            stored.parent.mkdir(parents=True, exist_ok=True)
            content = {"config": config.data, "agents": agents}
            write_atomic(str(stored), json.dumps(content).encode())
        return trial_result(agents[:count], study.loss, self._goal(config))

    def _goal(self, config: Config) -> float:
        data = self._in_world(config, self.worlds[0]) if self.worlds else config.data
        section = env_section(data)
        return make_task(data["env_name"], section.max_steps, section.solved_reward).solved_reward

    @staticmethod
    def _stored(path: Path, config: Config) -> list[dict[str, Any]]:
        try:
            content = json.loads(read_plain(path, TABLE_BYTES))
        except (FileNotFoundError, ValueError):
            return []
        fits = isinstance(content, dict) and isinstance(content.get("agents"), list)
        return content["agents"] if fits and content.get("config") == config.data else []

    def _train(self, config: Config, trial: Trial, first: int, count: int) -> list[dict[str, Any]]:
        """Trains agents ``first`` to ``count`` - 1, agent i in world i modulo their number."""
        seeds = member_seeds(self.study.seed, TRIAL, 0, count)
        out: list[dict[str, Any]] = [{} for _ in range(count)]
        for w in range(max(1, len(self.worlds))):
            mine = np.arange(first, count)
            mine = mine[mine % max(1, len(self.worlds)) == w]
            if not mine.size:
                continue
            data, flat, mode = config.data, torch.zeros(1), REAL_BUDGET
            if self.worlds:
                data, flat, mode = self._in_world(config, self.worlds[w]), self.worlds[w].flat, BUDGET
            data = self._limited(data, trial.budget)
            values, reasons = evaluate_members(
                self.dispatcher,
                Config(data, [], config.path),
                trial.id + 1,
                flat.expand(mine.size, -1).contiguous(),
                torch.from_numpy(seeds[mine]),
                mode,
            )
            for k, i in enumerate(mine.tolist()):
                out[i] = {name: float(values[name][k]) for name in FIGURES}
                out[i]["failed"] = reasons[k] if not math.isfinite(float(values["score"][k])) else ""
        return out[first:]

    def _limited(self, data: dict[str, Any], budget: float) -> dict[str, Any]:
        """Configuration with the budget of one agent, if the study's budget is one of steps or episodes."""
        if self.study.budget.unit not in LIMITS:
            return data
        agents = data["agents"]
        key = learner_key(agents, split_agent_name(agents["gtn"]["agent_name"]).learner)
        section = {**agents.get(key, {}), LIMITS[self.study.budget.unit]: round(budget)}
        return {**data, "agents": {**agents, key: section}}

    @staticmethod
    def _in_world(config: Config, world: WorldFile) -> dict[str, Any]:
        """Learner of the study, in a world with the sizes from its own file."""
        data = config.data
        gtn = {**data["agents"]["gtn"], "synthetic_env_type": RN if world.kind == "rn" else SE}
        agents = {**data["agents"], "gtn": gtn}
        return {**data, "env_name": world.env_name, "envs": world.config["envs"], "agents": agents}


def trial_result(agents: list[dict[str, Any]], loss: str, goal: float) -> TrialResult:
    """Mean over agents of

    return           minus the test return
    steps, episodes  x, how many it trained for; of one whose test return is short of solved_reward:
                     x (1 + d / (1 + d)), d the missing part of it

    Failed agents count as the worst of the others. If half of them failed, the configuration has: what the others
    reach would be taken for what it is worth.
    """
    fine = [a for a in agents if not a["failed"]]
    if 2 * len(fine) <= len(agents):
        reason = next(a["failed"] for a in agents if a["failed"])
        return TrialResult(math.inf, error=f"{len(agents) - len(fine)} of {len(agents)} agents failed, one: {reason}")
    if loss == "return":
        losses = [-a["mean_return"] for a in fine]
    else:
        spent = "train_steps" if loss == "steps" else "episodes"
        losses = [a[spent] * (1 + shortfall(a["mean_return"], goal)) for a in fine]
    losses += [max(losses)] * (len(agents) - len(fine))
    info = {name: sum(a[name] for a in fine) / len(fine) for name in FIGURES}
    info |= {"agents": float(len(agents)), "failed": float(len(agents) - len(fine))}
    info["solved"] = sum(a["mean_return"] >= goal for a in fine) / len(agents)
    return TrialResult(sum(losses) / len(losses), info)
