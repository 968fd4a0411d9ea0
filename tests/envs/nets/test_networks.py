"""Layer norm in a stack of nets: as torch's own modules, padded units that do nothing, and rows that do not mix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from envolve.agents.common.population import embedding, stack
from envolve.envs.nets import mkl
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape, forward, init_flat

MODULES = {"tanh": nn.Tanh, "relu": nn.ReLU, "leakyrelu": nn.LeakyReLU, "prelu": nn.PReLU, "identity": nn.Identity}


def params(shape: MLPShape, seed: int) -> torch.Tensor:
    """[D], the layer norm away from where it begins."""
    flat, generator = init_flat(shape, torch.tensor([seed]))[0], torch.Generator().manual_seed(seed)
    norm = flat[shape.norm_offset : shape.norm_offset + shape.norm_slots]
    norm += torch.rand(norm.shape, generator=generator) - 0.5
    return flat


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layer_norm_is_torchs_and_shared_by_the_layers(activation, layers):
    shape, act = MLPShape(5, 2, 7, layers, activation, True), MODULES[activation]()
    flat = params(shape, 3)
    norm, modules = nn.LayerNorm(7), []
    for i, (offset, k, m) in enumerate(shape.layer_offsets()):
        linear = nn.Linear(k, m)
        linear.weight.data = flat[offset : offset + k * m].view(k, m).T
        linear.bias.data = flat[offset + k * m : offset + k * m + m]
        modules += [linear] + ([norm] if 0 < i < layers else []) + ([act] if i < layers else [])
    if layers > 1:
        norm.weight.data, norm.bias.data = flat[shape.norm_offset :][:7], flat[shape.norm_offset + 7 :][:7]
    assert shape.size == len(flat) == sum(p.numel() for p in nn.Sequential(*modules).parameters())
    x = torch.randn(1, 5, 11, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(forward(shape, flat[None], x)[0].T, nn.Sequential(*modules)(x[0].T))


def test_layer_norm_begins_as_torchs():
    shape = MLPShape(5, 2, 7, 2, "prelu", True)
    begin, end = shape.norm_offset, shape.norm_offset + shape.norm_slots
    flat, plain = (init_flat(s, torch.tensor([3]))[0] for s in (shape, MLPShape(5, 2, 7, 2, "prelu")))
    assert flat[begin:end].tolist() == [1] * 7 + [0] * 7
    assert torch.equal(flat[:begin], plain[:-1]) and flat[-1] == plain[-1]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_padded_units_enter_no_mean_and_get_no_gradient(activation, dtype):
    own = [MLPShape(4, 3, h, 3, activation, True) for h in (5, 9, 2)]
    flats = torch.zeros(3, own[1].size)
    for i, shape in enumerate(own):
        flats[i, : shape.size] = params(shape, i)
    stacked = stack(flats, [(shape,) for shape in own], (own[1],)).requires_grad_()
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    together = forward(own[1], stacked, x, torch.tensor([5, 9, 2], dtype=dtype))
    (gradient,) = torch.autograd.grad(together.square().sum(), stacked)
    for i, shape in enumerate(own):
        alone = flats[i : i + 1, : shape.size].requires_grad_()
        wanted = forward(shape, alone, x[i : i + 1])
        places = embedding((shape,), (own[1],))
        torch.testing.assert_close(together[i], wanted[0], rtol=1e-5, atol=1e-5)
        (of_alone,) = torch.autograd.grad(wanted.square().sum(), alone)
        torch.testing.assert_close(gradient[i, places], of_alone[0], rtol=1e-4, atol=1e-4)
        unused = torch.ones(own[1].size, dtype=torch.bool)
        unused[places] = False
        assert (gradient[i, unused] == 0).all() and (stacked[i, unused] == 0).all()


def test_a_member_that_is_nan_harms_no_other():
    shape = MLPShape(4, 3, 5, 2, "relu", True)
    flats, x = torch.stack([params(shape, i) for i in range(3)]), torch.ones(3, 4, 2)
    sound = forward(shape, flats, x, torch.full((3,), 5))
    flats[1, 0] = float("nan")
    result = forward(shape, flats, x, torch.full((3,), 5))
    assert torch.equal(result[[0, 2]], sound[[0, 2]]) and result[1].isnan().any()


@pytest.mark.parametrize("vendor, set_to", [("AuthenticAMD", "AUTO"), ("GenuineIntel", None)])
def test_mkl_is_told_to_be_reproducible_where_it_is_not(
    vendor: str, set_to: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    monkeypatch.setattr(mkl, "CPU_INFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setenv("MKL_CBWR", "")  # so that what was set is put back
    monkeypatch.delenv("MKL_CBWR")
    mkl.same_bits_at_any_address()
    assert os.environ.get("MKL_CBWR") == set_to
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    mkl.same_bits_at_any_address()
    assert os.environ["MKL_CBWR"] == "COMPATIBLE", "the user's own counts"


@pytest.mark.parametrize("activation", ["prelu", "tanh", "relu"])
@pytest.mark.parametrize("outputs, batch", [(1, 7), (1, 1), (3, 1), (3, 7)])
def test_a_member_alone_has_the_bits_that_it_has_among_others(outputs: int, batch: int, activation: str) -> None:
    """Also where a product is one of a matrix and a vector, for which torch has another routine."""
    shape = MLPShape(48, outputs, 32, 2, activation)
    flat, generator = init_flat(shape, torch.arange(5)), torch.Generator().manual_seed(1)
    x = torch.randn(5, 48, batch, generator=generator)

    def results(members: slice) -> list[torch.Tensor]:
        own, given = flat[members].clone().requires_grad_(), x[members].clone().requires_grad_()
        y = forward(shape, own, given)
        y.square().sum().backward()
        assert own.grad is not None and given.grad is not None
        with torch.no_grad():
            return [y.detach(), forward(shape, own, given), own.grad, given.grad]

    whole = results(slice(0, 5))
    for k in range(5):
        for alone, among in zip(results(slice(k, k + 1)), whole):
            assert torch.equal(alone[0], among[k]), k
