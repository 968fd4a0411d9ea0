#!/usr/bin/env python3
"""Whole evolutions: does a configuration solve its task from every seed, how fast, and is the world any good?

    python3 benchmarks/evolve.py default_config_cartpole_syn_env.yaml --seeds 10 [--json FILE]

Each seed is one ``GTN_master.py CONFIG --single`` as a user would start it (process start, kernel loading and closing
comparison included in the seconds), then ``experiments/evaluate_proxy.py`` with fresh agents.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.envs.worlds.file import read_world

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Args:
    """Evolve a world from several seeds and re-test each with fresh agents."""

    config: tyro.conf.Positional[Path]
    """A default_config_*.yaml."""
    seeds: int = 10
    """Number of runs, one per random seed."""
    first_seed: int = 0
    """Random seed of the first run; the others count up."""
    num_agents: int = 40
    """Number of fresh agents that re-test a world."""
    vary_hp: bool = True
    """Draw the hyperparameters of these agents."""
    results_dir: Path | None = None
    """Folder for the runs. Default: a temporary folder."""
    overrides: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    """Values passed to GTN_master.py --set."""
    json: Path | None = None
    """Also write the figures to this JSON file."""


def run(command: list[Any]) -> float:
    """Wall seconds; the command's own output is shown only if it fails."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - began


def retest(model: Path, args: Args, stop: str, real: bool, folder: Path) -> dict[str, Any]:
    out = folder / f"{stop}.json"
    flags = ["--agents", args.num_agents, "--json", out, "--real" if real else "--no-real"]
    flags += ["--vary-hp"] if args.vary_hp else []
    flags += ["--stop", stop] if stop != "default" else []
    run([ROOT / "experiments" / "evaluate_proxy.py", model, *flags])
    return json.loads(out.read_text())


def one_seed(args: Args, seed: int, folder: Path) -> dict[str, Any]:
    results = folder / f"seed{seed}"
    overrides = ["--set", *args.overrides] if args.overrides else []
    command = [ROOT / "GTN_master.py", args.config, "--single", "--seed", seed, "--results-dir", results, *overrides]
    seconds = run(command)
    (model,) = results.glob("*/model.pt")
    world = read_world(str(model))
    rows = (model.parent / "scores.csv").read_text().splitlines()
    record: dict[str, Any] = {"seed": seed, "seconds": seconds, "solved": world.solved, "score": world.score}
    record["generations"] = int(rows[-1].split(",")[0])
    stops = ["budget", "early-out"] if world.budget and world.kind == "se" else ["default"]
    for i, stop in enumerate(stops):
        result = retest(model, args, stop, i == 0, model.parent)
        columns = {stop: result["proxy"]} | ({"real": result["real"]} if "real" in result else {})
        for name, column in columns.items():
            record[name] = {k: column[k] for k in ("mean_return", "mean_train_steps", "failed")}
    return record


def main() -> None:
    args = tyro.cli(Args)
    records = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.results_dir or Path(temporary)
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            records.append(r := one_seed(args, seed, folder))
            tests = "  ".join(
                f"{k} {v['mean_return']:.1f} at {v['mean_train_steps']:.0f} steps"
                for k, v in r.items()
                if isinstance(v, dict)
            )
            outcome = "solved" if r["solved"] else f"score {r['score']:.1f}"
            print(
                f"seed {r['seed']}: {outcome} after {r['generations']} generations, {r['seconds']:.1f} s   {tests}",
                flush=True,
            )
    seconds = [r["seconds"] for r in records]
    print(
        f"\n{sum(r['solved'] for r in records)} of {len(records)} solved; wall seconds: median "
        f"{statistics.median(seconds):.1f}, least {min(seconds):.1f}, most {max(seconds):.1f}"
    )
    for name in [k for k, v in records[0].items() if isinstance(v, dict)]:
        returns = [r[name]["mean_return"] for r in records]
        steps = [r[name]["mean_train_steps"] for r in records]
        print(
            f"{name:>10}: return {statistics.mean(returns):.1f} (worst world {min(returns):.1f}), "
            f"training steps {statistics.mean(steps):.0f} (most {max(steps):.0f}); {args.num_agents} agents per world"
        )
    if args.json:
        args.json.write_text(json.dumps({"config": str(args.config), "runs": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
