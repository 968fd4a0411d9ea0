"""An NES master of a search as a Ray worker: it evaluates trials, with workers of its own on its node.

Its workers are processes of the file exchange in a folder of the node, the ones that ``envolve tune`` starts without
Ray, so a trial gives the same bytes. Where the node sees the folder of the search, its runs lie there, and a trial
that was interrupted goes on from its last generation. Elsewhere the files of a configuration travel: with a trial what
it was promoted from, with the answer what it left.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from envolve.core.files import TEXT_BYTES, read_plain
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.local_workers import LocalWorkers
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.hpo.nes_master import LOGS, RUNS, SYNC, Broken, evaluation_of
from envolve.outer.hpo.study import Study, read_study
from envolve.outer.ray.folder import folder_bytes, write_folder
from envolve.outer.ray.own_folder import FolderEvaluator

STUDY, MARK = "study.yaml", "ray_mark"  # of the search; MARK tells whether a node sees the search's own folder
FILES, WORLDS = "files", "worlds"  # what travels beside a trial and its values; files of worlds, by number


def files_of(values: dict[str, Any]) -> str:
    """Folder of a trial's configuration among the runs."""
    bracket, _, number = values["config_id"]
    return f"{bracket}_{number}"


class RayNESMaster(FolderEvaluator):
    """Started with the text of the study, the number of workers, and the search's folder. The node is unfit for what is
    not the trial's fault: a full disk, no worker that can be started."""

    unfit = Broken

    def _open(self) -> Callable[..., dict[str, Any]]:
        """Makes the folder here, starts the workers -> the evaluation of trials. Raises ExchangeError, ConfigError."""
        content = self._start
        folder = self._folder()
        for name, data in content["files"].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.numpy().tobytes())
        (folder / STUDY).write_text(content["study"], encoding="utf-8")
        study = read_study(folder / STUDY)
        engine = self._stack.enter_context(Dispatcher(str(folder / SYNC), 0, content["run_id"]))
        if study.evaluate != "goal":  # whose agents this process trains itself
            workers = LocalWorkers(content["workers"], str(folder / SYNC), 0, folder / LOGS, plugins=folder)
            self._stack.enter_context(workers)
            engine.on_wait = workers.poll
        search = Path(content["run_dir"])
        shared = sees(search, content["mark"])
        runs = (search if shared else folder) / RUNS
        return trial_evaluation(study, runs, engine, shared)


def trial_evaluation(study: Study, runs: Path, engine: Dispatcher, shared: bool) -> Callable[..., dict[str, Any]]:
    """shared: ``runs`` is the search's own folder, and no file needs to travel."""
    evaluate = evaluation_of(study, runs, engine)

    def with_files(config: dict[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int) -> dict[str, Any]:
        folder = runs / files_of(config)
        try:
            if not shared:
                shutil.rmtree(folder, ignore_errors=True)  # of a trial that another master has gone on with since
                write_folder(base64.b64decode(config[FILES]), folder)
            trial = {key: value for key, value in config.items() if key != FILES}
            values = evaluate(trial, worlds, seeds, mode, threads)
            left = b"" if shared else folder_bytes(folder)
        except (ExchangeError, OSError) as e:
            raise Broken(f"{folder}: {e}") from e
        return {**values, FILES: np.array(bytearray(left), dtype=np.uint8)[None]}

    return with_files


def sees(search: Path, mark: str) -> bool:
    """Whether this is the search's own folder, and no other of the same name."""
    try:
        return read_plain(search / MARK, TEXT_BYTES).decode("ascii", "replace") == mark
    except OSError:
        return False
