from __future__ import annotations

import pytest
import torch

from envolve.envs.physics.task import physics_task
from envolve.llm.vetting.probe import Probe, make_probe


@pytest.mark.parametrize("name", ["Cartpole", "Ant", "Pusher"])
def test_a_probe_is_real_state(name: str) -> None:
    probe = make_probe(name)
    cls = physics_task(name)
    assert set(probe.state) == {*cls.described(probe.efforts), "action", "previous_action"}
    for quantity, q in cls.described(probe.efforts).items():
        assert probe.state[quantity].shape == (64, *q.shape) and probe.state[quantity].dtype == torch.float32
        assert probe.state[quantity].isfinite().all()
    assert probe.n == 64 and probe.task == name and probe.action_size == cls.action_size
    assert probe.state["action"].abs().max() <= 1 and probe.state["action"].std() > 0.3
    assert probe.state["progress"].unique().numel() > 10  # all over episodes
    assert probe.random.uniform.shape == probe.random.normal.shape == (64, cls.random_numbers)
    assert all(part.shape[0] == 64 and part.dtype == torch.float64 for part in probe.rest)
    assert probe.goal_size == cls.goal_size
    assert probe.widths[0] == cls.action_size and probe.efforts in probe.widths[:2]
    assert set(probe.widths) >= set(range(1, 129)) and len(set(probe.widths)) == len(probe.widths)


def test_rows_differ_where_the_task_does() -> None:
    state = make_probe("Ant").state
    for name in ("torque", "action", "previous_action", "progress"):
        assert (state[name].float().std(0) > 0).all(), name
    assert (state["previous_action"] != state["action"]).any()
    assert (make_probe("Reacher").state["goal"].std(0) > 0).all()


def test_it_is_the_same_every_time_and_in_another_process() -> None:
    probe, again = make_probe("Cartpole", 8), make_probe("Cartpole", 8)
    through = Probe.from_bytes(probe.to_bytes())
    for other in (again, through):
        assert all(torch.equal(other.state[name], part) for name, part in probe.state.items())
        assert all(
            torch.equal(a, b) for a, b in zip((*other.random, *other.rest), (*probe.random, *probe.rest), strict=True)
        )
        assert (other.task, other.widths, other.efforts, other.goal_size) == ("Cartpole", probe.widths, 1, 0)
    assert type(through.random) is type(probe.random) and type(through.rest) is type(probe.rest)


def test_it_leaves_the_task_alone() -> None:
    """Rows are copies: what is done to them is done to nobody else."""
    probe = make_probe("Cartpole", 4)
    before = probe.state["action"].clone()
    probe.state["progress"].fill_(-1)
    assert torch.equal(probe.state["action"], before)


def test_unknown_tasks_are_named() -> None:
    with pytest.raises(KeyError, match="nearest: 'Ant'"):
        make_probe("Antt")
