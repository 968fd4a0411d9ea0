"""What only runs over worlds do within a generation: confirm what seems solved, leave a world that has collapsed, and
pass over a generation without any score. All are hooks of the loop, between the evaluation and ``tell``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from envolve.outer.config.section import GTNSection
from envolve.outer.evaluate.members import episode_length, lower_bound
from envolve.outer.loop.loop import Evaluated, Generation
from envolve.outer.loop.run_keeper import RunKeeper, mean_orig, orig
from envolve.outer.search.nes import Population

# An SE with episodes this short has collapsed, unless its agents learn all the same (some of the best worlds are
# near-bandits): the best tenth of the population is then at least SIGNAL of the way from the median to solved_reward.
COLLAPSED_LENGTH, SIGNAL = 3.0, 0.1


class Confirmation:
    """An SE is solved when agents trained in it alone reach solved_reward, fresh ones confirm it (their mean is above
    it with 95 % confidence: one just above would often be luck), and as many others confirm that.

    An RN run does not end early, as in the original.
    """

    def __init__(self, gtn: GTNSection, keeper: RunKeeper, evaluate: Callable[[Population], Evaluated]) -> None:
        """evaluate: fresh agents with the whole budget."""
        self.gtn, self.keeper, self.target, self.evaluate = gtn, keeper, keeper.target, evaluate

    def __call__(self, g: Generation) -> None:
        if self.target.kind != "rn" and mean_orig(g) >= self.target.solved_reward:
            g.solved = self._confirmed(g)
        g.last = g.last or (g.solved and self.gtn.quit_when_solved)

    def _confirmed(self, g: Generation) -> bool:
        agents = self.gtn.confirm_agents
        for stage in (0, 1) if agents else ():  # the second has had no say: of many first stages one passes by luck
            population = self.keeper.strategy.confirmation(agents, stage)
            found = self.evaluate(population)
            self.keeper.count(found.values)
            g.confirmed.append((population, found))
            least = lower_bound(found.scores) if stage == 0 else float(found.scores.mean())
            if not least >= self.target.solved_reward:  # also if a member failed: its score is NaN
                return False
        return True


class Collapse:
    """The failure mode of NES over SEs: done_net ends episodes at once, and all perturbations score alike. Also, for
    SEs and RNs: no member of the population has a score any more. The search then leaves the world for a new one."""

    def __init__(self, gtn: GTNSection, keeper: RunKeeper) -> None:
        self.gtn, self.keeper, self.target = gtn, keeper, keeper.target

    def __call__(self, g: Generation) -> None:
        p, strategy = self.keeper.progress, self.keeper.strategy
        p.short_generations = p.short_generations + 1 if g.failed.all() or self._flat_and_short(g) else 0
        due = 0 < self.gtn.collapse_generations <= p.short_generations
        if not due or strategy.state.restarts >= self.gtn.max_restarts:
            return
        p.short_generations = 0
        if not g.last:
            g.instead = strategy.renew
            p.restart_generations.append(g.number + 1)

    def _flat_and_short(self, g: Generation) -> bool:
        median, top = np.quantile(g.scores, [0.5, 0.9])
        flat = top - median < SIGNAL * (self.target.solved_reward - median)
        length = episode_length(g.found.values, orig(g))
        return bool(self.target.kind == "se" and length < COLLAPSED_LENGTH and flat)


class Unscored:
    """A generation in which all members failed says nothing of the worlds. Its equal scores would be a record for a
    search that keeps the best of negative ones, and would move CMA-ES: the search counts it and asks again.

    hopeless: no generation has ever had a score, and the last one failed for a single reason, so no world is at fault.
    """

    PATIENCE = 3  # generations

    def __init__(self, keeper: RunKeeper) -> None:
        self.keeper = keeper
        self.hopeless = False

    def __call__(self, g: Generation) -> None:
        if not g.failed.all() or g.instead is not None:
            return
        never = not self.keeper.progress.best_generation
        self.hopeless = never and g.number >= self.PATIENCE and len(set(g.found.reasons)) == 1
        g.instead = self.keeper.strategy.skip


def collapse_note(g: Generation) -> str:
    """What is said of a generation whose world was left."""
    length = episode_length(g.found.values, orig(g))
    what = "all members failed" if g.failed.all() else f"episodes of {length:.1f} steps"
    return f"generation {g.number}: the world collapsed ({what}); restarting from a new one"
