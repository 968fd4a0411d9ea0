"""The process that trains one sample; ``train.py`` starts it by way of ``guard.py``.

FOLDER/job.json says what to do; FOLDER/out is all that it may write to. The user's class is trusted and imported first;
then the process locks itself up for good (``llm/vetting/jail/locks.py``), and only then is the model's
``compute_reward`` run, as the method of a subclass. Everything in ``out`` is therefore untrusted data to any process
that reads it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from envolve.core.child import ends_with_parent
from envolve.core.places import CODE
from envolve.llm.gym.learning import check, film, make_model, train
from envolve.llm.gym.method import UserError, feedback, load_class, with_reward
from envolve.llm.vetting.jail import locks as jail

NOT_MEASURED = ("TimeLimit.truncated", "lives")


class JobFile:
    """Content of job.json. env_file None: the benchmark, a registered environment with its own reward."""

    def __init__(self, folder: Path) -> None:
        self.values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        self.out = folder / "out"
        self.rl, self.training = self.values["rl"], self.values["rl"]["training"]
        self.notes: list[str] = []
        self.base: type | None = None
        self.names: dict[str, Any] = {}
        self.forks = self.training["multithreaded"] and self.training["num_envs"] > 1
        self.device = "cpu"
        self.pid = os.getpid()

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    def load(self) -> None:
        """Imports the user's code and later imports before the lock, while the whole disk is readable."""
        import stable_baselines3  # noqa: F401
        import torch.utils.tensorboard  # noqa: F401

        if self.values["env_file"]:
            self.base, self.names = load_class(Path(self.values["env_file"]), self.values["class_name"])
        else:
            import gymnasium

            gymnasium.make(self.values["env_id"]).close()  # imports its module
        self.device = self._device()

    @property
    def title(self) -> str:
        """Name of the environment."""
        return str(self.values["env_id"] if self.base is None else self.base.__name__)

    def _device(self) -> str:
        """Chooses the CPU in the jail: CUDA starts threads outside of the lock and needs files that the lock hides."""
        import torch

        asked = str(self.training["device"])
        if asked == "cpu":
            return asked
        if not torch.cuda.is_available():
            if asked != "auto":
                self.note(f"device: found no CUDA GPU for {asked!r}, so it trains on the CPU")
        elif self.values["allow_unprotected"] or jail.opted_out():
            torch.cuda.init()
            return "cuda" if asked == "auto" else asked
        elif asked != "auto":
            self.note(f"device: {asked!r} cannot be used by a jailed process, so it trains on the CPU")
        return "cpu"

    def lock(self) -> None:
        values, limits = self.values, self.values["limits"]
        # all of this project that is needed is imported by now; its folder may hold results and keys
        python = [p for p in jail.needed_to_import() if Path(p).resolve() not in (CODE, self.out.parent)]
        read = [*python, *values["read"]]
        held = jail.lock(
            read=read,
            write=[self.out],
            memory=None if self.device != "cpu" else limits["memory"],
            cpu_seconds=limits["cpu_seconds"],
            file_bytes=limits["file_bytes"],
            allow_unprotected=values["allow_unprotected"],
        )
        print(f"jail: {held}", flush=True)

    # ------------------------------------------------------------------------------------------------ environments

    def make_env(self, render_mode: str | None = None) -> Any:
        import gymnasium

        kwargs: dict[str, Any] = dict(self.values["kwargs"] or {})
        kwargs.update({"render_mode": render_mode} if render_mode else {})
        steps = self.values["max_episode_steps"]
        if self.base is None:
            return gymnasium.make(self.values["env_id"], max_episode_steps=steps, disable_env_checker=True, **kwargs)
        env = with_reward(self.base, self.values["code"], self.names)(**kwargs)
        return gymnasium.wrappers.TimeLimit(env, steps) if steps else env

    def wrapped(self, render_mode: str | None = None) -> Any:
        from stable_baselines3.common.monitor import Monitor

        env = self.make_env(render_mode)
        if self.training["is_atari"]:
            from stable_baselines3.common.atari_wrappers import AtariWrapper

            env = AtariWrapper(env, clip_reward=False)  # the sign of a shaped reward would be all that is left of it
        return Monitor(env)

    def vector(self, count: int, training: bool = False, render_mode: str | None = None) -> Any:
        """count environments behind Stable-Baselines3's VecEnv, frames stacked as asked."""
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

        if training and self.forks:
            # forked before this process locks itself up; each locks itself up, and answers before it runs model code
            envs: Any = SubprocVecEnv([self._locked_env] * count, start_method="fork")
        else:
            envs = DummyVecEnv([lambda: self.wrapped(render_mode)] * count)
        stack = self.training["state_stack"]
        return VecFrameStack(envs, stack) if stack > 1 else envs

    def _locked_env(self) -> Any:
        """Environment in a process of its own. The reason of its end goes to a file: Stable-Baselines3 passes on no
        exception."""
        ends_with_parent(signal.SIGKILL, self.pid)()  # a fork does not inherit that
        import gymnasium

        job = self

        class Reporting(gymnasium.Wrapper):
            def reset(self, **kwargs: Any) -> Any:
                return self.reported(lambda: super(Reporting, self).reset(**kwargs))

            def step(self, action: Any) -> Any:
                return self.reported(lambda: super(Reporting, self).step(action))

            def reported(self, call: Callable[[], Any]) -> Any:
                try:
                    return call()
                except Exception as e:
                    job.write("worker.json", failed(e, job))
                    raise

        self.lock()
        return Reporting(self.wrapped())

    # -------------------------------------------------------------------------------------------------- evaluation

    def episode_means(self, model: Any, envs: Any, episodes: int, seed: int) -> dict[str, float]:
        """Deterministic episodes, their seeds drawn from ``seed`` -> mean over episodes of the sums of every number in
        info, of the reward, and of the length. For the benchmark the reward is the fitness."""
        totals: list[dict[str, float]] = []
        for i in range(episodes):
            # drawn, so that seeds 5 and 10 have no episode in common
            envs.seed(int(np.random.SeedSequence((seed, i)).generate_state(1)[0] >> 1))
            observation, done, total = envs.reset(), False, dict.fromkeys(("reward", "episode_length"), 0.0)
            while not done:
                action, _ = model.predict(observation, deterministic=True)
                observation, rewards, dones, infos = envs.step(action)
                done = bool(dones[0])
                total["reward"] += float(rewards[0])
                total["episode_length"] += 1
                for key, value in infos[0].items():
                    if isinstance(value, (bool, int, float, np.number)) and key not in NOT_MEASURED:
                        total[key] = total.get(key, 0.0) + float(value)
            if self.base is None:
                total["fitness_score"] = total["reward"]
            elif "fitness_score" not in total:
                raise UserError("step returned an info without 'fitness_score'; see docs/gym_envs.md")
            if not math.isfinite(total["fitness_score"]):
                raise UserError(
                    f"compute_fitness_score summed up to {total['fitness_score']}, expected a finite number"
                )
            totals.append(total)
        names = list(dict.fromkeys(name for total in totals for name in total))
        return {name: float(np.mean([total.get(name, 0.0) for total in totals])) for name in names}

    def write(self, name: str, content: Any) -> None:
        """Writes atomically: the master may read at any time."""
        temporary = self.out / f".{name}.tmp"
        temporary.write_text(json.dumps(content), encoding="utf-8")
        os.replace(temporary, self.out / name)


