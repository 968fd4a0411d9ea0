"""Contrastive RL behind the programs' interface is that of agents/goal/crl.py."""

from __future__ import annotations

import torch

from envolve.agents.goal.crl import CRL
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import CRLSection
from envolve.core import rng
from envolve.distributed.memory.rows import Widths
from envolve.distributed.programs.agent import load_state, make_agent, state_of
from envolve.distributed.programs.contrastive import Contrastive
from tests.distributed.toy import small

S, G, A = 4, 2, 3
WIDTHS = Widths(S + G, A, (-1.0,) * A, (1.0,) * A, goal_size=G)
KEYS = torch.tensor([3, 8])
SECTION = CRLSection(h_dim=8, n_hidden=2, batch_size=8, initial_alpha=1.0)


def make(**values: object) -> Contrastive:
    found = make_agent(small(algorithm="CRL", log_alpha_init=0, **values), WIDTHS, KEYS)
    assert isinstance(found, Contrastive)
    return found


def memory() -> TrajectoryReplay:
    replay, generator = TrajectoryReplay(2, 3, 32, {"state": S, "action": A}, KEYS.device), torch.Generator()
    for t in range(32):
        replay.write({n: torch.randn(2, 3, w, generator=generator) for n, w in (("state", S), ("action", A))})
        replay.end(torch.full((2, 3), t % 10 == 9))
    return replay


def test_the_same_batches_teach_the_same_to_the_last_bit() -> None:
    """Goals are the first numbers of a state; five updates, with the penalties and the random goals."""
    more = {"logsumexp_penalty": 0.1, "random_goals": 0.5, "policy_std": "bounded", "contrastive_loss_fn": "infonce"}
    ours = make(**more)
    theirs, replay = CRL(CRLSection(**{**SECTION.__dict__, **more}), S, A, range(G), KEYS), memory()
    before = ours.weights().clone()
    for number in range(1, 6):
        state, action, goal, _ = theirs.sample(replay)
        rows = torch.full((2, 8, WIDTHS.row), 99.0)
        rows[..., :S], rows[..., WIDTHS.led_to], rows[..., WIDTHS.action] = state, goal, action
        theirs.learn(replay)
        ours.learn(rows.transpose(1, 2)[:, : WIDTHS.learned], number)
    for name in CRL.KEPT:
        assert torch.equal(getattr(theirs, name), ours.parts()[name]), name
    assert not torch.equal(before, ours.weights())


def test_a_state_goes_on() -> None:
    batch = torch.randn(2, WIDTHS.learned, 8)
    one, other = make(), make()
    one.learn(batch, 1)
    load_state(other, state_of(one))
    metrics = one.metrics()
    for agent in (one, other):
        agent.learn(batch, 2)
    assert all(torch.equal(a, b) for a, b in zip(state_of(one).values(), state_of(other).values()))
    assert {"alpha", "critic_loss", "entropy", "categorical_accuracy"} < set(metrics)
    assert all(value == value for value in metrics.values()) and set(make().metrics()) == {"alpha"}


def test_actions_are_uniform_first_and_then_the_policys() -> None:
    agent, obs = make(), torch.randn(2, 1, S + G)
    draws = agent.draws(rng.fold(KEYS, rng.EXPLORE), 5, 4000)
    again = agent.draws(rng.fold(KEYS, rng.EXPLORE), 7, 1)
    assert all(torch.equal(a[2], b[0]) for a, b in zip(draws, again))  # a decision's are its own
    uniform = torch.stack([agent.explore(obs, True, (u, n)) for u, n in zip(*draws)])
    assert uniform.shape == (4000, 2, A) and uniform.abs().max() <= 1
    assert (uniform.mean(0).abs() < 0.05).all() and ((uniform.var(0) - 1 / 3).abs() < 0.03).all()
    for u, n in list(zip(*draws))[:3]:
        expected = agent.crl.explore(obs[..., :S], obs[..., S:], n[:, None])[:, 0]
        assert torch.equal(agent.explore(obs, False, (u, n)), expected)
    still = agent.explore(obs, False, (draws[0][0], torch.zeros(2, A)))
    torch.testing.assert_close(still, agent.crl.greedy(obs[..., :S], obs[..., S:])[:, 0])  # compiled, on a CPU


def test_actor_and_layout_are_those_of_the_policy_file() -> None:
    agent = make(skip_connections=1, activation="swish")
    assert agent.actor().data_ptr() == agent.weights().data_ptr()
    assert agent.layout() == {"activation": "swish", "inputs": S + G, "outputs": A, "hidden": 8, "layers": 2, "skip": 1}
