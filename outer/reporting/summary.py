"""Closing summary of a run: the evolved world, its value to agents, and its cost."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envolve.core import commands
from envolve.core.statistics import AgentRuns, interquartile_mean, summary, within
from envolve.envs.outside.build import DESCRIPTION_FILE
from envolve.envs.task import mark_of
from envolve.outer.names import CONFIG_FILE, SCORES
from envolve.outer.reporting.comparison import POSSIBLE_STEPS, failures, price_lines, ratio_sentence, side, why_not
from envolve.outer.reporting.report import number

WORLDS = {"se": "synthetic environment", "rn": "reward network", "shaper": "shaper"}
FILES = (  # what a run leaves in its folder, in the order the summary names it
    ("model.pt", "the evolved world"),
    ("params.yaml", "the evolved numbers of the shaper"),
    (CONFIG_FILE, "the configuration, with versions, git hash and seed"),
    (SCORES, "every member of every generation"),
    ("learning_curve.png", "the picture of it"),
    ("comparison.json", "the agents of the closing comparison"),
)
KEPT = 0.5  # share of its agents' gain over a random policy, below which the best-paid action's gain is a warning
FIGURES = "  Figures: interquartile mean [95 % interval]; of equal values, how many there are."


@dataclass
class RunSummary:
    """Input of the closing summary."""

    kind: str  # a key of WORLDS
    env_name: str
    solved: bool
    generations: int
    seconds: float  # wall time of all sessions of the run
    total_steps: int  # environment steps of all members
    run_dir: str
    restarts: int = 0
    solved_reward: float | None = None  # None, or the stand-in of ``mark_of``: the task has no such mark
    proxy: AgentRuns | None = None  # agents trained in the evolved world, or with the evolved shaper
    real: AgentRuns | None = None  # agents trained in the real task, or with the human's shapers
    agent: str = "ddqn"
    seed: int = 0
    real_steps: int | None = None  # of the task, spent on the evolution, tests included; None: not known
    floor: float | None = None  # return of a random policy; None: not known, and steps are not compared
    real_learner: str = ""  # what the agents on the task do otherwise than those in the world; "": nothing
    score_unit: str = ""  # of shapers
    paid: Sequence[float] = ()  # bandits: returns of the best-paid action, of this world and of the given first one


def summary_text(run: RunSummary) -> str:
    """The closing summary, plain text of at most about 100 columns."""
    world = WORLDS[run.kind]
    shaper = run.kind == "shaper"
    verdict = "SOLVED" if run.solved else "NOT SOLVED"
    mark = mark_of(run.solved_reward)
    if mark is None:
        verdict = "evolved, with no mark to reach"
    what = "score" if shaper else "mean return"
    goal = f" ({what} of at least {number(mark)})" if mark is not None else ""
    restarts = f", {run.restarts} restart{'s' * (run.restarts != 1)}" if run.restarts else ""
    lines = [
        f"{run.env_name}, {world}: {verdict}{goal}",
        f"  {run.generations} generation{'s' * (run.generations != 1)}{restarts}, {_minutes(run.seconds)}, "
        f"{run.total_steps:,} environment steps of all agents together",
    ]
    if run.proxy or run.real:
        lines += ["", *_comparison(run)]
    else:
        lines += [f"  {line}" for line in price_lines(run.kind, run.real_steps, None, None, False, number)]

    lines += _best_paid(run)

    folder = Path(run.run_dir)
    files = [(name, what) for name, what in FILES if (folder / name).is_file()]
    events = sorted({p.parent for p in folder.rglob("events.out.tfevents.*")})
    if files or events:
        lines += ["", f"Written to {folder}:", *(f"  {name:<20}{what}" for name, what in files)]
        lines += [f"  {'TensorBoard':<20}tensorboard --logdir {folder}"] if events else []

    lines += ["", "Next:"]
    if not run.solved and "SOLVED" in verdict:
        lines += [f"  another seed (--seed {run.seed + 1}), or more generations (--set agents.gtn.max_iterations=...)"]
    if shaper:
        return "\n".join(lines + [f"  copy params.yaml into the PARAMS of your shaper in {run.env_name}'s folder"])
    # the packages are in .venv, which the user of `make run` has not activated
    python = os.path.relpath(sys.executable)
    python = "python3" if python.startswith("..") else python
    words = commands.typed("evaluate_proxy.py")
    words = [python, *words[1:]] if words[0] == "python3" else words
    own = f" --plugins {folder}" if _executes_own_files(folder) else ""
    lines += [f"  {' '.join(words)} {folder / 'model.pt'} --agent {run.agent} --agents 20{own}"]
    return "\n".join(lines)


def _executes_own_files(folder: Path) -> bool:
    """Returns whether the run has files or an environment of the user's own, which only an allowed folder makes."""
    return (folder / DESCRIPTION_FILE).is_file() or any(folder.glob("*.py"))


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} minutes"


