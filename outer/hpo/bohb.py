"""BOHB (Falkner et al. 2018, https://arxiv.org/abs/1807.01774): Hyperband's brackets, whose configurations a model
proposes.

New configurations come from two kernel densities, of good and of bad ones at the largest budget that has enough of
them, and a third at random. The densities are hpbandster's (https://github.com/automl/HpBandSter, no longer
maintained): its config generator alone, without name server and workers. The brackets are ``outer/hpo/hyperband.py``'s.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from envolve.outer.hpo.hyperband import HyperbandSearch
from envolve.outer.hpo.search import check_space, values_of
from envolve.outer.hpo.trial import Plain, Trial

try:
    import ConfigSpace
    from hpbandster.optimizers.config_generators import bohb as hpbandster_bohb
    from scipy.special import ndtr, ndtri
except ImportError as e:
    raise ImportError(
        f"bohb needs a missing package ({e}): pip install hpbandster==0.7.4 ConfigSpace (netifaces, which"
        " hpbandster asks for, is built from source: that takes a C compiler and Python's headers)"
    ) from e

log = logging.getLogger("envolve")


class _TruncatedNormal:
    """Replacement of ``scipy.stats.truncnorm`` for hpbandster, by the inverse of the distribution function. scipy's own
    takes two thirds of the time of a whole search."""

    @staticmethod
    def rvs(a: float, b: float, loc: float, scale: float) -> float:
        """Samples from N(loc, scale) cut to [0, 1]; [a, b] is that interval in units of scale around loc."""
        u = np.random.uniform(ndtr(a), ndtr(b))  # noqa: NPY002
        return float(np.clip(loc + scale * ndtri(u), 0.0, 1.0))


hpbandster_bohb.sps = SimpleNamespace(truncnorm=_TruncatedNormal)


class _Density:
    """A kernel density of hpbandster's as it should be. Its own (statsmodels') counts the choices of a categorical
    parameter in the data: where all good configurations agree, any other choice has an infinite density, and is
    proposed for that.

    Axes: N configurations, D parameters.
    """

    def __init__(self, kde: Any, choices: np.ndarray) -> None:
        """kde: data [N, D] and bandwidths bw [D]; choices: int [D], how many a parameter has, 0: it is a number."""
        self.data, self.categorical = kde.data, choices > 0
        # from h = (c - 1) / c the kernel is as wide as can be: every choice has the same density
        widest = np.where(self.categorical, (choices - 1) / np.maximum(choices, 1), np.inf)
        self.bw = np.minimum(kde.bw, widest)
        h = self.bw[self.categorical]
        self.same, self.other = 1 - h, h / np.maximum(choices[self.categorical] - 1, 1)
        self.norm = len(self.data) * np.prod(math.sqrt(2 * math.pi) * self.bw[~self.categorical])

    def pdf(self, x: Sequence[float]) -> float:
        """1/N sum_n prod_d K_d: for numbers exp(-((x - x_n) / h)^2 / 2) / (sqrt(2 pi) h), for choices (Aitchison and
        Aitken 1976) 1 - h where x = x_n, h / (c - 1) elsewhere."""
        at, c = np.asarray(x, np.float64), self.categorical
        numbers = np.exp(-0.5 * (((self.data[:, ~c] - at[~c]) / self.bw[~c]) ** 2).sum(1))
        density = (numbers * np.where(self.data[:, c] == at[c], self.same, self.other).prod(1)).sum() / self.norm
        return float(f"{density:.12g}")  # of equals the first one is best, whatever the processor's last bits


class _Listener:
    """Logger for hpbandster, which reports failures of its model only there."""

    def __init__(self) -> None:
        self.failed_picks, self.undefined_ratios, self.failure = 0, 0, ""

    def debug(self, text: str, *args: object) -> None:
        self._hear(text, args)

    warning = debug

    def _hear(self, text: str, args: tuple[object, ...]) -> None:
        if text.startswith("sampled vector"):
            self.undefined_ratios += 1
            log.debug("bohb: the ratio of densities is undefined at a sample (%d so far)", self.undefined_ratios)
        elif text.startswith(("Sampling based optimization with", "Error (")):
            self.failed_picks += 1
            reason = str(args[0]) if args else [line for line in text.splitlines() if line.strip()][-2:][0]
            self.failure = reason.strip()


class BOHB(HyperbandSearch):
    """BOHB with ask and tell. Several trials may be out at once. Told in the same order, the same random seed asks the
    same trials, so a search is resumed by telling its results again."""

    def __init__(
        self,
        space: ConfigSpace.ConfigurationSpace,
        budgets: tuple[float, float, float],
        seed: int,
        bracket: str,
        random_fraction: float,
    ) -> None:
        """budgets: least, most, eta. Raises ValueError."""
        check_space(space, "bohb")
        super().__init__(budgets, bracket)
        self._listener = _Listener()
        self._random = np.random.RandomState(seed % 2**32).get_state()
        self._space = copy.deepcopy(space)  # its random numbers are this search's alone
        self._space.seed(seed % 2**32)
        with self._own_random_numbers():
            self.model = hpbandster_bohb.BOHB(self._space, random_fraction=random_fraction, logger=self._listener)

    @property
    def failed_picks(self) -> int:
        """Number of configurations drawn at random because the model failed."""
        return self._listener.failed_picks

    @property
    def undefined_ratios(self) -> int:
        """Number of model samples with an undefined ratio of densities."""
        return self._listener.undefined_ratios

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Lends the search's state to NumPy's global generator, from which hpbandster draws, and silences ConfigSpace's
        deprecation warnings."""
        others = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._random)  # noqa: NPY002
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                yield
        finally:
            self._random = np.random.get_state()  # noqa: NPY002
            np.random.set_state(others)  # noqa: NPY002

    def _propose(self, budget: float) -> tuple[dict[str, Plain], bool]:
        failures = self.failed_picks
        with self._own_random_numbers():
            proposed, info = self.model.get_config(budget)
            values = values_of(ConfigSpace.Configuration(self._space, proposed))
        failed = self.failed_picks > failures
        model_based = bool(info.get("model_based_pick", False)) and not failed
        if failed:
            log.warning(
                "bohb: the model failed to propose a configuration (%s); drawn at random instead, the %d. time",
                self._listener.failure,
                self.failed_picks,
            )
        log.debug("bohb: a configuration %s", "of the model" if model_based else "at random")
        return values, model_based

    def _learn(self, trial: Trial, loss: float) -> None:
        kwargs = {"budget": trial.budget, "config": trial.values}
        result = {"loss": loss} if np.isfinite(loss) else None
        with self._own_random_numbers():
            self.model.new_result(SimpleNamespace(id=trial.config_id, kwargs=kwargs, result=result, exception=None))
        for densities in self.model.kde_models.values():
            for which, density in densities.items():
                if not isinstance(density, _Density):
                    densities[which] = _Density(density, self.model.vartypes)
