"""The learner of contrastive RL: its losses and gradients, and that members do not meet."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from envolve.agents.goal.crl import CRL, METRICS
from envolve.agents.goal.crl_networks import TrunkShape, forward, gaussian, initial, squashed
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import PER_MEMBER, CRLSection

S, A, GOAL = 4, 2, (0, 1)
SMALL = CRLSection(h_dim=16, n_hidden=2, repr_dim=8, batch_size=32, num_envs=3)


def memory(P: int, fields: dict[str, int], keys: list[int]) -> TrajectoryReplay:
    """40 rows of each of 3 environments, in trajectories of 10; a member's data depend on its key."""
    replay = TrajectoryReplay(P, 3, 64, fields, torch.device("cpu"))
    generators = [torch.Generator().manual_seed(key) for key in keys]
    for t in range(40):
        rows = [{n: torch.randn(3, w, generator=g) for n, w in sorted(fields.items())} for g in generators]
        replay.write({name: torch.stack([row[name] for row in rows]) for name in fields})
        replay.end(torch.full((P, 3), t % 10 == 9))
    return replay


def agent(
    section: CRLSection, keys: list[int], backend: str = "auto", **own: list[float]
) -> tuple[CRL, TrajectoryReplay]:
    crl = CRL(section, S, A, GOAL, torch.tensor(keys), own, backend)
    return crl, memory(len(keys), crl.fields, keys)


def test_a_trunk_is_its_layers() -> None:
    """Against modules of torch, with layer norm, swish and skip connections."""
    shape = TrunkShape(5, 3, 8, 5, "swish", layer_norm=True, skip=2)
    flat = initial(shape, torch.tensor([1, 2]), 0) + 0.1 * torch.randn(2, shape.size)
    x = torch.randn(2, 7, 5)
    got = forward(shape, flat, x)
    for p in range(2):
        h, at, remembered = x[p], 0, None
        for i in range(6):
            k, m = (5 if i == 0 else 8), (3 if i == 5 else 8)
            W, b = flat[p, at : at + k * m].view(k, m), flat[p, at + k * m : at + k * m + m]
            h, at = h @ W + b, at + k * m + m
            if i == 5:
                break
            w, c = flat[p, at : at + 8], flat[p, at + 8 : at + 16]
            at += 16
            mean, var = h.mean(1, keepdim=True), h.var(1, unbiased=False, keepdim=True)
            h = (h - mean) / (var + 1e-6).sqrt() * w + c
            h = h * torch.sigmoid(h)
            if i == 0:
                remembered = h
            elif i % 2 == 0:
                h = h + remembered
                remembered = h
        assert at == shape.size
        torch.testing.assert_close(got[p], h, atol=1e-5, rtol=1e-4)


def test_initial_weights() -> None:
    shape = TrunkShape(100, 4, 50, 2, layer_norm=True)
    flat = initial(shape, torch.tensor([7]), 0)[0]
    W = flat[: 100 * 50]
    assert W.abs().max() <= 0.1 and W.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert (flat[5000:5050] == 0).all() and (flat[5050:5100] == 1).all() and (flat[5100:5150] == 0).all()


@pytest.mark.parametrize("kind", ["softplus", "bounded"])
def test_policy_is_a_density(kind: str) -> None:
    """The log-probability of tanh(u) integrates to 1 over the actions."""
    mean, std = gaussian(torch.tensor([[[0.4, 0.3]]], dtype=torch.float64), kind)
    u = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    noise = ((u - mean[0, 0]) / std[0, 0]).view(1, -1, 1)
    a, log_prob = squashed(mean, std, noise)
    assert torch.trapezoid(log_prob[0].exp(), a[0, :, 0]).item() == pytest.approx(1, abs=1e-3)
    if kind == "bounded":
        extreme = gaussian(torch.tensor([[[0.0, 0.0, 99.0, -99.0]]]), kind)[1].log()
        assert extreme.flatten().tolist() == pytest.approx([2, -5])


ALL = {"logsumexp_penalty": 0.1, "l2_penalty": 0.05, "random_goals": 0.5, "exploration_coef": 0.2}
VARIANTS = [
    {},
    {**ALL, "use_c_target": True, "no_resubs": True, "use_ln": True},
    {"energy_fn": "cosine", "contrastive_loss_fn": "binary", "policy_std": "bounded", "activation": "swish"},
    {"energy_fn": "mrn_pot_shuf", "disable_entropy_actor": True},
    {"energy_fn": "l1", "contrastive_loss_fn": "fb", "normalize_observations": True},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=range(len(VARIANTS)))
