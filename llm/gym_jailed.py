"""The process that trains one sample: ``python -m llm.gym_jailed FOLDER``, started by ``llm/gym_train.py``.

FOLDER/job.json says what to do; FOLDER/out is all that it may write to. The user's class is trusted and imported first;
then the process locks itself up for good (``llm/jail.py``), and only then is the model's ``compute_reward`` run, as the
method of a subclass. Everything in ``out`` is therefore data from a stranger to whoever reads it.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import importlib.util
import json
import linecache
import logging
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from llm import jail
from llm.gym_reward import BUILTINS, MEMORY, METHOD

REWARD_FILE = "compute_reward.py"  # what tracebacks call the model's code
RESERVED = ("fitness_score", "reward", "episode_length")
NOT_MEASURED = ("TimeLimit.truncated", "lives")
MAX_COMPONENTS, MAX_ERROR = 64, 4_000
log = logging.getLogger("envolve")


class UserError(Exception):
    """The user's environment is not what docs/gym_envs.md asks for: no model can mend that."""


class BadReward(Exception):
    """What compute_reward returned is no reward."""


# ------------------------------------------------------------------------------------------------------- the user's class


def load_class(env_file: Path, class_name: str) -> tuple[type, dict[str, Any]]:
    """-> the class of env.py, and the plain values of its module that a reward may name (FPS, TERRAIN_LENGTH, ...)."""
    sys.path.insert(0, str(env_file.parent))  # other files and folders of env_code can be imported by their names
    spec = importlib.util.spec_from_file_location("user_env", env_file)
    if spec is None or spec.loader is None:
        raise UserError(f"{env_file}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_env"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise UserError(f"{env_file}: {type(e).__name__}: {e}") from e
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == "user_env"]
        raise UserError(f"{env_file}: found no class {class_name!r}, expected one of {', '.join(classes) or 'any'}")
    plain = (bool, int, float, str, tuple, np.ndarray)
    return found, {k: v for k, v in vars(module).items() if isinstance(v, plain) and not k.startswith("_")}


class _Runnable(ast.NodeTransformer):
    """``x += y`` becomes ``x = x + y``, which cannot change what x also is elsewhere; annotations and imports go."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        now = ast.Name(node.target.id, ast.Load())
        return ast.copy_location(ast.Assign([node.target], ast.BinOp(now, node.op, node.value)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns, node.decorator_list = None, []
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else ast.Pass()

    def visit_Import(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    visit_ImportFrom = visit_Import


def compile_method(code: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Run the model's code -> its function compute_reward. Only in the jail."""
    linecache.cache[REWARD_FILE] = (len(code), None, code.splitlines(keepends=True), REWARD_FILE)
    tree = ast.fix_missing_locations(_Runnable().visit(ast.parse(code)))
    namespace: dict[str, Any] = {"__builtins__": {n: getattr(builtins, n) for n in BUILTINS}, **names}
    namespace.update(np=np, numpy=np, math=math)
    exec(compile(tree, REWARD_FILE, "exec"), namespace)
    function: Callable[..., Any] = namespace[METHOD]
    return function


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return type(value)(value) if type(value) in (list, dict, set) else value


class _View:
    """``self`` as compute_reward sees it: attributes can be read, arrays and lists are copies."""

    __slots__ = ("_env",)

    def __init__(self, env: Any) -> None:
        object.__setattr__(self, "_env", env)

    def __getattr__(self, name: str) -> Any:
        env = object.__getattribute__(self, "_env")
        return env._reward_memory if name == MEMORY else _copied(getattr(env, name))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"compute_reward must not change the environment; use self.{MEMORY}[{name!r}]")


