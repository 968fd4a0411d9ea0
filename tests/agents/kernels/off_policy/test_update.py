"""Single compiled updates: as PyTorch's, on the same tensors, member by member."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from envolve.agents.common.hyper import draw
from envolve.agents.common.population import initial_weights, nets_of
from envolve.agents.common.sections import DDQNSection, SACSection, TD3DiscreteSection, TD3Section
from envolve.agents.kernels.off_policy.update import CompiledUpdate, update_of, why_not
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.ddqn import DDQN
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.agents.off_policy.td3_discrete import TD3Discrete
from envolve.envs.task import make_task
from tests.examples import some_slow

KEYS = torch.tensor([7, 2**40, -3])
BATCH = 20  # no multiple of a vector
SIZES = {"hidden_size": 24, "hidden_layer": 2, "batch_size": BATCH}


class SlowActorSAC(SAC):
    def rates(self, learns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lr = self.rows.lr * learns
        return lr, 0.1 * lr, 3 * lr


class SlowActorTD3(TD3):
    def rates(self, learns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lr = self.rows.lr * learns
        return lr, 0.1 * lr


CASES = {
    "SAC": (SlowActorSAC, SACSection(lr=1e-3, tau=0.05, alpha=0.5, **SIZES)),
    "SAC, fixed temperature": (SAC, SACSection(automatic_entropy_tuning=False, **SIZES)),
    "TD3": (SlowActorTD3, TD3Section(lr=1e-3, tau=0.05, policy_delay=2, **SIZES)),
}


def made(kind: Any, section: Any, task_name: str = "Pendulum-v0") -> Any:
    task, keys = make_task(task_name), KEYS.numpy()
    hyper = draw(section, keys)
    nets = nets_of(kind, task, hyper)
    weights = torch.as_tensor(initial_weights(nets, keys))
    return kind(task, hyper, nets[0], weights, torch.full((len(keys),), section.hidden_size))


def batches(task: Any, count: int) -> torch.Tensor:
    """float32 [count, P, W, B], some transitions the last of an episode."""
    random = torch.Generator().manual_seed(0)
    found = torch.randn(count, len(KEYS), 2 * task.observation_size + task.action_size + 2, BATCH, generator=random)
    found[:, :, -1] = (found[:, :, -1] > 1).float()
    return found


def run(update: Any, batch: torch.Tensor, number: int, actor: bool = True) -> None:
    """update: of an algorithm, or its compiled twin."""
    P = len(KEYS)
    update(
        batch, torch.full((P, BATCH), 1 / BATCH), torch.ones(P, dtype=torch.bool), torch.full((P,), number), KEYS, actor
    )


def same(a: Algorithm, b: Algorithm, tolerance: float) -> None:
    for field in fields(a.rows):
        x, y = getattr(a.rows, field.name), getattr(b.rows, field.name)
        torch.testing.assert_close(y, x, rtol=tolerance, atol=tolerance, msg=field.name)


@pytest.mark.parametrize("case", some_slow(CASES, fast=("SAC", "SAC, fixed temperature")))
def test_as_pytorch(case: str) -> None:
    a, b = made(*CASES[case]), made(*CASES[case])
    before, compiled = b.rows.params.clone(), CompiledUpdate(b)
    tau = a.rows.tau.clone()
    for number, batch in enumerate(batches(a.task, 12), 1):
        for algorithm in (a, b):  # targets that wait their turn
            algorithm.rows.tau.copy_(tau * (number % 3 == 0))
        actor = number % a.policy_delay == 0
        run(a.update, batch, number, actor)
        run(compiled, batch, number, actor)
        same(a, b, 1e-6 if number == 1 else 2e-4)  # rounding errors grow where Adam divides by small moments
    assert (b.rows.params != before).any(1).all() and (b.rows.target != before).any(1).all()


@pytest.mark.parametrize("case", some_slow(("SAC", "TD3"), fast=("SAC",)))
def test_turns_may_be_mixed(case: str) -> None:
    """The numbers stay where they are: PyTorch's next update begins where the compiled one ended."""
    a, b = made(*CASES[case]), made(*CASES[case])
    compiled = CompiledUpdate(b)
    for number, batch in enumerate(batches(a.task, 6), 1):
        run(a.update, batch, number)
        if number % 2:
            run(compiled, batch, number)
        else:
            run(b.update, batch, number)
    same(a, b, 2e-4)
    if case == "TD3":
        assert b.rows.actor_updates.tolist() == [6, 6, 6]


@pytest.mark.parametrize("case", some_slow(CASES, fast=("SAC", "SAC, fixed temperature")))
def test_what_is_no_number_stays_with_its_member(case: str) -> None:
    a, b = made(*CASES[case]), made(*CASES[case])
    for algorithm, spoilt in ((a, False), (b, True)):
        compiled = CompiledUpdate(algorithm)
        for number, batch in enumerate(batches(a.task, 4), 1):
            if spoilt:
                batch[1, 0, 3] = float("nan")
            run(compiled, batch, number)
    assert torch.equal(a.rows.params[[0, 2]], b.rows.params[[0, 2]])
    assert b.rows.params[1].isnan().any() and not a.rows.params.isnan().any()


@pytest.mark.parametrize("case", some_slow(("SAC", "TD3"), fast=("SAC",)))
def test_who_has_none(case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "envolve")
    assert why_not(made(*CASES[case])) is None
    discrete = made(TD3Discrete, TD3DiscreteSection(**SIZES), "CartPole-v0")
    assert why_not(discrete) == "TD3Discrete has no compiled update"
    assert why_not(made(DDQN, DDQNSection(**SIZES), "CartPole-v0")) == "DDQN has no compiled update"
    assert isinstance(update_of(made(*CASES[case])), CompiledUpdate) and not caplog.messages
    assert update_of(discrete) == discrete.update
    assert caplog.messages == ["updates take the PyTorch path: TD3Discrete has no compiled update"]


def test_members_that_were_dropped() -> None:
    algorithm = made(*CASES["SAC"])
    compiled = CompiledUpdate(algorithm)
    algorithm.keep(torch.tensor([0, 2]))
    with pytest.raises(RuntimeError, match="no longer the agents"):
        run(compiled, batches(algorithm.task, 1)[0], 1)


def test_the_batch_is_left_as_it_is() -> None:
    algorithm = made(*CASES["SAC"])
    batch = batches(algorithm.task, 1)[0]
    given = batch.clone()
    run(CompiledUpdate(algorithm), batch, 1)
    assert torch.equal(batch, given) and np.isfinite(algorithm.rows.params.numpy()).all()
