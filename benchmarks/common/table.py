"""The report of a run of benchmarks -> one table with the machine above it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common.catalogue import BENCHMARKS


def number(value: float) -> str:
    """Three figures at least, thousands separated, millions as such."""
    if value >= 1e7:
        return f"{value / 1e6:,.1f} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def rows(report: dict[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    """implementation, members, figure, range, x baseline, both floors, shares of them."""
    results: dict[str, dict[str, Any]] = report["raw"].get(name, {})
    for implementation, result in results.items():
        if "error" in result:
            yield implementation, "", "no figure", result["error"], "", "", ""
            continue
        for figure, value in result.get("figures", {}).items():
            yield implementation, str(result.get("members", "")), number(value), figure.replace("_", " "), "", "", ""
        if "per_core" in result:
            value, suffix = result["per_core"], implementation.partition("_")[2]
            # of several settings in one benchmark each has its own baseline: compiled_tanh64 beside plain_tanh64
            plain = [f"{BENCHMARKS[name].baseline}_{suffix}", BENCHMARKS[name].baseline]
            base = next((results[p]["per_core"] for p in plain if "per_core" in results.get(p, {})), None)
            shares = [f"{100 * value / floor:.0f} % of {number(floor)}" for floor in result.get("floors", {}).values()]
            yield (
                implementation,
                str(result["members"]),
                f"{number(value)}/s",
                f"{number(min(result['runs']))} to {number(max(result['runs']))}",
                f"{value / base:.3g}" if base else "",
                *(shares or ("", "")),
            )


def header(report: dict[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield f"{machine['cpu']}, {machine['cores']} cores, load average {machine['load_before']:.1f} before the start"
    if machine["load_before"] > 0.5:
        yield "WARNING: other programs run on this machine; figures count CPU time, but caches and clocks are shared"
    for which in ("versions", "peer_versions"):
        if report.get(which):
            yield f"{which.replace('_', ' ')}: " + ", ".join(f"{k} {v}" for k, v in report[which].items())
    if report.get("quick"):
        yield "WARNING: --quick: one cold run of a few steps each; these figures say nothing about speed"
    yield "figures: steps per CPU second of one core, median of five runs"
    if "floor" in report:
        what = {
            "library": "torch's matrix product and sigmoid",
            "core": "the fastest code known, torch's or this project's",
        }
        for floor, costs in report["floor"].items():
            yield (
                f"{floor} floor: {costs['gflop_per_s']:.0f} GFLOP/s and {costs['ns_per_tanh']:.2f} ns per tanh, "
                f"one thread ({what[floor]})"
            )


def print_table(report: dict[str, Any], console: Console | None = None) -> None:
    console = console or Console(width=None if Console().is_terminal else 120)
    for line in header(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for name in report["raw"]:
        table = Table(title=f"{name}: {BENCHMARKS[name].what}", title_justify="left", title_style="bold", expand=False)
        baseline = f"x {BENCHMARKS[name].baseline}"
        for column in ("implementation", "members", "figure", "range", baseline, "library floor", "core floor"):
            table.add_column(column, justify="left" if column in ("implementation", "range") else "right")
        for row in rows(report, name):
            table.add_row(*row)
        console.print(table)
