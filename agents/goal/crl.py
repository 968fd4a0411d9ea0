"""Contrastive RL for a population (Eysenbach et al. 2022, https://arxiv.org/abs/2206.07568): goals without rewards.

Two encoders, phi of a state-action and psi of a goal, learn by a contrastive loss that a state-action is like the goals
which hindsight found on its trajectory, and unlike those of all other samples of the batch: f(phi(s, a), psi(g)) then
tells how likely g is to follow. The actor takes actions whose phi is like psi of its goal. There is no reward, no
Bellman backup and no target network.

One update takes three losses at the parameters before it, then three Adam steps:
    critic       contrastive loss of L[i, j] = f(phi(s_i, a_i), psi(g_j)), and the penalties
    actor        mean(alpha log pi(a | s, g) - f(phi(s, a), psi(g))), a ~ pi(s, g), phi and psi constant
    temperature  alpha mean(-log pi(a | s, g) - H), H = -target_entropy * actions
That is what JaxGCRL does in whichever order, because its actor sees the old encoders. So psi of the batch is computed
once.

What a learner offers the loop in ``agents/goal/crl_train.py`` (the baselines in ``off_policy.py`` and ``ppo.py``, too):
    fields                          what of each decision is to be remembered: name -> numbers
    metrics                         names of what ``learn`` measures
    policy_delay                    updates from one turn of the actor to the next
    capturable                      whether ``act`` and ``learn`` read nothing back from the device and branch on no
                                    tensor's value, so that CUDA graphs can hold them
    updates                         steps of Adam so far, int64 [P]
    act(features, goal)             explores: actions [P, N, A] in [-1, 1]
    greedy(features, goal)          deterministic
    learn(replay, measure, actor)   one update of every member; measure: also return what METRICS names, [P, M];
                                    actor: it is the actor's turn
    diverged()                      bool [P]
    state_dict, load_state_dict     everything, as tensors

Random numbers are counted: decision d of environment n takes for action j counter (d N + n) A + j of stream EXPLORE;
update u takes for sample i and action j counter (65536 u + i) (A + 1) + j of stream UPDATE, and the next one to choose
the actor's goal.

On a CPU ``act``, ``greedy``, ``learn`` and ``learn_batch`` are those of the compiled twin,
``agents/kernels/goal/crl.py``, but for energies that it has not; the code here is what runs on a GPU, and what the twin
is tested against.

Axes: P members, N environments, B batch, S features of a state, G of a goal, A actions, R of a representation.
"""

from __future__ import annotations

import logging
from typing import Dict, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.normaliser import Moments
from envolve.agents.common.population import adam
from envolve.agents.goal import crl_energy
from envolve.agents.goal.crl_losses import Contrast, diagnostics, logsumexp_penalty, loss_named, representation_penalty
from envolve.agents.goal.crl_networks import TrunkShape, forward, gaussian, initial, squashed
from envolve.agents.goal.crl_replay import TrajectoryReplay
from envolve.agents.goal.crl_section import PER_MEMBER, CRLSection, check_own
from envolve.agents.goal.inputs import Inputs
from envolve.agents.kernels.goal import crl_population
from envolve.core import rng

log = logging.getLogger("envolve")

METRICS = (
    "critic_loss", "actor_loss", "alpha_loss", "entropy", "alpha", "categorical_accuracy", "logits_pos", "logits_neg",
    "logsumexp",
)  # fmt: skip


