"""Files of results of a run on a user's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envolve.envs.worlds.file import write_atomic
from envolve.llm.gym import report
from envolve.llm.gym.train import JobOutcome

if TYPE_CHECKING:
    from envolve.llm.gym.evolution import GymRun


def result(run: GymRun, final: JobOutcome | None) -> dict[str, object]:
    best = run.best()
    score = final.fitness if final is not None and final.error is None else best.fitness if best else None
    if run.finals:  # of fresh trainings, not of the lucky one
        score = run.finals[0].values()["score"]
    entry = report.entry(best)
    return {
        "environment": run.config.environment.name,
        "folder": str(run.folder),
        "best": None if entry is None else {**entry, "selected_with": entry["score"], "score": score},
        "finals": [f.values() for f in run.finals],
        "benchmark": report.entry(run.benchmark),
        "samples": [report.entry(s) for s in run.samples],
    }


def write(run: GymRun, final: JobOutcome | None) -> None:
    best = run.best()
    report.write_json(run.folder / "result.json", result(run, final))
    if best is not None:
        report.write_json(run.folder / "best_reward.json", {**best.values(), "fitness_score": best.fitness})
        write_atomic(str(run.folder / "best_reward.py"), best.code.encode("utf-8", "replace"))
    per = [
        report.best_of([s for s in run.samples if s.iteration == i]) for i in sorted({s.iteration for s in run.samples})
    ]
    report.write_json(run.folder / "best_iteration_rewards.json", [s.values() if s else None for s in per])
    picture_title = run.config.environment.name
    report.picture(run.folder / "fitness.png", run.samples, run.benchmark, picture_title)
