#!/usr/bin/env python3
"""What distributed SAC learns on the two shipped examples, beside Stable-Baselines3's SAC: the same environment,
hyperparameters, random steps, environment steps and gradient steps, several seeds, greedy episodes with starts that no
other run has.

    python3 benchmarks/distributed_learning.py --task half_cheetah [--steps 30000] [--seeds 5] [--only ours sb3]
    python3 benchmarks/distributed_learning.py --task quadruped --only ours sb3 curriculum

Half cheetah: Gymnasium's HalfCheetah-v5. Quadruped: ours and sb3 train where its policies are judged (a load of 2 kg,
a floor with friction 0.5, noisy sensors), curriculum gets there by the example's curriculum, compressed into the run.
Ours is one collector in lockstep, embedded, which gives the same bytes as processes do.
Every finished run is kept in DIR, and the same command goes on with the others.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from envolve.core.statistics import interval  # noqa: E402
from envolve.distributed.files.params import TrainParamsBase  # noqa: E402
from envolve.distributed.files.params_file import freeze, load_train_params, read_json  # noqa: E402
from envolve.distributed.files.run_folder import RunSettings, keep_settings  # noqa: E402
from envolve.envs.worlds.file import write_atomic  # noqa: E402
from envolve.experiments import train_distributed  # noqa: E402

PARAMS = ROOT / "experiments" / "params"
EVALUATIONS = 5  # of every run, evenly spaced
EPISODES = 10  # of each
VARIANTS = ("ours", "sb3", "curriculum")


def prepare(task: str, variant: str, steps: int, size: dict[str, Any], folder: Path) -> TrainParamsBase:
    """The shipped parameters for a run of so many gradient steps; its JSON goes into the folder. size: of nets and
    batches."""
    params_file = PARAMS / f"{task}_params.py"
    config, _ = read_json(PARAMS / f"{task}.json")
    shipped = load_train_params(params_file, PARAMS / f"{task}.json")
    every = max(1, steps // shipped.num_steps_per_iter // EVALUATIONS)
    changes = dict(
        num_iter=EVALUATIONS * every,
        eval_period=every,
        checkpoint_period=every,
        n_eval_episodes=EPISODES,
        n_buffer_init_episodes=max(1, 1000 // shipped.horizon),
        log_period=every,
        **size,
    )
    if variant == "curriculum":
        share = changes["num_iter"] / shipped.num_iter
        for schedule in config["curriculum"].values():
            schedule["iters"] = [round(share * i) for i in schedule["iters"]]
    else:
        config.pop("curriculum", None)
        config["env"].update(config.get("eval_env", {}))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(str(folder / "given.json"), json.dumps(config).encode())
    return freeze(folder / "run", params_file, folder / "given.json", changes)


def ours(params: TrainParamsBase, seed: int, folder: Path) -> list[tuple[int, float]]:
    """-> (gradient steps, mean return), of every evaluation."""
    settings = RunSettings(seed, 1, "lockstep")
    keep_settings(folder, settings)
    train_distributed.embedded(params, settings, folder)
    with (folder / "evaluations.csv").open() as lines:
        return [(int(line["step"]), float(line["mean_return"])) for line in csv.DictReader(lines)]


def sb3(params: TrainParamsBase, seed: int) -> list[tuple[int, float]]:
    from stable_baselines3 import SAC
    from stable_baselines3.common.callbacks import BaseCallback

    first = params.n_buffer_init_episodes * params.horizon
    period, found = params.eval_period * params.num_steps_per_iter, []
    judge = params.eval_env(0, seed)

    class Judge(BaseCallback):
        def _on_step(self) -> bool:
            done = self.num_timesteps - first
            if done >= 0 and done % period == 0:
                returns = [episode(judge, self.model, 10_000 * (seed + 1) + e, params.horizon) for e in range(EPISODES)]
                found.append((done, float(np.mean(returns))))
            return True

    model = SAC(
        "MlpPolicy",
        params.env_ctor(seed),
        seed=seed,
        device="cpu",
        learning_starts=first,
        gamma=params.gamma,
        tau=params.tau,
        batch_size=params.batch_size,
        learning_rate=params.actor_lr,
        train_freq=1,
        gradient_steps=1,
        ent_coef=f"auto_{math.exp(params.log_alpha_init)}",
        policy_kwargs={"net_arch": list(params.hidden)},
        buffer_size=params.n_episodes_in_buffer * params.horizon,
    )
    model.learn(first + params.num_iter * params.num_steps_per_iter, callback=Judge())
    judge.close()
    return found


def episode(env: Any, model: Any, seed: int, horizon: int) -> float:
    obs, total = env.reset(seed=seed)[0], 0.0
    for _ in range(horizon):
        action, _ = model.predict(obs, deterministic=True)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    return total


def one(task: str, variant: str, seed: int, steps: int, size: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A run, from its file where it is finished."""
    of_size = "_".join(map(str, [*size["hidden"], size["batch_size"]]))
    path = folder / f"{task}_{variant}_{steps}_{of_size}_{seed}.json"
    if not path.exists():
        scratch = folder / path.stem
        params = prepare(task, variant, steps, size, scratch)
        began = time.process_time()
        curve = sb3(params, seed) if variant == "sb3" else ours(params, seed, scratch / "run")
        result = {"curve": curve, "cpu_seconds": time.process_time() - began, "torch": torch.__version__}
        write_atomic(str(path), json.dumps(result).encode())
    return dict(json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["half_cheetah", "quadruped"], required=True)
    parser.add_argument("--steps", type=int, default=30_000, help="gradient steps, and environment steps after 1,000")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=["ours", "sb3"])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256], help="units of each layer")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "distributed_learning", metavar="DIR")
    args = parser.parse_args()
    if "curriculum" in args.only and args.task != "quadruped":
        parser.error("--only curriculum: half_cheetah has none; it is the quadruped's")
    torch.set_num_threads(1)
    size = {"hidden": tuple(args.hidden), "batch_size": args.batch_size}
    runs: dict[str, list[dict[str, Any]]] = {variant: [] for variant in args.only}
    for seed in range(args.seeds):  # one seed of each before the next: what is interrupted has as many of each
        for variant in args.only:
            run = one(args.task, variant, seed, args.steps, size, args.folder)
            runs[variant].append(run)
            curve = "  ".join(f"{step:,}: {value:,.0f}" for step, value in run["curve"])
            print(f"{variant:10} seed {seed}  {curve}  {run['cpu_seconds']:.0f} s CPU", flush=True)
    print(f"\n{args.task}, mean of {EPISODES} greedy episodes per run, mean over {args.seeds} runs, 95 % intervals")
    for variant, found in runs.items():
        for i, (step, _) in enumerate(found[0]["curve"]):
            values = [run["curve"][i][1] for run in found]
            low, high = interval(values)
            each = ", ".join(f"{v:,.0f}" for v in values)
            print(f"{variant:10} {step:>7,} steps: {np.mean(values):,.0f} ({low:,.0f} to {high:,.0f}); runs {each}")


if __name__ == "__main__":
    main()