class CRL(Inputs):
    """P learners of one shape, each with its own weights, random numbers and PER_MEMBER hyperparameters."""

    metrics = METRICS
    policy_delay = 1
    capturable = True

    def __init__(
        self,
        section: CRLSection,
        state_size: int,
        action_size: int,
        goal_indices: Sequence[int],
        keys: Tensor,
        own: Optional[Mapping[str, Sequence[float]]] = None,
        backend: str = "auto",
    ) -> None:
        """keys: int64 [P], on the device to use; goal_indices: features of a state that a goal consists of; own: values
        [P] for names in PER_MEMBER; backend: "torch", "compiled", or "auto", which logs when a CPU has to use PyTorch.
        Raises ValueError."""
        s, self.device, self.P = section, keys.device, len(keys)
        self.section, self.S, self.A, self.G = s, state_size, action_size, len(goal_indices)
        self.energy = crl_energy.canonical(s.energy_fn)
        self.loss = loss_named(s.contrastive_loss_fn)
        self.hyper = per_member(section, self.P, own or {}, self.device)  # float32 [P]
        self.used = {name for name, values in self.hyper.items() if bool((values != 0).any())}
        self.lr = {n: self.hyper[n].double() for n in ("policy_lr", "critic_lr", "alpha_lr")}
        if "exploration_coef" in self.used and self.energy not in ("l2", "dot"):
            raise ValueError(f"exploration_coef: found it set with energy_fn {s.energy_fn}, expected energy l2 or dot")
        self.goal_indices = torch.tensor(list(goal_indices), device=self.device)
        self.mrn = crl_energy.takes_future_action(self.energy)
        if self.mrn and s.repr_dim % 2:
            raise ValueError(f"repr_dim: found {s.repr_dim}, expected an even number: {s.energy_fn} halves it")

        trunk = (s.h_dim, s.n_hidden, s.activation)
        self.actor = TrunkShape(self.S + self.G, 2 * self.A, *trunk, skip=s.skip_connections)
        self.phi = TrunkShape(self.S + self.A, s.repr_dim, *trunk, layer_norm=s.use_ln, skip=s.skip_connections)
        self.psi = TrunkShape(self.G, s.repr_dim, *trunk, layer_norm=s.use_ln, skip=s.skip_connections)
        self.sizes = [self.actor.size, self.phi.size, self.psi.size, 1]  # the last: the logits' factor
        stream, parts, at = rng.fold(keys, rng.INIT), [], 0
        for shape in (self.actor, self.phi, self.psi):
            parts.append(initial(shape, stream, at))
            at += shape.size
        scale = crl_energy.COSINE_SCALE if self.energy == "cosine" else 1.0
        self.learns_scale = s.use_c_target or self.energy == "cosine"
        self.params = torch.cat((*parts, parts[0].new_full((self.P, 1), scale)), 1)  # [P, D]
        self.log_alpha = self.hyper["initial_alpha"].log()[:, None]  # [P, 1]
        self.m, self.v = torch.zeros_like(self.params), torch.zeros_like(self.params)  # Adam's moments
        self.alpha_m, self.alpha_v = torch.zeros_like(self.log_alpha), torch.zeros_like(self.log_alpha)
        self.updates = torch.zeros(self.P, dtype=torch.int64, device=self.device)
        self.decisions = torch.zeros((), dtype=torch.int64, device=self.device)
        self.explore_key, self.replay_key = rng.fold(keys, rng.EXPLORE), rng.fold(keys, rng.REPLAY)
        self.update_key = rng.fold(keys, rng.UPDATE)
        self.moments = Moments(self.P, self.S + self.G, self.device) if s.normalize_observations else None
        self.fields: Dict[str, int] = {"state": self.S, "action": self.A}
        self.compiled = crl_population.Compiled(self) if self._is_compiled(backend) else None

    def _is_compiled(self, backend: str) -> bool:
        if backend not in ("auto", "compiled", "torch"):
            raise ValueError(f"backend {backend!r}: expected one of auto, compiled, torch")
        if backend == "torch":
            return False
        reason = crl_population.why_not(self.section, self.device)
        if reason is None:
            return True
        if backend == "compiled":
            raise ValueError(f"backend 'compiled': {reason}")
        if self.device.type == "cpu":
            log.warning("contrastive RL trains on the PyTorch path, which is slower: %s", reason)
        return False

    # ------------------------------------------------------------------------------------------------------ acting

    def _policy(self, actor: Tensor, features: Tensor, goal: Tensor) -> Tuple[Tensor, Tensor]:
        """Mean and deviation of u, [P, B, A], for features [P, B, S] and goal [P, B, G]."""
        return gaussian(forward(self.actor, actor, self._input(features, goal)), self.section.policy_std)

    @torch.no_grad()
    def act(self, features: Tensor, goal: Tensor) -> Tensor:
        N, A = features.shape[1], self.A
        self._observe(features, goal)
        if self.compiled is not None:
            action = self.compiled.act(features, goal, True)
            self.decisions += 1
            return action
        first = rng.advance(self.explore_key, self.decisions * (N * A))[:, None]
        noise = rng.normal(first, torch.arange(N * A, device=self.device)).view(self.P, N, A)
        self.decisions += 1
        return self.explore(features, goal, noise)

    @torch.no_grad()
    def explore(self, features: Tensor, goal: Tensor, noise: Tensor) -> Tensor:
        """Samples actions of the policy. noise: [P, N, A], standard normal."""
        return squashed(*self._policy(self.params[:, : self.actor.size], features, goal), noise)[0]

    @torch.no_grad()
    def greedy(self, features: Tensor, goal: Tensor) -> Tensor:
        if self.compiled is not None:
            return self.compiled.act(features, goal, False)
        return torch.tanh(self._policy(self.params[:, : self.actor.size], features, goal)[0])

    # ----------------------------------------------------------------------------------------------------- learning

    def sample(self, replay: TrajectoryReplay) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples a batch for every member: state [P, B, S], action [P, B, A], a goal from its future [P, B, G], and
        the input of psi: the goal, or for MRN the future state and action."""
        now = replay.uniform_rows(self.replay_key, self.updates, self.section.batch_size)
        later = replay.future(now, self.hyper["discounting"], self.replay_key, self.updates)
        future = replay.gather("state", later)
        goal = future.index_select(2, self.goal_indices)
        beside = torch.cat((future, replay.gather("action", later)), 2) if self.mrn else goal
        return replay.gather("state", now), replay.gather("action", now), goal, beside

    def noise(self) -> Tuple[Tensor, Tensor]:
        """Noise of this update: standard normal [P, B, A], uniform [P, B]."""
        B, W = self.section.batch_size, self.A + 1
        first = rng.advance(self.update_key, self.updates * (65536 * W))[:, None, None]
        counter = torch.arange(B, device=self.device)[:, None] * W
        action = counter + torch.arange(self.A, device=self.device)
        return rng.normal(first, action), rng.uniform(first[:, 0], counter[:, 0] + self.A)

    def losses(
        self, params: Tensor, log_alpha: Tensor, batch: Tuple[Tensor, ...], noise: Tuple[Tensor, Tensor]
    ) -> Tuple[Tensor, Tensor, Tensor, Contrast, Tensor]:
        """Losses of critic, actor and temperature [P], the logits, and -log pi [P, B]. The gradient of each loss
        reaches only its own part of params and log_alpha."""
        s, h = self.section, self.hyper
        state, action, goal, beside = batch
        actor, phi, psi, scale = params.split(self.sizes, 1)

        # critic
        x = forward(self.phi, phi, torch.cat((state, action), 2))
        y, potential = self._beside(phi, psi, goal, beside)
        logits = crl_energy.logits(self.energy, x, y)
        logits = logits if potential is None else logits + potential[:, None, :]
        logits = logits * scale[:, :, None] if self.learns_scale else logits
        c = Contrast(logits, s.no_resubs)
        critic = self.loss(c)
        if "logsumexp_penalty" in self.used:
            critic = critic + h["logsumexp_penalty"] * logsumexp_penalty(c)
        if "l2_penalty" in self.used:
            critic = critic + h["l2_penalty"] * representation_penalty(x, y)

        # actor: another sample's goal is the one before it in the batch
        normal, u = noise
        y = y.detach()
        if "random_goals" in self.used:
            other = (u < h["random_goals"][:, None])[:, :, None]
            goal, y = torch.where(other, goal.roll(1, 1), goal), torch.where(other, y.roll(1, 1), y)
        chosen, log_prob = squashed(*self._policy(actor, state, goal), normal)
        x = forward(self.phi, phi.detach(), torch.cat((state, chosen), 2))
        like = crl_energy.pairs(self.energy, x, y)
        like = like * scale.detach() if self.learns_scale else like
        loss = -like if s.disable_entropy_actor else log_alpha.detach().exp() * log_prob - like
        if "exploration_coef" in self.used:
            loss = loss - h["exploration_coef"][:, None] * (x.square().sum(2) + crl_energy.EPSILON).sqrt()

        target = -h["target_entropy"] * self.A
        temperature = log_alpha[:, 0].exp() * (-log_prob.detach().mean(1) - target)
        return critic, loss.mean(1), temperature, c, -log_prob.detach()

    def _beside(self, phi: Tensor, psi: Tensor, goal: Tensor, beside: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Representations y [P, B, R] to compare state-actions with, and a potential [P, B] to add."""
        if not self.mrn:
            return forward(self.psi, psi, goal), None
        if self.energy != "mrn":  # shuffled: with another sample's action, so that y tells of the state alone
            beside = torch.cat((beside[..., : self.S], beside[..., self.S :].roll(1, 1)), 2)
        potential = forward(self.psi, psi, goal).mean(2) if self.energy == "mrn_pot_shuf" else None
        return forward(self.phi, phi, beside), potential

    def learn(self, replay: TrajectoryReplay, measure: bool = False, actor: bool = True) -> Optional[Tensor]:
        """One update of every member, including the actor. Returns the metrics named in METRICS, [P, M], if asked
        to."""
        if self.compiled is not None:
            return self.compiled.learn(replay, measure)
        return self.learn_batch(self.sample(replay), measure)

    def learn_batch(self, batch: Tuple[Tensor, ...], measure: bool = False) -> Optional[Tensor]:
        """One update with a given batch in the format of ``sample``."""
        if self.compiled is not None:
            return self.compiled.learn_batch(batch, measure)
        noise = self.noise()
        params, log_alpha = self.params.detach().requires_grad_(), self.log_alpha.detach().requires_grad_()
        critic, policy, temperature, c, entropy = self.losses(params, log_alpha, batch, noise)
        total = (critic + policy + temperature).sum()  # members share nothing: the sum's gradient is each one's own
        grad, alpha_grad = torch.autograd.grad(total, (params, log_alpha))
        self.updates += 1
        border = self.actor.size
        for part, lr in ((slice(0, border), "policy_lr"), (slice(border, None), "critic_lr")):
            adam(self.params[:, part], grad[:, part], self.m[:, part], self.v[:, part], self.updates, self.lr[lr])
        adam(self.log_alpha, alpha_grad, self.alpha_m, self.alpha_v, self.updates, self.lr["alpha_lr"])
        if not measure:
            return None
        with torch.no_grad():
            values = [critic, policy, temperature, entropy.mean(1), log_alpha[:, 0].exp(), *diagnostics(c).values()]
            return torch.stack([value.detach() for value in values], 1)

    def diverged(self) -> Tensor:
        return ~(torch.isfinite(self.params).all(1) & torch.isfinite(self.log_alpha).all(1))

    # ------------------------------------------------------------------------------------------------ keeping a run

    KEPT = ("params", "log_alpha", "m", "v", "alpha_m", "alpha_v", "updates", "decisions")

    def state_dict(self) -> Dict[str, Tensor]:
        state = {name: getattr(self, name).clone() for name in self.KEPT}
        return {**state, **self._moments_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name in self.KEPT:
            getattr(self, name).copy_(state[name])
        self._load_moments(state)


def per_member(
    section: CRLSection, P: int, own: Mapping[str, Sequence[float]], device: torch.device
) -> Dict[str, Tensor]:
    """Values of each name in PER_MEMBER, float32 [P]. Raises ValueError."""
    check_own(own, PER_MEMBER, P)
    columns = {name: np.asarray(own.get(name, [getattr(section, name)] * P), np.float64) for name in PER_MEMBER}
    return {name: torch.as_tensor(column, dtype=torch.float32, device=device) for name, column in columns.items()}
