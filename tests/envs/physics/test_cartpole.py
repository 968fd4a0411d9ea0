"""CartPole in MuJoCo against Gymnasium's CartPole-v1: the same equations, signs and limits, a finer integrator."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
import torch

from envolve.envs.physics.cartpole import CartPole
from tests.envs.physics.shaped_by_the_task import make_envs, make_task

NAMES = ("cart_position", "cart_velocity", "pole_angle", "pole_angular_velocity")


def derivative(state: np.ndarray, force: float) -> np.ndarray:
    """Barto, Sutton and Anderson 1983 as corrected by Florian 2007 (eqs. 23, 24, no friction), float64."""
    _, velocity, angle, rate = state
    gravity, cart, pole, half = 9.8, 1.0, 0.1, 0.5
    total, moment = cart + pole, pole * half
    push = (force + moment * rate**2 * math.sin(angle)) / total
    turn = (gravity * math.sin(angle) - math.cos(angle) * push) / (
        half * (4.0 / 3.0 - pole * math.cos(angle) ** 2 / total)
    )
    return np.array([velocity, push - moment * turn * math.cos(angle) / total, rate, turn])


def runge_kutta(state: np.ndarray, force: float, dt: float) -> np.ndarray:
    a = derivative(state, force)
    b = derivative(state + dt / 2 * a, force)
    c = derivative(state + dt / 2 * b, force)
    d = derivative(state + dt * c, force)
    return state + dt / 6 * (a + 2 * b + 2 * c + d)


def put(task: CartPole, states: np.ndarray) -> None:
    """states: [N, 4] in the order of NAMES."""
    x = torch.from_numpy(states)
    n = len(states)
    task.sim.set_state(torch.arange(n), torch.zeros(n, 0, 13).double(), x[:, [0, 2]].clone(), x[:, [1, 3]].clone())
    task.measure()


def random_states(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (n, 4)) * [2.0, 3.0, 3.0, 5.0]  # the pole anywhere, not only upright


def semi_implicit(state: np.ndarray, force: float, dt: float) -> np.ndarray:
    """MuJoCo's integrator where nothing is damped: velocities first, then positions with the new velocities."""
    new = state + dt * derivative(state, force)
    new[[0, 2]] = state[[0, 2]] + dt * new[[1, 3]]
    return new


def test_trajectories_are_those_of_the_published_equations() -> None:
    rng = np.random.default_rng(1)
    task, states = make_task(CartPole, 16), random_states(16)
    put(task, states)
    for _ in range(100):  # 2 s
        action = rng.uniform(-1, 1, 16)
        task.sim.set_effort(CartPole.compute_torque(torch.from_numpy(action)[:, None], task.state))
        task.sim.step(task.substeps)
        for i in range(16):
            for _ in range(task.substeps):
                states[i] = semi_implicit(states[i], 10.0 * action[i], task.sim.timestep)
    found = torch.cat((task.sim.joint_position, task.sim.joint_velocity), 1)[:, [0, 2, 1, 3]].numpy()
    np.testing.assert_allclose(found, states, rtol=0, atol=1e-7)


@pytest.mark.parametrize("push", [0, 1])
def test_accelerations_and_their_signs_are_gymnasiums(push: int) -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    task, states = make_task(CartPole, 8), random_states(8)
    put(task, states)
    action = torch.full((8, 1), 2.0 * push - 1)
    task.sim.set_effort(CartPole.compute_torque(action, task.state))
    task.sim.step(1)
    velocity = task.sim.joint_velocity.numpy()
    ours = (velocity - states[:, [1, 3]]) / task.sim.timestep  # mean acceleration over 5 ms
    for i in range(8):
        env.state, env.tau, env.steps_beyond_terminated = states[i], 1e-4, None
        env.step(push)
        theirs = (np.asarray(env.state)[[1, 3]] - states[i, [1, 3]]) / 1e-4
        np.testing.assert_allclose(ours[i], theirs, atol=0.25)  # 5 ms change an acceleration by so much
        assert np.sign(ours[i]).tolist() == np.sign(theirs).tolist() or np.abs(theirs).min() < 0.25
    assert env.force_mag == CartPole.compute_torque(torch.ones(1, 1), {})[0, 0]


def test_a_control_step_is_as_long_as_gymnasiums_and_nearer_to_the_exact_solution() -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=3)
    exact = np.asarray(env.state, np.float64)
    task = make_task(CartPole, 1)
    put(task, exact[None])
    for t in range(12):
        action = t // 2 % 2
        env.step(action)
        task.sim.set_effort(torch.tensor([[20.0 * action - 10]]))
        task.sim.step(task.substeps)
        task.measure()
        for _ in range(100):
            exact = runge_kutta(exact, 20.0 * action - 10, env.tau / 100)
    ours = CartPole.compute_observation(task.state)[0].numpy()
    assert task.dt == pytest.approx(env.tau)
    assert (np.abs(ours - exact) < 0.5 * np.abs(env.state - exact)).all()
    np.testing.assert_allclose(ours, exact, atol=0.01)


def test_the_episode_ends_where_gymnasiums_ends() -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    assert env.theta_threshold_radians == pytest.approx(math.radians(12)) and env.x_threshold == 2.4
    inside, outside = math.radians(11.99), math.radians(12.01)
    states = np.array([[0, 0, inside, 9], [0, 0, -outside, 0], [2.399, 9, 0, 0], [-2.401, 0, 0, 0]], np.float64)
    task = make_task(CartPole, 4)
    put(task, states)
    assert CartPole.compute_terminal(task.state).tolist() == [False, True, False, True]
    assert task.score().tolist() == [1, 0, 1, 0]


def test_observation_reward_and_initial_states_are_gymnasiums() -> None:
    envs = make_envs(CartPole, 2048)
    obs = envs.begin()[0]
    assert obs.shape == (2048, 4)
    assert (obs.abs() <= 0.05).all() and (obs.min(0).values < -0.049).all() and (obs.max(0).values > 0.049).all()
    correlation = np.corrcoef(obs.numpy().T) - np.eye(4)
    assert np.abs(correlation).max() < 0.1, "four independent draws"
    put(envs.task, random_states(2048))
    observed = CartPole.compute_observation(envs.task.state)
    for column, name in enumerate(NAMES):
        assert torch.equal(observed[:, column], envs.task.state[name])
    np.testing.assert_allclose(observed.numpy(), random_states(2048), rtol=1e-6)
    assert (CartPole.compute_reward(envs.task.state) == 1).all()


def test_a_pole_that_a_feedback_law_balances_scores_one_and_one_left_alone_little() -> None:
    scores = {}
    for name, gain in (("balanced", torch.tensor([0.1, 0.2, 2.0, 0.5])), ("alone", torch.zeros(4))):
        envs = make_envs(CartPole, 16)
        obs, total, alive = envs.begin(evaluation=True), torch.zeros(16).double(), torch.ones(16).bool()
        for _ in range(CartPole.max_steps):
            step = envs.step((obs[..., :4] @ gain)[..., None].clamp(-1, 1))
            obs = step.obs
            total += torch.where(alive, step.score[0], torch.zeros(16).double())
            alive &= ~step.terminated[0]
        scores[name] = float(total.mean()) / CartPole.max_steps
    assert scores["balanced"] == 1.0
    assert 0 < scores["alone"] < 0.5