def checked_reward(returned: Any) -> tuple[float, dict[str, float]]:
    """(total, components) as plain finite numbers. Raises BadReward."""
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], dict):
        what = f"a {type(returned).__name__}" + (f" of {len(returned)}" if isinstance(returned, tuple) else "")
        raise BadReward(f"compute_reward returned {what}, expected (total, components): a number and a dict of numbers")
    total, parts = returned
    if len(parts) > MAX_COMPONENTS:
        raise BadReward(f"compute_reward returned {len(parts)} components, expected at most {MAX_COMPONENTS}")
    for name in parts:
        if not isinstance(name, str) or not name or len(name) > 64:
            raise BadReward(f"a component is called {name!r:.80}, expected a text of at most 64 characters")
        if name in RESERVED:
            raise BadReward(f"a component is called {name!r}, which has a meaning of its own: choose another name")
    return _number("the total reward", total), {k: _number(f"the component {k!r}", v) for k, v in parts.items()}


def _number(what: str, value: Any) -> float:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise BadReward(f"{what} is a {type(value).__name__}, expected a number") from None
    if array.size != 1:
        raise BadReward(f"{what} has shape {array.shape}, expected one number")
    number = float(array.reshape(()))
    if not math.isfinite(number):
        raise BadReward(f"{what} is {number}, expected a finite number")
    return number


def with_reward(base: type, code: str, names: dict[str, Any]) -> type:
    """A subclass of the user's class whose compute_reward is the model's. It is first run at the first reset: until then
    the process that a forked environment answers may not be locked up yet."""

    class WithReward(base):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._reward_memory: dict[Any, Any] = {}
            self._reward: Callable[..., Any] | None = None
            super().__init__(*args, **kwargs)

        def reset(self, **kwargs: Any) -> Any:
            self._reward_memory.clear()
            if self._reward is None:
                self._reward = compile_method(code, names)
            return super().reset(**kwargs)

        def compute_reward(self, *args: Any, **kwargs: Any) -> tuple[float, dict[str, float]]:
            if self._reward is None:
                raise UserError("compute_reward was called before reset")
            seen = [_copied(a) for a in args], {k: _copied(v) for k, v in kwargs.items()}
            return checked_reward(self._reward(_View(self), *seen[0], **seen[1]))

    WithReward.__name__ = WithReward.__qualname__ = base.__name__
    return WithReward


# ------------------------------------------------------------------------------------------------------------------ job


class Job:
    """What job.json asks for. env_file None: the benchmark, a registered environment with its own reward."""

    def __init__(self, folder: Path) -> None:
        self.values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        self.out = folder / "out"
        self.rl, self.training = self.values["rl"], self.values["rl"]["training"]
        self.notes: list[str] = []
        self.base: type | None = None
        self.names: dict[str, Any] = {}
        self.forks = self.training["multithreaded"] and self.training["num_envs"] > 1
        self.device = "cpu"

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    def load(self) -> None:
        """Import the user's code, and what will be imported later: before the lock, while all of the disk is there."""
        import stable_baselines3  # noqa: F401
        import torch.utils.tensorboard  # noqa: F401

        if self.values["env_file"]:
            self.base, self.names = load_class(Path(self.values["env_file"]), self.values["class_name"])
        else:
            import gymnasium

            gymnasium.make(self.values["env_id"]).close()  # imports its module
        self.device = self._device()

    def _device(self) -> str:
        """CUDA starts threads that the lock would not hold, and needs files that it shuts: CPU in the jail."""
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
        read = [*jail.needed_to_import(), *values["read"]]
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
        """Of a process of its own: why it ends goes to a file, as Stable-Baselines3 passes on no exception."""
        import gymnasium

        job = self

        class Reporting(gymnasium.Wrapper):  # type: ignore[type-arg]
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
        """Deterministic episodes, seeded seed, seed+1, ... -> mean over episodes of the sums of every number in info, of
        the reward, and of the length. For the benchmark the reward is the fitness."""
        totals: list[dict[str, float]] = []
        for i in range(episodes):
            envs.seed(seed + i)
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
                raise UserError(f"compute_fitness_score summed up to {total['fitness_score']}, expected a finite number")
            totals.append(total)
        names = list(dict.fromkeys(name for total in totals for name in total))
        return {name: float(np.mean([total.get(name, 0.0) for total in totals])) for name in names}

    def write(self, name: str, content: Any) -> None:
        """All or nothing: the master may look at any time."""
        temporary = self.out / f".{name}.tmp"
        temporary.write_text(json.dumps(content), encoding="utf-8")
        os.replace(temporary, self.out / name)


