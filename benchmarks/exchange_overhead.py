#!/usr/bin/env python3
"""What the exchange costs per generation: 16 chunks of 8 x 2247 floats, two workers, an instant evaluation.

    python3 benchmarks/exchange_overhead.py [--generations 50] [--json FILE]

The original needs 7200 ms per generation with 16 workers, 760 ms with all its waits shortened for one machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from envolve.outer.exchange.dispatch import Dispatcher  # noqa: E402
from envolve.outer.exchange.local_workers import LocalWorkers  # noqa: E402
from envolve.outer.exchange.messages import Chunk  # noqa: E402

CONFIG = {"seed": 0, "agents": {"gtn": {"num_threads_per_worker": 1}, "ddqn": {f"key_{i}": i * 0.1 for i in range(40)}}}


def instant(config, worlds, seeds, mode, threads):
    return {"score": worlds[:, 0], "train_steps": seeds, "reason": [""] * len(seeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    milliseconds = []
    with tempfile.TemporaryDirectory() as folder:
        with Dispatcher(folder, 0, "benchmark") as dispatcher, LocalWorkers(
            2, folder, 0, folder, script=__file__, extra_args=("--worker",)
        ):
            while len(dispatcher.workers()) < 2:
                time.sleep(0.1)
            time.sleep(1.0)  # until both have loaded
            for generation in range(args.generations):
                worlds = torch.randn(16, 8, 2247)
                chunks = [
                    Chunk("benchmark", generation, i, 0, "proxy", CONFIG, worlds[i], torch.arange(8)) for i in range(16)
                ]
                begin = time.perf_counter()
                results = dispatcher.evaluate(chunks)
                milliseconds.append((time.perf_counter() - begin) * 1e3)
                assert all(
                    torch.equal(r.values["score"], w[:, 0].double()) for r, w in zip(results, worlds, strict=True)
                )
    median, worst = statistics.median(milliseconds), max(milliseconds)
    print(
        f"exchange: {median:.1f} ms per generation (median of {args.generations}; "
        f"{min(milliseconds):.1f} to {worst:.1f}), target 50 ms"
    )
    if args.json:
        args.json.write_text(json.dumps({"milliseconds_per_generation": median, "all": milliseconds}, indent=1))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        from envolve.experiments.worker import main as worker_main

        sys.exit(worker_main([a for a in sys.argv[1:] if a != "--worker"], evaluate=instant))
    main()
