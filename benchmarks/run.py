#!/usr/bin/env python3
"""This project against its peers on this machine, in one go: every implementation in a process of its own, one table.

    python3 benchmarks/run.py [--only NAME ...] [--json FILE] [--no-peers] [--list]

Figures are steps per CPU second of one core, medians of five runs; they mean something only on a machine that does
nothing else. The keys of FILE are <benchmark>.<implementation>.per_core (steps per second of one core) or
<benchmark>.<implementation>.<figure>; "raw" holds what each implementation returned, single runs included, "floor" the
costs behind the arithmetic floors. Stable-Baselines3, JAX and Gymnasium run in an environment of their own, installed
on first use into .venv-peers (or $ENVOLVE_PEERS).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("benchmarks/run.py")  # before all that takes time to import

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
from typing import Any

from benchmarks import floors
from benchmarks.common.catalogue import BENCHMARKS, Run
from benchmarks.peers import environment
from envolve.core.child import ends_with_parent
from envolve.core.registry import unknown

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", action="extend", metavar="NAME", help="run these (see --list)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument("--no-peers", action="store_true", help="leave out what needs the peers' environment")
    parser.add_argument("--quick", action="store_true", help="one short run each: does everything work?")
    parser.add_argument("--time-limit", type=float, default=600, metavar="S", help="for each implementation")
    return parser


def adapt(name: str, run: Run, raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Results by implementation from what a process wrote. Three benchmarks have a file format of their own."""
    if name == "tabular_q":
        return tabular(raw)
    if name == "evolve":
        seconds = [r["seconds"] for r in raw["runs"]]
        solved = sum(r["solved"] for r in raw["runs"])
        figures = {
            "runs": len(seconds),
            "solved": solved,
            "median_seconds": statistics.median(seconds),
            "most_seconds": max(seconds),
        }
        return {"envolve": {"figures": figures, **raw}}
    if name == "exchange_overhead":
        figures = {"milliseconds_per_generation": raw["milliseconds_per_generation"]}
        return {"envolve": {"figures": figures, **raw}}
    return {run.name: raw}


def tabular(raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Keys <back end>.<algorithm>.steps_per_s, .runs and .members; Q-learning is the one that gets no suffix."""
    results = {}
    for key, value in raw.items():
        backend, _, rest = key.partition(".")
        if rest.endswith(".steps_per_s"):
            algorithm = rest.removesuffix(".steps_per_s")
            name = backend if algorithm == "ql" else f"{backend}_{algorithm}"
            results[name] = {"per_core": value, **{k: raw[f"{backend}.{algorithm}.{k}"] for k in ("runs", "members")}}
    return results


def start(module: str, args: list[str], python: str, limit: float, folder: Path) -> dict[str, Any]:
    """The JSON of ``python -m benchmarks.<module> <args>``, or {"error": why there is none}.

    What the process prints goes to stderr, so that stdout holds the table alone.
    """
    out, log = folder / "out.json", folder / "log.txt"
    out.unlink(missing_ok=True)
    command = [python, "-m", f"benchmarks.{module}", *args, "--json", str(out)]
    with log.open("w") as stream:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,
            preexec_fn=ends_with_parent(),
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return {"error": f"not finished after {limit:g} s"}
        finally:
            if process.poll() is None:  # with what it has started, also on Ctrl-C
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    text = log.read_text(errors="replace").strip()
    if code != 0 or not out.is_file():
        print(text[-2000:], file=sys.stderr)
        return {"error": text.splitlines()[-1] if text else f"exit code {code}"}
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def has_gpu() -> bool:
    """The driver, seen from a machine or from a container."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def selected(name: str, peers: str, gpu: bool) -> list[Run]:
    """The implementations that this machine can measure; where the peers are missing, ``start`` will say so."""
    return [r for r in BENCHMARKS[name].runs if (r.where != "gpu" or gpu) and (r.where != "peers" or peers)]


def measure(name: str, run: Run, args: argparse.Namespace, peers: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Results by implementation; one that failed has {"error": ...}."""
    print(f"--- {name} {run.name}".rstrip(), file=sys.stderr, flush=True)
    if run.where == "peers" and not Path(peers).is_file():
        return {run.name: {"error": peers}}
    own = name in ("tabular_q", "exchange_overhead", "evolve")  # their own command lines
    extra = ["--quick"] if args.quick and not own else []
    limit = 12 * 3600 if BENCHMARKS[name].on_request else args.time_limit
    python = peers if run.where == "peers" else sys.executable
    raw = start(run.module, [*run.args, *extra], python, limit, folder)
    return {run.name or "envolve": raw} if "error" in raw else adapt(name, run, raw)


def keys(report: dict[str, Any]) -> dict[str, float]:
    """The flat keys of the file."""
    flat = {}
    for name, results in report["raw"].items():
        for implementation, result in results.items():
            if "per_core" in result:
                flat[f"{name}.{implementation}.per_core"] = result["per_core"]
            for floor, value in result.get("floors", {}).items():
                flat[f"{name}.{implementation}.{floor}_floor_steps_per_s"] = value
            flat.update({f"{name}.{implementation}.{k}": v for k, v in result.get("figures", {}).items()})
    return flat


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else "unknown CPU"


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    for name in args.only or ():
        if name not in BENCHMARKS:
            parser.error(unknown("--only", name, BENCHMARKS))
    if args.json is not None and (args.json.is_dir() or not args.json.absolute().parent.is_dir()):
        parser.error(f"--json: cannot write {args.json}, expected a file in a folder that exists")
    if not 0 < args.time_limit < float("inf"):
        parser.error(f"--time-limit: found {args.time_limit:g}, expected seconds above 0")


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    if args.list:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:30}{benchmark.what}{'; only with --only' if benchmark.on_request else ''}")
        return 0
    if args.json is not None:
        interrupt.advise(f"the figures that are finished are in {args.json}; the same command begins anew")

    from benchmarks.common.table import print_table  # late: what --help does not need
    from envolve.outer.config.load import environment_info

    names = list(dict.fromkeys(args.only)) if args.only else [n for n, b in BENCHMARKS.items() if not b.on_request]
    machine = {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "load_before": os.getloadavg()[0]}
    report: dict[str, Any] = {"machine": machine, "versions": environment_info(), "quick": args.quick, "raw": {}}
    peers = ""  # their interpreter, or why there is none
    if not args.no_peers and any(run.where == "peers" for name in names for run in BENCHMARKS[name].runs):
        try:
            peers = str(environment.ensure())
            report["peer_versions"] = environment.versions(Path(peers))
        except environment.Unavailable as error:
            peers = str(error)
    with tempfile.TemporaryDirectory() as folder:
        if any(run.case for name in names for run in BENCHMARKS[name].runs):
            costs = start("floors", ["costs"], sys.executable, args.time_limit, Path(folder))
            if "error" not in costs:
                report["floor"] = costs
        for name in names:
            results = report["raw"][name] = {}
            for run in selected(name, peers, has_gpu()):
                measured = measure(name, run, args, peers, Path(folder))
                if run.case and "floor" in report and "per_core" in measured[run.name]:
                    work = floors.step(run.case)
                    measured[run.name]["floors"] = {k: 1 / work.seconds(c) for k, c in report["floor"].items()}
                results.update(measured)
                if args.json is not None:  # after each one: what is finished is not lost
                    args.json.write_text(json.dumps({**keys(report), **report}, indent=1) + "\n")
    print_table(report)
    return int(any("error" in result for results in report["raw"].values() for result in results.values()))


if __name__ == "__main__":
    interrupt.run(main)