# ------------------------------------------------------------------------------------------------------------- training


def train(job: Job, model: Any) -> dict[str, Any]:
    """Learn, evaluate at num_evals points, save model.zip -> the result."""
    from stable_baselines3.common.callbacks import BaseCallback

    asked, total = job.training["eval"], job.training["total_timesteps"]
    envs = job.vector(1)
    curves: dict[str, list[float | None]] = {"timesteps": []}

    class Evaluate(BaseCallback):
        """Every total/num_evals steps; the last one after the last update."""

        done = 0

        def _on_step(self) -> bool:
            while self.done < asked["num_evals"] - 1 and self.num_timesteps >= (self.done + 1) * total / asked["num_evals"]:
                self.measure()
            return True

        def _on_training_end(self) -> None:
            self.measure()

        def measure(self) -> None:
            self.done += 1
            means = job.episode_means(self.model, envs, asked["num_episodes"], asked["seed"])
            before = len(curves["timesteps"])
            curves["timesteps"].append(self.num_timesteps)
            for name in [*means, *(n for n in curves if n not in means and n != "timesteps")]:
                curves.setdefault(name, [None] * before).append(means.get(name))
            job.write("evals.json", curves)
            self.logger.record("eval/mean_reward", means["reward"])
            self.logger.record("eval/mean_ep_length", means["episode_length"])
            self.logger.record("eval/fitness_score", means["fitness_score"])
            self.logger.dump(self.num_timesteps)
            print(f"{self.num_timesteps} steps: fitness {means['fitness_score']:.6g}", flush=True)

    start = time.monotonic()
    model.learn(total, callback=Evaluate(), tb_log_name="tensorboard")
    seconds = time.monotonic() - start
    model.save(job.out / "model.zip")
    # what samples are compared by: more episodes than a point of the curve has, none of the seeds of the last judgement
    episodes = max(asked["num_episodes"], job.rl["evaluation"]["num_episodes"])
    final = job.episode_means(model, envs, episodes, asked["seed"])
    return {"final": final, "episodes": episodes, "timesteps": int(model.num_timesteps), "seconds": seconds}


def check(job: Job) -> dict[str, Any]:
    """A few random steps in the user's environment: is it what docs/gym_envs.md asks for?"""
    envs = job.vector(1)
    envs.reset()
    for _ in range(3):
        _, _, _, infos = envs.step(np.array([envs.action_space.sample()]))
        if "fitness_score" not in infos[0]:
            raise UserError("step returned an info without 'fitness_score'; see docs/gym_envs.md")
    spaces = {"observation": str(envs.observation_space), "action": str(envs.action_space)}
    make_model(job, envs)
    return {"spaces": spaces}


def make_model(job: Job, envs: Any) -> Any:
    """Stable-Baselines3's algorithm as the configuration says, with the weights of an earlier model where asked."""
    import stable_baselines3
    import torch

    name, shape = job.rl["algo"], job.rl["architecture"]
    policy: dict[str, Any] = {}
    if shape["net_arch"] is not None:
        policy["net_arch"] = shape["net_arch"]
    if shape["activation_fn"] is not None:
        policy["activation_fn"] = getattr(torch.nn, shape["activation_fn"])
    if shape["share_features_extractor"] is not None:
        if name == "dqn":
            job.note("architecture.share_features_extractor: DQN has one network, so there is nothing to share")
        else:
            policy["share_features_extractor"] = shape["share_features_extractor"]
    if job.training["torch_compile"]:
        job.note("torch_compile: it would start a compiler, which a jailed process cannot do, so it is not used")
    params = dict(job.values["algo_params"])
    model = getattr(stable_baselines3, name.upper())(
        params.pop("policy"),
        envs,
        policy_kwargs=policy or None,
        seed=job.values["seed"],
        device=job.device,
        tensorboard_log=str(job.out),
        **params,
    )
    if job.values["warm_start"]:
        job.note(warm_start(model, Path(job.values["warm_start"]), job.device))
    return model


