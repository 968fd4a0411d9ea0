"""The buffer of a rollout."""

from __future__ import annotations

import torch

from envolve.agents.ppo.memory import RolloutMemory, Transitions, samples

T, L, N, F, A = 3, 2, 4, 5, 2
CPU = torch.device("cpu")


def test_parts_are_views_in_the_order_of_their_names() -> None:
    memory = RolloutMemory(T, L, N, F, A, 1, CPU, counted=True)
    widths = [F, F, A, 1, 1, 1, 1, 1, 1, 1]
    assert [part.shape[-1] for part in memory.parts if part is not None] == widths
    memory.parts.reward[1] = 7.0
    at = Transitions._fields.index("reward")
    assert (memory.data[1, ..., sum(widths[:at])] == 7).all() and memory.data.sum() == 7 * L * N
    plain = RolloutMemory(T, L, N, F, A, A, CPU).parts
    assert plain.action.shape[-1] == A and plain.failed is None and plain.total is None and plain.t is None


def test_a_written_decision_is_read_and_members_are_kept() -> None:
    memory = RolloutMemory(T, L, N, F, A, A, CPU)
    row = torch.arange(float(L * N * sum(memory.widths))).view(L, N, -1)
    memory.write(torch.tensor([2]), row)
    assert torch.equal(memory.parts.obs[2], row[..., :F]) and memory.parts.obs[:2].sum() == 0
    memory.keep(torch.tensor([1]))
    assert torch.equal(memory.parts.over[2], row[1:, :, -1:])


def test_samples_of_a_member_are_by_time_then_by_environment() -> None:
    part = torch.arange(float(T * L * N * F)).view(T, L, N, F)
    assert torch.equal(samples(part)[1, 2], part[:, 1, :, 2].flatten())
