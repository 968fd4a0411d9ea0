"""Calls a candidate's functions on rows of a probe, and checks their results.

A function takes what ``PhysicsTask`` says (``compute_reward(state)``), or names quantities of the state as arguments,
as Eureka's do (https://arxiv.org/abs/2310.12931): ``compute_reward(forward_velocity, torque)``.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from envolve.envs.physics.task import SHAPER_TYPES, PhysicsTask, Pose, Random
from envolve.llm.vetting.text.extract import VetError
from envolve.llm.vetting.trace.watch import line_of_candidate

WANTED = {kind: tuple(inspect.signature(getattr(PhysicsTask, kind)).parameters) for kind in SHAPER_TYPES}
WHOLE = {"state": "state", "state_dict": "state", "random": "random", "rest": "rest", "actions": "action"}
POSE = Pose._fields
MOST_COMPONENTS = 63
Inputs = dict[str, Tensor]  # by a graph's names: quantities of the state, random.uniform, rest.root_state ...


class State(dict):
    """The state as the code sees it: unknown names are answered with the nearest, and nothing can be put into it."""

    def __missing__(self, name: object) -> Tensor:
        near = difflib.get_close_matches(str(name), self, n=1, cutoff=0.0)
        raise VetError(
            "trace",
            f"line {line_of_candidate()}: the state has no {name!r}; nearest: {near[0]!r}; it has "
            f"{', '.join(sorted(self))}",
        )

    def get(self, name: object, *default: Any) -> Any:
        return super().get(name, *default) if name in self or default else self[name]

    def _constant(self, *_: Any, **__: Any) -> Any:
        raise VetError(
            "trace", f"line {line_of_candidate()}: the state is changed, and others read it too; use variables"
        )

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = __ior__ = _constant


def make_inputs(probe: Any, action_size: int | None = None) -> Inputs:
    """All rows of the probe, as the simulator has them: the state's tensors are columns of one buffer. action_size:
    columns of the actions; None: as the task's own."""
    n = len(next(iter(probe.state.values())))
    own = {name: t for name, t in probe.state.items() if name not in ("action", "previous_action")}
    buffer = torch.cat([t.reshape(n, -1) for t in own.values()], 1)
    columns = buffer.split([t[0].numel() for t in own.values()], 1)
    inputs = {
        name: part[:, 0] if t.dim() == 1 else part.unflatten(1, t.shape[1:])
        for (name, t), part in zip(own.items(), columns)
    }
    inputs.update(actions(probe, action_size or probe.action_size))
    inputs["random.uniform"], inputs["random.normal"] = probe.random
    return {**inputs, **{f"rest.{field}": getattr(probe.rest, field) for field in POSE}}


