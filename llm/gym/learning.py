"""Stable-Baselines3 for one job in the locked process: training, evaluations, and the final test with a video."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.llm.gym.method import UserError
from envolve.outer.film.tiles import below

if TYPE_CHECKING:
    from envolve.llm.gym.jailed import JobFile


def train(job: JobFile, model: Any) -> dict[str, Any]:
    """Trains, evaluates at num_evals points, saves model.zip -> the result."""
    from stable_baselines3.common.callbacks import BaseCallback

    asked, total = job.training["eval"], job.training["total_timesteps"]
    envs = job.vector(1)
    curves: dict[str, list[float | None]] = {"timesteps": []}

    class Evaluate(BaseCallback):
        """Evaluates every total/num_evals steps, the last time after the last update."""

        done = 0

        def _on_step(self) -> bool:
            while (
                self.done < asked["num_evals"] - 1
                and self.num_timesteps >= (self.done + 1) * total / asked["num_evals"]
            ):
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


def check(job: JobFile) -> dict[str, Any]:
    """Checks the user's environment against docs/gym_envs.md with a few random steps."""
    envs = job.vector(1)
    envs.reset()
    for _ in range(3):
        _, _, _, infos = envs.step(np.array([envs.action_space.sample()]))
        if "fitness_score" not in infos[0]:
            raise UserError("step returned an info without 'fitness_score'; see docs/gym_envs.md")
    spaces = {"observation": str(envs.observation_space), "action": str(envs.action_space)}
    make_model(job, envs)
    return {"spaces": spaces}


def make_model(job: JobFile, envs: Any) -> Any:
    """Stable-Baselines3's algorithm as configured, optionally with the weights of an earlier model."""
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
    """Loads the weights of an earlier model.zip, but none of its Python objects -> description of what was done."""
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


def film(job: JobFile) -> dict[str, Any]:
    """Final test of the best model: ``evaluation.num_episodes`` episodes, the first as a GIF."""
    asked = job.rl["evaluation"]
    envs = job.vector(1)
    model = make_model(job, envs)
    means = job.episode_means(model, envs, asked["num_episodes"], asked["seed"])
    job.write("eval.json", {"num_episodes": asked["num_episodes"], "seed": asked["seed"], **means})
    if asked["save_gif"]:
        try:
            shown = job.vector(1, render_mode="rgb_array")
            said = (
                f"{job.title}, seed {asked['seed']}",
                f"fitness {means['fitness_score']:.4g}, mean of " + (f"{asked['num_episodes']} episodes"),
            )
            frames = _frames(model, shown, asked["seed"], said)
            import imageio.v2 as imageio

            imageio.mimsave(job.out / "eval.gif", frames, duration=1000 / 30, loop=0)
        except Exception as e:  # no pygame, no render_mode: the figures are worth having without the picture
            job.note(f"no GIF: {type(e).__name__}: {e}")
    return {"final": means, "episodes": asked["num_episodes"]}


def _frames(model: Any, envs: Any, seed: int, said: tuple[str, str], most: int = 600) -> list[np.ndarray]:
    """Every other frame of one episode, at most ``most``, at half its size, with two lines below it and the step."""
    envs.seed(seed)
    frames: list[np.ndarray] = []
    observation, done, step = envs.reset(), False, 0
    while not done and len(frames) < most:
        if step % 2 == 0:
            picture = envs.get_images()[0]
            if picture is None:
                raise RuntimeError("render() returned no picture")
            frames.append(below(np.ascontiguousarray(picture[::2, ::2]), said[0], f"step {step}, {said[1]}"))
        action, _ = model.predict(observation, deterministic=True)
        observation, _, dones, _ = envs.step(action)
        done, step = bool(dones[0]), step + 1
    return frames
