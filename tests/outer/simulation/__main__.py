"""``python -m tests.outer.simulation --seeds 0:10000``: exit code 0 if all ended well.

A seed that fails prints what went wrong, which kinds of faults it needs, and every fault with its virtual time, process
and file. ``--seed N --trace`` does the same again and prints every system call; ``--drop KIND`` leaves a kind out.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from typing import FrozenSet, List, Optional

from tests.outer.simulation.faults import ALL
from tests.outer.simulation.one_seed import shrink, simulate
from tests.outer.simulation.world import World


def report(world: World, needless: FrozenSet[str] = frozenset()) -> str:
    lines = [f"seed {world.seed} failed at {world.now:.3f} s: {world.failure}"]
    drop = "".join(f" --drop '{kind}'" for kind in sorted(needless))
    lines.append(f"again: python -m tests.outer.simulation --seed {world.seed} --trace{drop}")
    lines += [f"{at:10.4f} {kind:12} {what}" for at, kind, what in world.faults.log]
    return "\n".join(lines)


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outer.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="FIRST:AFTER_LAST (default: %(default)s)")
    parser.add_argument("--step", type=int, default=1, help="take every n-th seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="print every system call and log line")
    parser.add_argument("--drop", action="append", default=[], choices=sorted(ALL), help="no faults of this kind")
    parser.add_argument("--stop", type=int, default=10, help="end after so many failures (default: %(default)s)")
    args = parser.parse_args(argv)
    if hasattr(os, "sched_setaffinity"):  # one task runs at a time: handing over to another core takes longer
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})
    first, last = (args.seed, args.seed + 1) if args.seed is not None else map(int, args.seeds.split(":"))
    began, failed, faults = time.perf_counter(), [], Counter()  # type: ignore[var-annotated]
    seconds, slowest, masters = 0.0, 0.0, 0
    for seed in range(first, last, args.step):
        trace: Optional[List[str]] = [] if args.trace else None
        world = simulate(seed, drop=frozenset(args.drop), trace=trace)
        faults.update(world.faults.counts)
        seconds, slowest, masters = (
            seconds + world.now,
            max(slowest, world.now - world.end),
            masters + world.incarnations,
        )
        if trace is not None:
            print("\n".join(trace))
        if world.failure is not None:
            failed.append(seed)
            if trace is None:  # with no more faults than it takes
                needless = shrink(seed, drop=frozenset(args.drop))
                print(report(simulate(seed, drop=needless), needless), flush=True)
            else:
                print(report(world))
            if len(failed) >= args.stop:
                break
        if (seed + 1 - first) % 1000 == 0:
            print(f"{seed + 1 - first} seeds, {time.perf_counter() - began:.0f} s, {len(failed)} failed", flush=True)
    took = time.perf_counter() - began
    print(
        f"{(seed - first) // args.step + 1} seeds in {took:.1f} s: {seconds:.0f} virtual s, {masters} masters started, "
        f"latest end {slowest:.0f} s after the last fault; failed: {failed or 'none'}"
    )
    print("faults:", ", ".join(f"{kind} {n}" for kind, n in faults.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
