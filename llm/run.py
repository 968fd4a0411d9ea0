"""One run of auto_shape.py: setup and results."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Type

import yaml

from envolve.agents.shaped.halving import Training
from envolve.core.places import shipped
from envolve.core.statistics import or_none
from envolve.envs.graph.file import GraphFile
from envolve.envs.graph.values import GraphError
from envolve.envs.physics.task import PhysicsTask
from envolve.envs.worlds.file import write_atomic
from envolve.llm.evolution import Evolution
from envolve.llm.finals import Result, verdicts
from envolve.llm.models.chat import Chat, ChatError, make_chat
from envolve.llm.plan import Plan, arguments, resume_command
from envolve.llm.reporting.best_code import recheck_with
from envolve.llm.reporting.board import BoardWatcher
from envolve.llm.reporting.films import films_of
from envolve.llm.reporting.live import LiveEvolution
from envolve.llm.reporting.report import write_report
from envolve.llm.search.elites import Elites
from envolve.llm.search.genetic import Genetic
from envolve.llm.search.graphs import with_numbers
from envolve.llm.search.greedy import Extras, Greedy
from envolve.llm.search.individual import HUMAN, Individual, RewardSearch
from envolve.llm.search.islands import Islands
from envolve.llm.search.prompts import Brief
from envolve.llm.search.task_facts import human_source
from envolve.llm.steady import Steady, guided
from envolve.llm.vetting.probe import Probe, make_probe
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.trace.tracer import trace_reward
from envolve.llm.vetting.vet import Vetter
from envolve.outer.checkpoint import locked
from envolve.outer.config.load import environment_info
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.names import CONFIG_FILE
from envolve.outer.reporting.display import wide_console
from envolve.outer.reporting.report import duration
from envolve.outer.reporting.wandb_run import followed
from envolve.outer.shapers.run import engine_version
from envolve.outer.shapers.video import VideoError

DEFAULT_MODEL = "gpt-4o"


def check_models(plan: Plan) -> None:
    """Raises ConfigError for a wrong name, a missing key, an unknown price: before there is a folder."""
    try:
        _chat(plan, None).close()
    except ChatError as e:
        raise ConfigError([str(e)]) from None


def run_plan(plan: Plan) -> int:
    """Runs to the end -> exit code. Raises ConfigError, ChatError, JailError, SimulatorError, RunError, ValueError,
    OSError, KeyboardInterrupt."""
    began = time.monotonic()
    with _chat(plan, plan.folder / "calls.jsonl") as chat:
        _store_config(plan)
        with locked(plan.folder), contextlib.ExitStack() as stack:
            films = stack.enter_context(followed(plan.args.wandb, plan.folder))
            probe, vetter = make_probe(plan.task.name), None
            if plan.args.mode != "gp":  # it makes graphs: there is no code of others
                vetter = stack.enter_context(Vetter(probe, plan.types, plan.args.allow_unprotected))
            result = _evolve(plan, chat, vetter, probe)
            return _report(plan, chat, vetter, result, time.monotonic() - began, films)


def _chat(plan: Plan, record: Optional[Path]) -> Chat:
    """Makes the chat. Raises ChatError."""
    args = plan.args
    if args.mode == "gp":
        return Chat({}, record)
    return make_chat(
        args.llm or [DEFAULT_MODEL],
        args.base_url,
        record,
        budget=plan.budget,
        prices=plan.prices,
        parallel=args.parallel,
        timeout=args.timeout,
        seed=plan.settings.seed,
    )


def _evolve(plan: Plan, chat: Chat, vetter: Optional[Vetter], probe: Probe) -> Result:
    args, s = plan.args, plan.settings
    brief = Brief(plan.task, plan.description, tuple(plan.types), training_text(s.training), args.show_human_reward)
    code = plan.task.reward_text or human_source(plan.task.compute_reward) if args.human_parent else ""
    extras = Extras(args.edits, args.notes, code)
    samples = args.shapers_per_iter
    search: RewardSearch
    live = LiveEvolution(plan.task, s, wide_console(), str(plan.folder))
    with live, contextlib.closing(BoardWatcher(live, plan.folder)) as watcher:
        if args.mode in ("elites", "steady"):
            elites = Elites(brief, samples, chat.models, s.seed, extras)
            if args.mode == "steady":
                return guided(Steady(s, plan.folder, elites, chat, vetter, watcher), _recording(args.llm)).run()
            search = elites
        elif args.mode == "gp":
            human = human_graph(plan.task, probe) if args.human_parent else None
            search = Genetic(plan.task, probe.state, samples, s.seed, human)
        elif args.mode == "greedy":
            search = Greedy(brief, samples, chat.models, extras)
        else:
            search = Islands(
                brief,
                samples,
                chat.models,
                seed=s.seed,
                islands=args.islands,
                migration_every=args.migration_every,
                extras=extras,
            )
        return Evolution(s, plan.folder, search, chat, vetter, watcher).run()


def human_graph(task: Type[PhysicsTask], probe: Probe) -> GraphFile:
    """The human's reward as a graph, with parameters. Raises ConfigError."""
    if task.reward_text:
        raise ConfigError([f"--human-parent: found --mode gp and {task.name}, whose reward its simulator computes"])
    try:
        return with_numbers(trace_reward(task.compute_reward, probe))
    except (VetError, GraphError) as e:
        raise ConfigError([f"--human-parent: found a reward of {task.name} that no graph can hold: {e}"]) from e