def _titles(run: RunSummary) -> tuple[str, str, str, str]:
    """Titles of the two columns, and of the rows of steps and of returns."""
    if run.kind == "shaper":
        unit = f", {run.score_unit}" * bool(run.score_unit)
        return "with the evolved shaper", "with the human's shapers", "training steps", f"score{unit}"
    return "in the evolved world", "in the real task", "training steps needed", "test return, real task"


def _comparison(run: RunSummary) -> list[str]:
    """Two columns, the evolved world and the real task; a missing one is left out."""
    evolved, real, steps_row, return_row = _titles(run)
    both = {evolved: run.proxy, real: run.real}
    columns = {name: agents for name, agents in both.items() if agents is not None}
    table = [[f"{run.agent} agents trained", *columns], [steps_row], [return_row], ["number of agents"]]
    mark = mark_of(run.solved_reward)
    below = "failures" + (f" (below {number(mark)})" if mark is not None else "")
    if mark is not None or any(failures(agents.returns, mark) for agents in columns.values()):
        table.append([below, *(f"{failures(a.returns, mark)} of {len(a.returns)}" for a in columns.values())])
    notes = []
    for name, agents in columns.items():
        # an agent that failed stopped early: its steps would make the training look short
        steps = [s for s, r in zip(agents.steps, agents.returns) if math.isfinite(r)]
        lost = len(agents.returns) - len(steps)
        table[1].append(cell(steps, bounds=POSSIBLE_STEPS))
        none_failed = not failures(agents.returns, mark)
        table[2].append(cell([r for r in agents.returns if math.isfinite(r)], failing=none_failed))
        table[3].append(str(len(agents.returns)))
        if lost:
            notes.append(f"  {lost} of {len(agents.returns)} agents trained {name} failed and are left out.")
    if any(math.isfinite(s) for agents in columns.values() for s in agents.first_steps):
        table[1][0] = "training steps until the rule fires"
        table.insert(2, ["until the first test of its window"])
        for agents in columns.values():
            table[2].append(cell([s for s in agents.first_steps if math.isfinite(s)], bounds=POSSIBLE_STEPS))
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ["  " + "   ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in table]
    return [*lines, FIGURES, *(f"  {line}" for line in _sentences(run)), *notes]


def _sentences(run: RunSummary) -> list[str]:
    """Comparison, if it is valid, and the prices."""
    if run.kind == "shaper":  # both train for as long as the configuration says
        return price_lines("shaper", run.real_steps, None, None, False, number)
    lines = [f"Agents on the real task: {run.real_learner}."] if run.real_learner and run.real else []
    if run.floor is None and run.proxy and run.real:
        lines.append("No comparison of steps: the return of a random policy is not known.")
    if run.floor is None or not run.proxy or not run.real or not run.proxy.returns or not run.real.returns:
        return lines + price_lines(run.kind, run.real_steps, None, None, False, number)
    mark = mark_of(run.solved_reward)
    world, real = (side(agents, run.floor, mark) for agents in (run.proxy, run.real))
    reason = why_not(world, real, run.floor, mark, number)
    lines.append(f"No comparison of steps: {reason}." if reason else ratio_sentence(world, real, number))
    return [line for line in lines if line] + price_lines(run.kind, run.real_steps, world, real, not reason, number)


def _best_paid(run: RunSummary) -> list[str]:
    """What a bandit holds for agents that train longer: they end at the action that it pays most for."""
    if not run.paid or not math.isfinite(run.paid[0]):
        return []
    first = f" ({number(run.paid[1])} in the first world)" if len(run.paid) > 1 and math.isfinite(run.paid[1]) else ""
    said = "Without an agent, the action that the world pays most for returns"
    lines = [f"  {said} {number(run.paid[0])} on the task{first}."]
    agents = [r for r in run.proxy.returns if math.isfinite(r)] if run.proxy else []
    if run.floor is not None and agents:
        usual = interquartile_mean(agents)
        if run.paid[0] - run.floor < KEPT * (usual - run.floor):
            lines.append("  Its agents gain more than twice as much: in longer trainings they may get worse.")
    return lines


def cell(x: list[float], failing: bool = False, bounds: tuple[float, float] | None = None) -> str:
    """Formats 12.3 [11.0, 13.1], the interquartile mean and its interval. Equal values: "200.0 (20 of 20)"; failing:
    add the share of agents that may still fail. bounds: at which the interval ends, where it would reach beyond."""
    if not x:
        return "-"
    s = summary(x)
    if s["iqm_interval"] is not None:
        low, high = s["iqm_interval"]
        return f"{number(s['iqm'])} [{', '.join(map(number, within(low, high, bounds)))}]"
    rest = f"; at most {100 * s['unseen_share']:.0f} % fail (95 %)" if failing else ""
    return f"{number(s['iqm'])} ({s['n']} of {s['n']}{rest})"
