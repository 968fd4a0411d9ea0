#!/usr/bin/env python3
"""What is left of the policy that bandits hold when their weights are perturbed: how large may noise_std be?

    python3 benchmarks/worlds/perturbed.py results/continuous_control/half_cheetah/run-*/distilled.pt --normalised

A search that begins with a distilled world compares perturbations of it. Where most of these have lost what the first
world teaches, their ranks say little about anything else. Prints, for each world and standard deviation of the noise,
the return on the task of the action that the perturbed worlds pay most for, one episode each, without an agent.
--normalised: noise in units of what agents see, as in a search with envs.<task>.normalised.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from envolve.envs.worlds.best_paid import greedy  # noqa: E402
from envolve.envs.worlds.file import read_world  # noqa: E402
from envolve.envs.worlds.synthetic import synthetic_world  # noqa: E402
from envolve.outer.config import problem  # noqa: E402
from envolve.outer.distil.policy import play  # noqa: E402
from envolve.outer.search.target import NetworkTarget  # noqa: E402

NOISE = (0.0, 0.006, 0.012, 0.03)


def returns(path: Path, noise: Sequence[float], worlds: int, normalised: bool) -> Iterator[np.ndarray]:
    """For each standard deviation the returns of ``worlds`` perturbations of the world in a file, float64 [worlds]. The
    same directions and episodes at each."""
    file = read_world(str(path))
    data = copy.deepcopy(file.config)
    data["envs"][file.env_name]["normalised"] = normalised
    target = NetworkTarget(data, problem.gtn_section(data))
    target.measure(lambda: file.flat)
    centre = target.vector(file.flat)
    directions = target.mask() * torch.randn(worlds, len(centre), generator=torch.Generator().manual_seed(0))
    for deviation in noise:
        found = target.worlds(centre + deviation * directions)
        policies = greedy(synthetic_world(target.task, target.section, found))
        yield play(target.task, policies, np.arange(worlds), 1).returns[:, 0]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.pt", help="contextual bandits")
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE, help="standard deviations")
    parser.add_argument("--worlds", type=int, default=16, help="perturbations of each world")
    parser.add_argument("--normalised", action="store_true")
    args = parser.parse_args(argv)
    print("| world | " + " | ".join(f"{deviation:g}" for deviation in args.noise) + " |")
    print("|---" * (1 + len(args.noise)) + "|")
    for path in args.models:
        row = [f"{own.mean():,.0f}" for own in returns(path, args.noise, args.worlds, args.normalised)]
        print(f"| {path.parent.name} | " + " | ".join(row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
