"""One run over worlds or shapers: choose target, search, evaluator and keeper, run the loop, then compare and report.

Follow a member: the search's ``ask`` makes it, ``Loop.generation`` has it evaluated, ``evaluate_members`` cuts the
population into chunks, a worker calls ``envolve.outer.evaluate.networks.evaluate``, its score comes back, the search's
``tell`` weighs it. NES and searches of the user's own have one interface: ``envolve.outer.search.strategy.Strategy``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envolve.core.statistics import AgentRuns
from envolve.envs.task import mark_of
from envolve.envs.worlds.best_paid import greedy
from envolve.envs.worlds.file import FIRST, WorldFileError, read_world
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.outer.checkpoint import Progress, RunError, UnscoredError
from envolve.outer.config import problem
from envolve.outer.config.distilled import CONFIRMED, DISTILLED
from envolve.outer.config.load import Config
from envolve.outer.config.versions import changed_versions
from envolve.outer.distil.first_world import first_world
from envolve.outer.distil.kept import Kept
from envolve.outer.distil.policy import play
from envolve.outer.evaluate.members import Values, episode_length, evaluate_members, mean_of, worst_for_failed
from envolve.outer.evaluate.networks import BUDGET, PROXY, REAL
from envolve.outer.exchange.engine import Engine
from envolve.outer.loop.loop import Evaluated, Generation, Loop
from envolve.outer.loop.policies import Collapse, Confirmation, Unscored, collapse_note
from envolve.outer.loop.run_keeper import RunKeeper, mean_orig, orig
from envolve.outer.names import SCORES
from envolve.outer.reporting.plots import learning_curve
from envolve.outer.reporting.report import GenerationRow, LiveTable, TensorBoard
from envolve.outer.reporting.scores import ScoresCSV, read_curve
from envolve.outer.reporting.summary import WORLDS, RunSummary, summary_text
from envolve.outer.search.nes import (
    BETTER,
    COUNTED,
    EVOLVED,
    EXPERTS,
    ON_TASK,
    ORIG,
    PAID,
    RESTART,
    Population,
    fresh_seeds,
    member_seeds,
)
from envolve.outer.search.recipe import Recipe
from envolve.outer.search.search import NES_NAME
from envolve.outer.search.searches import settings_of
from envolve.outer.search.strategy import Strategy, make_strategy
from envolve.outer.search.target import NetworkTarget, make_target
from envolve.outer.search.turns import variants

PAID_EPISODES = 10
# keys of sections under ``agents``, and what every run meant before there was a choice
UNSAID = (
    ("search", NES_NAME),
    ("init", "random"),
    ("twin", True),
    ("squash", True),
    ("kl_after", "iteration"),
    ("context_noise", 0.0),
    ("chosen_by", "return"),
    ("standardise", False),
    ("balance", False),
    ("imitate", ""),
    ("fit_steps", 0),
    ("action_noise", 0.0),
    ("unit_power", 1.0),
    ("linear_policy", False),
    ("stored_contexts", 0),
    ("normalised", False),
    ("first_world", ""),
    ("best_paid_share", 0.0),
)


def config_digest(config: Config) -> str:
    """What ties a checkpoint to its configuration. ``UNSAID`` is left out, so that runs go on which began before there
    was another value."""
    data = config.data
    parts = {
        part: {name: {k: v for k, v in own.items() if (k, v) not in UNSAID} for name, own in data[part].items()}
        for part in ("agents", "envs")
    }
    data = {**data, **parts}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


class Run:
    """``execute()`` does it all; what it leaves in ``run_dir``: config.yaml (written by the caller), checkpoint.pt,
    model.pt (of shapers: params.yaml), scores.csv, TensorBoard events, learning_curve.png, summary.txt; and
    distilled.pt, the world that the search began with, if experts taught it or a file held it."""

    def __init__(self, config: Config, run_dir: Path, dispatcher: Engine, resume: bool = False) -> None:
        data = config.data
        self.config, self.run_dir, self.dispatcher = config, run_dir, dispatcher
        self.gtn = problem.gtn_section(data)
        self.target = make_target(data)
        self.keeper = RunKeeper(run_dir, config_digest(config), self.target, resume)
        self.settings = settings_of(self.gtn.search, data["agents"])
        self.unscored = Unscored(self.keeper)
        self.given_first = self.gtn.init == DISTILLED or bool(self.gtn.first_world)
        self._begin(self._first if self.given_first and self.keeper.resumed else None)

    def _begin(self, given: Callable[[], Tensor] | None) -> None:
        """given: gives the first world, if experts taught it or a file holds it. A search that begins again after a
        collapse begins with random worlds: that one has collapsed already."""
        keeper, run_seed = self.keeper, self.config.data["seed"]
        first = int(member_seeds(run_seed, RESTART, 0, 1)[0])

        def world(seed: int) -> Tensor:
            return given() if given and seed == first else self.target.begin(seed)

        def begin(seed: int) -> Tensor:
            return self.target.vector(world(seed))

        self.target.measure(lambda: world(first))
        keeper.begin(make_strategy(self.gtn, run_seed, begin, self.target.mask(), keeper.state, self.settings))

    def _first(self) -> Tensor:
        """The world that an earlier process began with. Raises RunError."""
        try:
            return read_world(str(self.run_dir / FIRST)).flat
        except WorldFileError as e:
            raise RunError(f"{e}; the search began with that world and needs it to go on") from None

    @property
    def strategy(self) -> Strategy:
        return self.keeper.strategy

    @property
    def progress(self) -> Progress:
        return self.keeper.progress

    @property
    def checkpoint(self) -> Path:
        return self.keeper.checkpoint

    @property
    def real_steps(self) -> int | None:
        """Steps on the task that the evolution has cost so far; None: the run began in a version that did not count."""
        return self.keeper.real_steps

    def evaluate(
        self,
        worlds: Tensor,
        seeds: Tensor,
        mode: str,
        groups: Sequence[tuple[int, bool]] = (),
        recipe: Recipe | None = None,
    ) -> tuple[Values, list[str]]:
        """Trains members; every score of the run comes from here. groups: members that take turns
        (``outer/search/turns.py``); without, all have the configuration's own learner. recipe: how ``worlds`` were
        drawn."""
        generation = self.strategy.state.generation + 1
        turns = groups and self.target.kind != "shaper"
        configs, which = variants(self.config.data, groups, generation) if turns else ((), None)
        own = self.target.worlds(worlds)
        how = configs, which, recipe if own is worlds else None
        return evaluate_members(self.dispatcher, self.config, generation, own, seeds, mode, *how)

    def _members(self, number: int, members: Population) -> Evaluated:
        """The loop's evaluator."""
        groups = [(n, role != ORIG) for role, n in Counter(members.roles).items()]
        return Evaluated.of(*self.evaluate(members.worlds, members.seeds, PROXY, groups, members.recipe))

    def _fresh(self, members: Population) -> Evaluated:
        """Agents that confirm a solved world."""
        groups = [(len(members.seeds), False)]
        return Evaluated.of(*self.evaluate(members.worlds, members.seeds, BUDGET, groups))

    # ------------------------------------------------------------------------------------------------ the outer loop

    def execute(self, table: LiveTable) -> RunSummary:
        """Runs to the end (or from the checkpoint to the end) and reports. KeyboardInterrupt leaves a resumable run."""
        self.search(table, lambda run: run.unscored.hopeless)
        if self.progress.best_generation == 0:
            raise UnscoredError(self.no_score())
        if self.gtn.keep == CONFIRMED and not self.progress.solved:
            self._confirm(table)
        return self._report(table)

    def search(self, table: LiveTable, enough: Callable[[Run], bool] = lambda run: False) -> None:
        """Generations until the run is finished, or until ``enough``; it then goes on from its checkpoint when it is
        given more."""
        keeper, first = self.keeper, self.strategy.state.generation + 1
        if keeper.resuming:
            table.note(self._resume_note(first))
            if changed := changed_versions(self.run_dir / "config.yaml"):
                table.note(changed)
        if keeper.resumed and self.progress.best_generation:
            keeper.save_model()  # a run killed between model.pt and checkpoint.pt, or a lost file
        again = first if keeper.resuming else None
        with ScoresCSV(self.run_dir / SCORES, resume_generation=again) as keeper.csv:
            with contextlib.closing(TensorBoard(self.run_dir, purge_generation=again)) as board:
                if self.given_first and not keeper.resumed:
                    (self._begin_distilled if self.gtn.init == DISTILLED else self._begin_with_file)(table)
                self._loop(table, board).run(lambda: enough(self))
        if self.progress.best_generation:
            keeper.save_model()  # with all that the search has cost, the generations after the best one too

    def _loop(self, table: LiveTable, board: TensorBoard) -> Loop:
        keeper = self.keeper
        return Loop(
            self.strategy,
            self.target,
            self._members,
            keeper,
            self.gtn.max_iterations,
            done=self.strategy.state.generation,
            finished=self.progress.finished,  # solved, perhaps, before its last generation
            before=[
                lambda g: keeper.count(g.found.values),
                Confirmation(self.gtn, keeper, self._fresh),
                lambda g: keeper.remember(g, every=self.gtn.keep == "last"),
                Collapse(self.gtn, keeper),
                self.unscored,
            ],
            after=[lambda g: self._show(g, table, board)],
        )

    def _begin_distilled(self, table: LiveTable) -> None:
        """Lets workers train experts on the task; the search then begins with the world of the best one, distilled.pt.
        The checkpoint of generation 0 holds it, so that the experts are not trained again; until then those that have
        ended are in files."""
        since, count = time.monotonic(), len(problem.experts(self.config.data))
        kept = Kept(self.dispatcher, self.run_dir, self.keeper.digest, count)
        seeds = fresh_seeds(self.config.data["seed"], EXPERTS, count)
        first = first_world(self.config, kept, seeds, self.strategy.centre.shape, table.note)
        self._begin(lambda: first.world)
        self.keeper.count(first.values)
        self._keep_first(first.world, first.score)
        self.progress.seconds += time.monotonic() - since
        self.keeper.save_state()
        kept.forget()

    def _begin_with_file(self, table: LiveTable) -> None:
        """Begins with the world of agents.gtn.first_world, whose real steps count. Raises RunError."""
        path = self.gtn.first_world
        assert isinstance(self.target, NetworkTarget)
        try:
            world = self.target.given(path)
        except WorldFileError as e:
            raise RunError(f"agents.gtn.first_world: {e}") from None
        self._begin(lambda: world.flat)
        self.keeper.add_real_steps(world.evolution_steps)
        self._keep_first(world.flat, world.score)
        self.keeper.save_state()
        table.note(f"the first world is {path}, score {world.score:.4g}")

    def _keep_first(self, world: Tensor, score: float) -> None:
        assert isinstance(self.target, NetworkTarget)
        self.target.save(self.run_dir, world, score, False, self.real_steps, FIRST)

    def _confirm(self, table: LiveTable) -> None:
        """Keeps the best world if fresh agents do better in it than in the first one, by more than a standard error:
        the mean that made it the best one was the luckiest of all generations."""
        p, n, since = self.progress, self.gtn.confirm_agents, time.monotonic()
        first = self.target.vector(self._first())
        if torch.equal(first, p.best_psi):
            return
        seeds = fresh_seeds(self.config.data["seed"], BETTER, n).repeat(2)
        values, _ = self.evaluate(torch.stack((p.best_psi, first)).repeat_interleave(n, 0), seeds, BUDGET)
        self.keeper.count(values)
        best, began = worst_for_failed(values["score"])[0].reshape(2, n)
        gain = best - began
        better = bool(gain.mean() > gain.std(ddof=1) / math.sqrt(n))
        said = f"{n} fresh agents: {best.mean():.4g} in the world of generation {p.best_generation}, "
        table.note(f"{said}{began.mean():.4g} in the first one, so the {'former' if better else 'latter'} is kept")
        if not better:
            p.best_psi, p.best_generation = first, 1
        p.best_score = float((best if better else began).mean())
        p.seconds += time.monotonic() - since
        self.keeper.save_model()

    def no_score(self) -> str:
        return (
            f"no world has a score: every agent failed in all {self.strategy.state.generation} generations; "
            f"the reasons are in {self.run_dir / SCORES}"
        )

    def _resume_note(self, first: int) -> str:
        if self.progress.finished:
            return f"the search ended with generation {first - 1}; only the closing comparison is made again"
        if self.keeper.resumed:
            return f"resumed at generation {first}"
        return "no generation was finished; starting with the first"

    def _show(self, g: Generation, table: LiveTable, board: TensorBoard) -> None:
        values, mask = g.found.values, orig(g)
        if g.failed.all():
            table.note(f"generation {g.number}: all members failed, the first because {g.found.reasons[0]}")
        if g.number + 1 in self.progress.restart_generations:
            table.note(collapse_note(g))
        row = GenerationRow(
            generation=g.number,
            score_mean=mean_orig(g),
            score_best=math.nan if g.failed.all() else float(g.scores.max()),
            real_return=mean_of(values["mean_return"][mask]),
            train_steps=float(values["train_steps"][mask].mean()),
            episode_length=episode_length(values, mask),
            failed=int(g.failed.sum()),
            member_steps=g.found.steps,
            seconds=g.seconds,
        )
        table.update(row)
        board.write(row)

    # ------------------------------------------------------------------------------------------------ the end

    def compare(self) -> tuple[AgentRuns, AgentRuns] | None:
        """Trains fresh agents with new random seeds in the evolved world and on the real task."""
        n = self.gtn.comparison_agents
        if n == 0:
            return None
        names = ("mean_return", "train_steps", "first_solved_steps")
        sides = self._fresh_agents(EVOLVED, n, BUDGET), self._fresh_agents(ON_TASK, n, REAL)
        evolved, real = (AgentRuns(*(values[name].tolist() for name in names)) for values in sides)
        return evolved, real

    def _fresh_agents(self, counter: int, n: int, mode: str) -> Values:
        """n agents with new random seeds, in the best world or (``REAL``) on the task."""
        seeds = fresh_seeds(self.config.data["seed"], counter, n)
        return self.evaluate(self.progress.best_psi.expand(n, -1), seeds, mode)[0]

    def _best_paid(self) -> list[float]:
        """Mean returns on the task of the action that a bandit pays most for: of the best world, and of the first one
        if it was given. Empty for worlds that are no bandits."""
        target = self.target
        if not isinstance(target, NetworkTarget) or target.kind != "se" or not target.section.contextual_bandit:
            return []
        worlds = target.worlds(self.progress.best_psi[None])
        if self.given_first:
            worlds = torch.cat((worlds, self._first()[None]))
        policies = greedy(synthetic_world(target.task, target.section, worlds))
        key = fresh_seeds(self.config.data["seed"], PAID, 1).numpy()
        return play(target.task, policies, key.repeat(len(worlds)), PAID_EPISODES).returns.mean(1).tolist()

    def _judge_rn(self, comparison: tuple[AgentRuns, AgentRuns] | None) -> None:
        """Decides whether an RN is solved, by its agents on the task. The agents that gave it its score were the
        luckiest of all generations, so fresh ones decide, and none of them may fail."""
        if self.target.kind != "rn" or mark_of(self.target.solved_reward) is None:
            return
        count = self.gtn.num_orig_evals or self.gtn.num_workers
        returns = comparison[0].returns if comparison else self._fresh_agents(COUNTED, count, BUDGET)["mean_return"]
        self.progress.solved = bool(np.mean(returns) >= self.target.solved_reward)
        self.keeper.save_model()

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
            read_curve(self.run_dir / SCORES),
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
            paid=self._best_paid() if comparison else [],
        )
        (self.run_dir / "summary.txt").write_text(summary_text(summary) + "\n")
        return summary
