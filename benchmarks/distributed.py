#!/usr/bin/env python3
"""Distributed SAC on HalfCheetah-v5 beside Stable-Baselines3's SAC: environment steps and gradient steps, by the clock
and by CPU time (of all programs together). One gradient step for every environment step, networks of 256 x 256, batches
of 256, one thread each; counted after a warm-up, so that no start is in it.

    python3 benchmarks/distributed.py [--iterations 4] [--only sb3 embedded ...] [--json FILE] [--torchrl PYTHON]

ray-...: the programs as actors of Ray (pip install 'envolve[ray]').

--torchrl: a Python with TorchRL, for its SAC with its synchronous and asynchronous multi-process collectors, too
(benchmarks/peers/torchrl_sac.py). TorchRL 0.14 needs tensordict 0.14, which pip finds:

    python3 -m venv /tmp/torchrl
    /tmp/torchrl/bin/pip install torch==2.13.0 torchrl==0.14.1 "gymnasium[mujoco]==1.4.0"
    python3 benchmarks/distributed.py --torchrl /tmp/torchrl/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from envolve.outer.ray.address import installed  # noqa: E402

STEPS = 250  # environment steps, and gradient steps, of an iteration
RANDOM_STEPS = 500
WARM_UP = 1  # iterations
LOOK = 0.5  # s between two questions to a hub elsewhere: more would be part of what is measured
VARIANTS = {  # name -> collectors, mode, processes
    "embedded": (1, "lockstep", False),
    "lockstep-1": (1, "lockstep", True), "lockstep-2": (2, "lockstep", True), "lockstep-4": (4, "lockstep", True),
    "async-1": (1, "async", True), "async-2": (2, "async", True), "async-4": (4, "async", True),
}  # fmt: skip
ON_RAY = {f"ray-{mode}-{n}": (n, mode) for mode in ("lockstep", "async") for n in (1, 2, 4)}
TORCHRL = [f"torchrl-{mode}-{n}" for mode in ("sync", "async") for n in (1, 2, 4)]
TORCHRL_PACKAGES = ("torchrl", "tensordict", "torch", "gymnasium", "mujoco")
PARAMS = f"""
import gymnasium
from envolve.distributed.files.params import TrainParamsBase