def failed(error: BaseException, job: JobFile) -> dict[str, Any]:
    """Result of a job that raised. kind: whether the machine's owner, the user or the model can fix it."""
    kinds = {jail.JailError: "jail", UserError: "user"}
    kind = kinds.get(type(error), "user" if job.values["mode"] == "check" else "reward")  # type: ignore[arg-type]
    return {"error": str(error) if type(error) in kinds else feedback(error, job.values["env_file"]), "kind": kind}


def work(job: JobFile) -> dict[str, Any]:
    """Runs one job, from the import of the user's class to its result; never raises."""
    try:
        import torch

        torch.set_num_threads(1)
        job.load()
        forked = job.vector(job.training["num_envs"], training=True) if job.forks else None
        job.lock()
        if job.values["mode"] == "film":
            return film(job)
        if job.values["mode"] == "check":
            return check(job)
        return train(job, make_model(job, forked or job.vector(job.training["num_envs"], training=True)))
    except (EOFError, ConnectionError, BrokenPipeError) as e:
        worker = job.out / "worker.json"
        if worker.exists():
            reported: dict[str, Any] = json.loads(worker.read_text(encoding="utf-8"))
            return reported
        return failed(e, job)
    except Exception as e:
        traceback.print_exc()
        return failed(e, job)


def main(folder: Path) -> NoReturn:
    job = JobFile(folder)
    result = work(job)
    job.write("result.json", {**result, "notes": list(dict.fromkeys(job.notes))})
    for empty in job.out.glob("torchinductor_*"):  # PyTorch makes it at import
        with contextlib.suppress(OSError):
            empty.rmdir()
    sys.stdout.flush()
    os._exit(1 if "error" in result else 0)  # forked environments, TensorBoard's threads: nothing of them is waited for