def actions(probe: Any, size: int) -> Inputs:
    """Probe's actions with this number of columns, repeated or cut."""
    given = {name: probe.state[name] for name in ("action", "previous_action")}
    return {name: t.repeat(1, -(-size // t.shape[1]))[:, :size] for name, t in given.items()}


def inputs_of(kind: str, inputs: Inputs, n: int) -> Inputs:
    """First n rows of the inputs of functions of this kind."""
    parts = ("random.",) * ("random" in WANTED[kind]) + ("rest.",) * ("rest" in WANTED[kind])
    return {name: t[:n] for name, t in inputs.items() if "." not in name or name.startswith(parts)}


def how_to_call(function: Callable[..., Any], kind: str, quantities: Sequence[str]) -> Callable[[Inputs], Any]:
    """Function of inputs that calls ``function``. Raises VetError if its arguments cannot be given."""
    parameters = [p for p in inspect.signature(function).parameters.values()]
    wanted, needed = WANTED[kind], [p.name for p in parameters if p.default is p.empty]
    names = [p.name for p in parameters]
    at = wanted.index("state")
    if len(names) >= len(wanted) >= len(needed) and names[at] not in quantities:
        chosen = list(wanted)
    else:
        chosen = [WHOLE.get(name, name) for name in names]
        for name, key in zip(names, chosen):
            if key not in quantities and key not in wanted and name in needed:
                near = difflib.get_close_matches(name, [*quantities, *wanted], n=1, cutoff=0.0)[0]
                raise VetError(
                    "trace",
                    f"{kind}({', '.join(names)}): there is no {name!r} to give it; nearest: {near!r}; "
                    f"expected {kind}({', '.join(wanted)}), or names of quantities of the state as arguments",
                )
        known = [(name, key) for name, key in zip(names, chosen) if key in quantities or key in wanted]
        if not known:
            raise VetError("trace", f"{kind}({', '.join(names)}): expected {kind}({', '.join(wanted)})")
        return lambda inputs: function(**{name: _given(key, inputs) for name, key in known})
    return lambda inputs: function(*(_given(key, inputs) for key in chosen))


def _given(key: str, inputs: Inputs) -> Any:
    if key == "state":
        return State((name, t) for name, t in inputs.items() if "." not in name)
    if key == "random":
        return Random(inputs["random.uniform"], inputs["random.normal"])
    return Pose(*(inputs[f"rest.{field}"] for field in POSE)) if key == "rest" else inputs[key]


# --------------------------------------------------------------------------------------------------------- results


def flat(kind: str, out: Any) -> tuple[list[str], list[Tensor]]:
    """Results of a function as a graph's names and tensors. Raises VetError for anything else."""
    if kind == "compute_reward":
        components: Any = {}
        if isinstance(out, (tuple, list)):
            if len(out) != 2 or not isinstance(out[1], dict):
                found = ", ".join(type(part).__name__ for part in out)
                raise VetError(
                    "smoke",
                    f"compute_reward returned ({found}), expected a tensor [n], or (total, components) with "
                    "components a dict {name: tensor [n]}",
                )
            out, components = out
        components = {"sum" if k == "total" else k: part for k, part in components.items() if part is not out}
        names, parts = ["total", *components], [out, *components.values()]
        bad = [x for x in components if not isinstance(x, str) or not 0 < len(x) <= 64 or not x.isprintable()]
        if bad or len(components) > MOST_COMPONENTS:
            raise VetError(
                "smoke",
                f"compute_reward's components: expected at most {MOST_COMPONENTS}, by names of at most 64 "
                f"letters, found {len(components)}{f' and {bad[0]!r:.80}' if bad else ''}",
            )
    elif kind == "compute_initial_state":
        if not isinstance(out, tuple) or len(out) != len(POSE):
            wanted = f"Pose({', '.join(POSE)})"
            raise VetError("smoke", f"compute_initial_state returned {_what(out)}, expected {wanted}")
        names, parts = list(POSE), list(out)
    else:
        names = [{"compute_torque": "effort"}.get(kind, kind.replace("compute_", ""))]
        parts = [out]
    for name, part in zip(names, parts):
        if not isinstance(part, Tensor):
            last = "; the function ends without a return" if part is None else ""
            number = isinstance(part, (int, float)) and not isinstance(part, bool)
            hint = f"; for one number write torch.full_like(x, {part})" if number else ""
            raise VetError("smoke", f"{_place(kind, name)} is {_what(part)}, expected a tensor{last}{hint}")
    return names, parts


def check_outputs(kind: str, names: list[str], parts: list[Tensor], n: int, probe: Any) -> None:
    """Checks shapes and types. Raises VetError with what to write instead."""
    for name, part in zip(names, parts):
        place, shape = _place(kind, name), list(part.shape)
        wanted: list[int | None]
        if kind == "compute_observation":
            wanted = [n, None]
        elif kind == "compute_torque":
            wanted = [n, probe.efforts]
        elif kind == "compute_goal":
            wanted = [n, probe.goal_size]
        elif kind == "compute_initial_state":
            wanted = [n, *getattr(probe.rest, name).shape[1:]]
        else:
            wanted = [n]
        fits = len(shape) == len(wanted) and all(w in (None, s) for s, w in zip(shape, wanted))
        if not fits or (wanted[-1] is None and not shape[-1]):
            raise VetError(
                "smoke",
                f"{place} has shape {shape_text(shape, n)}, expected "
                f"{shape_text(wanted, n)}{_shape_advice(shape, wanted, n)}",
            )
        if not part.is_floating_point() and kind != "compute_terminal":
            is_bool = part.dtype == torch.bool
            why = "is True or False" if is_bool else f"is of {str(part.dtype).split('.')[1]}"
            raise VetError("smoke", f"{place} {why}, expected numbers of float32: write .float()")
        if part.is_complex() or part.dtype in (torch.float16, torch.bfloat16):
            raise VetError("smoke", f"{place} is of {str(part.dtype).split('.')[1]}, expected float32")


def shape_text(shape: Sequence[int | None], n: int) -> str:
    return "[" + ", ".join("n" if k == n else "any" if k is None else str(k) for k in shape) + "]"


def _shape_advice(shape: list[int], wanted: Sequence[int | None], n: int) -> str:
    if not shape:
        return ": it has one number for all environments; give sums and means a dim (x.sum(dim=-1))"
    if len(wanted) == 1 and shape == [n, 1]:
        return ": write .squeeze(-1)"
    if len(wanted) == 1 and len(shape) == 2 and shape == [n, n]:
        return ": [n, 1] and [n] were combined; take [n] of both (x.squeeze(-1))"
    if len(wanted) == 1 and len(shape) > 1:
        return ": sum over the last dimension (x.sum(dim=-1))"
    if len(wanted) == 2 and shape == [n]:
        return ": write .unsqueeze(-1), or torch.stack([...], dim=-1) of several"
    return ""


def _place(kind: str, name: str) -> str:
    if kind == "compute_initial_state":
        return f"compute_initial_state's {name}"
    component = kind == "compute_reward" and name != "total"
    return f"compute_reward's component {name!r}" if component else f"what {kind} returns"


def _what(value: Any) -> str:
    if value is None:
        return "nothing (None)"
    return f"{value!r:.40}" if isinstance(value, (int, float)) else type(value).__name__
