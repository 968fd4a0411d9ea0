"""Folders of runs of ``envolve write`` that never were: a large one, and one of a hostile model."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np

from envolve.llm.search.individual import Individual
from tests.llm.attempts import evolution, human

CONFIG = """\
# What was asked for, and what it depends on.
arguments: {task: Ant, shaper_types: [compute_reward], llm: [gpt-a, llama-b], num_iters: 100, seed: 0}
hyperparameters: {lr: 0.001, gamma: 0.99}
versions: {python: 3.11.7, torch: 2.13.0, git: 0123abc}
"""
TERMS = ("forward", "upright", "effort", "contact", "smoothness", "height", "heading", "alive")
BIDI = "\u202e\u2066 if user == admin \u2069"
SCRIPT = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
HOSTILE = f"""\
def compute_reward(state):
    # {SCRIPT} {{{{ 7 * 7 }}}} {BIDI}
    return state["</pre><svg onload=window.hacked=1>"]
"""


def code_of(i: Individual, rng: np.random.Generator) -> str:
    """About 1.3 kB, no two alike."""
    terms = [str(t) for t in rng.permutation(TERMS)[:5]]
    lines = [f"# candidate {i.id}, the {i.operator} of {list(i.parents)}", "def compute_reward(state):"]
    for t in terms:
        lines.append(
            f"    {t}_weight = {rng.normal():.5f}  # per metre and second, found by trial {rng.integers(10**6)}"
        )
        lines.append(f'    {t} = torch.exp(-(state["{t}_value"] / {rng.random():.6f}) ** 2) - {rng.random():.6f}')
    total = " + ".join(f"{t}_weight * {t}" for t in terms)
    lines += [f"    total = {total}", "    return total, {" + ", ".join(f'"{t}": {t}' for t in terms) + "}"]
    return "\n".join(lines) + "\n"


def write_run(folder: Path, everyone: list[Individual], usd: float | None = 0.0123) -> Path:
    """The files that a reader of a run looks at."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(CONFIG)
    lines = [json.dumps(i.to_json()) for i in [human(), *everyone]]
    (folder / "individuals.jsonl").write_text("\n".join(lines) + "\n")
    calls = [{"envolve_calls": 1, "models": ["gpt-a", "llama-b"]}]
    calls += [{"index": i.call, "sha256": "0", "reply": "r", "tokens": [812, 301], "usd": usd} for i in everyone]
    (folder / "calls.jsonl").write_text("\n".join(map(json.dumps, calls)) + "\n")
    n = len(everyone)
    total = {
        "model": "total",
        "calls": n,
        "prompt_tokens": 812 * n,
        "completion_tokens": 301 * n,
        "usd": (usd or 0) * n,
    }
    (folder / "ledger.json").write_text(json.dumps({"models": [total | {"model": "gpt-a"}], "total": total}))
    return folder


def large_run(folder: Path, candidates: int = 1000) -> Path:
    """Ten candidates an iteration on four islands, with code, replies and curves of a usual size."""
    rng = np.random.default_rng(0)
    everyone = evolution(candidates // 10, 10, islands=4)
    for i in everyone:
        i.code = code_of(i, rng)
        i.reply = textwrap.fill(" ".join(str(w) for w in rng.permutation(TERMS * 8))) + f"\n```python\n{i.code}```\n"
        if i.ok:
            names = ("score", "reward", *TERMS[:5])
            i.curves = {name: rng.normal(k, 0.2, 200).cumsum().tolist() for k, name in enumerate(names)}
    return write_run(folder, everyone)


def hostile_run(folder: Path) -> Path:
    """Everything that a model can put in is an attack on the page."""
    everyone = evolution(3, 4)
    for i in everyone:
        i.code, i.reply, i.model = HOSTILE, SCRIPT * 20, SCRIPT
        if i.rejection is not None:
            i.rejection = (SCRIPT[:60], f"line 1: {SCRIPT} {BIDI}")
        if i.ok:
            i.curves = {"score": [0.1, 0.2], "reward": [1.0, 2.0], SCRIPT: [1.0, 2.0], "<b>bold</b>": [0.0, 1.0]}
            i.tuned = {SCRIPT: 1.0}
            i.notes = (SCRIPT,)
    everyone[0].code = "x = '" + "a" * 1_000_000 + "'\n"
    everyone[0].reply = ("<" * 1000 + "\n") * 1000
    write_run(folder, everyone)
    (folder / "best.py").write_text(HOSTILE)
    (folder / "summary.txt").write_text(HOSTILE + BIDI)
    return folder
