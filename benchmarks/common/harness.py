"""What every benchmark shares: how speed is measured, and what the process that measures it hands back.

A benchmark is a set of implementations, each measured in a process of its own (so that one that hangs or crashes costs
no other figure): ``python -m benchmarks.<module> CASE [IMPLEMENTATION] --json FILE``. Only the standard library is
imported here: the peers run in another environment.
"""

from __future__ import annotations

import argparse
import difflib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from benchmarks.common.settings import SETTINGS

# Trains for about n steps of each member -> member-steps done, CPU seconds that they took.
Timed = Callable[[int], Tuple[int, float]]
REPEATS, SECONDS = 5, 1.0  # of a run


def cpu_time(run: Callable[[int], Any]) -> Timed:
    """Adapter for ``run`` that trains one agent for n steps and has nothing to set up."""

    def timed(n: int) -> Tuple[int, float]:
        began = time.process_time()
        run(n)
        return n, time.process_time() - began

    return timed


def measure(timed: Timed, first: int, members: int = 1, quick: bool = False) -> Dict[str, Any]:
    """The speed of one core: member-steps per CPU second, the median of five runs of about a second each.

    first: steps of the run that warms up (compiles, fills caches), and of the first try at how long a run has to be.
    quick: that run and no other, to see whether it works at all.
    """
    done, seconds = timed(first)
    steps, runs = first, [done / seconds]
    if not quick:
        _, seconds = timed(steps)
        while seconds < 0.1 * SECONDS:
            steps *= 4
            _, seconds = timed(steps)
        steps = max(first, round(steps * SECONDS / seconds))
        runs = []
        for _ in range(REPEATS):
            done, seconds = timed(steps)
            runs.append(done / seconds)
    return {"per_core": statistics.median(runs), "runs": runs, "members": members, "steps": steps}


def main(
    doc: Optional[str], implementations: Dict[str, Callable[..., Dict[str, Any]]], argv: Optional[Sequence[str]] = None
) -> None:
    """The command line of a module: runs ``implementations[IMPLEMENTATION](case, members, quick)``.

    members is None unless --members asks for another size of the population than the setting's.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("case", help="a key of benchmarks.common.settings.SETTINGS, or of the module's own")
    parser.add_argument("implementation", nargs="?", default=next(iter(implementations)), choices=implementations)
    parser.add_argument("--members", type=int, help="size of the population")
    parser.add_argument("--quick", action="store_true", help="one short run: does it work?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args(argv)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    try:
        result = implementations[args.implementation](args.case, args.members, args.quick)
    except KeyError as e:
        if e.args != (args.case,):
            raise
        near = difflib.get_close_matches(args.case, SETTINGS, 1, 0.0)[0]
        parser.error(f"CASE: found {args.case!r}, expected a key of benchmarks/common/settings.py; nearest: {near}")
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
