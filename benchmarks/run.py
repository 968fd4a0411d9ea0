#!/usr/bin/env python3
"""Runs the benchmarks one after the other, each in a process of its own, and prints one table of their figures.

    python3 benchmarks/run.py [--only NAME ...] [--json FILE] [--list]

Figures mean something only on a machine that does nothing else. The keys of FILE are
<benchmark>.<implementation>.per_core (member-steps per second of one core) or <benchmark>.<figure>; "raw" holds what
each benchmark wrote, single runs included.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True)
class Benchmark:
    what: str
    args: tuple[str, ...] = ()
    baseline: str = ""  # the implementation that the others are compared with
    on_request: bool = False  # too long for every day: runs only where --only names it


BENCHMARKS = {
    "ddqn_in_se": Benchmark("one DDQN training step in an SE: compiled, PyTorch, a plain script (1 min)", (), "plain"),
    "tabular": Benchmark("tabular learning on Cliff: compiled, PyTorch, plain Python (half a minute)", (), "python.ql"),
    "exchange_overhead": Benchmark("what the exchange adds to a generation of 16 chunks (10 s)"),
    "evolve": Benchmark(
        "whole evolutions of the CartPole SE from ten seeds, each world re-tested (many minutes)",
        ("default_config_cartpole_syn_env.yaml", "--seeds", "10"),
        on_request=True,
    ),
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", action="extend", metavar="NAME", help="run these (see --list)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    return parser


def figures(name: str, raw: dict[str, Any]) -> dict[str, float]:
    """What a benchmark wrote with --json -> its figures, keys without the benchmark's name."""
    if name == "ddqn_in_se":
        return {f"{implementation}.per_core": run["per_core"] for implementation, run in raw[name].items()}
    if name == "tabular":
        suffix = ".steps_per_s"
        return {k[: -len(suffix)] + ".per_core": v for k, v in raw.items() if k.endswith(suffix)}
    if name == "evolve":
        runs = raw["runs"]
        seconds = [run["seconds"] for run in runs]
        return {
            "runs": len(runs),
            "solved": sum(run["solved"] for run in runs),
            "median_seconds": statistics.median(seconds),
            "most_seconds": max(seconds),
        }
    return {k: v for k, v in raw.items() if isinstance(v, (int, float))}


def rows(name: str, values: dict[str, float]) -> Iterator[tuple[str, str, str]]:
    """What is measured, the figure, and how many times the baseline it is."""
    base = values.get(f"{BENCHMARKS[name].baseline}.per_core")
    for key, value in values.items():
        if key.endswith(".per_core"):
            ratio = f"{value / base:,.1f}" if base else ""
            yield f"{name} {key[: -len('.per_core')]}", f"{value:,.0f} steps/s per core", ratio
        else:
            yield f"{name} {key}", f"{value:,.1f}".removesuffix(".0"), ""


def measure(name: str, folder: Path) -> dict[str, Any] | None:
    """The benchmark's own JSON; None if it failed. Its output goes to stderr, so that stdout holds the table alone."""
    out = folder / f"{name}.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", *BENCHMARKS[name].args, "--json", str(out)]
    print(f"--- {name}: {BENCHMARKS[name].what}", file=sys.stderr, flush=True)
    code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode
    if code != 0 or not out.is_file():
        print(f"benchmarks/run.py: {name} ended with exit code {code} and is left out", file=sys.stderr)
        return None
    raw: dict[str, Any] = json.loads(out.read_text())
    return raw


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.list:
        for name, benchmark in BENCHMARKS.items():
            note = "; only with --only" if benchmark.on_request else ""
            print(f"{name:18}{benchmark.what}{note}")
        return 0
    for name in args.only or ():
        if name not in BENCHMARKS:
            near = difflib.get_close_matches(name, BENCHMARKS, n=1, cutoff=0.0)[0]
            parser.error(f"--only: found {name!r}, expected one of {', '.join(BENCHMARKS)}, did you mean {near}")
    if args.json is not None and (args.json.is_dir() or not args.json.absolute().parent.is_dir()):
        parser.error(f"--json: cannot write {args.json}, expected a file in a folder that exists")

    from benchmarks.ddqn_in_se import cpu_model  # late: torch and numba, which --help does not need
    from outer.config import environment_info

    names = list(dict.fromkeys(args.only)) if args.only else [n for n, b in BENCHMARKS.items() if not b.on_request]
    cores, versions, load = len(os.sched_getaffinity(0)), environment_info(), os.getloadavg()[0]
    machine = {"cpu": cpu_model(), "cores": cores, "load_before": load}
    report: dict[str, Any] = {"machine": machine, "versions": versions, "raw": {}}
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            raw = measure(name, Path(folder))
            if raw is None:
                continue
            values = figures(name, raw)
            report.update({f"{name}.{key}": value for key, value in values.items()})
            report["raw"][name] = raw
            table += rows(name, values)
            if args.json is not None:  # after each one: what is finished is not lost
                args.json.write_text(json.dumps(report, indent=1) + "\n")

    print(f"{machine['cpu']}, {cores} cores, load {load:.1f} before the start")
    print(", ".join(f"{k} {v}" for k, v in versions.items()) + "\n")
    print(f"{'':36}{'figure':>28}{'x baseline':>12}")
    for what, figure, ratio in table:
        print(f"{what:36}{figure:>28}{ratio:>12}")
    return 0 if len(report["raw"]) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