class TrainParams(TrainParamsBase):
    horizon, num_steps_per_iter = {STEPS}, {STEPS}
    n_buffer_init_episodes = {RANDOM_STEPS // STEPS}
    checkpoint_period = eval_period = log_period = 10**6
    n_eval_episodes = 1

    def env_ctor(self, seed, *args, **kwargs):
        return gymnasium.make("HalfCheetah-v5", **kwargs)
"""


class Meter:
    """Differences from the first mark to the last: environment steps, gradient steps, seconds, CPU seconds."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self.cpu, self.marks = cpu, []  # type: ignore[var-annotated]

    def mark(self, steps: int, updates: int) -> None:
        self.marks.append((steps, updates, time.monotonic(), self.cpu()))

    def result(self) -> dict[str, float]:
        steps, updates, seconds, cpu = (b - a for a, b in zip(self.marks[0], self.marks[-1]))
        return {
            "env steps/s": steps / seconds,
            "gradient steps/s": updates / seconds,
            "CPU ms per gradient step": 1e3 * cpu / updates,
            "cores": cpu / seconds,
        }


def sb3(iterations: int) -> dict[str, float]:
    import gymnasium
    from stable_baselines3 import SAC
    from stable_baselines3.common.callbacks import BaseCallback

    meter, first = Meter(time.process_time), RANDOM_STEPS + WARM_UP * STEPS

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps >= first and (self.num_timesteps - first) % STEPS == 0:
                meter.mark(self.num_timesteps, self.num_timesteps)
            return True

    policy = {"net_arch": [256, 256]}
    model = SAC(
        "MlpPolicy",
        gymnasium.make("HalfCheetah-v5"),
        learning_starts=RANDOM_STEPS,
        policy_kwargs=policy,
        device="cpu",
        seed=0,
    )
    model.learn(first + iterations * STEPS, callback=Watch())
    return meter.result()


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def is_program(pid: int) -> bool:
    """Whether it is a program of a run on Ray, and no process of Ray itself."""
    title = Path(f"/proc/{pid}/cmdline").read_bytes()
    return title.startswith((b"ray::RayRole", b"ray::RunHub", b"ray::Keeper"))


def family(ancestor: int) -> list[int]:
    """Ids of that process and all its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found = {ancestor}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return sorted(found)


class Watch:
    """Marks the iterations of a run whose hub is elsewhere. ``hub``: makes its client once it is there."""

    def __init__(self, meter: Meter, hub: Callable[[], Any], iterations: int) -> None:
        self.meter, self.hub, self.last = meter, hub, WARM_UP + iterations
        self.seen, self.next = WARM_UP, 0.0

    def __call__(self) -> None:
        hub = self.hub() if time.monotonic() >= self.next else None
        if hub is None or (self.meter.marks and self.seen >= self.last):
            return
        self.next = time.monotonic() + LOOK
        progress = hub.progress()
        # version v lies at the hub from its push on: then v iterations have been learned from
        version = progress.pushes - 2
        if version >= self.seen:
            self.meter.mark(progress.steps, version * STEPS)
            self.seen = version + 1


def made(scratch: str, settings: Any, iterations: int) -> tuple[Path, Any]:
    """The folder of a run, and its parameters."""
    from envolve.distributed.files.params_file import freeze
    from envolve.distributed.files.run_folder import keep_settings

    folder, file = Path(scratch) / "run", Path(scratch) / "params.py"
    file.write_text(PARAMS)
    params = freeze(folder, file, None, {"num_iter": WARM_UP + iterations})
    keep_settings(folder, settings)
    return folder, params


def on_ray(name: str, iterations: int) -> dict[str, float]:
    """CPU time is that of the programs, as elsewhere; that of Ray's own processes stands beside it."""
    from envolve.distributed.files.run_folder import RunSettings
    from envolve.distributed.ray import run as ray_run
    from envolve.distributed.ray.hub import RayHub
    from envolve.distributed.ray.programs import programs_of
    from envolve.outer.ray.cluster import connected

    collectors, mode = ON_RAY[name]
    settings = RunSettings(0, collectors, mode)
    with tempfile.TemporaryDirectory() as scratch:
        folder, _ = made(scratch, settings, iterations)
        programs = programs_of(collectors)
        with connected(None, sum(p.cpus for p in programs)):
            run = ray_run.Run(settings, folder, programs)
            hub = RayHub(run.hub)
            meter = Meter(lambda: cpu_of([pid for pid in family(os.getpid()) if is_program(pid)]))
            others = Meter(lambda: cpu_of([p for p in family(os.getpid()) if p != os.getpid() and not is_program(p)]))
            mark = meter.mark

            def both(steps: int, updates: int) -> None:
                mark(steps, updates)
                others.mark(steps, updates)

            meter.mark = both  # type: ignore[method-assign]
            if wrong := run.to_its_end(Watch(meter, lambda: hub, iterations)):
                raise SystemExit(f"{name}: {wrong}")
    return {**meter.result(), "CPU ms of Ray itself": others.result()["CPU ms per gradient step"]}


def ours(name: str, iterations: int) -> dict[str, float]:
    from envolve.distributed.engine.client import RemoteHub
    from envolve.distributed.files.run_folder import RunSettings
    from envolve.distributed.programs.cpus import deal
    from envolve.distributed.programs.launch import roles_of
    from envolve.distributed.programs.supervisor import Supervisor
    from envolve.distributed.programs.turns import LearnerProgram
    from envolve.experiments import train_distributed

    collectors, mode, processes = VARIANTS[name]
    settings = RunSettings(0, collectors, mode)
    with tempfile.TemporaryDirectory() as scratch:
        folder, params = made(scratch, settings, iterations)
        if not processes:
            meter, learn = Meter(time.process_time), LearnerProgram.learn

            def watched(program: LearnerProgram) -> bool:
                done = learn(program)
                if program.learner.version >= WARM_UP:
                    meter.mark(program.hub.progress().steps, program.learner.updates)
                return done

            LearnerProgram.learn = watched  # type: ignore[assignment, method-assign]
            train_distributed.embedded(params, settings, folder)
            return meter.result()
        supervisor = Supervisor(roles_of(folder, collectors, deal(collectors)), folder / "logs")
        meter = Meter(lambda: cpu_of(list(supervisor.pids().values())))
        hub = RemoteHub(folder, 60.0)
        watch = Watch(meter, lambda: hub if (folder / "hub.json").exists() else None, iterations)
        code = supervisor.run(watch)
        if code != 0:
            raise SystemExit(f"{name}: the run ended with exit code {code}")
        return meter.result()


def command_of(name: str, iterations: int, torchrl: str | None) -> list[str]:
    """Command that measures a variant in its own process and prints its figures last, as a line of JSON."""
    if name in TORCHRL:
        assert torchrl is not None
        peer = ROOT / "benchmarks" / "peers" / "torchrl_sac.py"
        return [torchrl, str(peer), name, "--iterations", str(iterations)]
    return [sys.executable, __file__, "--one", name, "--iterations", str(iterations)]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=4, help=f"of {STEPS} steps each, after the warm-up")
    parser.add_argument("--only", nargs="*", choices=["sb3", *VARIANTS, *ON_RAY, *TORCHRL], help="default: all")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    parser.add_argument("--torchrl", metavar="PYTHON", help="measure TorchRL, too")
    parser.add_argument("--one", choices=["sb3", *VARIANTS, *ON_RAY], help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.only is None:
        args.only = ["sb3", *VARIANTS, *(ON_RAY if installed() else []), *(TORCHRL if args.torchrl else [])]
    for name in args.only:
        if name in TORCHRL and not args.torchrl:
            parser.error(f"argument --only: found {name}, expected --torchrl PYTHON with it")
    return args


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    torch.set_num_threads(1)
    if args.one:
        measure = on_ray if args.one in ON_RAY else ours
        found = sb3(args.iterations) if args.one == "sb3" else measure(args.one, args.iterations)
        print(json.dumps(found))
        return
    figures: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for name in args.only:
        command = command_of(name, args.iterations, args.torchrl)
        done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}: failed")
        found = json.loads(done.stdout.splitlines()[-1])
        versions = found.pop("versions", versions)
        figures[name] = {**found, "load average": os.getloadavg()[0]}
        print(f"{name:16}" + "  ".join(f"{key} {value:.3g}" for key, value in figures[name].items()), flush=True)
    if versions:
        print("TorchRL's Python: " + ", ".join(f"{package} {number}" for package, number in versions.items()))
    if args.json:
        args.json.write_text(json.dumps({**figures, "versions": versions} if versions else figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
