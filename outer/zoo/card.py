"""The card of a world: how it was made, what it cost, and what agents reach that trained in it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import envolve
from envolve.agents.peers import NORMALISED, normalises
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.worlds.file import MODEL, WorldFile, WorldFileError
from envolve.outer.auto.unseen import REAL, WORLD, related
from envolve.outer.config import problem
from envolve.outer.config.header import header_of
from envolve.outer.config.load import load_config
from envolve.outer.names import CONFIG_FILE, SCORES
from envolve.outer.reporting.report import number
from envolve.outer.reporting.scores import read_curve
from envolve.outer.search.turns import inner_agents

LICENCE = "Apache-2.0"
OF_ONE_MACHINE = re.compile(r" --(results-dir|results_dir|run-dir|run_dir|json)[ =]\S+")  # flags that name its folders


def reported(run_dir: Path) -> dict[str, Any] | None:
    """The figures of ``envolve evolve``; None: the run has none. Raises WorldFileError."""
    path = run_dir / "report.json"
    if not path.exists():
        return None
    try:
        content = json.loads(read_plain(path, TEXT_BYTES))
        return {key: content[key] for key in ("random", "unseen", "library")}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise WorldFileError(f"{path}: found {e!r:.80}, expected what envolve evolve writes") from None


def card_of(run_dir: Path, name: str, world: WorldFile, zoo_file: bytes, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The whole card. figures: of ``measured`` or ``reported``. Raises WorldFileError."""
    evolved = Path(world.path).name == MODEL
    data = load_config(run_dir / CONFIG_FILE).data
    gtn = problem.gtn_section(data)
    generations = max((row.generation for row in read_curve(run_dir / SCORES)), default=0) if evolved else 0
    learner = " ".join(inner_agents(gtn)) if evolved else ""
    about = f"distilled from {_expert(data)}" if gtn.init == "distilled" else ""
    if gtn.first_world:
        file = Path(gtn.first_world)
        about = f"begun with {file.name if file.is_absolute() else file}"
    if evolved:
        evolution = f"evolved for {generations} generations with {learner} by {gtn.search}"
        about = f"{about}, then {evolution}" if about else evolution
    if world.evolution_steps is None:
        raise WorldFileError(f"{world.path}: key 'evolution_steps': missing, expected the real steps of the evolution")
    task, _, kind = name.removesuffix(name[len(name.rstrip("0123456789")) :]).rstrip("-").rpartition("-")
    return {
        "name": name, "task": task, "kind": kind, "licence": LICENCE,
        "learner": learner, "search": gtn.search if evolved else "",
        "generations": generations, "real_steps": world.evolution_steps, "command": command_of(run_dir),
        "seed": data["seed"], "version": envolve.__version__, "sha256": hashlib.sha256(zoo_file).hexdigest(),
        "random": figures["random"], "library": figures["library"],
        "unseen": {agent: places[WORLD] for agent, places in figures["unseen"].items()},
        "on_task": {agent: places[REAL] for agent, places in figures["unseen"].items()},
        "about": f"A contextual bandit, {about}.",
    }  # fmt: skip


def _expert(data: Mapping[str, Any]) -> str:
    linear = "a linear policy that random search found"
    names = problem.expert_section(data).learner.split()
    return " or ".join(linear if name == problem.ARS else f"a {name} agent" for name in dict.fromkeys(names))


def command_of(run_dir: Path) -> str:
    """How the run was started, without where this machine has its folders; "" where its folder does not say."""
    command = header_of(run_dir / CONFIG_FILE).get("command", "")
    own = re.compile(r"\S*/(?=(configs/\S+|default_config_\w+)\.ya?ml)")  # a checkout, wherever it lies
    return own.sub("", OF_ONE_MACHINE.sub("", command))


def text_of(card: Mapping[str, Any]) -> str:
    """A card for people."""
    kin = _kin(card)
    names = {agent: f"{agent} *" if agent in kin else agent for agent in card["unseen"]}
    agents = "Agents that trained in it" if kin else "Agents that it never saw"
    width = max([8, *(len(name) + 2 for name in names.values())])
    lines = [
        f"envolve/{card['name']}", "", card["about"],
        f"Real steps: {card['real_steps']:,}. Seed {card['seed']}. Licence {card['licence']}.", "",
        f"{agents} ({card['library']}, default hyperparameters), tested on {card['task']};",
        "mean return and 95 % interval over n agents" + _marks(card), "",
        f"  {'agent':<{width}}{'steps':>8}{'n':>4}   {'trained in the world':<30}trained on the task",
    ]  # fmt: skip
    for agent, figure in card["unseen"].items():
        other = card.get("on_task", {}).get(agent)
        start = f"  {names[agent]:<{width}}{figure['train_steps']:>8,}{figure['agents']:>4}"
        lines.append(f"{start}   {_cell(figure):<30}{_cell(other)}")
    lines += [f"  {'random':<{width}}{'':>12}   {'':<30}{_cell(card['random'])}", ""]
    if policy := card.get("policy"):
        found = f"{_cell(policy)} ({policy['episodes']} episodes)" if policy["episodes"] else policy["failed"]
        lines += [f"The action that it pays most for, without any agent: {found}", ""]
    lines += [
        "  import gymnasium, envolve.worlds",
        f'  env = gymnasium.make("envolve/{card["name"]}")',
        f'  task = envolve.worlds.make_task("{card["name"]}")',
        f'  act = envolve.worlds.policy("{card["name"]}")',
        "",
    ]
    return "\n".join(lines + ([f"Made by: {card['command']}"] if card["command"] else []))


def _kin(card: Mapping[str, Any]) -> set[str]:
    """The agents of a card that are of the family of a learner that the world evolved with."""
    inner = [problem.split_agent_name(name).learner for name in card["learner"].split()]
    return {agent for agent in card["unseen"] if related(agent, inner)}


def _marks(card: Mapping[str, Any]) -> str:
    """End of the sentence above the figures: what names and marks of agents mean."""
    lines = []
    if any(map(normalises, card["unseen"])):
        lines.append(f"NAME{NORMALISED}: behind VecNormalize, in the world and on the task")
    if _kin(card):
        lines.append(f"*: of the family of {card['learner']}, which it was evolved with; it never saw the others")
    return ";\n".join(["", *lines]) + ":"


def _cell(figure: Any) -> str:
    if not isinstance(figure, dict) or figure.get("mean_return") is None:
        return "-"
    ends = figure.get("interval")
    return number(figure["mean_return"]) + (f" [{number(ends[0])}, {number(ends[1])}]" if ends else "")


def held_return(card: Mapping[str, Any]) -> str:
    """The mean return of the policy that the world holds; "-": not measured."""
    found = card.get("policy", {}).get("mean_return")
    return "-" if found is None else number(found)


def best_agent(card: Mapping[str, Any]) -> tuple[str, str]:
    """The agent with the highest return in the world, and its figures in words. Agents of a family that the world
    evolved with are left out."""
    kin = _kin(card)
    means = {
        a: f["mean_return"] for a, f in card["unseen"].items() if a not in kin and f.get("mean_return") is not None
    }
    if not means:
        return "-", "-"
    agent = max(means, key=lambda a: means[a] if math.isfinite(means[a]) else -math.inf)
    return agent, _cell(card["unseen"][agent])
