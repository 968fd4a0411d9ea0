"""Each candidate's numbers of a task's terms, named by their paths (``paths.py``): ``TermNumbers`` makes a candidate's
environments live with its own, while the library's managers keep the task's.

Axes: P candidates, N environments each, R = P N, K reward terms.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from copy import copy
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from envolve.envs.managers.paths import WEIGHT, Keys, changed, places


class RecordedTerm:
    """A term's function that remembers what it returned, and has other numbers for some environments."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.value: Optional[Tensor] = None
        self.others: List[Any] = []  # functions of variants that keep state

    def __call__(self, env: Any, **params: Any) -> Any:
        self.value = self.function(env, **params)
        return self.value

    def reset(self, env_ids: Any = None) -> Any:
        for other in self.others:
            other.reset(env_ids=env_ids)
        return self.function.reset(env_ids=env_ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


class Variant(NamedTuple):
    """Candidates with the same numbers in a term."""

    members: Tuple[int, ...]
    numbers: Tuple[Tuple[Keys, float], ...]


class TermNumbers:
    """Each candidate's numbers. numbers: by path, one dictionary per candidate."""

    def __init__(self, env: Any, cfg: Any, numbers: Sequence[Dict[str, float]], N: int) -> None:
        """Raises KeyError for an unknown path; ``unknown`` tells before."""
        self.env, self.N, self.P = env, N, len(numbers)
        self.device = torch.device(env.device)
        self.shaped = True  # False: resets and commands as the task has them
        where = places(cfg)
        self._own: Dict[Tuple[str, str], Dict[Keys, Dict[int, float]]] = {}  # term -> keys -> candidate -> number
        for i, own in enumerate(numbers):
            for path, value in own.items():
                place = where[path]
                if torch.tensor(value, dtype=torch.float32) != torch.tensor(place.value, dtype=torch.float32):
                    term = self._own.setdefault((place.section, place.term), {})
                    term.setdefault(place.keys, {})[i] = value
        self._rows: Dict[Tuple[int, ...], Tensor] = {}
        self._variants: Dict[Tuple[str, str], List[Variant]] = {}
        self._batched: Dict[Tuple[str, str], bool] = {}
        self._functions: Dict[Any, Any] = {}
        self.rewards = {name: self._record(env.reward_manager, name) for name in env.reward_manager.active_terms}
        self.terminations = {
            name: self._record(env.termination_manager, name) for name in env.termination_manager.active_terms
        }
        weights = torch.full((self.P, len(self.rewards)), torch.nan)  # NaN: the task's
        for k, name in enumerate(self.rewards):
            for i, value in self._own.get(("rewards", name), {}).get((WEIGHT,), {}).items():
                weights[i, k] = value
        self._weights = weights.to(self.device)
        self._scale_actions()

    def _record(self, manager: Any, name: str) -> RecordedTerm:
        cfg = manager.get_term_cfg(name)
        if not isinstance(cfg.func, RecordedTerm):
            cfg.func = RecordedTerm(cfg.func)
        found: RecordedTerm = cfg.func
        return found

    def rows(self, members: Sequence[int]) -> Tensor:
        """Environments of these candidates, int64."""
        at = tuple(members)
        if at not in self._rows:
            first = torch.tensor(at, device=self.device)[:, None] * self.N
            self._rows[at] = (first + torch.arange(self.N, device=self.device)).view(-1)
        return self._rows[at]

    def variants(self, section: str, term: str, skip: Keys = ()) -> List[Variant]:
        """Candidates whose numbers in this term are not the task's, those with equal numbers together."""
        if (section, term) in self._variants:
            return self._variants[section, term]
        mine: Dict[int, List[Tuple[Keys, float]]] = {}
        for keys, by_candidate in self._own.get((section, term), {}).items():
            if keys != skip:
                for i, value in by_candidate.items():
                    mine.setdefault(i, []).append((keys, value))
        together: Dict[Tuple[Tuple[Keys, float], ...], List[int]] = {}
        for i, found in mine.items():
            together.setdefault(tuple(found), []).append(i)
        out = [Variant(tuple(members), found) for found, members in together.items()]
        self._variants[section, term] = out
        return out

    # --------------------------------------------------------------------------------------- rewards, terminations

    def reward_values(self) -> Tensor:
        """Every reward term's value before its weight, float32 [R, K], with each candidate's parameters."""
        manager, out = self.env.reward_manager, []
        for name, recorder in self.rewards.items():
            cfg = manager.get_term_cfg(name)
            if recorder.value is None or cfg.weight == 0.0:  # the manager does not compute these
                recorder(self.env, **cfg.params)
            out.append(self._value("rewards", name, cfg, recorder, (WEIGHT,)))
        empty = torch.zeros(self.P * self.N, 0, device=self.device)
        return torch.stack(out, 1) if out else empty

    def weights(self) -> Tensor:
        """Weights of the reward terms, float32 [P, K]; the task's are read anew, because its curriculum may move
        them."""
        manager = self.env.reward_manager
        own = torch.tensor([manager.get_term_cfg(name).weight for name in self.rewards], device=self.device)
        return torch.where(torch.isnan(self._weights), own, self._weights)

    def has(self, section: str) -> bool:
        """True if a candidate changes a number of this section."""
        return any(s == section for s, _ in self._own)

    def terminated(self, own: Tensor) -> Tensor:
        """Terminations with each candidate's numbers, bool [R]; own: the task's."""
        out, manager = own.clone(), self.env.termination_manager
        changed_by = [v.members for name in self.terminations for v in self.variants("terminations", name)]
        if not changed_by:
            return out
        rows = self.rows(sorted({i for members in changed_by for i in members}))
        out[rows] = False
        for name, recorder in self.terminations.items():
            cfg = manager.get_term_cfg(name)
            if not cfg.time_out:
                out[rows] |= self._value("terminations", name, cfg, recorder)[rows]
        return out

    def _value(self, section: str, name: str, cfg: Any, recorder: RecordedTerm, skip: Keys = ()) -> Tensor:
        """A term's value with each candidate's parameters, [R]."""
        assert recorder.value is not None
        variants = self.variants(section, name, skip)
        if not variants:
            return recorder.value
        value = recorder.value.clone()
        key = (section, name)
        if self._batched.get(key, True) and self._can_batch(cfg, recorder, variants):
            together = self._together(cfg, recorder, variants)
            if key not in self._batched:  # tried once, against one call for each
                one_by_one = self._one_by_one(section, name, cfg, recorder, variants, value.clone())
                self._batched[key] = together is not None and torch.allclose(
                    together.float(), one_by_one.float(), 1e-4, 1e-6, equal_nan=True
                )
            if self._batched[key] and together is not None:
                rows = self.rows([i for v in variants for i in v.members])
                value[rows] = together[rows]
                return value
        return self._one_by_one(section, name, cfg, recorder, variants, value)

    @staticmethod
    def _can_batch(cfg: Any, recorder: RecordedTerm, variants: List[Variant]) -> bool:
        plain = inspect.isfunction(recorder.function)
        return plain and all(len(keys) == 1 for v in variants for keys, _ in v.numbers)

    def _together(self, cfg: Any, recorder: RecordedTerm, variants: List[Variant]) -> Optional[Tensor]:
        """One call with a number per environment; None: the function does not take that."""
        params = dict(cfg.params)
        for name in {keys[0] for v in variants for keys, _ in v.numbers}:
            params[name] = torch.full((self.P * self.N,), float(cfg.params[name]), device=self.device)
        for v in variants:
            for keys, number in v.numbers:
                params[keys[0]][self.rows(v.members)] = number
        try:
            out = recorder.function(self.env, **params)
        except (RuntimeError, TypeError, ValueError):
            return None
        return out if isinstance(out, Tensor) and out.shape == (self.P * self.N,) else None

    def _one_by_one(
        self, section: str, name: str, cfg: Any, recorder: RecordedTerm, variants: List[Variant], into: Tensor
    ) -> Tensor:
        for v in variants:
            params = cfg.params
            for keys, number in v.numbers:
                params = changed(params, keys, number)
            rows = self.rows(v.members)
            into[rows] = self._function(section, name, cfg, recorder, v, params)(self.env, **params)[rows]
        return into

    def _function(self, section: str, name: str, cfg: Any, keeper: Any, v: Variant, params: Any) -> Any:
        """The term's function for a variant: the same, or an instance of its own of the same class."""
        function = keeper.function
        if inspect.isfunction(function) or not inspect.isclass(type(function)) or not _from_cfg(type(function)):
            return function
        at = (section, name, v.numbers)
        if at not in self._functions:
            own = copy(cfg)
            own.func, own.params = type(function), params
            self._functions[at] = type(function)(cfg=own, env=self.env)
            if hasattr(function, "reset"):
                keeper.others.append(self._functions[at])
        return self._functions[at]

    # -------------------------------------------------------------------------------------- events, commands, actions

    def fire(
        self, name: str, cfg: Any, shim: Any, env_ids: Tensor, params: Dict[str, Any], within: Callable[[Tensor], Any]
    ) -> None:
        """An event for environments env_ids, with each candidate's numbers. within: the context of the calls."""
        left = env_ids
        for v in self.variants("events", name) if self.shaped else []:
            mine = torch.isin(left, self.rows(v.members))
            if bool(mine.any()):
                own = params
                for keys, number in v.numbers:
                    own = changed(own, keys, number)
                with within(left[mine]):
                    self._function("events", name, cfg, shim, v, own)(self.env, left[mine], **own)
                left = left[~mine]
        if len(left):
            with within(left):
                shim.function(self.env, left, **params)

    def resample(
        self, name: str, term: Any, original: Callable[[Tensor], None], env_ids: Tensor, within: Callable[[Tensor], Any]
    ) -> None:
        """New commands for environments env_ids, with each candidate's numbers."""
        left = env_ids
        for v in self.variants("commands", name) if self.shaped else []:
            mine = torch.isin(left, self.rows(v.members))
            if bool(mine.any()):
                own = term.cfg
                for keys, number in v.numbers:
                    own = changed(own, keys, number)
                with within(left[mine]), _attribute(term, "cfg", own):
                    original(left[mine])
                left = left[~mine]
        if len(left):
            with within(left):
                original(left)

    def _scale_actions(self) -> None:
        for (section, name), by_keys in self._own.items():
            if section != "actions":
                continue
            term = self.env.action_manager.get_term(name)
            scale = torch.as_tensor(term._scale, dtype=torch.float32, device=self.device)
            scale = scale.expand(self.P * self.N, term.action_dim).clone()
            for keys, by_candidate in by_keys.items():
                columns = list(range(term.action_dim))
                if len(keys) > 1:  # by a pattern of the joints' names
                    columns = [k for k, joint in enumerate(_joints(term)) if re.fullmatch(keys[1], joint)]
                for i, value in by_candidate.items():
                    scale[self.rows([i])[:, None], torch.tensor(columns, device=self.device)] = value
            term._scale = scale


def _joints(term: Any) -> Sequence[str]:
    """Names of the joints that an action term moves, under mjlab's or Isaac Lab's attribute."""
    found: Sequence[str] = term.target_names if hasattr(term, "target_names") else term._joint_names
    return found


def _from_cfg(cls: type) -> bool:
    """True if instances are made from a term's configuration."""
    try:
        return {"cfg", "env"} <= set(inspect.signature(cls).parameters)
    except (TypeError, ValueError):
        return False


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