def warm_start(model: Any, path: Path, device: str) -> str:
    """Take over the weights of an earlier model.zip, none of its Python objects -> what was done, in words."""
    from stable_baselines3.common.save_util import load_from_zip_file

    _, saved, _ = load_from_zip_file(path, device=device, load_data=False)  # tensors only
    mine = model.get_parameters()
    for part, state in mine.items():
        for key, value in state.items():
            theirs = saved.get(part, {}).get(key)
            shape = getattr(value, "shape", None)
            if shape is not None and getattr(theirs, "shape", None) != shape:
                found = "missing" if theirs is None else f"of shape {tuple(theirs.shape)}"
                return f"warm start: not done: {part}.{key} is {found} in {path.name}, expected {tuple(shape)}"
    model.set_parameters(saved, exact_match=True, device=device)
    return f"warm start: from {path.name} of the best sample so far"


def film(job: Job) -> dict[str, Any]:
    """The judgement of the best model: ``evaluation.num_episodes`` episodes, the first as a GIF."""
    asked = job.rl["evaluation"]
    envs = job.vector(1)
    model = make_model(job, envs)
    means = job.episode_means(model, envs, asked["num_episodes"], asked["seed"])
    job.write("eval.json", {"num_episodes": asked["num_episodes"], "seed": asked["seed"], **means})
    if asked["save_gif"]:
        try:
            shown = job.vector(1, render_mode="rgb_array")
            frames = _frames(model, shown, asked["seed"])
            import imageio.v2 as imageio

            imageio.mimsave(job.out / "eval.gif", frames, duration=1000 / 30, loop=0)
        except Exception as e:  # no pygame, no render_mode: the figures are worth having without the picture
            job.note(f"no GIF: {type(e).__name__}: {e}")
    return {"final": means, "episodes": asked["num_episodes"]}


def _frames(model: Any, envs: Any, seed: int, most: int = 600) -> list[np.ndarray]:
    """Every other frame of one episode, at most ``most``, at half its size."""
    envs.seed(seed)
    observation, frames, done, step = envs.reset(), [], False, 0
    while not done and len(frames) < most:
        if step % 2 == 0:
            picture = envs.get_images()[0]
            if picture is None:
                raise RuntimeError("render() returned no picture")
            frames.append(np.asarray(picture)[::2, ::2])
        action, _ = model.predict(observation, deterministic=True)
        observation, _, dones, _ = envs.step(action)
        done, step = bool(dones[0]), step + 1
    return frames


# --------------------------------------------------------------------------------------------------------------- errors


def failed(error: BaseException, job: Job) -> dict[str, Any]:
    """The result of a job that raised. kind: who can mend it: the machine's owner, the user or the model."""
    kinds = {jail.JailError: "jail", UserError: "user"}
    kind = kinds.get(type(error), "user" if job.values["mode"] == "check" else "reward")  # type: ignore[arg-type]
    return {"error": str(error) if type(error) in kinds else feedback(error, job.values["env_file"]), "kind": kind}


def feedback(error: BaseException, env_file: str | None = None) -> str:
    """The traceback as far as it is about the model's code or the user's, and the message: what the model is told."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in (REWARD_FILE, env_file)]
    for frame in frames:
        frame.filename = Path(frame.filename).name
    text = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    if isinstance(error, MemoryError) and not error.args:
        error = MemoryError("it needs more memory than it may have")
    text += traceback.format_exception_only(type(error), error)
    return "".join(text).replace("__main__.", "").replace("llm.gym_jailed.", "").strip()[:MAX_ERROR]


def work(job: Job) -> dict[str, Any]:
    """One job from the import of the user's class to its result, which is never an exception."""
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
    job = Job(folder)
    result = work(job)
    job.write("result.json", {**result, "notes": list(dict.fromkeys(job.notes))})
    sys.stdout.flush()
    os._exit(1 if "error" in result else 0)  # forked environments, TensorBoard's threads: nothing of them is waited for


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends when the master does
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    main(Path(sys.argv[1]).resolve())
