"""Dueling DDQN: the two back ends against each other, and their gradients against float64 autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.hyper import draw
from envolve.agents.common.population import initial_weights, nets_of, size
from envolve.agents.common.result import OK
from envolve.agents.common.sections import DuelingDDQNSection
from envolve.agents.kernels.off_policy import dueling_ddqn as kernel
from envolve.agents.kernels.off_policy.population import why_not
from envolve.agents.off_policy.dueling_ddqn import DuelingDDQN
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.task import make_task
from tests.agents.off_policy import test_ddqn
from tests.agents.same import assert_same_bytes, same_run


class Setup(test_ddqn.Setup):
    algorithm, section_class = DuelingDDQN, DuelingDDQNSection

    def __init__(self, **kw):
        super().__init__(**{"feature_dim": 11, **kw})


MIXED = dict(
    hidden_size=[3, 8, 16, 31, 5],
    hidden_layer=[0, 1, 2, 1, 2],
    batch_size=[3, 70, 1, 37, 40],
    lr=[1e-3, 1e-4, 3e-3, 1e-3, 1e-2],
)
CASES = {
    "se": dict(max_steps=40),
    "se, acrobot": dict(name="Acrobot-v1", activation_fn="leakyrelu", hidden_layer=2, max_steps=60),
    "real": dict(kind="real", init_episodes=1, activation_fn="relu", eps_init=0.5),
    "real, no activation": dict(kind="real", activation_fn="identity", feature_dim=1),
    "real, mixed": dict(kind="real", values=MIXED, feature_dim=20),
    "rn 2, tested": dict(kind="rn", env={"reward_env_type": 2}, test_each=True, max_steps=20, early_out_num=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_equals_the_compiled_twin(case):
    setup = Setup(**CASES[case])
    ours, twin = setup.torch(), setup.compiled()
    same_run(ours, twin)
    assert (ours.updates > 0).all() and (ours.status == OK).all()
    for i in range(5):
        assert_same_bytes(twin, setup.compiled([i]), [i])


def reference_q(nets, p, x):
    """float64, one member, torch's own activations. x: [B, F] -> Q [B, A]."""
    at = 0

    def net(shape, x):
        nonlocal at
        slope, layers = p[at + shape.size - 1], shape.layer_offsets()
        act = {
            "tanh": torch.tanh,
            "relu": torch.relu,
            "leakyrelu": torch.nn.functional.leaky_relu,
            "prelu": lambda z: torch.where(z > 0, z, slope * z),
            "identity": lambda z: z,
        }[shape.activation]
        for i, (o, k, m) in enumerate(layers):
            o += at
            x = x @ p[o : o + k * m].view(k, m) + p[o + k * m : o + k * m + m]
            x = act(x) if i < len(layers) - 1 else x
        at += shape.size
        return x

    features = net(nets[0], x)
    value, advantage = net(nets[1], features), net(nets[2], features)
    return value + advantage - advantage.mean(1, keepdim=True)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_compiled_network_against_float64(activation, layers):
    """Both passes over a batch of 37, and one observation."""
    task, B = make_task("Acrobot-v1"), 37
    section = DuelingDDQNSection(
        hidden_size=19, hidden_layer=layers, feature_dim=21, activation_fn=activation, batch_size=B
    )
    (nets,) = nets_of(DuelingDDQN, task, draw(section, np.arange(1)))
    p = initial_weights([nets], np.array([3]))[0]
    assert len(p) == size(nets)
    agent = kernel.DuelingDDQN.create(task, section, p)
    generator = torch.Generator().manual_seed(0)
    x, dq = torch.zeros(6, 48), torch.zeros(3, 48)
    x[:, :B], dq[:, :B] = torch.randn(6, B, generator=generator), torch.randn(3, B, generator=generator) / B
    q, one = np.zeros((3, 48), np.float32), np.zeros(3, np.float32)
    kernel._forward(agent, p, x.numpy(), q)
    kernel._backward(agent, x.numpy(), dq.numpy())
    kernel._predict(agent, x[:, 5].numpy().copy(), one)

    wide = torch.from_numpy(p).double().requires_grad_()
    wanted = reference_q(nets, wide, x[:, :B].T.double())
    (gradient,) = torch.autograd.grad(wanted, wide, dq[:, :B].T.double())
    np.testing.assert_allclose(q[:, :B], wanted.detach().numpy().T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one, wanted.detach().numpy()[5], rtol=1e-5, atol=1e-6)
    assert np.linalg.norm(agent.weights.g - gradient.numpy()) / gradient.norm().item() < 1e-6


@pytest.mark.slow
def test_the_mean_over_the_batch_has_no_kernel():
    task, keys = make_task("CartPole-v0"), np.arange(2)
    assert why_not(DuelingDDQN, task, draw(DuelingDDQNSection(), keys)) is None
    assert "over the batch" in why_not(DuelingDDQN, task, draw(DuelingDDQNSection(published_dueling_mean=True), keys))
