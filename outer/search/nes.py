"""Evolution strategy over worlds: ``ask() -> Population``, ``tell(scores)``.

Two estimators:

published   the update of the original: of each mirrored pair the better one counts, psi += alpha sum_i F_i eps_i with a
            score transform F. Not a gradient: no 1/sigma, no difference quotient.
antithetic  OpenAI-ES (Salimans et al. 2017, https://arxiv.org/abs/1703.03864): mirrored sampling, centred ranks u and
            Adam along g = 1/(n sigma) sum_i (u_i+ - u_i-) eps_i (up to a factor, which Adam takes out).

All randomness is a function of (seed, generation, purpose), so a resumed search repeats the interrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.outer.config.section import GTNSection
from envolve.outer.search.recipe import Ground, Recipe
from envolve.outer.search.transforms import centred_ranks, score_transform

ORIG, PLUS, MINUS = "orig", "plus", "minus"
_ADAM_B1, _ADAM_B2, _ADAM_EPS = 0.9, 0.99, 1e-8  # 0.99: the direction changes faster than a network's gradient
# Purposes of random numbers, all of them: what one decision has seen no other may see.
NOISE, MEMBERS, RESTART, CONFIRM, COMPARISON, RETEST, ISLANDS, TRIAL, OWN = 1, 2, 3, 4, 5, 6, 7, 8, 9
# Counters of ``fresh_seeds`` within a run, all of them.
EVOLVED, ON_TASK = 0, 1  # both sides of the closing comparison
COUNTED = 2  # agents that tell whether an RN is solved where none are compared
EXPERTS = 3  # experts whose knowledge is distilled
CHOOSING = 4  # pupils, agents that choose between distilled worlds: all worlds have the same
BETTER = 5  # agents that tell whether the best world is better than the first one
PAID = 6  # test episodes of the action that a bandit pays most for
UNSEEN = 16  # agents of the report of ``envolve evolve``


def generator(seed: int, purpose: int, counter: int) -> np.random.Generator:
    """Independent random stream for every (seed, purpose, counter)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, purpose, counter])))


def member_seeds(seed: int, purpose: int, generation: int, n: int) -> np.ndarray:
    """Random seeds of n members, int64 in [0, 2**62)."""
    return generator(seed, purpose, generation).integers(0, 2**62, size=n)


def fresh_seeds(seed: int, counter: int, n: int) -> Tensor:
    """Random seeds of n agents that no generation has seen, int64 [n]. counter: what they are for."""
    return torch.from_numpy(member_seeds(seed, COMPARISON, counter, n))


def perturbations(seed: int, generation: int, n: int, noise_std: float, mask: Tensor) -> Tensor:
    """Perturbations of a generation, float32 [n, D]: N(0, noise_std^2) where the mask [D] is 1, else 0."""
    normal = generator(seed, NOISE, generation).standard_normal((n, mask.numel()), dtype=np.float32)
    return torch.from_numpy(normal) * noise_std * mask


@dataclass
class Population:
    """Axes: P members, D parameters of a world."""

    worlds: Tensor  # [P, D] float32
    seeds: Tensor  # [P] int64
    roles: List[str]  # [P] orig, plus or minus
    perturbation: np.ndarray  # [P] int64: index of the perturbation, -1 for orig
    shares: Tuple[float, ...] = ()  # [P], of the full training that each member gets; (): all of it
    recipe: Optional[Recipe] = None  # how ``worlds`` were drawn, for engines that send that in their place


@dataclass
class NESState:
    """State to resume a search from."""

    psi: Tensor  # [D] float32, the centre of the perturbations
    average: Tensor  # [D] float32, running average of psi; psi itself where iterate_averaging is 0
    moment1: Tensor  # [D] float64, Adam
    moment2: Tensor  # [D] float64
    generation: int = 0  # counts on over restarts: the streams never repeat
    updates: int = 0  # Adam steps since the last restart
    restarts: int = 0

    def to_dict(self) -> Dict[str, object]:
        return dict(vars(self))


