#!/usr/bin/env python3
"""TorchRL's SAC with its multi-process collectors at the settings of benchmarks/distributed.py, which starts this.

    PYTHON benchmarks/peers/torchrl_sac.py torchrl-sync-2 [--iterations 4] [--env Pendulum-v1] [--evaluate 10]

sync: MultiSyncCollector, all collectors' steps, then gradient steps, then the policy for all: the counterpart of
"lockstep". async: MultiAsyncCollector, whose collectors go on while one learns: that of "async". Recipe, from
https://docs.pytorch.org/rl/stable/reference/ (objectives.html, collectors.html): NormalParamExtractor and TanhNormal,
SACLoss, SoftUpdate, TensorDictReplayBuffer, update_policy_weights_. A quadratic loss, relu, no torch.compile and Adam
as PyTorch has it are the settings of TorchRL's own SAC on HalfCheetah (sota-implementations/sac).
An asynchronous collector that for a second cannot put its batch into the queue (of one) collects another in its place
(torchrl/collectors/_runner.py). So its batches are small, which favours it.

Prints one line of JSON. With --evaluate also the mean return of so many greedy episodes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from tensordict.nn import InteractionType, TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import MultiAsyncCollector, MultiSyncCollector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import DoubleToFloat, GymEnv, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

from benchmarks.distributed import RANDOM_STEPS, STEPS, TORCHRL, TORCHRL_PACKAGES, WARM_UP, Meter, cpu_of, family

HIDDEN, BATCH, RATE, GAMMA, TAU, MEMORY = [256, 256], 256, 3e-4, 0.99, 0.005, 10**6
PARTS = 25  # asynchronous batches of an iteration
LEARNED_FROM = ["observation", "action", *(("next", key) for key in ("observation", "reward", "done", "terminated"))]


def environment(name: str) -> TransformedEnv:
    return TransformedEnv(GymEnv(name), DoubleToFloat())


def networks(env: TransformedEnv) -> tuple[ProbabilisticActor, ValueOperator]:
    spec = env.action_spec
    trunk = nn.Sequential(
        MLP(out_features=2 * spec.shape[-1], num_cells=HIDDEN, activation_class=nn.ReLU), NormalParamExtractor()
    )
    actor = ProbabilisticActor(
        TensorDictModule(trunk, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=spec,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high, "tanh_loc": False},
        default_interaction_type=InteractionType.RANDOM,
    )
    critic = ValueOperator(
        MLP(out_features=1, num_cells=HIDDEN, activation_class=nn.ReLU), in_keys=["action", "observation"]
    )
    with torch.no_grad():  # lazy layers get their sizes
        critic(actor(env.reset()))
    return actor, critic


class Learner:
    """One gradient step of critics, actor and temperature; all on batches of the memory."""

    def __init__(self, actor: ProbabilisticActor, critic: ValueOperator) -> None:
        self.memory = TensorDictReplayBuffer(storage=LazyTensorStorage(MEMORY), batch_size=BATCH)
        self.loss = SACLoss(actor, critic, num_qvalue_nets=2, loss_function="l2")
        self.loss.make_value_estimator(gamma=GAMMA)
        self.target = SoftUpdate(self.loss, tau=TAU)
        self.adam = torch.optim.Adam(self.loss.parameters(), lr=RATE)

    def step(self) -> None:
        losses = self.loss(self.memory.sample())
        (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).backward()
        self.adam.step()
        self.adam.zero_grad()
        self.target.step()


def train(variant: str, iterations: int, name: str, evaluate: int) -> dict[str, Any]:
    _, mode, number = variant.split("-")
    N, sync = int(number), mode == "sync"
    parts = 1 if sync else PARTS
    torch.manual_seed(0)
    env = environment(name)
    env.set_seed(0)
    actor, critic = networks(env)
    learner = Learner(actor, critic)
    # a synchronous batch is that of all collectors, an asynchronous one that of whichever is ready
    collector = (MultiSyncCollector if sync else MultiAsyncCollector)(
        [partial(environment, name)] * N,
        actor,
        frames_per_batch=STEPS // parts,
        total_frames=-1,
        init_random_frames=RANDOM_STEPS,
        device="cpu",
        num_threads=1,
        num_sub_threads=1,
        **({"cat_results": 0} if sync else {}),
    )
    collector.set_seed(0)
    steps, updates, batches = 0, 0, iter(collector)
    pids = family(os.getpid())  # the collectors are processes
    meter = Meter(lambda: cpu_of(pids))
    for iteration in range(-(RANDOM_STEPS // STEPS), WARM_UP + iterations):
        for part in range(parts):
            rows = next(batches).reshape(-1).select(*LEARNED_FROM)
            learner.memory.extend(rows)
            steps += rows.numel()
            if iteration >= 0:  # STEPS of an iteration, after each batch its share
                for _ in range(STEPS * (part + 1) // parts - STEPS * part // parts):
                    learner.step()
                    updates += 1
        if iteration >= 0:
            collector.update_policy_weights_()
        if iteration + 1 >= WARM_UP:
            meter.mark(steps, updates)
    found: dict[str, Any] = {**meter.result(), "versions": {package: version(package) for package in TORCHRL_PACKAGES}}
    collector.shutdown()
    if evaluate:
        with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
            returns = [env.rollout(10**6, actor)["next", "reward"].sum().item() for _ in range(evaluate)]
        found["return"] = sum(returns) / evaluate
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", choices=TORCHRL)
    parser.add_argument("--iterations", type=int, default=4, help=f"of {STEPS} steps each, after the warm-up")
    parser.add_argument("--env", default="HalfCheetah-v5", help="of Gymnasium, with continuous actions")
    parser.add_argument("--evaluate", type=int, default=0, metavar="EPISODES")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(train(args.variant, args.iterations, args.env, args.evaluate)))


if __name__ == "__main__":
    main()
