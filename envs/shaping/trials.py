"""Trials of candidates' functions before a run, on the actual state: cost, and independence of environments."""

from __future__ import annotations

from typing import Any, List

import torch
from torch import Tensor

from envolve.envs.physics.task import SHAPER_TYPES
from envolve.envs.shaping.alarm import Hang
from envolve.envs.shaping.calls import RARE, Group, ShaperCalls, is_python, log
from envolve.envs.shaping.candidate import Failure
from envolve.envs.shaping.cost import allowed, cost


def weigh(calls: ShaperCalls) -> None:
    """Fails candidates with a Python function that costs more than a graph may. Each is called alone, on a copy of the
    state, so the verdict depends on the function and its parameters only. Functions that begin episodes are not
    counted: they are called for a few environments now and then."""
    most = allowed(calls.N)
    for kind in [k for k in SHAPER_TYPES if k not in RARE]:
        for group in [g for g in calls.groups[kind] if is_python(g)]:
            for part in calls.parts(group):
                if _cost(calls, part, most) > most:
                    text = f"{kind} reads and writes more than {most / calls.N:.3g} numbers per environment and call"
                    calls.fail(part.members[0], Failure("TooSlow", f"{text}: too many operations", "", -1))
            if group in calls.groups[kind] and any(i in calls.failures for i in group.members):
                calls.split(group)


def _cost(calls: ShaperCalls, part: Group, most: int) -> int:
    """Cost of one call for one candidate; 0 if unknown."""
    function = part.shaper.function
    given = _given(part._replace(state={name: tensor.clone() for name, tensor in part.state.items()}))
    try:
        with calls.alarm.on(), torch.random.fork_rng(devices=[]):
            return cost(lambda: calls.alarm.call(function, given), most)
    except Hang as e:
        calls.fail_by_hang(part, e)
    except (Exception, SystemExit):  # the run will tell
        pass
    return 0


def split_what_mixes(calls: ShaperCalls) -> None:
    """Splits groups of neighbours unless each row of their function's result depends on the same row alone, which fails
    e.g. for a mean over environments."""
    for kind, groups in calls.groups.items():
        for group in [g for g in groups if g.own and len(g.members) > 1]:
            try:
                with calls.alarm.on():
                    together = _outputs(calls, group)
                    alone = [torch.cat(part) for part in zip(*(_outputs(calls, part) for part in calls.parts(group)))]
            except (Exception, SystemExit, Hang):  # the run will find the faulty candidate
                continue
            if not all(_same(a, b) for a, b in zip(together, alone)):
                name = calls.candidates[group.members[0]].name
                log.info("%s of %s mixes environments: its candidates are called one by one, slower", kind, name)
                calls.split(group)


def _given(group: Group) -> List[Any]:
    """Arguments of its function, unless it begins episodes."""
    given = [group.state["action"]] * (group.kind == "compute_torque") + [group.state]
    return [*given, *[group.params] * group.shaper.takes_params]


def _outputs(calls: ShaperCalls, group: Group) -> List[Tensor]:
    """Result of its function now."""
    out = calls.timed(group.shaper.function, _given(group))
    return [out] if isinstance(out, Tensor) else [out[0], *out[1].values()]


def _same(a: Tensor, b: Tensor) -> bool:
    """True if equal, with NaN in the same places."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