def _recording(models: List[str]) -> Optional[Path]:
    """File of calls that is replayed, if it is one."""
    replayed = [name.removeprefix("replay:") for name in models if name.startswith("replay:")]
    return Path(shipped(replayed[0])) if len(replayed) == 1 else None


def training_text(t: Training) -> str:
    """For the models: the learner and what it is given."""
    steps = t.num_envs * t.iterations * int(getattr(t.section, "rollout_steps", 32))
    return f"{t.learner.upper()}, {t.num_envs} environments in parallel, {steps:,} environment steps per agent."


def _store_config(plan: Plan) -> None:
    if plan.resumed:
        return
    plan.folder.mkdir(parents=True, exist_ok=True)
    content = {
        "arguments": arguments(plan.args),
        "hyperparameters": dict(vars(plan.settings.training.section)),
        "versions": {**environment_info(), **engine_version(plan.settings.training.engine)},
    }
    text = "# What was asked for, and what it depends on.\n" + yaml.safe_dump(content, sort_keys=False, width=120)
    write_atomic(str(plan.folder / CONFIG_FILE), text.encode())


# ------------------------------------------------------------------------------------------------------ what it leaves


def result_json(plan: Plan, chat: Chat, result: Result, seconds: float) -> Dict[str, Any]:
    best = result.best
    return {
        "task": plan.task.name,
        "score_unit": plan.task.score_unit,
        "best": None if best is None else _final(best.individual),
        "human": next((_final(f.individual) for f in result.finals if f.individual.operator == HUMAN), None),
        "finals": [_final(f.individual) for f in result.finals],
        "fresh": [_final(f.individual) for f in result.fresh],  # agents that no choice has seen
        "candidates": len(result.individuals),
        "verdicts": verdicts(result.individuals),
        "environment_steps": result.steps,  # of selection and tuning
        "stopped": result.stopped or None,
        "ledger": chat.ledger.values(),
        "wall_seconds": round(seconds, 3),
    }


def _final(i: Individual) -> Dict[str, Any]:
    return {
        "id": i.id,
        "operator": i.operator,
        "score": or_none(i.score),
        "interval": i.interval and list(i.interval),
        "agent_scores": [or_none(x) for x in i.agent_scores],
        "tuned": i.tuned,
    }


def _report(plan: Plan, chat: Chat, vetter: Optional[Vetter], result: Result, seconds: float, films: List[Path]) -> int:
    best, console = result.best, wide_console()
    content = (json.dumps(result_json(plan, chat, result, seconds), indent=1) + "\n").encode()
    for path in [plan.folder / "result.json"] + [plan.args.json] * (plan.args.json is not None):
        write_atomic(str(path), content)  # before the pictures, of which one might fail
    title = f"{plan.task.name}: {len(result.individuals)} candidates, {result.steps:,} environment steps"
    text = write_report(plan.folder, result, plan.task, title, None if vetter is None else recheck_with(vetter))
    rows = [" ".join(row.cells()) for row in chat.ledger.rows()]
    lines: List[str] = [text, "", "Models (calls, tokens in, tokens out, USD):", *(f"  {row}" for row in rows)]
    lines.append(f"Wall time {duration(seconds)}.")
    if result.stopped:
        more = f"; continue with: {resume_command(plan.folder)} and a larger budget" if chat.ledger.spent else ""
        lines.append(f"Stopped early: {result.stopped}{more}")
    write_atomic(str(plan.folder / "summary.txt"), ("\n".join(lines) + "\n").encode())
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if plan.args.video is not None and best is not None and result.halved is not None:
        films += _film(plan, result, console)
    return 0 if best is not None else 1


def _film(plan: Plan, result: Result, console: Any) -> List[Path]:
    """Films of the last test -> those for a tracker, if there are any."""
    try:
        files, lines = films_of(plan, result, (plan.args.video or (None,))[0])
    except VideoError as e:
        files, lines = [], [f"no film: {e}"]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return files
