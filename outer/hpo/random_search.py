"""Random search, the control of the other searches: random configurations, all evaluated at the full budget."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from envolve.outer.hpo.hyperband import HyperbandSearch
from envolve.outer.hpo.search import check_space, values_of
from envolve.outer.hpo.trial import Plain

if TYPE_CHECKING:
    import ConfigSpace


class RandomSearch(HyperbandSearch):
    """Brackets of one configuration and one rung. A space without parameters repeats the base configuration."""

    def __init__(self, space: ConfigSpace.ConfigurationSpace, budgets: tuple[float, float, float], seed: int) -> None:
        """budgets: least, most, eta; only ``most`` is used. Raises ValueError."""
        check_space(space, "random", empty=True)
        _, most, eta = budgets
        super().__init__((most, most, eta), "hyperband")  # one rung: brackets of all kinds are equal
        self._space = copy.deepcopy(space)  # its random numbers are this search's alone
        self._space.seed(seed % 2**32)

    def _propose(self, budget: float) -> tuple[dict[str, Plain], bool]:
        return (values_of(self._space.sample_configuration()) if len(self._space) else {}), False
