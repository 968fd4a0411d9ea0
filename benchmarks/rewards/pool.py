"""A pool of recorded replies in the place of a language model, for searches that need one.

The replies are those of ``tests/llm/corpus``, which this project's authors wrote in the manner of five models, and of
``experiments/recordings``. No model was asked. A request that shows code is answered by the reply that computes
something most like it among a few that are drawn, so that "improve" stays near its parent, as a mutation does; others
are answered by the next reply of a random order. What a study with a pool measures is the search, not a model.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envolve.core.cleaning import printable
from envolve.core.places import CODE
from envolve.envs.graph.file import GraphFile
from envolve.envs.worlds.file import write_atomic
from envolve.llm.models.request import Body, Call, ChatFailure, Reply, Request
from envolve.llm.search.novelty import similarity
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.vet import Rejection, Vetted, Vetter
from tests.llm.replies import FOLDER, replies

DRAWN = 5  # replies among which the most similar one is taken
NAME = "pool"
KINDS = ("compute_reward", "compute_observation", "compute_terminal")


@dataclass(frozen=True)
class Entry:
    """A reply of the pool. graph_file: of its functions, those of ``KINDS`` alone."""

    name: str
    text: str
    code: str
    graph_file: GraphFile

    def of(self, kind: str) -> dict[str, Any] | None:
        """The graph of one function with its numbers written in; None: it has none."""
        graph = self.graph_file["functions"].get(kind)
        values = [p["value"] for p in self.graph_file["params"]]
        return None if graph is None else written(graph, values)


def written(graph: Any, values: list[float]) -> Any:
    """A graph without params: every reference to one is its value."""
    if isinstance(graph, dict):
        if list(graph) == ["param"]:
            return values[graph["param"]]
        return {k: written(v, values) for k, v in graph.items()}
    return [written(v, values) for v in graph] if isinstance(graph, list) else graph


def texts(task: str) -> dict[str, str]:
    """Replies for a task by name, those of a wrong verdict left out."""
    folders = [FOLDER, FOLDER / "unseen", FOLDER / "fresh"]
    found = {r.name: r.text for f in folders for r in replies(f) if r.task == task and r.verdict == "accepted"}
    recording = CODE / "experiments" / "recordings" / f"{task.lower()}.jsonl"
    lines = recording.read_text(encoding="utf-8").splitlines() if recording.is_file() else []
    return found | {f"recording_{k}": json.loads(line)["reply"] for k, line in enumerate(lines)}


def load_pool(task: str, folder: Path) -> list[Entry]:
    """The accepted replies for a task; vetted once, then read from ``folder``."""
    path = folder / f"pool_{task}.json"
    if not path.exists():
        entries: list[dict[str, Any]] = []
        with Vetter(make_probe(task), KINDS) as vetter:
            for name, text in texts(task).items():
                verdict = vetter.vet(text, name)
                if isinstance(verdict, Vetted) and "compute_reward" in verdict.graph_file["functions"]:
                    graph_file = dict(verdict.graph_file.without_source())
                    text = printable(text)
                    entries.append({"name": name, "text": text, "code": verdict.code, "graph_file": graph_file})
        write_atomic(str(path), (json.dumps(entries) + "\n").encode())
    found = json.loads(path.read_text(encoding="utf-8"))
    return [Entry(e["name"], e["text"], e["code"], GraphFile(e["graph_file"])) for e in found]


def reward_alone(entry: Entry) -> GraphFile:
    """Graph file of the entry's reward, with its numbers as parameters."""
    functions = {"compute_reward": entry.graph_file["functions"]["compute_reward"]}
    return GraphFile.of(entry.graph_file["task"], functions, entry.graph_file["params"])


class Pool:
    """Backend of a chat. seed: of the order of the replies."""

    free = True

    def __init__(self, entries: list[Entry], seed: int) -> None:
        if not entries:
            raise ValueError("the pool has no reply that was accepted")
        self.entries, self.seed = entries, seed
        self.order = np.random.default_rng(seed).permutation(len(entries)).tolist()

    def send(self, call: Call) -> Reply:
        """Reply to a request: a function of its number and of what it shows."""
        chosen = self._nearest(call) if any(role == "assistant" for role, _ in call.request.messages) else None
        entry = chosen or self.entries[self.order[call.index % len(self.order)]]
        return Reply(entry.text, NAME, 0, 0, 0.0, "stop")

    def _nearest(self, call: Call) -> Entry | None:
        shown = [text for role, text in call.request.messages if role == "assistant"][-1]
        code = re.sub(r"^```python\n|\n```$", "", shown).strip()
        parent = next((e for e in self.entries if e.code.strip() == code), None)
        if parent is None:
            return None
        rng = np.random.default_rng([self.seed, call.index])
        others = [e for e in self.entries if e is not parent]
        drawn = [others[k] for k in rng.permutation(len(others))[:DRAWN]]
        alike = [similarity(reward_alone(parent), reward_alone(e)) for e in drawn]
        return drawn[int(np.argmax(alike))] if drawn else parent

    def read(self, body: Body, request: Request) -> Reply:
        """Never needed: a pool has no bodies."""
        raise ChatFailure("a pool sends no bodies")

    def close(self) -> None:
        """Nothing is open."""


class PoolVetter:
    """Verdicts on the pool's replies, which were vetted before."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = {e.text: e for e in entries}

    def vet_all(self, pairs: list[tuple[str, str]]) -> list[Vetted | Rejection]:
        return [Vetted(self.entries[text].code, reward_alone(self.entries[text]), 0.0) for text, _ in pairs]
