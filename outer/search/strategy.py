"""The search as a run sees it: one interface for NES and for every other search.

NES knows of mirrored pairs and of the centre's score, so it fills whole populations itself. ``OwnSearch`` does the same
around a ``Search``, which only knows worlds and scores, and checks all that comes from it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from envolve.core import plugins
from envolve.core.registry import unknown
from envolve.outer.checkpoint import RunError
from envolve.outer.config.section import GTNSection
from envolve.outer.loop.loop import AskTell
from envolve.outer.search.nes import CONFIRM, MEMBERS, NES, ORIG, PLUS, RESTART, NESState, Population, member_seeds
from envolve.outer.search.search import NES_NAME, OwnState, Search, SearchRefused
from envolve.outer.search.searches import SEARCHES

MAX_STATE_DEPTH = 8


class SearchError(RunError):
    """A search failed or returned what no search may. One line that names its class, and its file if there is one."""


class Strategy(AskTell, Protocol):
    """What a run needs of its search, beside what the loop does. ``tell`` gets finite scores."""

    @property
    def state(self) -> NESState | OwnState:
        """What a checkpoint holds: with ``generation`` and ``restarts``."""

    @property
    def centre(self) -> Tensor:
        """float32 [D], the unperturbed world."""

    def confirmation(self, agents: int, stage: int) -> Population:
        """More agents for the unperturbed world, with seeds that no decision has seen."""

    def skip(self) -> None:
        """Instead of ``tell``: count a generation without any score, and stay where the search was before it."""

    def renew(self) -> None:
        """Instead of ``tell``: leave a collapsed world for a new one, and count the generation."""


class OwnSearch:
    """A ``Search`` as a :class:`Strategy`. Members in order: num_orig_evals agents in the centre, then num_grad_evals
    agents in each of the worlds that were asked for."""

    def __init__(
        self,
        name: str,
        section: GTNSection,
        seed: int,
        init_world: Callable[[int], Tensor],
        mask: Tensor,
        state: OwnState | None = None,
        settings: Any = None,
    ) -> None:
        """settings: of the search's own section; None: its defaults. Raises SearchError."""
        self.settings = settings
        self.name, self.section, self.seed, self.init_world, self.mask = name, section, seed, init_world, mask
        if state is not None and state.name != name:
            raise SearchError(f"the checkpoint is of the search {state.name}, expected {name}")
        self._state = state or OwnState(name, {})
        self._begin()  # from the world of the last restart: searches may draw around it
        if state is not None:
            self._restore(state.values)
        else:  # a class that cannot say or take its state is found before the first generation, not after it
            self._remember()
            self._begin()
            self._restore(self._state.values)

    def _begin(self) -> None:
        """A new object of the user's class."""
        cls: type[Search] = SEARCHES[self.name]
        world_seed = int(member_seeds(self.seed, RESTART, self._state.restarts, 1)[0])
        self.init = self.init_world(world_seed)
        arguments: tuple[Any, ...] = (self.init.numel(), self.mask.clone(), self.init.clone(), self.seed, self.section)
        if cls.section_class is not None:
            arguments += (cls.section_class() if self.settings is None else self.settings,)
        self.search: Any = self._guarded("__init__", lambda: cls(*arguments))
        self.search.generation = self._state.generation
        if not isinstance(getattr(self.search, "centre", None), Tensor):
            raise SearchError(f"{self._where()}: found no centre after __init__; does it call super().__init__?")

    def _where(self) -> str:
        module = sys.modules.get(SEARCHES[self.name].__module__)
        path = getattr(module, "__file__", None)
        return f"{path}: search {self.name}" if path else f"search {self.name}"

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except SearchRefused as e:
            raise SearchError(str(e)) from None
        except Exception as e:
            path = getattr(sys.modules.get(SEARCHES[self.name].__module__), "__file__", None)
            where = f"{plugins.place(e, path)}: search {self.name}" if path else f"search {self.name}"
            generation = self._state.generation + 1
            raise SearchError(f"{where}: {what} raised {plugins.said(e)} (generation {generation})") from e

    @property
    def state(self) -> OwnState:
        return self._state

    def _remember(self) -> None:
        values = self._guarded("state", self.search.state)
        if not isinstance(values, dict):
            raise SearchError(f"{self._where()}: state() returned {type(values).__name__}, expected a dict")
        self._state.values = {key: self._plain(f"state()[{key!r}]", v) for key, v in values.items()}

    def _plain(self, where: str, value: Any, depth: int = MAX_STATE_DEPTH) -> Any:
        """A copy of what a checkpoint can hold. numpy's numbers become Python's."""
        if isinstance(value, Tensor):
            return value.detach().cpu().clone().contiguous()
        if isinstance(value, (np.bool_, np.integer, np.floating)):
            return value.item()
        if value is None or type(value) in (bool, int, float, str):
            return value
        if depth and type(value) in (list, tuple):
            return [self._plain(f"{where}[{i}]", v, depth - 1) for i, v in enumerate(value)]
        if depth and type(value) is dict and all(type(k) in (str, int) for k in value):
            return {k: self._plain(f"{where}[{k!r}]", v, depth - 1) for k, v in value.items()}
        hint = "; torch.from_numpy makes one of it" if isinstance(value, np.ndarray) else ""
        words = f"expected a tensor, a number, a text, or lists and dicts of them{hint}"
        raise SearchError(f"{self._where()}: {where} is {type(value).__name__}, {words}")

    def _restore(self, values: dict[str, Any]) -> None:
        self.search.generation = self._state.generation
        self._guarded("restore", lambda: self.search.restore(copy.deepcopy(values)))

    def _worlds(self, what: str, value: Any, rows: int | None) -> Tensor:
        """-> float32 [P, D], or [D] where rows is None, finite, and with the first values where the mask is 0."""
        D = self.init.numel()
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        words = f"a tensor [{D}]" if rows is None else f"a tensor [P, {D}] of worlds"
        if not isinstance(value, Tensor):
            raise SearchError(f"{self._where()}: {what} is {type(value).__name__}, expected {words}")
        shape = list(value.shape)
        if shape[-1:] != [D] or len(shape) != (1 if rows is None else 2) or 0 in shape:
            raise SearchError(f"{self._where()}: {what} has the shape {shape}, expected {words}")
        worlds = value.detach().to("cpu", torch.float32)
        bad = int((~worlds.isfinite()).reshape(-1, D).any(1).sum())
        if bad:
            of = "" if rows is None else f"{bad} of {shape[0]} worlds are not finite "
            text = of or "has numbers that are not finite "
            raise SearchError(f"{self._where()}: {what}: {text}(generation {self._state.generation + 1})")
        return torch.where(self.mask.bool(), worlds, self.init)

    @property
    def centre(self) -> Tensor:
        return self._worlds("centre", self.search.centre, None)

    def ask(self) -> Population:
        """Raises SearchError."""
        s, g = self.section, self._state.generation
        worlds = self._worlds("ask()", self._guarded("ask", self.search.ask), 0)
        n_orig, evals = s.num_orig_evals or s.num_workers, s.num_grad_evals
        seeds = member_seeds(self.seed, MEMBERS, g, n_orig + len(worlds) * evals)
        which = np.repeat(np.arange(len(worlds)), evals)
        self.asked = len(worlds)
        return Population(
            torch.cat([self.centre.expand(n_orig, -1), worlds.repeat_interleave(evals, 0)]),
            torch.from_numpy(seeds),
            [ORIG] * n_orig + [PLUS] * len(which),
            np.concatenate([np.full(n_orig, -1), which]),
        )

    def tell(self, scores: np.ndarray) -> None:
        """Raises SearchError."""
        s = self.section
        own = scores[s.num_orig_evals or s.num_workers :].reshape(self.asked, s.num_grad_evals)
        combined = own.mean(1) if s.grad_eval_type == "mean" else own.min(1)
        self._guarded("tell", lambda: self.search.tell(combined))
        self.centre  # noqa: B018  looks at it now, while its generation is known
        self._count()

    def _count(self) -> None:
        self._state.generation += 1
        self.search.generation = self._state.generation
        self._remember()

    def confirmation(self, agents: int, stage: int) -> Population:
        seeds = member_seeds(self.seed, CONFIRM, self._state.generation, agents * (stage + 1))[agents * stage :]
        worlds = self.centre.expand(agents, -1).clone()
        return Population(worlds, torch.from_numpy(seeds), ["confirm"] * agents, np.full(agents, -1))

    def skip(self) -> None:
        self._begin()  # an object that was asked and not told has no state: a new one goes on from what was remembered
        self._state.generation += 1
        self._restore(self._state.values)

    def renew(self) -> None:
        self._state.restarts += 1
        self._begin()
        self._count()


def make_strategy(
    section: GTNSection,
    seed: int,
    init_world: Callable[[int], Tensor],
    mask: Tensor,
    state: NESState | OwnState | None = None,
    settings: Any = None,
) -> Strategy:
    """The search that ``agents.gtn.search`` names. settings: of its own section. Raises SearchError."""
    name = section.search
    if isinstance(state, OwnState if name == NES_NAME else NESState):
        raise SearchError(f"the checkpoint is of another search, expected {name}")
    if name == NES_NAME:
        assert not isinstance(state, OwnState)
        return NES(section, seed, init_world, mask, state)
    if name not in SEARCHES:
        late = "a search that a script registers must be registered before its run goes on"
        raise SearchError(f"{unknown('agents.gtn.search', name, [NES_NAME, *SEARCHES])}; {late}")
    assert not isinstance(state, NESState)
    return OwnSearch(name, section, seed, init_world, mask, state, settings)
