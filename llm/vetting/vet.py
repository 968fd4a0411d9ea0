"""From the text of a model to a graph that a worker may run, or to a reason that the model is told.

    reply ─ extract ─► code ─ normalise ─► code ─ allow-list ─► code ─► child in a jail: runs, traces, tries
          ─► untrusted bytes ─► another child: JSON with limits, check_graph, meta check, lift
          ─► bytes ─ JSON, check_graph ─► graph file

The code runs in the child (``jailed.py``) and nowhere else. The trust boundary is what comes back from it: hostile
code may have written it, so it is parsed with limits and may consist of allow-listed operations only, whatever the
earlier layers said. See docs/security.md.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from envolve.core.cleaning import clean, printable_traceback
from envolve.envs.graph.file import GraphFile
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.checking import accept
from envolve.llm.vetting.jail.jailer import Jailer
from envolve.llm.vetting.jail.locks import opted_out
from envolve.llm.vetting.normal.normalise import Normalised, normalise
from envolve.llm.vetting.probe import Probe
from envolve.llm.vetting.text.extract import MOST_CHARACTERS, VetError, extract

log = logging.getLogger(__name__)
T = TypeVar("T")
CODE_CHARACTERS = MOST_CHARACTERS
MOST_AT_ONCE = 8


@dataclass(frozen=True)
class Vetted:
    """Accepted candidate."""

    code: str  # normalised: what is run, shown and saved
    graph_file: GraphFile
    seconds: float
    notes: tuple[str, ...] = ()  # what was asked for and is missing, what was left out, what was rewritten


@dataclass(frozen=True)
class Rejection:
    """Rejected candidate."""

    code: str  # as far as it was found
    stage: str  # one of STAGES
    message: str  # what the model is told
    seconds: float
    notes: tuple[str, ...] = ()  # as of Vetted


class Vetter:
    """Vets candidates for one task: ``with Vetter(probe, types) as vetter``. May be called from several threads."""

    def __init__(
        self, probe: Probe, types: Sequence[str], allow_unprotected: bool = False, seconds: float = 10.0
    ) -> None:
        """types: of shapers that are asked for. allow_unprotected: where this machine cannot lock code up, run it all
        the same and log a warning. seconds: that a candidate may do nothing; of CPU time it has half as many. A
        busy machine takes none of them away. Raises JailError."""
        self.probe, self.types = probe, list(types)
        self.at_once = max(1, min(MOST_AT_ONCE, len(os.sched_getaffinity(0))))
        self._turn = threading.Semaphore(self.at_once)
        self._jailer = Jailer(probe, self.types, allow_unprotected or opted_out(), seconds)

    def __enter__(self) -> Vetter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the jail."""
        self._jailer.close()

    def vet(self, reply: str, name: str) -> Vetted | Rejection:
        """Vets a model's reply. name: of the candidate, for the log. Raises JailError if the jail cannot be kept up."""
        began = time.perf_counter()
        try:
            found = _read("extract", extract, reply, self.types)
        except VetError as e:
            return _rejection("", e, name, began)
        verdict = self._vet_code(found.code, name, began)
        return replace(verdict, notes=(*map(clean, found.notes), *verdict.notes))

    def vet_code(self, code: str, name: str) -> Vetted | Rejection:
        """Same as ``vet``, for code."""
        return self._vet_code(code, name, time.perf_counter())

    def vet_all(self, replies: Sequence[tuple[str, str]]) -> list[Vetted | Rejection]:
        """Vets pairs of (reply, name), in this order; as many at once as there are cores."""
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(lambda pair: self.vet(*pair), replies))

    def _vet_code(self, code: str, name: str, began: float) -> Vetted | Rejection:
        notes: tuple[str, ...] = ()
        normal = Normalised(code)
        try:
            if len(code) > CODE_CHARACTERS:
                raise VetError("limits", f"the code has {len(code)} characters, at most {CODE_CHARACTERS} are allowed")
            normal = _read("allowlist", partial(normalise, task=self.probe.task), code, self.types)
            code, notes = normal.code, tuple(map(clean, normal.notes))
            _read("allowlist", check_source, code, self.types)
            with self._turn:
                traced = self._jailer.trace(code)
                checked = self._jailer.check(code, traced)
            graph_file = _read("graph", partial(accept, code, self.probe.task), checked, self.types)
            vetted = Vetted(code, graph_file, time.perf_counter() - began, notes)
        except VetError as e:
            refused = VetError(e.stage, normal.why(e.message))
            return replace(_rejection(code, refused, name, began), notes=notes)
        log.debug("%s: accepted after %.2f s", name, vetted.seconds)
        return vetted


def _read(stage: str, reader: Callable[..., T], text: str | bytes, types: Sequence[str]) -> T:
    """``reader(text, types)``; text that it stumbles over is refused. Raises VetError."""
    try:
        return reader(text, types)
    except VetError:
        raise
    except Exception as e:  # text from outside is no reason for the run to end
        log.error("text that %s stumbles over is refused\n%s", stage, printable_traceback())
        raise VetError(stage, f"the code cannot be read ({type(e).__name__}): write it in a simpler way") from None


def _rejection(code: str, error: VetError, name: str, began: float) -> Rejection:
    rejection = Rejection(code, error.stage, clean(error.message), time.perf_counter() - began)
    log.debug("%s: refused (%s) after %.2f s: %s", name, error.stage, rejection.seconds, rejection.message)
    return rejection
