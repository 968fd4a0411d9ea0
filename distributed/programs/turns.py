"""Turn of each program, the same for an embedded hub and for a remote one.

A turn waits at most WAIT seconds for the hub and then reports that nothing was done; the caller tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch import Tensor

from envolve.agents.common.population import keep_pages
from envolve.distributed.engine.hub import Hub, Unpublished
from envolve.distributed.engine.limits import Limits
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.files.run_folder import DONE, REPLAY, SESSION, RunSettings, next_session
from envolve.distributed.memory.hindsight import HindsightReplay
from envolve.distributed.memory.replay import SharedReplay
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.memory.rows import RANDOM, Chunk, Counters, Handout, Widths
from envolve.distributed.programs.agent import make_agent
from envolve.distributed.programs.collector import Collector, steps_of
from envolve.distributed.programs.evaluator import Evaluator
from envolve.distributed.programs.learner import Learner, block_of
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError

WAIT = 2.0  # s
LOG_FILES = 16  # of the memory's capacity, about


class HubLike(Protocol):
    """Methods of a hub that programs use (``distributed/engine/hub.py``), local or remote."""

    def begin(self, session: int, version: int) -> None: ...
    def publish(self, session: int, version: int, policy: Tensor, timeout: float) -> bool: ...
    def ready(self, session: int, version: int, timeout: float) -> bool: ...
    def has(self, version: int) -> bool: ...
    def sample(self, first: int, count: int) -> Tensor: ...
    def checkpoint(self) -> None: ...
    def finish(self) -> None: ...
    def progress(self) -> Counters: ...
    def pull(self, worker: int, timeout: float) -> Handout | None: ...
    def append(self, chunk: Chunk) -> bool: ...


def widths_of(params: TrainParamsBase) -> Widths:
    """Sizes of the environment, which is built once for this purpose. Raises ParamsError."""
    env = params.collect_env(0, 0)
    try:
        return Widths.of(env)
    finally:
        env.close()


def make_hub(
    params: TrainParamsBase,
    widths: Widths,
    settings: RunSettings,
    folder: Path | None,
    log_of: Callable[[Path, int, int, int], ReplayLog] = ReplayLog,
) -> Hub:
    """Makes a hub. folder: of the run, for the log of transitions, which ``log_of`` makes; None: no log."""
    keep_pages()  # of the samples, megabytes each
    keys = settings.keys()
    memory = keys, params.buffer_size, widths, params.batch_size
    replay = HindsightReplay(*memory, params.gamma) if widths.goal_size else SharedReplay(*memory)
    file_rows = max(1, params.buffer_size // LOG_FILES)
    log = None if folder is None else log_of(folder / REPLAY, len(keys), widths.row, file_rows)
    return Hub(replay, settings.num_collectors, settings.lockstep, limits_of(params, widths, settings), log)


def limits_of(params: TrainParamsBase, widths: Widths, settings: RunSettings) -> Limits:
    """Limits of the messages to the hub of such a run. Raises ParamsError."""
    workers, keys = settings.num_collectors, settings.keys()
    policy = make_agent(params, widths, keys).actor().shape[1]
    steps = max(steps_of(params, workers, version) for version in (RANDOM, 0))
    block = block_of(len(keys), widths.row, params.batch_size)
    return Limits(workers, params.num_iter, len(keys), policy, widths.row, steps, block)


class LearnerProgram:
    def __init__(
        self, learner: Learner, hub: HubLike, lockstep: bool, report: Callable[[Learner, Counters], None]
    ) -> None:
        """report: gets the metrics every ``log_period`` iterations. Raises CheckpointError."""
        self.learner, self.hub, self.lockstep, self.report = learner, hub, lockstep, report
        learner.load()
        self.session = next_session(learner.folder)
        learner.kept(SESSION)  # before the hub hears of it: no two learners are of one session
        hub.begin(self.session, learner.version)

    def publish(self) -> bool:
        """Publishes the current policy and writes the files that are due."""
        learner = self.learner
        self._keep()
        if learner.version == RANDOM and self.hub.has(RANDOM):  # the memory was filled before this learner was born
            return True
        return self.hub.publish(self.session, learner.version, learner.policy(), WAIT)

    def learn(self) -> bool:
        """One iteration; in lockstep once all chunks of its policy are there."""
        learner, hub = self.learner, self.hub
        if self.lockstep or learner.version == RANDOM:
            try:
                if not hub.has(RANDOM) or learner.version > RANDOM:
                    if not hub.ready(self.session, learner.version, WAIT):
                        return False
            except Unpublished:
                self.publish()
                return False
        learner.iteration(hub.sample)
        if not learner.finite():
            raise RunError("the agents have diverged: their weights are not finite; lower learning rates")
        if learner.due(learner.params.log_period):
            self.report(learner, hub.progress())
        return True

    def finish(self) -> None:
        """Finishes after the last iteration."""
        self._keep()
        write_atomic(str(self.learner.folder / DONE), b"")
        self.learner.kept(DONE)
        self.hub.finish()

    def _keep(self) -> None:
        """Writes checkpoints, the replay buffer's first: a learner's must not be newer."""
        learner, p = self.learner, self.learner.params
        if learner.due(p.checkpoint_period):
            self.hub.checkpoint()
            learner.save()
        if learner.due(p.checkpoint_period) or learner.due(p.eval_period):
            learner.save_policy()


class CollectorProgram:
    def __init__(self, collector: Collector, hub: HubLike, report: Callable[[Chunk], None]) -> None:
        """report: gets every chunk that was stored."""
        self.collector, self.hub, self.report = collector, hub, report
        self.chunk: Chunk | None = None  # collected and not yet at the hub

    def turn(self) -> bool:
        """Collects with the next policy. Raises Finished."""
        if self.chunk is None:
            handout = self.hub.pull(self.collector.worker, WAIT)
            if handout is None:
                return False
            self.chunk = self.collector.collect(handout)
        try:
            kept = self.hub.append(self.chunk)
        except Unpublished:
            return False
        if kept:
            self.report(self.chunk)
        self.chunk = None
        return True


class EvaluatorProgram:
    def __init__(self, evaluator: Evaluator, report: Callable[[int, dict[str, float]], None]) -> None:
        """report: gets step and values of an evaluation."""
        self.evaluator, self.report = evaluator, report

    def turn(self) -> bool:
        """Makes one evaluation, if one is due."""
        for path in self.evaluator.due()[:1]:
            for step, values in self.evaluator.evaluate(path):
                self.report(step, values)
            return True
        return False


def run_embedded(learner: LearnerProgram, collectors: list[CollectorProgram], evaluator: EvaluatorProgram) -> None:
    """Runs all programs in turn in this process, to the end."""
    while not learner.learner.complete:
        done = [learner.publish(), *(collector.turn() for collector in collectors), learner.learn()]
        if not all(done):
            raise RuntimeError("a program waits for another in the same process")
        while evaluator.turn():
            pass
    learner.finish()
    while evaluator.turn():
        pass
