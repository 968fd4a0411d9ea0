"""One run of the outer loop: ask, evaluate through the exchange, tell, remember; then compare and report.

Follow a member: the search's ``ask`` makes it, ``_evaluate`` cuts the population into chunks, a worker calls
``envolve.outer.evaluate.networks.evaluate``, its score comes back, the search's ``tell`` weighs it. NES and searches of
the user's own have one interface: ``envolve.outer.search.strategy.Strategy``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envolve.core.statistics import AgentRuns
from envolve.outer.checkpoint import UNKNOWN, Progress, RunError, load_checkpoint, save_checkpoint
from envolve.outer.config import problem
from envolve.outer.config.distilled import DISTILLED
from envolve.outer.config.load import Config
from envolve.outer.config.versions import changed_versions
from envolve.outer.evaluate.members import (
    Values,
    episode_length,
    evaluate_members,
    lower_bound,
    mean_of,
    score_rows,
    worst_for_failed,
)
from envolve.outer.evaluate.networks import BUDGET, DISTIL, PROXY, REAL, UNSOLVABLE
from envolve.outer.exchange.engine import Engine
from envolve.outer.reporting.plots import learning_curve
from envolve.outer.reporting.report import GenerationRow, LiveTable, TensorBoard
from envolve.outer.reporting.scores import ScoreRow, ScoresCSV, read_curve
from envolve.outer.reporting.summary import WORLDS, RunSummary, summary_text
from envolve.outer.search.nes import COMPARISON, ORIG, member_seeds
from envolve.outer.search.search import NES_NAME
from envolve.outer.search.searches import settings_of
from envolve.outer.search.strategy import Strategy, make_strategy
from envolve.outer.search.target import make_target
from envolve.outer.search.turns import variants

log = logging.getLogger("envolve")

# An SE with episodes this short has collapsed, unless its agents learn all the same (some of the best worlds are
# near-bandits): the best tenth of the population is then at least SIGNAL of the way from the median to solved_reward.
COLLAPSED_LENGTH, SIGNAL = 3.0, 0.1
COUNTED = 2  # counter of COMPARISON: agents that tell whether an RN is solved where none are compared
EXPERTS = 3  # counter of COMPARISON: experts whose knowledge is distilled
# keys of sections under ``agents``, and what every run meant before there was a choice
UNSAID = (("search", NES_NAME), ("init", "random"), ("twin", True), ("squash", True))


def config_digest(config: Config) -> str:
    """What ties a checkpoint to its configuration. ``UNSAID`` is left out, so that runs go on which began before there
    was another value."""
    data = config.data
    agents = {name: {k: v for k, v in own.items() if (k, v) not in UNSAID} for name, own in data["agents"].items()}
    data = {**data, "agents": agents}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


class Run:
    """``execute()`` does it all; what it leaves in ``run_dir``: config.yaml (written by the caller), checkpoint.pt,
    model.pt (of shapers: params.yaml), scores.csv, TensorBoard events, learning_curve.png, summary.txt."""

    def __init__(self, config: Config, run_dir: Path, dispatcher: Engine, resume: bool = False) -> None:
        data = config.data
        self.config, self.run_dir, self.dispatcher = config, run_dir, dispatcher
        self.gtn = problem.gtn_section(data)
        self.target = make_target(data)
        self.digest = config_digest(config)
        self.checkpoint = run_dir / "checkpoint.pt"
        state = None
        if resume and self.checkpoint.exists():
            state, self.progress = load_checkpoint(self.checkpoint, self.digest)
        self.settings = settings_of(self.gtn.search, data["agents"])
        self.strategy: Strategy = make_strategy(
            self.gtn, data["seed"], self.target.begin, self.target.mask(), state, self.settings
        )
        if state is None:
            self.progress = Progress(best_psi=self.strategy.centre, real_steps=0)
        self.resuming, self.resumed = resume, state is not None

    def _evaluate(
        self, worlds: Tensor, seeds: Tensor, mode: str, groups: Sequence[tuple[int, bool]] = ()
    ) -> tuple[Values, list[str]]:
        """groups: members that take turns (``outer/search/turns.py``); without, all have the configuration's own
        learner."""
        generation = self.strategy.state.generation + 1
        if not groups or self.target.kind == "shaper":
            return evaluate_members(self.dispatcher, self.config, generation, worlds, seeds, mode)
        configs, which = variants(self.config.data, groups, generation)
        return evaluate_members(self.dispatcher, self.config, generation, worlds, seeds, mode, configs, which)

    # ------------------------------------------------------------------------------------------------ the outer loop

    def execute(self, table: LiveTable) -> RunSummary:
        """Runs to the end (or from the checkpoint to the end) and reports. KeyboardInterrupt leaves a resumable run."""
        self.search(table)
        if self.progress.best_generation == 0:
            raise RunError(self.no_score())
        return self._report(table)

    def search(self, table: LiveTable, enough: Callable[[Run], bool] = lambda run: False) -> None:
        """Generations until the run is finished, or until ``enough``; it then goes on from its checkpoint when it is
        given more."""
        first = self.strategy.state.generation + 1
        if self.resuming:
            table.note(self._resume_note(first))
            if changed := changed_versions(self.run_dir / "config.yaml"):
                table.note(changed)
        if self.resumed and self.progress.best_generation:
            self._save_model()  # a run killed between model.pt and checkpoint.pt, or a lost file
        with ScoresCSV(self.run_dir / "scores.csv", resume_generation=first if self.resuming else None) as csv:
            board = TensorBoard(self.run_dir, purge_generation=first if self.resuming else None)
            try:
                if self.gtn.init == DISTILLED and not self.resumed:
                    self._begin_distilled(table)
                while not self.progress.finished and not enough(self):
                    self._generation(table, csv, board)
            finally:
                board.close()
        if self.progress.best_generation:
            self._save_model()  # with all that the search has cost, the generations after the best one too

    def _begin_distilled(self, table: LiveTable) -> None:
        """Lets workers train experts on the task; the search then begins with the world of the best one. A run that is
        stopped before its first checkpoint does this again."""
        data, count = self.config.data, problem.expert_section(self.config.data).agents
        name, learner = problem.expert(data)
        table.note(f"training {count} {name} experts on {self.target.name}, {learner.train_steps:,} steps each")
        seeds = torch.from_numpy(member_seeds(data["seed"], COMPARISON, EXPERTS, count))
        values, reasons = evaluate_members(
            self.dispatcher, self.config, 0, torch.zeros(count, 1), seeds, DISTIL, [data] * count, np.arange(count)
        )
        self._count(values)
        scores, size = values["score"], self.strategy.centre.shape
        if not np.isfinite(scores).any():
            raise RunError(f"agents.gtn.init: distilled: all experts failed, the first because {reasons[0]}")
        best = int(np.nanargmax(scores))
        world = torch.from_numpy(values["world"][best]) if "world" in values else torch.zeros(0)
        if world.shape != size or world.dtype != torch.float32 or not world.isfinite().all():
            raise RunError(f"a worker distilled a world of shape {list(world.shape)}, expected float32 {list(size)}")
        self.strategy = make_strategy(
            self.gtn, data["seed"], lambda seed: world, self.target.mask(), None, self.settings
        )
        self.progress.best_psi = self.strategy.centre
        table.note(f"the first world teaches the best of them: return {scores[best]:.4g} on the task")

    def no_score(self) -> str:
        return (
            f"no world has a score: every agent failed in all {self.strategy.state.generation} generations; "
            f"the reasons are in {self.run_dir / 'scores.csv'}"
        )

    def _resume_note(self, first: int) -> str:
        if self.progress.finished:
            return f"the search ended with generation {first - 1}; only the closing comparison is made again"
        return (
            f"resumed at generation {first}" if self.resumed else "no generation was finished; starting with the first"
        )

    def _generation(self, table: LiveTable, csv: ScoresCSV, board: TensorBoard) -> None:
        began = time.monotonic()
        generation = self.strategy.state.generation + 1  # users count from 1
        population = self.strategy.ask()
        groups = [(n, role != ORIG) for role, n in Counter(population.roles).items()]
        values, reasons = self._evaluate(population.worlds, population.seeds, PROXY, groups)
        scores, failed = worst_for_failed(values["score"])
        rows = score_rows(population.roles, values, reasons)
        orig = np.array([role == ORIG for role in population.roles])
        mean_orig = math.nan if failed[orig].all() else float(scores[orig].mean())
        steps = self._count(values)
        solved = self._solved(mean_orig, rows)
        self._remember(mean_orig, solved, mean_of(values["mean_return"][orig]), generation)
        length = episode_length(values, orig)
        collapsed = self._collapsed(length, scores, bool(failed.all()))

        self.progress.finished = (solved and self.gtn.quit_when_solved) or generation >= self.gtn.max_iterations
        csv.write(generation, rows)
        if failed.all():
            table.note(f"generation {generation}: all members failed, the first because {reasons[0]}")
        if collapsed and not self.progress.finished:
            self.strategy.renew()
            self.progress.restart_generations.append(generation + 1)
            what = "all members failed" if failed.all() else f"episodes of {length:.1f} steps"
            table.note(f"generation {generation}: the world collapsed ({what}); restarting from a new one")
        else:
            self.strategy.tell(scores)
        seconds = time.monotonic() - began
        self.progress.seconds += seconds
        save_checkpoint(self.checkpoint, self.strategy.state, self.progress, self.digest)
        row = GenerationRow(
            generation=generation,
            score_mean=mean_orig,
            score_best=math.nan if failed.all() else float(scores.max()),
            real_return=mean_of(values["mean_return"][orig]),
            train_steps=float(values["train_steps"][orig].mean()),
            episode_length=length,
            failed=int(failed.sum()),
            member_steps=steps,
            seconds=seconds,
        )
        table.update(row)
        board.write(row)

    def _count(self, values: Values) -> int:
        """Adds the costs of the members -> their training steps."""
        p, steps = self.progress, int(values["train_steps"].sum())
        p.member_steps += steps
        p.member_episodes += int(values["episodes"].sum())
        if p.real_steps != UNKNOWN:
            p.real_steps += int(values["real_steps"].sum())
        return steps

    def _solved(self, mean_orig: float, rows: list[ScoreRow]) -> bool:
        """An SE is solved when agents trained in it alone reach solved_reward, fresh ones confirm it (their mean is
        above it with 95 % confidence: one just above would often be luck), and as many others confirm that.

        An RN run does not end early, as in the original. Appends the confirming members to rows.
        """
        if self.target.kind == "rn" or not mean_orig >= self.target.solved_reward:
            return False
        if self.gtn.confirm_agents == 0:
            return True
        for stage in (0, 1):  # the second has had no say: of many first stages one would pass by luck
            population = self.strategy.confirmation(self.gtn.confirm_agents, stage)
            groups = [(self.gtn.confirm_agents, False)]
            values, reasons = self._evaluate(population.worlds, population.seeds, BUDGET, groups)
            self._count(values)
            rows.extend(score_rows(population.roles, values, reasons, first=len(rows)))
            least = lower_bound(values["score"]) if stage == 0 else float(values["score"].mean())
            if not least >= self.target.solved_reward:  # also if a member failed: its score is NaN
                return False
        return True

    def _remember(self, score: float, solved: bool, real_return: float, generation: int) -> None:
        """Keep the best world, or the last (as it was before this generation's update); a solved SE beats all others.

        An RN's score is no return, so "solved" cannot choose the best: it only tells whether its agents solve the task.
        """
        p = self.progress
        if self.target.kind == "rn":
            better, solved = score > p.best_score, real_return >= self.target.solved_reward
        else:
            better = (solved, score) > (p.solved, p.best_score)
        if better or (self.gtn.keep == "last" and not math.isnan(score)):
            p.best_psi, p.best_score = self.strategy.centre.clone(), score
            p.best_generation, p.solved = generation, solved
            self._save_model()

    @property
    def real_steps(self) -> int | None:
        """Steps on the task that the evolution has cost so far; None: the run began in a version that did not count."""
        return None if self.progress.real_steps == UNKNOWN else self.progress.real_steps

    def _save_model(self) -> None:
        p = self.progress
        self.target.save(self.run_dir, p.best_psi, p.best_score, p.solved, self.real_steps)

    def _collapsed(self, length: float, scores: np.ndarray, all_failed: bool) -> bool:
        """Detects the failure mode of NES over SEs: done_net ends episodes at once, and all perturbations score alike.
        Also, for SEs and RNs: no member of the population has a score any more."""
        p = self.progress
        median, top = np.quantile(scores, [0.5, 0.9])
        flat = top - median < SIGNAL * (self.target.solved_reward - median)
        short = self.target.kind == "se" and length < COLLAPSED_LENGTH
        p.short_generations = p.short_generations + 1 if all_failed or (short and flat) else 0
        due = 0 < self.gtn.collapse_generations <= p.short_generations
        if due and self.strategy.state.restarts < self.gtn.max_restarts:
            p.short_generations = 0
            return True
        return False

    # ------------------------------------------------------------------------------------------------ the end

    def compare(self) -> tuple[AgentRuns, AgentRuns] | None:
        """Trains fresh agents with new random seeds in the evolved world and on the real task."""
        n = self.gtn.comparison_agents
        if n == 0:
            return None
        runs = []
        for i, mode in enumerate((BUDGET, REAL)):
            seeds = torch.from_numpy(member_seeds(self.config.data["seed"], COMPARISON, i, n))
            values, _ = self._evaluate(self.progress.best_psi.expand(n, -1), seeds, mode)
            figures = (values[name].tolist() for name in ("mean_return", "train_steps", "first_solved_steps"))
            runs.append(AgentRuns(*figures))
        return runs[0], runs[1]

    def _judge_rn(self, comparison: tuple[AgentRuns, AgentRuns] | None) -> None:
        """Decides whether an RN is solved, by its agents on the task. The agents that gave it its score were the
        luckiest of all generations, so fresh ones decide, and none of them may fail."""
        if self.target.kind != "rn" or not self.target.solved_reward < UNSOLVABLE:
            return
        returns = comparison[0].returns if comparison else self._fresh_returns(COUNTED)
        self.progress.solved = bool(np.mean(returns) >= self.target.solved_reward)
        self._save_model()

    def _fresh_returns(self, counter: int) -> list[float]:
        n = self.gtn.num_orig_evals or self.gtn.num_workers
        seeds = torch.from_numpy(member_seeds(self.config.data["seed"], COMPARISON, counter, n))
        return self._evaluate(self.progress.best_psi.expand(n, -1), seeds, BUDGET)[0]["mean_return"].tolist()

    def _report(self, table: LiveTable) -> RunSummary:
        if self.gtn.comparison_agents:
            table.note("comparing agents trained in the evolved world with agents trained on the real task")
        began = time.monotonic()
        comparison = self.compare()
        self._judge_rn(comparison)
        p = self.progress
        target = self.target
        data = self.config.data
        solved = target.solved_reward if target.is_return and math.isfinite(target.solved_reward) else None
        learning_curve(
            self.run_dir / "learning_curve.png",
            read_curve(self.run_dir / "scores.csv"),
            f"{target.name}: {WORLDS[target.kind]}, seed {self.config.data['seed']}",
            solved,
            comparison,
            ylabel=target.score_label,
            restarts=p.restart_generations,
            shaper=target.kind == "shaper",
        )
        summary = RunSummary(
            kind=target.kind,
            env_name=target.name,
            solved=p.solved,
            generations=self.strategy.state.generation,
            seconds=p.seconds + time.monotonic() - began,
            total_steps=p.member_steps,
            run_dir=str(self.run_dir),
            restarts=len(p.restart_generations),
            solved_reward=solved if target.is_return else target.solved_reward,
            proxy=comparison[0] if comparison else None,
            real=comparison[1] if comparison else None,
            agent=self.gtn.agent_name.lower().removesuffix(problem.VARY_SUFFIX),
            seed=data["seed"],
            real_steps=self.real_steps,
            floor=target.floor() if comparison else None,
            real_learner=target.real_learner(),
            score_unit=target.unit,
        )
        (self.run_dir / "summary.txt").write_text(summary_text(summary) + "\n")
        return summary
