"""From the text of a model to a graph that a worker may run, or to a reason that the model is told.

    reply ─ extract ─► code ─ allow-list ─► code ─► child in a jail: runs, traces, tries ─► untrusted bytes
          ─ JSON with limits, check_graph, meta check, lift ─► graph file

The code runs in the child (``jailed.py``) and nowhere else. The trust boundary is what comes back from it: hostile
code may have written it, so it is parsed with limits and may consist of allow-listed operations only, whatever the
earlier layers said. See docs/security.md.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from envs.graph_check import GraphError, check_graph, parse
from envs.graph_file import dump
from envs.graph_params import lift
from envs.graph_plan import look_up, make_plan
from llm.vetting.allowlist import check_source
from llm.vetting.calling import check_outputs, make_inputs
from llm.vetting.extract import VetError, extract_code
from llm.vetting.jail import opted_out
from llm.vetting.jailer import Jailer
from llm.vetting.literals import literal_names
from llm.vetting.probe import Probe

log = logging.getLogger(__name__)
T = TypeVar("T")
STAGES = ("extract", "allowlist", "trace", "smoke", "graph", "limits")
REPLY_CHARACTERS = 200_000  # a reply; a long one of a large model is a tenth of that
CODE_CHARACTERS = 40_000
MESSAGE_CHARACTERS = 4_000  # of a reason
MOST_AT_ONCE = 8
MOST_ACTIONS = 1024
META_ROWS = 96, 8192  # environments with which a graph's shapes are found: shapes may not be made for one number


@dataclass(frozen=True)
class Vetted:
    """A candidate that may be trained with."""

    code: str
    graph_file: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Rejection:
    """One that may not."""

    code: str  # as far as it was found
    stage: str  # one of STAGES
    message: str  # what the model is told
    seconds: float


class Vetter:
    """Vets candidates for one task: ``with Vetter(probe, types) as vetter``. May be called from several threads."""

    def __init__(
        self, probe: Probe, types: Sequence[str], allow_unprotected: bool = False, seconds: float = 10.0
    ) -> None:
        """types: of shapers that are asked for. allow_unprotected: where this machine cannot lock code up, run it all
        the same and log a warning. seconds: that a candidate may take, on the clock. Raises JailError."""
        self.probe, self.types = probe, list(types)
        self.at_once = max(1, min(MOST_AT_ONCE, len(os.sched_getaffinity(0))))
        self._turn = threading.Semaphore(self.at_once)
        self._jailer = Jailer(probe, self.types, allow_unprotected or opted_out(), seconds)

    def __enter__(self) -> Vetter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left behind."""
        self._jailer.close()

    def vet(self, reply: str, name: str) -> Vetted | Rejection:
        """Of a model's reply. name: of the candidate, for the log. Raises JailError if the jail cannot be kept up."""
        began = time.perf_counter()
        try:
            if len(reply) > REPLY_CHARACTERS:
                raise VetError("extract", f"the reply has {len(reply)} characters, at most {REPLY_CHARACTERS} are read")
            code = _read("extract", extract_code, reply, self.types)
        except VetError as e:
            return _rejection("", e, name, began)
        return self._vet_code(code, name, began)

    def vet_code(self, code: str, name: str) -> Vetted | Rejection:
        """As ``vet``, of code."""
        return self._vet_code(code, name, time.perf_counter())

    def vet_all(self, replies: Sequence[tuple[str, str]]) -> list[Vetted | Rejection]:
        """``vet`` of (reply, name), in this order; as many at once as there are cores."""
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(lambda pair: self.vet(*pair), replies))

    def _graph_file(self, code: str, found: dict[str, Any]) -> dict[str, Any]:
        """What a child says that it traced, checked and with its numbers as parameters. Raises VetError."""
        functions, size = found.get("functions"), found.get("action_size")
        if not isinstance(functions, dict) or not functions or not set(functions) <= set(self.types):
            raise VetError("graph", f"expected functions among {', '.join(self.types)}")
        if size is not None and not (type(size) is int and 1 <= size <= MOST_ACTIONS):
            raise VetError("graph", f"found actions of width {size!r:.40}, expected 1 to {MOST_ACTIONS}")
        try:
            names = literal_names(found.get("literal_names"))
            example = make_inputs(self.probe, size or self.probe.action_size)
            for kind, graph in functions.items():
                check_graph(graph, kind, 0)
            lifted, params = lift(functions, names, example=example)
            for kind, graph in lifted.items():
                parsed = parse(graph, kind, len(params))
                for rows in META_ROWS:
                    plan = make_plan(parsed, kind, [example[name] for name in parsed.inputs], rows, bound=False)
                    outputs = [look_up(ref, plan.inputs, plan.results) for ref in parsed.outputs]
                    check_outputs(kind, list(parsed.names), outputs, rows, self.probe)
            return json.loads(dump(self.probe.task, lifted, params, size, code))
        except KeyError as e:
            raise VetError("graph", f"{self.probe.task} has no {e.args[0]!r}") from None
        except GraphError as e:
            raise VetError("graph", str(e)) from None
        except Exception as e:  # whatever it is, it came from outside, and is no reason for the run to end
            log.exception("a graph that the checks stumble over is refused")
            raise VetError("graph", f"its graph cannot be used ({type(e).__name__})") from None

    def _vet_code(self, code: str, name: str, began: float) -> Vetted | Rejection:
        try:
            if len(code) > CODE_CHARACTERS:
                raise VetError("limits", f"the code has {len(code)} characters, at most {CODE_CHARACTERS} are allowed")
            _read("allowlist", check_source, code, self.types)
            with self._turn:
                data = self._jailer.trace(code)
            vetted = Vetted(code, self._graph_file(code, read_result(data)), time.perf_counter() - began)
        except VetError as e:
            return _rejection(code, e, name, began)
        log.debug("%s: accepted after %.2f s", name, vetted.seconds)
        return vetted


