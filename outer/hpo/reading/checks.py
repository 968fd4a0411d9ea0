"""Checks across the values of a study, and of its configuration against the study."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from envolve.outer.config import problem
from envolve.outer.config.check import Checker
from envolve.outer.config.section import SE, SHAPER
from envolve.outer.config.yaml_lines import Path, show
from envolve.outer.hpo.reading.sections import BUDGET_KEYS, LOSSES, READ, UNITS, applied
from envolve.outer.hpo.space import Space
from envolve.outer.search.searches import search_sections, section_key
from envolve.outer.search.target import ranks

DRAWS, SHAPED_DRAWS = 192, 16  # corners of the space that are tried; for shaped tasks each loads the candidates


def check_values(
    checker: Checker,
    raw: Mapping[str, Any],
    study: Mapping[str, Any],
    budget: Mapping[str, Any],
    stop: Mapping[str, Any],
) -> None:
    """Checks the study's own values. raw: as in the file, without defaults."""
    evaluate = study["evaluate"]
    for path, value, table in ((("loss",), study["loss"], LOSSES), (("budget", "unit"), budget["unit"], UNITS)):
        if path[0] in raw and value not in table[evaluate]:
            words = f"one of {', '.join(table[evaluate])}, because evaluate is {evaluate}"
            checker.problem(path, show(value or None), words)
    for key in dict.fromkeys(key for keys in READ.values() for key in keys if key not in READ[evaluate]):
        if key in raw:
            readers = " or ".join(kind for kind, keys in READ.items() if key in keys)
            checker.problem((key,), show(raw[key]), f"no such key: only evaluate {readers} reads it")
    if "agents" in raw and budget["unit"] == "agents":
        checker.problem(("agents",), show(raw["agents"]), "no such key: the budget counts agents")
    if isinstance(raw.get("budget"), dict):
        for key in [key for key in ("least", "most") if key not in raw["budget"]]:
            checker.problem(("budget", key), "nothing", "a number")
        if budget["least"] > budget["most"]:
            checker.problem(("budget", "most"), f"{budget['most']:g}", f"at least the least, {budget['least']:g}")
    if isinstance(raw.get("stop"), dict) and stop["full_evaluations"] is None and stop["trials"] is None:
        checker.problem(("stop",), "nothing that ends the search", "full_evaluations or trials, or both")


def check_fit(
    checker: Checker, data: dict[str, Any], study: Mapping[str, Any], budget: Mapping[str, Any], space: Space
) -> None:
    """Checks that the configuration supports the study, and that the varied keys are read. data: resolved."""
    gtn = problem.gtn_section(data)
    if study["evaluate"] == "agent" and gtn.synthetic_env_type == SHAPER:
        checker.problem(("evaluate",), "agent", "nes: agents of a task in a physics engine are not trained alone")
    if study["evaluate"] == "nes" and gtn.synthetic_env_type == SHAPER and ranks(data):
        words = "one candidate with PARAMS: several files are ranked, which no trial can judge"
        checker.problem(("config",), f"envs.{data['env_name']}.shapers with several candidates or none to tune", words)
    if study["loss"] == "generations" and gtn.synthetic_env_type != SE:
        checker.problem(("loss",), "generations", "score: only a synthetic environment can be solved")
    elif study["loss"] == "generations" and not gtn.quit_when_solved:
        words = "score, or agents.gtn.quit_when_solved: true under set, so that a run ends once it is solved"
        checker.problem(("loss",), "generations", words)
    unit = budget["unit"]
    if unit == "generations" and budget["most"] > gtn.max_iterations:
        words = f"at most agents.gtn.max_iterations, after which a run ends: {gtn.max_iterations}"
        checker.problem(("budget", "most"), f"{budget['most']:g}", words)
    read = sections_read(data, space, searched=study["evaluate"] == "nes")
    for p in space.parameters:
        section, _, last = p.key.rpartition(".")
        path = ("space", p.key)
        of_outer_loop = section == "agents.gtn"
        if last == BUDGET_KEYS[study["evaluate"]].get(unit) and of_outer_loop == (study["evaluate"] == "nes"):
            checker.problem(path, "what the budget sets", f"a key other than {last}")
        elif p.key == "agents.gtn.quit_when_solved" and study["loss"] == "generations":
            checker.problem(path, "what the loss depends on", "this key under set")
        elif section not in read:
            words = f"one of a section that it reads: {', '.join(sorted(filter(None, read)))}"
            checker.problem(path, "a key that this configuration does not read", words)
        elif study["evaluate"] == "agent" and not read_by_agents(section, last, bool(study["worlds"])):
            checker.problem(path, "a key of worlds or of the outer loop", "one that agents alone read")


def sections_read(data: dict[str, Any], space: Space, searched: bool) -> set[str]:
    """Sections that some configuration of the space reads, "" for the top level. searched: with those of its search,
    which agents alone do not read."""

    def values(key: str, base: str) -> list[str]:
        return [str(choice) for choice in space.by_key[key].choices] if key in space.by_key else [base]

    in_space = {p.key.split(".")[1] for p in space.parameters if p.key.startswith("agents.")}
    present = {**data["agents"], **dict.fromkeys(in_space)}
    read = {"", "agents.gtn"} | {f"envs.{task}" for task in values("env_name", data["env_name"])}
    for agent in values("agents.gtn.agent_name", data["agents"]["gtn"]["agent_name"]):
        learner, curious, vary = problem.split_agent_name(agent)
        read.add(f"agents.{problem.learner_key(present, learner)}")
        read |= {"agents.icm"} if curious else set()
        read |= {f"agents.{learner}{problem.VARY_SUFFIX}"} if vary else set()
    for search in values("agents.gtn.search", data["agents"]["gtn"]["search"]) if searched else ():
        section = section_key(search)
        read |= {f"agents.{section}"} if section in search_sections() else set()
    return read


def read_by_agents(section: str, last: str, in_worlds: bool) -> bool:
    """True if agents that are trained alone read this key. in_worlds: world files hold their own envs."""
    if section == "agents.gtn":
        return last in ("agent_name", "backend")
    return not section.startswith("envs.") or (last in ("max_steps", "solved_reward") and not in_worlds)


def corner_problems(
    data: dict[str, Any], name: str, lines: dict[Path, int], labels: dict[Path, str], space: Space
) -> list[str]:
    """Checks for values that are valid alone but impossible together: tries choices and ends of ranges with each other.

    data: the resolved configuration; name, lines: its file; labels: where the study says the values.
    """
    draw = random.Random(0)
    shaped = problem.gtn_section(data).synthetic_env_type == SHAPER
    found: dict[tuple[str, str], str] = {}  # key and what was expected of it -> the first such problem
    extremes = {p.name: p.extremes() for p in space.parameters}
    tried: set[str] = set()
    for n in range(SHAPED_DRAWS if shaped else DRAWS):
        # the first two are all lowest and all highest
        corner = {key: values[-n] if n < 2 else draw.choice(values) for key, values in extremes.items()}
        there = space.active(corner)
        corner = {key: value for key, value in corner.items() if key in there}
        if repr(corner) in tried:
            continue
        tried.add(repr(corner))
        checker = Checker(name, lines, labels)
        checker.check(applied(data, space.overrides(corner)))
        for text in checker.problems:
            where, _, what = text.partition(": found ")
            found.setdefault((where, what.rpartition(", expected ")[2]), text)
    return list(found.values())
