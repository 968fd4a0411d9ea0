"""A small folder of each kind of run, written as the commands write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.world import init_world
from envolve.outer.goals.log import Score, header, to_csv
from envolve.outer.hpo.trial_log import TrialLog
from tests.outer.hpo.trials import values as drawn

HEAD = "# Resolved configuration: every value that the run used.\n# python: 3.11.7\n# command: envolve run x.yaml\n\n"
SUMMARY = """\
Cliff, reward network: SOLVED (mean return of at least -20.0)
  6 generations, 13 s, 1,135,901 environment steps of all agents together

  ql agents trained                     in the evolved world   in the real task
  training steps until the rule fires   1,239 [1,223, 1,255]   1,493 [1,473, 1,505]
  test return, real task                -12.0 (20 of 20)       -12.0 (20 of 20)
  An agent needs 1.2 times fewer training steps in the evolved world.
  Price with the evolution: 2,967,241 real steps were spent on evolving; this has paid after 11,719 agents.
"""


def run(folder: Path) -> Path:
    """A reward network for Cliff."""
    folder.mkdir()
    (folder / "config.yaml").write_text(
        HEAD + "seed: 0\nenv_name: Cliff\nagents:\n  gtn: {agent_name: QL, synthetic_env_type: 1, max_iterations: 6, "
        "rn_objective: reward_threshold}\nenvs:\n  Cliff: {reward_env_type: 2}\n"
    )
    rng = np.random.default_rng(0)
    rows = ["generation,member,role,score,mean_return,train_steps,episodes,reason"]
    for g in range(1, 7):
        for m, role in enumerate(["orig"] * 2 + ["plus", "minus"] * 4):
            score = 10 * g - 1500 + rng.normal() * 30
            failed = m == 9 and g == 2
            rows.append(f"{g},{m},{role},{'nan' if failed else score:},-12,{-score:.0f},50,{'a NaN' * failed}")
    (folder / "scores.csv").write_text("\n".join(rows) + "\n")
    (folder / "summary.txt").write_text(SUMMARY)
    agents = {"returns": [-12.0, None, -13.0], "steps": [1200, 1300, 9000]}
    (folder / "comparison.json").write_text(json.dumps({"in the evolved world": agents, "in the real task": agents}))
    section, task = EnvSection(reward_env_type=2, solved_reward=-20.0), make_task("Cliff")
    flat = init_world("rn", task, section, torch.zeros(1, dtype=torch.int64))[0]
    config: dict[str, Any] = {
        "env_name": "Cliff",
        "envs": {"Cliff": {"reward_env_type": 2, "solved_reward": -20.0}},
        "agents": {"gtn": {"agent_name": "QL", "synthetic_env_type": 1}, "ql": {"gamma": 0.8}},
    }
    save_world(str(folder / "model.pt"), "rn", "Cliff", flat, config)
    return folder


def evolve(folder: Path) -> Path:
    """As ``run``, with the report of ``envolve evolve``."""
    run(folder)
    figure = {"mean_return": 78.5, "interval": [70.0, 80.0], "train_steps": 2048, "agents": 2, "failed": 0}
    places = {"world": figure, "real": figure, "real_10x": {**figure, "interval": None}}
    (folder / "report.json").write_text(
        json.dumps(
            {
                "env": "gymnasium:CartPole-v1",
                "verdict": "The world helped: ppo returns 78.5.",
                "share": 0.95,
                "random": {**figure, "mean_return": 20.0},
                "unseen": {"ppo": places, "a2c": {"world": {"mean_return": None}}},
                "real_steps_of": {"measuring": 10, "evolution": 100},
            }
        )
    )
    return folder


def shapers(folder: Path) -> Path:
    folder.mkdir()
    curve = {"steps": [10, 20, 30], "score": [0.1, 0.2, None], "reward": [1.0, 2.0, 3.0]}
    common = {
        "shapers": ["compute_reward"],
        "curve": curve,
        "components": {"upright": [1.0, 2.0, 3.0]},
        "failed": False,
    }
    rows = [
        {"name": "mine", "rank": 1, "score": 0.9, "interval": [0.7, 0.95], **common},
        {"name": "human", "rank": 2, "score": 0.8, "interval": [0.6, 0.9], **common, "shapers": []},
        {"name": "bad", "rank": None, "score": None, "interval": None, **common, "failed": True,
         "reason": "NaN in 3 of 8", "traceback": "line 1"},
    ]  # fmt: skip
    content = {"task": "Cartpole", "score_unit": "share of the time limit", "complete": True, "candidates": rows,
               "settings": {"learner": "ppo", "seeds": 1, "num_envs_per_shaper": 64},
               "versions": {"python": "3.11"}}  # fmt: skip
    (folder / "candidates.json").write_text(json.dumps(content))
    (folder / "ranking.txt").write_text("a table\n")
    return folder


def study(folder: Path) -> Path:
    """Without study.yaml, as hpbandster leaves it."""
    from tests.outer.hpo.trials import record

    folder.mkdir()
    log, rng = TrialLog(folder), np.random.default_rng(0)
    for k in range(24):
        values = drawn(rng)
        loss = float("inf") if k == 5 else float(values["agents.gtn.step_size"]) * 10 + (10_000 if k == 7 else 0)
        log.append(record(k, (0, 0, k), values, (5.0, 15.0)[k % 2], loss))
    return folder


def goal(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text(
        HEAD + "run: {env_name: reacher, agent: crl, population: 2}\nlearner: {h_dim: 64}\nper_member: {}\n"
    )
    scores = [
        Score(e, e * 100, e * 10, m, 128, 0.1 * e + 0.01 * m, 0.0, 0.9, 5.0 * e + m, 1.0, 90.0, 0.1, 1e3,
              (0.5, float("nan")))
        for e in range(3) for m in range(2)
    ]  # fmt: skip
    (folder / "scores.csv").write_text(",".join(header(("critic_loss", "alpha"))) + "\n" + to_csv(scores))
    (folder / "summary.txt").write_text("done\n")
    return folder


def goals(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text(
        HEAD + "inner: {env_name: simple_u_maze, agent: crl, num_timesteps: 5000}\n"
        "evolve: {goal_family: cells, generations: 3, score: success}\n"
    )
    (folder / "generations.csv").write_text(
        'generation,score,plain,perturbed,best,diverged,"u cell 1,1"\n0,0.1,0.1,0.2,0.3,0,0\n1,0.2,0.1,0.2,0.3,1,0.3\n'
    )
    (folder / "summary.txt").write_text(
        "x\n16 fresh agents each   evolved 0.01 [0.00, 0.06]   plain 0.00   difference +0.01\n"
    )
    return folder


def distributed(folder: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    folder.mkdir()
    (folder / "run.json").write_text('{"seed": 0, "num_collectors": 2, "mode": "lockstep"}')
    (folder / "config.json").write_text('{"env": {"name": "reacher"}}')
    (folder / "params.py").write_text("class TrainParams: pass\n")
    (folder / "evaluations.csv").write_text(
        "step,member,episodes,mean_return,std_return,mean_length,success\n0,0,5,1,0.5,100,0\n40,0,5,27,3,100,1\n"
    )
    writer = SummaryWriter(str(folder / "learner"))
    for step in range(4):
        writer.add_scalar("critic_loss", 1.0 / (step + 1), step)
    writer.close()
    return folder


def paper(folder: Path) -> Path:
    from envolve.experiments.paper.common.data import Data, data_path, save

    series: dict[str, Any] = {
        "mode 2": {"return": [1.0, 2.0, 3.0], "train_steps": [10, 20, 30], "failed": ["", "", "NaN"],
                   "episode_return": [[1.0, 2.0], [2.0], [3.0]], "episode_length": [[1, 2], [2], [3]]},
        "task": {"return": [1.0, 1.0], "train_steps": [40, 50], "scores": [1.0, 2.0, 3.0]},
    }  # fmt: skip
    save(
        data_path(folder, "compare_proxies", "Cliff"), Data("compare_proxies", "Cliff", {"seed": 0}, True, series, 3.0)
    )
    return folder / "paper"


def worlds(folder: Path) -> Path:
    folder.mkdir()
    runs = [{"seed": s, "score": -1252.5 + s, "solved": True, "mean_return": -12.0, "generations": 10,
             "real_steps": 70_000,
             "error": ""} for s in range(3)]  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"task": "Cliff", "mode": 2, "objective": "auc", "runs": runs}))
    run(folder / "seed0")
    return folder


def write(folder: Path) -> Path:
    from tests.llm.attempts import evolution
    from tests.llm.reporting.runs import write_run

    return write_run(folder, evolution(3, 4))


def gym(folder: Path) -> Path:
    """Rewards for a user's environment: two iterations, in the first of which one is refused and one fails."""
    from envolve.llm.gym.sample import Sample

    folder.mkdir()
    config = {"eureka": {"model": "gpt-4o", "samples": 3, "iterations": 2}, "environment": {"name": "walk"}}
    (folder / "config.json").write_text(json.dumps(config))
    curves = {"timesteps": [10, 20], "reward": [0.1, None, 2], "speed": [1, 2, 3], "fitness_score": [0.1, 0.2, 0.3]}
    for iteration in range(2):
        for k in range(3):
            s = Sample(iteration, k, folder / "code" / f"iteration_{iteration}" / f"sample_{k}")
            s.code = f"def compute_reward(x):\n    return x + {iteration}{k}\n"
            s.reply = f"```python\n{s.code}```"
            if (iteration, k) == (0, 1):
                s.fail("allowlist", "line 2: found import os, expected none")
            elif (iteration, k) == (0, 2):
                s.fail("reward", "the total reward is nan")
            else:
                s.fitness, s.curves, s.timesteps = 10.0 * iteration + k, curves, 3000
            s.save()
    own = Sample(0, 0, folder / "benchmark")
    own.fitness, own.timesteps = 7.5, 3000
    own.save()
    best = {"score": 11.5, "iteration": 1, "number": 2}
    (folder / "result.json").write_text(json.dumps({"environment": "walk", "best": best}))
    (folder / "best_reward.py").write_text("def compute_reward(x):\n    return x + 12\n")
    (folder / "eval.json").write_text(json.dumps({"num_episodes": 5, "reward": 11.5, "episode_length": 10.0}))
    return folder


ALL = {f.__name__: f for f in (run, evolve, shapers, study, goal, goals, distributed, paper, worlds, write, gym)}
