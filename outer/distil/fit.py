"""Small networks fitted by supervised learning: the controls beside which worlds that were evolved are judged.

``fit_classifier``  a policy fitted to labelled states
``fit_bandit``      a contextual bandit that teaches a given policy: its contexts are like given states (by energy
                    distance), and it pays most for the policy's own action. It has the networks of an evolved bandit:
                    the same agents train in it. ``continuous.py`` has what is different for continuous actions.
``fit_potential``   a reward network whose potential is a given value function
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, forward, init_flat
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.contextual_bandit import LATENT_SCALE
from envolve.envs.worlds.world import init_world, world_nets
from envolve.outer.distil.continuous import STEPS as BUMP_STEPS
from envolve.outer.distil.continuous import fit_bump
from envolve.outer.distil.descend import descend
from envolve.outer.distil.energy import energy_loss, softened, units_of
from envolve.outer.distil.policy import Policy, of_observation
from envolve.outer.distil.stored import chosen

STEPS, BATCH, LR = 2000, 256, 3e-3  # of every fit; the learning rate falls to a tenth
CLASSIFIER_UNITS = 64
LABELS, CONTEXTS = 31, 32  # random streams beside those of core/rng.py


def minimise(flat: Tensor, loss: Callable[[Tensor, int], Tensor], steps: int = STEPS) -> Tensor:
    """Minimises loss(flat, step) from ``flat`` [1, D] -> [1, D]."""
    return descend(flat, loss, steps, LR, 0.1)


def draws(key: Tensor, step: int, count: int) -> Tensor:
    """Uniform random numbers of one step of a fit, float64 [count]."""
    return rng.uniform(key[:, None], (step * count + torch.arange(count))[None])[0]


def batch_of(data: Tensor, key: Tensor, step: int) -> Tensor:
    """Random rows of data [n, ...], with replacement -> [BATCH, ...]."""
    return data[(draws(key, step, BATCH) * len(data)).long()]


def fit_classifier(task: Task, states: Tensor, labels: Tensor, key: int) -> Policy:
    """Fits a policy with one hidden layer to labelled observations: cross entropy for discrete actions, squared error
    for continuous ones. states: float32 [n, F]; labels: int64 [n] or float32 [n, A]."""
    outputs = task.num_actions or task.action_size
    shape, seed = MLPShape(task.observation_size, outputs, CLASSIFIER_UNITS, 1, "tanh"), torch.tensor([key])
    stream, mean, scale = rng.fold(seed, LABELS), states.mean(0), units_of(states)
    both = torch.cat((((states - mean) / scale), labels.float().view(len(states), -1)), 1)

    def loss(flat: Tensor, step: int) -> Tensor:
        rows = batch_of(both, stream, step)
        out = forward(shape, flat, rows[:, : states.shape[1]].T.unsqueeze(0))[0].T
        target = rows[:, states.shape[1] :]
        if task.num_actions:
            return torch.nn.functional.cross_entropy(out, target[:, 0].long())
        return (out - target).square().mean()

    flat = minimise(init_flat(shape, seed), loss)

    def act(observation: Tensor) -> Tensor:
        x = ((observation - mean) / scale).transpose(1, 2)
        out = forward(shape, flat.expand(len(x), -1), x).transpose(1, 2)
        return out.argmax(-1) if task.num_actions else out.clamp(-task.max_action, task.max_action)

    return of_observation(task, act)


def fit_bandit(
    task: Task, section: EnvSection, contexts: Tensor, act: Callable[[Tensor], Tensor], key: int, steps: int = 0
) -> Tensor:
    """The parameters of a contextual bandit that teaches a policy, float32 [D].

    contexts: float32 [n, F], observations that its own shall be like, or of which it stores some; act: observations
    [n, F] -> the policy's actions, int64 [n] or float32 [n, A]. It pays 1 for the policy's action and -1 for another
    one, or minus the distance to it in units of the largest action. steps: of the reward's fit; 0: the default.
    """
    if task.action_size:
        return fit_bump(task, section, contexts, act, key, steps or BUMP_STEPS)
    seed, (init, reward) = torch.tensor([key]), (shape for _, shape in world_nets("se", task, section))
    flat, stream = init_world("se", task, section, seed), rng.fold(seed, CONTEXTS)
    F, A = task.observation_size, task.action_inputs
    scale = units_of(contexts, task.codes)

    def contexts_like(flat: Tensor, step: int) -> Tensor:
        z = LATENT_SCALE * (draws(stream, step, BATCH * F).float().view(1, F, BATCH) - 0.5)
        drawn = softened(forward(init, flat, z)[0].T, task.codes) / scale
        return energy_loss(drawn, batch_of(contexts, rng.fold(stream, 1), step) / scale)

    def choice(flat: Tensor, step: int) -> Tensor:
        state = batch_of(contexts, rng.fold(stream, 2), step)
        best, u = act(state), draws(rng.fold(stream, 3), step, BATCH * A).float().view(BATCH, A)
        action = (u[:, 0] * task.num_actions).long()
        return error(flat, torch.eye(task.num_actions)[action], state, 2.0 * (action == best) - 1)

    def error(flat: Tensor, code: Tensor, state: Tensor, target: Tensor) -> Tensor:
        out = forward(reward, flat, torch.cat((code, state), 1).T.unsqueeze(0))[0, 0]
        return (out - target).square().mean()

    stored = section.stored_contexts
    drawing = chosen(contexts, stored, key).view(1, -1) if stored else minimise(flat[:, : init.size], contexts_like)
    return torch.cat((drawing, minimise(flat[:, init.size :], choice, steps or STEPS)), 1)[0]


def fit_potential(task: Task, section: EnvSection, values: Tensor, key: int) -> Tensor:
    """The parameters of a reward network whose potential is ``values`` [num_states], of a finite task: float32 [D]."""
    ((_, shape),) = world_nets("rn", task, section)
    x, seed = torch.eye(len(values)).unsqueeze(0), torch.tensor([key])
    return minimise(init_flat(shape, seed), lambda flat, _: (forward(shape, flat, x)[0, 0] - values).square().mean())[0]
