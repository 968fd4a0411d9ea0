"""Evolution of goals and starts as a command: scores of its members, chunks, workers, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from envolve.envs.goal.shapers import ShapeSpace
from envolve.envs.goal.task import make_goal_task
from envolve.experiments import evolve_goals
from envolve.experiments.evolve_goals import build_parser, make_plan
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.evaluate.goals import train, world_of
from envolve.outer.evaluate.networks import evaluate
from envolve.outer.exchange.in_process import InProcess
from envolve.outer.goals.keeper import CHECKPOINT, GENERATIONS
from envolve.outer.goals.members import GoalMembers
from envolve.outer.search.nes import Population

TINY = ["--task", "simple_u_maze", "--goal_family", "cells", "--start_family", "point", "--episode_length", "12",
        "--num_envs", "4", "--batch_size", "16", "--h_dim", "8", "--repr_dim", "4", "--unroll_length", "5",
        "--min_replay_size", "10", "--max_replay_size", "40", "--num_timesteps", "60", "--num_eval_envs", "6",
        "--threads", "1", "--num_workers", "2", "--num_orig_evals", "2", "--generations", "3",
        "--comparison_agents", "2", "--score", "distance"]  # fmt: skip


def test_scores_are_of_the_member_and_its_numbers() -> None:
    """A member's score is the same with others beside it; plain members do not see u; evaluation is the task's own."""
    words = [*TINY, "--policy_lr", "1e-2", "--critic_lr", "1e-2", "--num_timesteps", "200"]
    plan = make_plan(
        {
            k: v
            for k, v in vars(build_parser().parse(words)).items()
            if v is not None and k not in ("resume", "results_dir")
        }
    )
    space = ShapeSpace(make_goal_task("simple_u_maze"), "cells", "point")
    u = torch.randn(4, len(space.names), generator=torch.Generator().manual_seed(0)) * 3
    keys, plain = torch.tensor([7, 7, 8, 7]), torch.tensor([False, True, False, True])
    _, scores = train(plan, u, keys, plain)
    assert scores[1] == pytest.approx(scores[3], abs=1e-3) and abs(scores[0] - scores[1]) > 0.01
    _, alone = train(plan, u[:1], keys[:1], plain[:1])
    assert alone[0] == pytest.approx(scores[0], abs=4e-3) and (scores < 0).all()


def outcome(folder: Path) -> tuple[str, bytes]:
    """All that a search decides, without the summary's clock."""
    return (folder / GENERATIONS).read_text(), (folder / CHECKPOINT).read_bytes()


def test_members_in_chunks(tmp_path: Path) -> None:
    """The chunks decide the bits, and a configuration says all that a worker needs; a chunk that fails is said."""
    words = [*TINY, "--chunk_size", "3", "--generations", "1"]
    plan = make_plan(
        {
            k: v
            for k, v in vars(build_parser().parse(words)).items()
            if v is not None and k not in ("resume", "results_dir")
        }
    )
    space, seen = plan.space(), []

    def counted(config: dict, worlds: Tensor, seeds: Tensor, mode: str) -> dict:
        seen.append(len(seeds))
        if len(seen) == 6:
            raise RuntimeError("out of something")
        return evaluate(json.loads(json.dumps(config)), worlds, seeds, mode)

    members = GoalMembers(plan, InProcess(counted))
    u = torch.randn(5, len(space.names), generator=torch.Generator().manual_seed(0))
    keys, plain = torch.arange(5), torch.tensor([False, True, False, False, True])
    population = Population(world_of(u, plain), keys, ["any"] * 5, np.full(5, -1))
    scores = members(1, population).scores
    assert seen == [3, 2] and scores.shape == (5,) and (scores < 0).all()
    _, first = train(plan, u[:3], keys[:3], plain[:3])
    _, rest = train(plan, u[3:], keys[3:], plain[3:])
    assert scores.tolist() == [*first.tolist(), *rest.tolist()]
    assert members(2, population).scores.tolist() == scores.tolist()
    with pytest.raises(RuntimeError, match="out of something"):
        members(3, population)


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_run(tmp_path: Path) -> None:
    """In this process, by one worker, by two, and interrupted: as many chunks, the same bytes."""
    words = [*TINY, "--chunk_size", "4"]
    folders = [tmp_path / name for name in ("here", "one", "two", "resumed")]
    for folder, own in zip(folders, ([], ["--workers", "1"], ["--workers", "2"])):
        assert evolve_goals.main([*words, *own, "--run-dir", str(folder)]) == 0
        assert (folder / "sync").exists() == bool(own)
    assert (
        evolve_goals.main([*words, "--generations", "1", "--comparison_agents", "2", "--run-dir", str(folders[3])]) == 0
    )
    text = (folders[3] / "config.yaml").read_text().replace("generations: 1", "generations: 3")
    (folders[3] / "config.yaml").write_text(text)
    content = torch.load(folders[3] / CHECKPOINT, weights_only=True)
    torch.save({**content, "comparison": [[], []]}, folders[3] / CHECKPOINT)
    assert evolve_goals.main(["--resume", str(folders[3]), "--workers", "2"]) == 0
    assert len({outcome(folder)[0] for folder in folders}) == 1
    assert len({outcome(folder)[1] for folder in folders[:3]}) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "0"], "--workers: found 0, expected 1 to 10000"),
        (["--workers", "2", "--chunk_size", "0"], "all members in one chunk"),
        (["--chunk_size", "-1"], "--chunk-size"),
    ],
)
def test_wrong_workers(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evolve_goals.main([*TINY, *words, "--results_dir", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_run_and_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evolve_goals.main([*TINY, "--exp_name", "mine", "--results_dir", str(tmp_path)]) == 0
    text, folder = capsys.readouterr().out, tmp_path / "mine"
    assert "simple_u_maze, goals cells, starts point, 3 generations" in text and "2 fresh agents each" in text
    assert {"events" if p.name.startswith("events.out.tfevents") else p.name for p in folder.iterdir()} == {
        "events",
        "config.yaml",
        CHECKPOINT,
        GENERATIONS,
        "evolution.png",
        "summary.txt",
    }
    lines = (folder / GENERATIONS).read_text().splitlines()
    assert len(lines) == 4 and lines[0].startswith('generation,score,plain,perturbed,best,diverged,"u goal cell 1,1"')
    assert evolve_goals.main(["--resume", str(folder)]) == 0 and capsys.readouterr().out == text
    assert evolve_goals.main(["--resume", str(folder), "--generations", "9"]) == 2


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="expected a family"):
        make_plan({"env_name": "reacher"})
    with pytest.raises(ConfigError, match="nearest: 'circle'"):
        make_plan({"env_name": "reacher", "goal_family": "circel"})
    assert evolve_goals.main(["--resume", str(tmp_path)]) == 2
    assert "found no config.yaml" in capsys.readouterr().err
    assert evolve_goals.main(["--goal_family", "box", "--tau", "0.1", "--results_dir", str(tmp_path)]) == 2
    assert "contrastive RL has no such value (--agent sac, td3 has)" in capsys.readouterr().err