def test_gradients_against_float64_differences(variant: dict) -> None:
    """Along random directions, of each part of the parameters: and each loss moves its own part only."""
    crl, replay = agent(dataclasses.replace(SMALL, **variant), [5])
    batch, noise = crl.sample(replay), crl.noise()
    batch, noise = tuple(b.double() for b in batch), (noise[0].double(), noise[1])
    crl.hyper = {name: value.double() for name, value in crl.hyper.items()}
    params, log_alpha = crl.params.double().requires_grad_(), (crl.log_alpha.double() - 0.3).requires_grad_()

    def losses(p: Tensor, a: Tensor) -> list[Tensor]:
        return [loss.sum() for loss in crl.losses(p, a, batch, noise)[:3]]

    border = crl.actor.size
    rows = {
        name: torch.autograd.grad(loss, (params, log_alpha), retain_graph=True, allow_unused=True)
        for name, loss in zip(("critic", "actor", "temperature"), losses(params, log_alpha))
    }
    assert rows["critic"][0][:, :border].abs().sum() == 0 and rows["critic"][1] is None
    assert rows["actor"][0][:, border:].abs().sum() == 0 and rows["actor"][1] is None
    assert rows["temperature"][0] is None
    for i, name, part in ((0, "critic", slice(border, None)), (1, "actor", slice(0, border))):
        direction = torch.zeros_like(params)
        direction[:, part] = torch.randn(params[:, part].shape, generator=torch.Generator().manual_seed(i)).double()
        eps = 1e-6
        with torch.no_grad():
            ahead, behind = (losses(params + sign * eps * direction, log_alpha)[i] for sign in (1, -1))
        expected = ((ahead - behind) / (2 * eps)).item()
        got = (rows[name][0] * direction).sum().item()
        assert got == pytest.approx(expected, rel=2e-4, abs=1e-6) and abs(expected) > 1e-4
    alpha = log_alpha.exp()
    entropy = crl.losses(params, log_alpha, batch, noise)[4].mean()
    assert rows["temperature"][1].item() == pytest.approx((alpha * (entropy + 0.5 * A)).item(), rel=1e-9)


def test_losses_written_out() -> None:
    """The default losses in float64, from the definitions: infoNCE over minus the distances, and the actor's."""
    crl, replay = agent(SMALL, [5])
    state, action, goal, beside = (b.double() for b in crl.sample(replay))
    normal, u = crl.noise()
    params = crl.params.double()
    critic, actor, temperature, c, entropy = crl.losses(
        params, crl.log_alpha.double(), (state, action, goal, beside), (normal.double(), u)
    )
    a_part, phi, psi, _ = params.split(crl.sizes, 1)
    x = forward(crl.phi, phi, torch.cat((state, action), 2))[0]
    y = forward(crl.psi, psi, goal)[0]
    L = -((x[:, None] - y[None]).square().sum(2) + 1e-6).sqrt()
    expected = (L.logsumexp(1) - L.diag()).mean() + (L.logsumexp(0) - L.diag()).mean()
    assert critic.item() == pytest.approx(expected.item(), rel=1e-9)
    mean, raw = forward(crl.actor, a_part, torch.cat((state, goal), 2))[0].chunk(2, 1)
    std = torch.log1p(raw.exp()) + 0.001
    pre = mean + std * normal[0].double()
    log_prob = torch.distributions.Normal(mean, std).log_prob(pre) - torch.log(1 - torch.tanh(pre) ** 2)
    x = forward(crl.phi, phi, torch.cat((state[0], torch.tanh(pre)), 1)[None])[0]
    f = -((x - y).square().sum(1) + 1e-6).sqrt()
    assert actor.item() == pytest.approx((log_prob.sum(1) - f).mean().item(), rel=1e-9)  # alpha is 1 at first
    assert temperature.item() == pytest.approx((-log_prob.sum(1).mean() + 0.5 * A).item(), rel=1e-9)


OWN = {"policy_lr": [1e-3, 3e-4, 0.0], "discounting": [0.9, 0.5, 0.99], "logsumexp_penalty": [0.0, 0.1, 1.0],
       "random_goals": [0.0, 1.0, 0.5], "target_entropy": [0.5, 1.0, 0.1],
       "initial_alpha": [1.0, 0.1, 0.5]}  # fmt: skip


