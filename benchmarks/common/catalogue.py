"""Catalogue of the benchmarks, and how each of their implementations is started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.common.settings import SETTINGS


@dataclass(frozen=True)
class Run:
    """One implementation: ``python -m benchmarks.<module> <args> --json FILE``, in an environment and within a time."""

    name: str  # the second part of its keys in the JSON file
    module: str
    args: tuple[str, ...]
    where: str = "project"  # "peers": in the peers' environment; "gpu": needs CUDA
    case: str = ""  # of settings.SETTINGS: whose floor it is compared with


@dataclass(frozen=True)
class Benchmark:
    what: str
    runs: tuple[Run, ...]
    on_request: bool = False  # too long for every day: runs only where --only names it
    baseline: str = "plain"  # the implementation that the others are compared with


def _learner(
    case: str,
    script: str,
    jax: str = "",
    sb3: bool = False,
    suffix: str = "",
    members: Iterable[int] = (),
    gpu: Iterable[int] = (),
) -> list[Run]:
    """The implementations of one setting. members, gpu: sizes of the population beside the setting's own, on a GPU."""
    names = ["compiled", "torch"]
    if not SETTINGS[case].ppo:
        names.append("torch_compile")
    runs = [Run(f"{name}{suffix}", "learners", (case, name), case=case) for name in names]
    for p in members:
        runs.append(Run(f"torch_p{p}", "learners", (case, "torch", "--members", str(p)), case=case))
    for p in gpu:
        runs.append(Run(f"cuda_p{p}", "learners", (case, "cuda", "--members", str(p)), "gpu", case))
    runs.append(Run(f"plain{suffix}", f"plain.{script}", (case,), case=case))
    if sb3:
        runs.append(Run(f"sb3{suffix}", "peers.sb3", (case,), "peers", case))
    if jax:
        runs.append(Run(f"jax{suffix}", f"peers.{jax}", (case,), "peers", case))
    return runs


def _simulation(task: str, *implementations: str, gpu: Iterable[int] = ()) -> Benchmark:
    what = f"{task} alone, random actions, 1,024 environments; shaped: with rewards, ends and resets"
    runs = [Run(name, "physics", (task, name)) for name in implementations]
    runs += [Run(f"cuda_n{n}", "physics", (task, "cuda", "--members", str(n)), "gpu") for n in gpu]
    return Benchmark(what, tuple(runs), baseline="gymnasium" if "gymnasium" in implementations else "engine")


def _benchmark(case: str, *runs: Run) -> Benchmark:
    return Benchmark(SETTINGS[case].what, runs)


BENCHMARKS: dict[str, Benchmark] = {
    "ddqn_in_se": _benchmark(
        "ddqn_in_se",
        *_learner("ddqn_in_se", "ddqn", "jax_off_policy", sb3=True, members=(1, 8, 128), gpu=(32, 128, 512, 2048)),
    ),
    "ddqn_two_layer": Benchmark(
        "DDQN in a CartPole SE, 4-128-128-2 relu, batch 128; with suffix _tanh64: 4-64-64-2 tanh, batch 64",
        (
            *_learner("ddqn_two_layer", "ddqn", "jax_off_policy", sb3=True),
            *_learner("ddqn_two_layer_tanh64", "ddqn", suffix="_tanh64"),
        ),
    ),
    "dueling_in_se": _benchmark("dueling_in_se", *_learner("dueling_in_se", "ddqn")),
    "td3_discrete_in_se": _benchmark("td3_discrete_in_se", *_learner("td3_discrete_in_se", "td3")),
    "tabular_q": Benchmark(
        "tabular learning on Cliff, 4 x 12 cells; plain: a Python loop over lists",
        (Run("", "tabular", ()),),
    ),
    "ppo_cartpole": _benchmark("ppo_cartpole", *_learner("ppo_cartpole", "ppo", "jax_ppo", sb3=True)),
    "td3_mountain_car_continuous": _benchmark(
        "td3_mountain_car_continuous", *_learner("td3_mountain_car_continuous", "td3", "jax_off_policy", sb3=True)
    ),
    "sac_pendulum": _benchmark("sac_pendulum", *_learner("sac_pendulum", "sac", "jax_off_policy", sb3=True)),
    "gym_vector_cartpole": Benchmark(
        "CartPole alone, random actions, episodes reset where they end; environment steps",
        (
            Run("compiled", "vector_cartpole", ("64", "compiled")),
            Run("torch", "vector_cartpole", ("4096", "torch")),
            Run("torch_64", "vector_cartpole", ("64", "torch")),
            Run("gymnasium_sync", "peers.gymnasium_cartpole", ("64", "sync"), "peers"),
            Run("gymnasium_64", "peers.gymnasium_cartpole", ("64", "vectorized"), "peers"),
            Run("gymnasium", "peers.gymnasium_cartpole", ("4096", "vectorized"), "peers"),
        ),
        baseline="gymnasium_sync",
    ),
    "memory": Benchmark(
        "peak memory of a population of DDQN members (4-57-2) whose replay buffers of 100,000 rows are full",
        tuple(
            Run(f"{backend}_p{p}", "memory", (str(p), backend))
            for backend in ("compiled", "torch")
            for p in (32, 64, 128, 256)
        ),
    ),
    "simulation_half_cheetah": _simulation("HalfCheetah", "task", "shaped", "engine", "gymnasium", gpu=(16384,)),
    "simulation_ant": _simulation("Ant", "task", "shaped", "engine", "gymnasiums_options", "gymnasium", gpu=(16384,)),
    "simulation_humanoid": _simulation("Humanoid", "task", "shaped", "engine", "gymnasiums_options", "gymnasium"),
    "simulation_anymal": _simulation("Anymal", "shaped", "engine", gpu=(1024, 16384, 131072)),
    "exchange_overhead": Benchmark(
        "what the exchange adds to a generation of 16 chunks, milliseconds", (Run("", "exchange_overhead", ()),)
    ),
    "evolve": Benchmark(
        "whole evolutions of the CartPole SE from ten seeds, each world re-tested",
        (Run("", "evolve", ("default_config_cartpole_syn_env.yaml", "--seeds", "10")),),
        on_request=True,
    ),
}
