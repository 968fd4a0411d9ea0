"""``benchmarks/worlds/bugs.py``: what is wrong is wrong, alarms are counted right, and a stopped run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.worlds import bugs
from benchmarks.worlds.planted import ppo

SETTINGS = bugs.SETTINGS


def row(place: str, bug: str, seed: int, value: float | None) -> dict[str, Any]:
    return {"place": place, "bug": bug, "seed": seed, "return": value, "share": None, "training_seconds": 2.0}


def test_advantages_are_those_of_a_plain_loop() -> None:
    torch.manual_seed(0)
    rewards, values, last = torch.rand(5, 3), torch.rand(5, 3), torch.rand(3)
    ends = (torch.rand(5, 3) < 0.4).float()
    found = ppo.advantages_of(rewards, values, last, ends, bugs.CLEAN, SETTINGS)
    after = torch.cat((values[1:], last[None]))
    for n in range(3):
        for t in range(5):
            total, weight = 0.0, 1.0
            for k in range(t, 5):
                goes_on = 1.0 - float(ends[k, n])
                total += weight * float(rewards[k, n] + SETTINGS.gamma * after[k, n] * goes_on - values[k, n])
                weight *= SETTINGS.gamma * SETTINGS.lam * goes_on
            assert float(found[t, n]) == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("bug", ["end of episode ignored", "value added"])
def test_a_bug_of_the_advantages_changes_them(bug: str) -> None:
    torch.manual_seed(0)
    parts = torch.rand(5, 3), torch.rand(5, 3), torch.rand(3), torch.ones(5, 3)
    found = [ppo.advantages_of(*parts, name, SETTINGS) for name in (bug, bugs.CLEAN)]
    assert not torch.allclose(*found)


@pytest.mark.parametrize(
    "bug", [b for b, where in bugs.BUGS.items() if where.endswith("loss") and b != "advantages of other rows"]
)
def test_a_bug_of_the_loss_changes_its_gradient(bug: str) -> None:
    torch.manual_seed(0)
    actor, critic, x = ppo.mlp(4, 2, SETTINGS, 0.01), ppo.mlp(4, 1, SETTINGS, 1.0), torch.rand(16, 4)
    action, old, a, target = torch.randint(2, (16,)), torch.log(torch.rand(16)), torch.randn(16), torch.randn(16)
    found = []
    for name in (bug, bugs.CLEAN):
        ppo.loss_of(actor, critic, name, SETTINGS, [x, action, old, a, target]).backward()
        gradients = [p.grad for net in (actor, critic) for p in net.parameters()]
        found.append(torch.cat([g.flatten() for g in gradients if g is not None]))
        actor.zero_grad()
        critic.zero_grad()
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize("env_id", ["envolve/CartPole-v1-bandit", "CartPole-v1"])
def test_it_trains_in_a_world_and_on_the_task(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bugs.PLACES, "here", bugs.Place(env_id, 1024, "CartPole-v1"))
    a, b = bugs.one("here", bugs.CLEAN, 3), bugs.one("here", bugs.CLEAN, 3)
    assert a["return"] == b["return"] >= 8.0 and a["share"] == b["share"]
    assert (a["share"] is None) == (env_id == "CartPole-v1")


def test_alarms_go_by_the_share_of_a_worlds_reward_too() -> None:
    place = "cartpole_bandit"
    rows = [{**row(place, bugs.CLEAN, s, 100.0), "share": 0.9 + s / 100} for s in range(11)]
    rows += [{**row(place, "value added", s, 100.0), "share": share} for s, share in enumerate([0.89, 0.95, None])]
    text = bugs.table(rows)
    assert "| value added | advantage | 0 of 3 | 2 of 3 |" in text and "mark 0.900" in text
    assert "20,480 steps | CartPole-v1-bandit, 20,480 steps, by its reward |" in text


def test_alarms_are_runs_below_every_first_clean_one() -> None:
    place = "cartpole"
    rows = [row(place, bugs.CLEAN, s, 100.0 + s) for s in range(12)] + [row(place, bugs.CLEAN, 12, 99.0)]
    rows += [row(place, "value added", s, v) for s, v in enumerate([99.0, 100.0, None])]
    text = bugs.table(rows)
    assert "| value added | advantage | 2 of 3 |" in text and "| no bug (false alarms) | | 1 of 3 |" in text
    assert "mark 100" in text and "CartPole-v1 itself, 20,480 steps" in text


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, int]] = []

    def run(place: str, bug: str, seed: int) -> dict[str, Any]:
        if len(seen) == 7:
            raise KeyboardInterrupt
        seen.append((place, bug, seed))
        return row(place, bug, seed, 1.0)

    monkeypatch.setattr(bugs, "one", run)
    command = ["--out", str(tmp_path), "--seeds", "1", "--clean", "11"]
    assert bugs.main(command) == 130
    first = list(seen)
    seen.clear()
    assert bugs.main(command) == 130
    assert len(bugs.finished(tmp_path)) == 14 and not set(first) & set(seen)
    assert bugs.main([*command, "--table"]) == 0 and len(seen) == 7
