"""The programs from their start to the end of the run, wherever the hub and the run's folder are.

``kept``: called with the name of every file that was written in the program's folder and that the run needs; where that
folder is not the run's own, it goes there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from envolve.distributed.engine.hub import Finished
from envolve.distributed.files.board import Chart, CollectorReport, EvaluatorReport, LearnerReport
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.files.run_folder import RunSettings
from envolve.distributed.programs.collector import Collector
from envolve.distributed.programs.evaluator import Evaluator
from envolve.distributed.programs.learner import Kept, Learner, stays
from envolve.distributed.programs.turns import CollectorProgram, EvaluatorProgram, HubLike, LearnerProgram, widths_of

PAUSE = 0.5  # s between two looks for work
Done = Callable[[], bool]


def rest() -> None:
    time.sleep(PAUSE)


def run_learner(
    params: TrainParamsBase, settings: RunSettings, folder: Path, hub: HubLike, board: Chart, kept: Kept = stays
) -> None:
    learner = Learner(params, widths_of(params), settings.keys(), folder, kept)
    with ThreadPoolExecutor(1) as ahead:
        learner.ahead = ahead
        program = LearnerProgram(learner, hub, settings.lockstep, LearnerReport(board))
        while not learner.complete:
            while not program.publish():
                pass
            while not program.learn():
                pass
        with contextlib.suppress(Finished):  # the hub has heard of it already, and has ended
            program.finish()


def run_collector(
    params: TrainParamsBase, settings: RunSettings, worker: int, hub: HubLike, board: Chart, done: Done
) -> None:
    collector = Collector(params, worker, settings.num_collectors, settings.keys(), settings.lockstep)
    program = CollectorProgram(collector, hub, CollectorReport(board, params.num_steps_per_iter))
    try:
        while not done():
            program.turn()
    except Finished:
        pass
    finally:
        collector.close()


def run_evaluator(
    params: TrainParamsBase,
    settings: RunSettings,
    folder: Path,
    board: Chart,
    done: Done,
    kept: Kept = stays,
    idle: Callable[[], None] = rest,
) -> None:
    """idle: waits a little, or until there may be work."""
    evaluator = Evaluator(params, settings.keys(), folder, kept)
    program = EvaluatorProgram(evaluator, EvaluatorReport(board))
    try:
        while True:
            over = done()  # asked first: what was written before it is evaluated
            if not program.turn():
                if over:
                    return
                idle()
    finally:
        evaluator.close()
