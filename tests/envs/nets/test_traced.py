"""The nets as torch.compile sees them equal those that PyTorch runs by itself."""

import itertools

import pytest
import torch

from envolve.agents.kernels.dense import activation
from envolve.envs.nets import traced
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape, forward, init_flat

SHAPES = [(4, 2, 57, 1), (3, 1, 20, 2), (17, 6, 9, 3), (12, 10, 11, 2)]  # inputs, outputs, hidden, layers


def nets(act, shape):
    inputs, outputs, hidden, layers = shape
    net = MLPShape(inputs, outputs, hidden, layers, act)
    flat = init_flat(net, torch.arange(3)).double()
    x = torch.randn(3, inputs, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return net, flat, x


@pytest.mark.parametrize("act, shape", list(itertools.product(ACTIVATIONS, SHAPES)))
def test_outputs_and_gradients_equal_those_of_forward(act, shape):
    net, flat, x = nets(act, shape)
    dy = torch.randn(forward(net, flat, x).shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for call in (forward, lambda net, flat, x: traced.MLP.apply(net.activation, net.layout, flat, x)):
        leaves = flat.clone().requires_grad_(), x.clone().requires_grad_()
        y = call(net, *leaves)
        results.append((y.detach(), *torch.autograd.grad(y, leaves, dy)))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6 if act == "tanh" else 1e-12)  # the two tanhs differ


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_gradients_are_those_of_finite_differences(act):
    net, flat, x = nets(act, (2, 1, 4, 2))

    def call(flat, x):
        return traced.MLP.apply(net.activation, net.layout, flat, x)

    # a tanh and its derivative 1 - tanh^2 are approximations, each good to 4e-7
    assert torch.autograd.gradcheck(call, (flat.requires_grad_(), x.requires_grad_()), atol=1e-5)


def test_tanh():
    z = torch.linspace(-20, 20, 100_001)
    assert (traced.tanh(z) - z.double().tanh()).abs().max() < 4e-7
    assert traced.tanh(torch.tensor([float("inf"), -float("inf")])).tolist() == pytest.approx([1, -1], abs=1e-6)
    assert traced.tanh(torch.tensor(float("nan"))).isnan()
    assert [*activation._P, activation.Q0, activation.Q2, activation.Q4, activation.Q6] == [
        pytest.approx(c, rel=1e-7) for c in (*traced.P, *traced.Q)
    ]
    assert activation.CLAMP == pytest.approx(traced.CLAMP)