class NES:
    """psi: the evolving world, a flat vector [D]."""

    def __init__(
        self,
        section: GTNSection,
        seed: int,
        init_world: Callable[[int], Tensor],
        mask: Tensor,
        state: Optional[NESState] = None,
    ) -> None:
        """init_world(world_seed) -> [D] makes a fresh world; mask [D] is 1 where parameters may change."""
        self.section, self.seed, self.init_world, self.mask = section, seed, init_world, mask
        self.state = state or self._fresh(generation=0, restarts=0)

    def _fresh(self, generation: int, restarts: int) -> NESState:
        psi = self.init_world(int(member_seeds(self.seed, RESTART, restarts, 1)[0]))
        zeros = torch.zeros(psi.numel(), dtype=torch.float64)
        return NESState(psi, psi, zeros, zeros.clone(), generation, 0, restarts)

    def restart(self) -> None:
        """Replaces a collapsed world by a new one."""
        self.state = self._fresh(self.state.generation, self.state.restarts + 1)

    def skip(self) -> None:
        """Instead of ``tell``: a generation without any score moves nothing, not even by Adam's momentum."""
        self.state.generation += 1

    def renew(self) -> None:
        """Instead of ``tell``: restarts the search, and the generation counts."""
        self.restart()
        self.state.generation += 1

    @property
    def centre(self) -> Tensor:
        """The unperturbed world, [D]."""
        return self.state.average

    def noise(self) -> Tensor:
        """Perturbations of this generation: [n, D] float32, N(0, noise_std^2) where the mask allows."""
        s = self.section
        return perturbations(self.seed, self.state.generation, s.num_workers, s.noise_std, self.mask)

    def ask(self) -> Population:
        """Members in order: orig x num_orig_evals, then per perturbation its plus agents and its minus agents."""
        s, psi, g = self.section, self.state.psi, self.state.generation
        n, evals = s.num_workers, s.num_grad_evals
        n_orig = s.num_orig_evals or n
        eps = self.noise()
        per_sign = n * evals
        seeds = member_seeds(self.seed, MEMBERS, g, n_orig + 2 * per_sign)
        plus_seeds, minus_seeds = seeds[n_orig : n_orig + per_sign], seeds[n_orig + per_sign :]
        if s.common_random_numbers:
            minus_seeds = plus_seeds
        blocks = [self.state.average.expand(n_orig, -1), (psi + eps).repeat_interleave(evals, 0)]
        parts, roles = [seeds[:n_orig], plus_seeds], [ORIG] * n_orig + [PLUS] * per_sign
        if s.mirrored_sampling:
            blocks.append((psi - eps).repeat_interleave(evals, 0))
            parts.append(minus_seeds)
            roles += [MINUS] * per_sign
        which = np.repeat(np.arange(n), evals)
        perturbation = np.concatenate([np.full(n_orig, -1)] + [which] * (len(parts) - 1))
        recipe = self._recipe(roles, perturbation)
        return Population(
            torch.cat(blocks), torch.from_numpy(np.concatenate(parts)), roles, perturbation, recipe=recipe
        )

    def _recipe(self, roles: List[str], perturbation: np.ndarray) -> Recipe:
        s, state = self.section, self.state
        same = torch.equal(state.average, state.psi)
        bases = state.psi[None] if same else torch.stack((state.average, state.psi))
        sign = np.array([{ORIG: 0, PLUS: 1, MINUS: -1}[role] for role in roles])
        rows = np.stack((np.where(sign == 0, 0, len(bases) - 1), sign * (perturbation + 1)), 1)
        ground = Ground(self.seed, state.generation, s.num_workers, s.noise_std, bases, self.mask)
        return Recipe(ground, torch.from_numpy(rows.astype(np.int32)))

    def confirmation(self, agents: int, stage: int) -> Population:
        """Makes ``agents`` more members of the unperturbed world, with new random seeds in each stage."""
        seeds = member_seeds(self.seed, CONFIRM, self.state.generation, agents * (stage + 1))[agents * stage :]
        return Population(
            self.state.average.expand(agents, -1).clone(),
            torch.from_numpy(seeds),
            ["confirm"] * agents,
            np.full(agents, -1),
        )

    def _combine(self, scores: np.ndarray) -> np.ndarray:
        """Combines the scores of a perturbation's agents, mean or worst: [n * num_grad_evals] -> [n]."""
        grouped = scores.reshape(self.section.num_workers, -1)
        return grouped.mean(1) if self.section.grad_eval_type == "mean" else grouped.min(1)

    def tell(self, scores: np.ndarray) -> None:
        """Moves psi by the scores and counts the generation. scores: [P] in the order of ``ask``, finite, higher is
        better."""
        s, state = self.section, self.state
        n_orig = s.num_orig_evals or s.num_workers
        eps = self.noise()
        per_sign = s.num_workers * s.num_grad_evals
        plus = self._combine(scores[n_orig : n_orig + per_sign])
        minus = self._combine(scores[n_orig + per_sign :]) if s.mirrored_sampling else None
        if s.estimator == "published":
            step = self._published(eps, plus, minus, float(scores[:n_orig].mean()))
        else:
            step = self._antithetic(eps, plus, minus)
        psi = (1 - s.weight_decay * self.mask.double()) * state.psi.double() + step
        state.psi = psi.float()
        # Polyak & Juditsky 1992: the average of the iterates is better than any of them, since their noise cancels
        state.average = torch.lerp(state.psi, state.average, s.iterate_averaging)
        state.generation += 1

    def _published(self, eps: Tensor, plus: np.ndarray, minus: Optional[np.ndarray], mean_orig: float) -> Tensor:
        """Published step alpha sum_i F_i eps_i, eps_i with the sign of the better one of the pair."""
        s = self.section
        scores, sign = plus, np.ones(len(plus))
        if minus is not None:
            sign = np.where(minus > plus, -1.0, 1.0)
            scores = np.maximum(plus, minus)
        weights = score_transform(scores, s.score_transform_type, mean_orig) * sign
        alpha = s.step_size / s.num_workers if s.nes_step_size else s.step_size
        return alpha * (torch.from_numpy(weights)[:, None] * eps.double()).sum(0)

    def _antithetic(self, eps: Tensor, plus: np.ndarray, minus: Optional[np.ndarray]) -> Tensor:
        """Adam's ascent step along g = 1/(n sigma) sum_i (u_i+ - u_i-) eps_i, u = centred ranks over all members."""
        s, state = self.section, self.state
        n = s.num_workers
        u = centred_ranks(plus if minus is None else np.concatenate([plus, minus]))
        weights = u if minus is None else u[:n] - u[n:]
        g = (torch.from_numpy(weights)[:, None] * eps.double()).sum(0) / (n * s.noise_std)
        state.updates += 1
        state.moment1 = _ADAM_B1 * state.moment1 + (1 - _ADAM_B1) * g
        state.moment2 = _ADAM_B2 * state.moment2 + (1 - _ADAM_B2) * g * g
        m_hat = state.moment1 / (1 - _ADAM_B1**state.updates)
        v_hat = state.moment2 / (1 - _ADAM_B2**state.updates)
        return s.step_size * m_hat / (v_hat.sqrt() + _ADAM_EPS)