@pytest.mark.parametrize("backend", ["torch", pytest.param("compiled", marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", [{}, {"use_ln": True, "normalize_observations": True, "energy_fn": "dot"}])
def test_a_population_is_its_members(variant: dict, backend: str) -> None:
    section, keys = dataclasses.replace(SMALL, **variant), [5, 6, 7]
    together, replay = agent(section, keys, backend, **OWN)
    features, goal = torch.randn(3, 4, S), torch.randn(3, 4, 2)
    together.act(features, goal)
    together.merge_moments()
    for _ in range(5):
        measured = together.learn(replay, measure=True)
    acted = together.act(features, goal)
    for i, key in enumerate(keys):
        own_section = dataclasses.replace(section, **{n: v[i] for n, v in OWN.items()})
        alone, own_replay = agent(own_section, [key], backend)
        alone.act(features[i : i + 1], goal[i : i + 1])
        alone.merge_moments()
        for _ in range(5):
            own = alone.learn(own_replay, measure=True)
        torch.testing.assert_close(together.params[i], alone.params[0], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(measured[i], own[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(acted[i : i + 1], alone.act(features[i : i + 1], goal[i : i + 1]), atol=1e-4, rtol=0)
    before = CRL(section, S, A, GOAL, torch.tensor(keys)).params
    moved = (together.params - before).abs().amax(1)
    assert (moved > 1e-4).all()
    assert (together.params[2, : together.actor.size] == before[2, : together.actor.size]).all()  # policy_lr 0


@pytest.mark.parametrize("backend", ["torch", pytest.param("compiled", marks=pytest.mark.slow)])
def test_one_that_diverges_harms_no_other(backend: str) -> None:
    together, replay = agent(SMALL, [5, 6, 7], backend)
    healthy, same = agent(SMALL, [5, 6, 7], backend)
    together.params[1] = math.nan
    for _ in range(3):
        together.learn(replay)
        healthy.learn(same)
    assert together.diverged().tolist() == [False, True, False]
    assert torch.equal(together.params[[0, 2]], healthy.params[[0, 2]])


def test_learning_lowers_the_loss_and_raises_the_accuracy() -> None:
    """On states that drift, so that a state tells of its future."""
    section = dataclasses.replace(SMALL, critic_lr=3e-3, batch_size=64)
    crl = CRL(section, S, A, GOAL, torch.tensor([5, 6]))
    replay = TrajectoryReplay(2, 3, 64, crl.fields, torch.device("cpu"))
    state = torch.randn(2, 3, S)
    for t in range(60):
        replay.write({"state": state, "action": torch.randn(2, 3, A)})
        replay.end(torch.full((2, 3), t % 10 == 9))
        state = torch.randn(2, 3, S) if t % 10 == 9 else state + 0.05 * torch.randn(2, 3, S)
    first = crl.learn(replay, measure=True)
    for _ in range(150):
        last = crl.learn(replay, measure=True)
    loss, accuracy = METRICS.index("critic_loss"), METRICS.index("categorical_accuracy")
    assert (last[:, loss] < first[:, loss] - 1).all() and (last[:, accuracy] > 3 * first[:, accuracy]).all()


@pytest.mark.parametrize("backend", ["torch", pytest.param("compiled", marks=pytest.mark.slow)])
def test_what_is_kept_goes_on_the_same(backend: str) -> None:
    section = dataclasses.replace(SMALL, normalize_observations=True)
    crl, replay = agent(section, [5, 6], backend)
    features, goal = torch.randn(2, 4, S), torch.randn(2, 4, 2)
    crl.act(features, goal)
    crl.merge_moments()
    crl.learn(replay)
    again, _ = agent(section, [5, 6], backend)
    again.load_state_dict(crl.state_dict())
    for one in (crl, again):
        one.learn(replay)
    assert torch.equal(crl.params, again.params) and torch.equal(crl.act(features, goal), again.act(features, goal))


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="exploration_coef.*l2 or dot"):
        agent(dataclasses.replace(SMALL, energy_fn="cos", exploration_coef=1.0), [1])
    with pytest.raises(ValueError, match="repr_dim: found 7"):
        agent(dataclasses.replace(SMALL, energy_fn="mrn", repr_dim=7), [1])
    with pytest.raises(ValueError, match="h_dim: all members share it"):
        agent(SMALL, [1], h_dim=[3])
    with pytest.raises(ValueError, match="found 2 values for 1 members"):
        agent(SMALL, [1], policy_lr=[3, 4])
    assert set(PER_MEMBER) <= {f.name for f in dataclasses.fields(CRLSection)}
    assert torch.isfinite(agent(SMALL, [1])[0].greedy(torch.randn(1, 2, S), torch.randn(1, 2, 2))).all()
