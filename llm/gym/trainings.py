"""Trainings of a run on a user's environment: jobs in the jail, and what is stored and said of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym.finals import TESTS, Finalist, best_first, final_seed, finalists
from envolve.llm.gym.sample import Sample
from envolve.llm.gym.sections import GymConfig
from envolve.llm.gym.train import MAX_MODEL, JobOutcome, Limits, RunStopped, TrainingJob, read_if_plain, run_jobs

BENCHMARK = "benchmark"  # folder of the training with the environment's own reward
NOTHING = "def compute_reward(self, *args, **kwargs):\n    return 0.0, {}\n"
log = logging.getLogger("envolve")


class Trainings:
    """Trains, tests and films rewards. What an earlier session has trained is loaded."""

    def __init__(
        self, config: GymConfig, env: Path, folder: Path, limits: Limits, processes: int, console: Console
    ) -> None:
        """env: the user's folder. folder: of the run. limits: of one training. processes: at once; 0: one per core."""
        self.config, self.env, self.folder, self.limits, self.console = config, env, folder, limits, console
        self.parallel = processes or len(os.sched_getaffinity(0))
        self.seed = config.rl.training.seed
        self.said: set[str] = set()

    def check_env(self) -> None:
        """Checks the user's environment without a reward, before any call is paid. Raises RunStopped."""
        job = TrainingJob(self.folder / "check", "check", self.config, 0, self.env, NOTHING)
        for _, outcome in run_jobs([job], 1, self.limits):
            if outcome.error is not None:
                raise RunStopped(f"{self.env}: {outcome.error}")
            for name, space in outcome.spaces.items():
                self.console.print(f"{name}: {space}", markup=False)
            self._warn(outcome.notes)

    def train(self, samples: Sequence[Sample], best: Sample | None, benchmark: Sample | None) -> None:
        """Trains samples without a result. best: from whose policy they start, if the configuration says so.
        benchmark: trained beside them with the environment's own reward."""
        jobs: list[tuple[TrainingJob, Sample]] = []
        if benchmark is not None and not benchmark.load():
            jobs.append((TrainingJob(benchmark.folder, "train", self.config, self.seed), benchmark))
        start = best.model if best is not None and self.config.eureka.pretraining_with_best_model else None
        for s in samples:
            if s.failure is not None:
                s.save()
            elif not s.load():
                jobs.append((TrainingJob(s.folder, "train", self.config, self.seed, self.env, s.code, start), s))
        self._run(jobs)

    def last_test(self, samples: Sequence[Sample]) -> list[Finalist]:
        """Trains the finalists anew, with seeds that the search has not used -> best first."""
        eureka = self.config.eureka
        finals = finalists(samples, eureka.finalists, eureka.final_seeds, self.folder)
        tests = final_seed(self.seed, TESTS)  # other episodes than those that the finalists were selected by
        left = [(final_seed(self.seed, k), run) for f in finals for k, run in enumerate(f.runs) if not run.load()]
        jobs = [
            (TrainingJob(run.folder, "train", self.config, seed, self.env, run.code, tests=tests), run)
            for seed, run in left
        ]
        if jobs:
            text = f"Last test: {eureka.final_seeds} trainings for each of {len(finals)}"
            self.console.print(text, markup=False)
        self._run(jobs)
        return best_first(finals)

    def judge(self, best: Sample) -> JobOutcome | None:
        """Tests and films the best policy in new episodes -> eval.json, eval.gif; None: it has no policy."""
        if best.model is None:
            return None
        folder = self.folder / "judgement"
        job = TrainingJob(folder, "film", self.config, self.seed, self.env, best.code, best.model)
        (_, outcome), *_ = list(run_jobs([job], 1, self.limits))
        if outcome.error is not None:
            log.warning("no final evaluation of %s: %s", best.name, outcome.error)
            return outcome
        self._warn([note for note in outcome.notes if not note.startswith("warm start: from")])
        for name in ("eval.json", "eval.gif"):
            data = read_if_plain(folder / "out" / name, MAX_MODEL)
            if data is not None:
                write_atomic(str(self.folder / name), data)
        return outcome

    def _run(self, jobs: list[tuple[TrainingJob, Sample]]) -> None:
        """Trains them and stores what became of them. Raises RunStopped."""
        by_folder = {job.folder: sample for job, sample in jobs}
        for job, outcome in run_jobs([job for job, _ in jobs], self.parallel, self.limits):
            sample = by_folder[job.folder]
            self._take(sample, outcome)
            sample.save()

    def _take(self, sample: Sample, outcome: JobOutcome) -> None:
        rl = self.config.rl
        sample.take(outcome, max(rl.training.eval.num_episodes, rl.evaluation.num_episodes))
        self._warn(outcome.notes)
        if outcome.kind == "jail":
            raise RunStopped(outcome.error or "this machine cannot jail")
        what = f"fitness {sample.fitness:.6g}" if sample.ok else (sample.failure or "").strip().splitlines()[-1]
        self.console.print(f"  {_name(sample)}: {what}", markup=False)

    def _warn(self, texts: Sequence[str]) -> None:
        """Logs each warning once per run: it often applies to all trainings."""
        for text in texts:
            if text not in self.said:
                log.warning("%s", text)
        self.said.update(texts)


def _name(sample: Sample) -> str:
    """As it is called on the terminal; a final training with its seed."""
    own = sample.folder.name
    return BENCHMARK if own == BENCHMARK else sample.name + f", {own}" * own.startswith("seed_")
