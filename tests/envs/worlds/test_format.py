"""Named tensors of a world: round trip, what the layout means, the original's numbering, errors that name the key."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from envolve.envs.nets.networks import ACTIVATIONS, forward
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.format import flat_from_state_dict, world_state_dict
from envolve.envs.worlds.world import init_world, se_nets, world_size
from tests.examples import examples

CARTPOLE = make_task("CartPole-v0")


@settings(max_examples=examples(60), deadline=None)
@given(
    kind=st.sampled_from(["se", "rn"]),
    name=st.sampled_from(["CartPole-v0", "Acrobot-v1", "EmptyRoom23", "Pendulum-v0"]),
    activation=st.sampled_from(ACTIVATIONS),
    hidden=st.integers(1, 9),
    layers=st.integers(0, 4),
    rn_type=st.sampled_from([0, 2, 5]),
    key=st.integers(0, 2**60),
)
def test_round_trip(kind, name, activation, hidden, layers, rn_type, key):
    task = make_task(name)
    section = EnvSection(activation_fn=activation, hidden_size=hidden, hidden_layer=layers, reward_env_type=rn_type)
    flat = init_world(kind, task, section, torch.tensor([key]))[0]
    state = world_state_dict(kind, task, section, flat)
    assert sum(value.numel() for value in state.values()) == world_size(kind, task, section)
    for value in state.values():  # a view would drag the whole vector into the file
        assert value.is_contiguous() and value.untyped_storage().nbytes() == 4 * value.numel()
    assert torch.equal(flat_from_state_dict(kind, task, section, state), flat)


@pytest.mark.parametrize("rn_type", [4, 7, 101, 102])
def test_round_trip_with_an_info_vector(rn_type):
    task = make_task("HalfCheetah-v3")
    section = EnvSection(activation_fn="prelu", hidden_size=6, hidden_layer=2, reward_env_type=rn_type, info_dim=4)
    flat = torch.arange(world_size("rn", task, section)).float()
    state = world_state_dict("rn", task, section, flat)
    assert torch.equal(flat_from_state_dict("rn", task, section, state), flat)
    if rn_type > 100:  # the original keeps the weights in a parameter of their own
        assert list(state) == ["env.reward_net"] and state["env.reward_net"].shape == (4,)
    else:
        assert state["env.reward_net.0.weight"].shape == (6, 21)


@pytest.mark.parametrize("activation", ["tanh", "prelu"])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_tensors_load_into_torch_modules(layers, activation):
    section = EnvSection(activation_fn=activation, hidden_size=5, hidden_layer=layers)
    flat = init_world("se", CARTPOLE, section, torch.tensor([1]))
    flat[:, se_nets(CARTPOLE, section)[0][1].size - 1] = 0.4 if activation == "prelu" else 0.1
    state = world_state_dict("se", CARTPOLE, section, flat[0])
    assert list(state)[:4] == [f"env.state_net.{i}.{part}" for i in (0, 2) for part in ("weight", "bias")]
    act = nn.Tanh if activation == "tanh" else nn.PReLU
    modules = [nn.Linear(6, 5), act()]
    for _ in range(layers - 1):
        modules += [nn.Linear(5, 5), act()]
    net = nn.Sequential(*modules, nn.Linear(5, 4))
    own = {key[len("env.state_net.") :]: value for key, value in state.items() if "state_net" in key}
    if activation == "prelu":  # one slope for all layers
        own.update({f"{2 * i + 1}.weight": own["1.weight"] for i in range(1, layers)})
    net.load_state_dict(own)
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    shape = se_nets(CARTPOLE, section)[0][1]
    got = forward(shape, flat[:, : shape.size], x.t()[None])[0].t()
    torch.testing.assert_close(got, net(x).detach(), rtol=1e-5, atol=1e-6)


def test_the_numbering_of_the_original_with_two_layers():
    section = EnvSection(activation_fn="prelu", hidden_size=3, hidden_layer=2, reward_env_type=2)
    flat = init_world("rn", CARTPOLE, section, torch.tensor([5]))[0]
    state = world_state_dict("rn", CARTPOLE, section, flat)
    for part in ("weight", "bias"):  # Linear, PReLU, Linear, Identity, the same PReLU, Linear
        state[f"env.reward_net.5.{part}"] = state.pop(f"env.reward_net.4.{part}")
    state["env.reward_net.4.weight"] = state["env.reward_net.1.weight"].clone()
    assert torch.equal(flat_from_state_dict("rn", CARTPOLE, section, state), flat)
    state["env.reward_net.4.weight"] += 1  # two slopes: not a net of the original
    with pytest.raises(ValueError, match="env.reward_net.4"):
        flat_from_state_dict("rn", CARTPOLE, section, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("env.done_net.2.bias"), "'env.done_net.2.bias' is missing"),
        (lambda s: s.update({"env.done_net.4.bias": torch.zeros(1)}), "'env.done_net.4.bias' is not expected"),
        (
            lambda s: s.update({"env.state_net.0.weight": torch.zeros(6, 5)}),
            r"'env.state_net.0.weight': found float32 of shape \[6, 5\], expected float32 of shape \[5, 6\]",
        ),
        (lambda s: s.update({"env.state_net.0.weight": torch.zeros(5, 6).double()}), "found float64"),
        (lambda s: s.update({"env.state_net.0.weight": [1.0]}), "found list, expected a tensor"),
    ],
)
def test_errors_name_key_found_and_expected(change, message):
    section = EnvSection(hidden_size=5)
    state = world_state_dict("se", CARTPOLE, section, init_world("se", CARTPOLE, section, torch.tensor([1]))[0])
    change(state)
    with pytest.raises(ValueError, match=message):
        flat_from_state_dict("se", CARTPOLE, section, state)
