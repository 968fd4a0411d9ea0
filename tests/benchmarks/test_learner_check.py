"""``benchmarks/worlds/planted/``: learners without a bug learn, every bug changes something; and the tables of
``learner_check.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.worlds import learner_check
from benchmarks.worlds.planted import dqn, ppo, td3
from envolve.worlds import check_learner, open_world, share
from envolve.worlds.check import REFERENCES, Act

X, FOLLOWING = torch.linspace(-1, 1, 64).reshape(16, 4), torch.linspace(1, 2, 64).reshape(16, 4)
REWARD, OVER = torch.linspace(-1, 2, 16), (torch.arange(16) % 2).float()


def gradient(loss: Tensor, *nets: torch.nn.Module) -> Tensor:
    parameters = [p for net in nets for p in net.parameters()]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in zip(parameters, found)])


@pytest.mark.filterwarnings("ignore:Using a target size")  # what "broadcast" plants
@pytest.mark.parametrize("bug", [b for b, where in dqn.BUGS.items() if where in ("target", "loss")])
def test_a_bug_of_dqns_loss_changes_its_gradient(bug: str) -> None:
    torch.manual_seed(0)
    net, target = dqn.mlp(4, 2), dqn.mlp(4, 2)
    rows = [X, torch.arange(16) % 2, REWARD, FOLLOWING, OVER]
    found = [gradient(dqn.loss_of(net, target, name, rows), net) for name in (bug, "none")]
    assert not torch.allclose(*found)


@pytest.mark.parametrize("bug", [b for b, where in td3.BUGS.items() if where in ("target", "critic's loss")])
def test_a_bug_of_td3s_critics_changes_their_gradient(bug: str) -> None:
    torch.manual_seed(0)
    critics, targets = ([td3.mlp(6, 1) for _ in range(2)] for _ in range(2))
    actor, action = td3.mlp(4, 2, torch.nn.Tanh()), torch.linspace(-1, 1, 32).reshape(16, 2)
    found = []
    for name in (bug, "none"):
        torch.manual_seed(1)
        found.append(
            gradient(td3.critic_loss(critics, targets, actor, name, [X, action, REWARD, FOLLOWING, OVER]), *critics)
        )
    assert not torch.allclose(*found)


def test_dqn_without_a_bug_learns_a_world() -> None:
    net = dqn.train("envolve/CartPole-v1-bandit", 2000, 0, "none")
    assert share(learner_check.greedy(net), "CartPole-v1-bandit") > 0.7


def test_td3_without_a_bug_learns_a_world() -> None:
    from envolve.worlds.check import share

    name = "MountainCarContinuous-v0-bandit"
    actor, space = td3.train(f"envolve/{name}", 260, 0, "none"), open_world(name).action.space
    assert share(lambda x: td3.of_space(learner_check.output(actor, x), space), name) > 0.5


WORLDS = ("CartPole-v1-bandit", "CartPole-v1-bandit-2")


def rows(variant: str, *shares: list[float | None]) -> list[dict[str, Any]]:
    """PPO's agents, a list for each world."""
    kind = {"learner": "ppo", "variant": variant, "training_seconds": 2.0, "steps": 10_240}
    return [{**kind, "world": w, "seed": i, "share": x} for w, own in zip(WORLDS, shares) for i, x in enumerate(own)]


def test_the_table_says_what_was_seen() -> None:
    there = rows("library", *([0.97 + s / 1000 for s in range(10)] for _ in WORLDS))
    there += rows("none", *([0.9705 + s / 1000 for s in range(10)] for _ in WORLDS))
    there += rows("value added", [0.9, 0.91, 0.92, 0.93, None], [0.971, 0.972, 0.973, 0.974, 0.975])
    there += rows("ReLU", [0.971, 0.972, 0.973, 0.974, 0.975], [0.99 + s / 1000 for s in range(5)])
    text = learner_check.table(there)
    assert "| Stable-Baselines3's | 0.974 (0.970 to 0.979; 10) | 0.974 (0.970 to 0.979; 10) | | | |" in text
    assert "| value added | -inf (-inf to 0.930; 5) | 0.973 (0.971 to 0.975; 5) | 0.00067 | 0.0013 | yes |" in text
    assert "| ReLU | 0.973 (0.971 to 0.975; 5) | 0.992 (0.990 to 0.994; 5) | " in text and "| 0.0013 | yes |" in text
    assert "| no bug, 5 at a time: alarms | | | 0 of 2 | 0 of 2 | |" in text


def test_this_projects_agents_stand_beside_those_with_the_same_networks() -> None:
    (world,) = learner_check.LEARNERS["td3"].worlds
    kind = {"learner": "td3", "world": world, "training_seconds": 2.0, "steps": 2560}
    means = {learner_check.LIBRARY: 0.9, learner_check.SIZED: 0.5, learner_check.OWN: 0.5}
    there = [
        {**kind, "variant": variant, "seed": i, "share": mean + i / 1000}
        for variant, mean in means.items()
        for i in range(10)
    ]
    text = learner_check.table(there)
    assert "| the same, two layers of 256 | 0.504 (0.500 to 0.509; 10) | 5.4e-06 | 1.1e-05 | yes |" in text
    assert "| this project's | 0.504 (0.500 to 0.509; 10) | 0.53 | 1 | no |" in text


def test_the_references_are_those_of_the_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, row in enumerate(rows("library", [0.5, 0.6], [0.7])):
        learner_check.work(tmp_path, [(number,)], lambda _, row=row: row, learner_check.shown)  # type: ignore[misc]
    capsys.readouterr()
    assert learner_check.main(["--out", str(tmp_path), "--references"]) == 0
    assert capsys.readouterr().out == (
        '    "ppo": Reference(10_240, {\n        "CartPole-v1-bandit": (\n            0.5000, 0.6000,\n        ),\n'
        '        "CartPole-v1-bandit-2": (\n            0.7000,\n        ),\n    }),\n'
    )


def test_the_references_are_those_of_the_committed_cells() -> None:
    cells = learner_check.finished(learner_check.ROOT / "results" / "learner_check")
    for name, found in REFERENCES.items():
        it = learner_check.LEARNERS[name]
        assert (found.steps, tuple(found.shares)) == (it.steps, it.worlds)
        for world, own in found.shares.items():
            there = learner_check.shares(cells, name, learner_check.LIBRARY, world)
            assert len(own) == it.references and own == pytest.approx(there, abs=1e-4) and np.isfinite(own).all()


@pytest.mark.slow  # a minute each
@pytest.mark.parametrize(("bug", "ok"), [("none", True), ("value added", False)])
def test_a_wrong_ppo_is_seen_and_a_right_one_passes(bug: str, ok: bool) -> None:
    def train(env_id: str, steps: int, seed: int) -> Act:
        return learner_check.greedy(ppo.train(env_id, steps, 100 + seed, bug, ppo.Settings()))

    found = check_learner(train, like="ppo")
    assert found.ok == ok, found
