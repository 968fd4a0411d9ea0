"""The page of ``envolve write --config``: rewards of a language model for a user's own Gymnasium environment.

Every iteration shows the model the best reward so far, so that this is the parent of all candidates of the iteration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.files import TABLE_BYTES, read_text
from envolve.llm.reporting.page_parts import best_so_far, costs, lineage, price, progress, verdicts
from envolve.llm.search.individual import HUMAN, IMPROVE, INITIAL, SCORE, Individual
from envolve.outer.page.common import closing, configuration, finite
from envolve.outer.page.parts import Code, Curve, Fact, Page, Prose, Table
from envolve.outer.page.reading import Folder
from envolve.outer.reporting.report import precise

CONFIG, OUTCOME = "config.json", "outcome.json"
UNIT = "fitness of the final policy"
BENCHMARK = "benchmark"  # the folder of the environment's own reward


def fits(folder: Folder) -> bool:
    config = folder.json(CONFIG) if folder.has(CONFIG) else None
    return isinstance(config, dict) and "eureka" in config and "environment" in config


def read(folder: Folder) -> Page:
    config = folder.json(CONFIG)
    config = config if isinstance(config, dict) else {}
    eureka, environment = (_part(config, name) for name in ("eureka", "environment"))
    written = samples(folder)
    result = folder.json("result.json")
    result = result if isinstance(result, dict) else {}
    own = _outcome(folder, folder.path / BENCHMARK / OUTCOME)
    human = None if own is None else _individual(own, -1, 0, (), HUMAN)
    page = Page(
        folder.path,
        "Rewards written by a language model",
        f"{one_line(str(environment.get('name', 'an environment')), 100)}: rewards by "
        f"{one_line(str(eureka.get('model', 'a language model')), 60)}",
        config=config,
        state=folder.state("eval.json"),
    )
    best, good = _part(result, "best"), [i for i in written if i.ok]
    page.verdict = verdict(best, written, human)
    page.facts = [
        Fact("Best", precise(finite(best.get("score"))) if best else "-", "in new episodes, if it was tested"),
        Fact("Benchmark", precise(human.score) if human is not None and human.ok else "-", "the environment's reward"),
        Fact("Candidates", str(len(written)), f"{len(written) - len(good)} without a fitness"),
        Fact("Price", f"{sum(i.steps for i in written):,}", "training steps of all candidates"),
    ]
    running = best_so_far(written)
    page.curve = Curve([x for x, _ in running], [y for _, y in running], "candidates written", UNIT)
    calls = costs(folder)
    everyone = [*([human] if human is not None else []), *written]
    if everyone:
        top = max(good, key=lambda i: i.score, default=None)
        page.add(
            "Candidates",
            lineage(everyone, calls, UNIT, None if top is None else top.id),
            lead="Choose a candidate in the picture or in the list to see its code, what changed against its parent "
            "(the best of all iterations before), its curves during training, why it failed, and what it cost.",
        )
    page.add("Progress", progress(written, human, UNIT), verdicts(written))
    page.add("Last test", _test(folder.json("eval.json") if folder.has("eval.json") else None))
    page.add("Films", *folder.films())
    page.add("Price", price(written, calls))
    code = folder.text("best_reward.py")
    page.add("The best reward", Code("best_reward.py", code, "python") if code else None)
    page.add("Configuration", *configuration(folder, CONFIG, folder.text(CONFIG), {}))
    closing(page, folder)
    return page


def verdict(best: Mapping[str, Any], written: Sequence[Individual], human: Individual | None) -> str:
    good = [i for i in written if i.ok]
    if not written:
        return "Nothing yet."
    if not good:
        return f"None of {len(written)} rewards has a fitness."
    score = finite(best.get("score")) if best else max(i.score for i in good)
    said = f"The best of {len(written)} rewards reaches {precise(score)} ({UNIT})"
    if human is not None and human.ok:
        said += f"; the environment's own reward {precise(human.score)}"
    return f"{said}; {len(written) - len(good)} have no fitness."


def samples(folder: Folder) -> list[Individual]:
    """Attempts in the order of asking; each one's parent is the best of all iterations before it."""
    found: dict[tuple[int, int], Mapping[str, Any]] = {}
    for path in sorted(folder.path.glob(f"code/iteration_*/sample_*/{OUTCOME}")):
        values = _outcome(folder, path)
        if values is not None:
            found[values["iteration"], values["number"]] = values
    per = max((number for _, number in found), default=-1) + 1
    out: list[Individual] = []
    for iteration, number in sorted(found):
        before = [i for i in out if i.iteration < iteration and i.ok]
        parent = max(before, key=lambda i: i.score, default=None)
        parents = () if parent is None else (parent.id,)
        operator = INITIAL if parent is None else IMPROVE
        out.append(_individual(found[iteration, number], iteration * per + number, iteration, parents, operator))
    return out


def _outcome(folder: Folder, path: Path) -> dict[str, Any] | None:
    """An outcome.json, checked; None: it is not there, or it is damaged, which is said."""
    if not path.is_file() or path.is_symlink():
        return None

    def go() -> dict[str, Any]:
        values = json.loads(read_text(path, TABLE_BYTES))
        if not isinstance(values, dict):
            raise ValueError(f"found {type(values).__name__}, expected an object")
        for key, kind in (("iteration", int), ("number", int), ("code", str), ("reply", str)):
            if type(values.get(key)) is not kind or (kind is int and not 0 <= values[key] < 10**6):
                raise ValueError(f"{key}: found {one_line(repr(values.get(key)), 40)}, expected {kind.__name__}")
        return values

    found: dict[str, Any] | None = folder.attempt(path.relative_to(folder.path).as_posix(), go)
    return found


def _individual(
    values: Mapping[str, Any], number: int, iteration: int, parents: tuple[int, ...], operator: str
) -> Individual:
    i = Individual(number, iteration, 0, operator, parents, "", number)
    i.reply, i.code = str(values["reply"]), str(values["code"])
    i.notes = tuple(str(n) for n in values.get("notes") or [] if isinstance(n, str))
    failure, stage = values.get("failure"), str(values.get("stage") or "")
    if isinstance(failure, str):
        if stage in ("call", "extract", "allowlist"):
            i.rejection = (stage, failure)
        else:
            i.failure = failure
    i.score = finite(values.get("fitness"))
    steps = values.get("timesteps")
    i.steps = steps if type(steps) is int else 0
    curves = values.get("curves")
    for name, curve in (curves if isinstance(curves, dict) else {}).items():
        if isinstance(curve, list) and name != "timesteps":  # evenly spaced evaluations
            i.curves[SCORE if name == "fitness_score" else one_line(str(name), 60)] = [finite(x) for x in curve]
    if math.isnan(i.score) and i.rejection is None and i.failure is None:
        i.failure = "it has no fitness"
    return i


def _part(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _test(content: Any) -> Table | Prose | None:
    """eval.json: figures of the last test."""
    if not isinstance(content, dict):
        return None
    rows = [(one_line(str(k), 60), finite(v)) for k, v in content.items() if isinstance(v, (int, float))]
    return Table(("figure", "value"), rows, "The best policy in new episodes") if rows else None
