#!/usr/bin/env python3
"""What it costs to vet a candidate: extract, allow-list, a child in a jail that traces it, check, lift.

    python3 benchmarks/vetting.py [--repeats 1] [--json FILE]

Candidates are the replies of the shipped recordings for Ant and ANYmal that are accepted: 50, one after the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from envolve.llm.vetting.probe import make_probe  # noqa: E402
from envolve.llm.vetting.vet import Vetted, Vetter  # noqa: E402

RECORDINGS = {"Ant": "ant.jsonl", "Anymal": "anymal.jsonl"}
TYPES = ["compute_reward", "compute_observation"]


def measure(task: str, repeats: int) -> Dict[str, Any]:
    """Seconds: of the probe, of the server's start, of each accepted candidate, and of all of them at once."""
    lines = (ROOT / "experiments" / "recordings" / RECORDINGS[task]).read_text(encoding="utf-8").splitlines()
    replies = [(json.loads(line)["reply"], f"{task} {i}") for i, line in enumerate(lines)]
    times = [time.perf_counter()]
    probe = make_probe(task)
    times.append(time.perf_counter())
    with Vetter(probe, TYPES) as vetter:
        vetter.vet(*replies[0])  # waits for the server, and loads what the master needs
        times.append(time.perf_counter())
        good = [reply for reply in replies if isinstance(vetter.vet(*reply), Vetted)]
        seconds = [vetter.vet(*reply).seconds for _ in range(repeats) for reply in good]
        began = time.perf_counter()
        vetter.vet_all(good)
        together = (time.perf_counter() - began) / len(good)
        return {
            "probe": times[1] - times[0],
            "start": times[2] - times[1],
            "seconds": seconds,
            "together": together,
            "at_once": vetter.at_once,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {task: measure(task, args.repeats) for task in RECORDINGS}
    seconds: List[float] = sorted(s for part in found.values() for s in part["seconds"])
    result = {
        "candidates": len(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "p95_ms": 1e3 * seconds[round(0.95 * (len(seconds) - 1))],
        "max_ms": 1e3 * seconds[-1],
        "together_ms": 1e3 * statistics.mean(part["together"] for part in found.values()),
        "start_s": max(part["start"] for part in found.values()),
        "probe_s": max(part["probe"] for part in found.values()),
    }
    at_once = found["Ant"]["at_once"]
    print(
        f"{result['candidates']} candidates: median {result['median_ms']:.0f} ms, 95 % within "
        f"{result['p95_ms']:.0f} ms, slowest {result['max_ms']:.0f} ms; {at_once} at once: "
        f"{result['together_ms']:.0f} ms each; probe {result['probe_s']:.1f} s, "
        f"first verdict after {result['start_s']:.1f} s"
    )
    if args.json:
        args.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