def _read(stage: str, reader: Callable[..., T], text: str, types: list[str]) -> T:
    """``reader(text, types)``; text that it stumbles over is refused. Raises VetError."""
    try:
        return reader(text, types)
    except VetError:
        raise
    except Exception as e:  # text from outside is no reason for the run to end
        log.exception("text that %s stumbles over is refused", stage)
        raise VetError(stage, f"the code cannot be read ({type(e).__name__}): write it in a simpler way") from None


def _rejection(code: str, error: VetError, name: str, began: float) -> Rejection:
    rejection = Rejection(code, error.stage, clean(error.message), time.perf_counter() - began)
    log.debug("%s: refused (%s) after %.2f s: %s", name, error.stage, rejection.seconds, rejection.message)
    return rejection


def read_result(data: bytes) -> dict[str, Any]:
    """What a child wrote -> its graphs. Raises VetError: the child's own, or that this is none of its words."""
    try:
        found = json.loads(data, parse_int=_integer, parse_float=_float, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise VetError("graph", f"what came out of the process that ran it is not what it should be: {e}") from None
    if isinstance(found, dict) and list(found) == ["graph"] and isinstance(found["graph"], dict):
        return found["graph"]
    if isinstance(found, dict) and list(found) == ["error"]:
        error = found["error"]
        if isinstance(error, list) and len(error) == 2 and all(isinstance(part, str) for part in error):
            raise VetError(error[0] if error[0] in STAGES else "trace", error[1])
    raise VetError("graph", "what came out of the process that ran it is neither a graph nor a reason")


def clean(message: str) -> str:
    """``message`` as one can show it to people and models: printable, and not without end."""
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in message[:MESSAGE_CHARACTERS])
    return text + " ..." * (len(message) > MESSAGE_CHARACTERS)


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number that is not finite: {text[:20]}")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
