"""Tensor operations that a graph may use, with the schemas of their arguments.

An operation is here if it is functional and deterministic, needs no random numbers, cannot reach outside the memory of
its arguments whatever their values are, and can be tried without data on torch's meta device. Not here, on purpose:
anything in place, ``as_strided``, ``empty``, ``resize``, ``from_file``, ``view.dtype``; shifts and bit patterns of
integers; ``gather``, ``scatter``, ``nonzero``, ``masked_select`` and boolean masks as indices (their indices or shapes
depend on data); ``sort``, ``topk``, ``cumsum`` (on GPUs sums in no fixed order), ``linalg`` beyond norms and cross
products. Integers are not divided: INT64_MIN // -1 ends the process (SIGFPE on x86).
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class Argument(NamedTuple):
    """One argument in an operation's schema."""

    name: str
    type: str  # as the schema has it: Tensor, number, int, List[int], Optional[...], ScalarType, ...
    needed: bool
    default: Any
    by_name: bool  # only as a keyword


class Op(NamedTuple):
    """One allowed operation."""

    name: str  # aten.<name>.<overload>
    call: Callable[..., Any]  # takes what the schema says, in its order
    arguments: Tuple[Argument, ...]
    results: int  # how many; 0: a list of any length
    view: bool  # what it returns may share memory with what it was given
    identity: bool  # returns the values of its first argument, in the same layout
    factory: bool  # needs a device
    floating: bool  # only where the result is a float: on integers it may divide by zero
    literals: Tuple[str, ...]  # tensor arguments for which a number may stand; those and scalars may be {"param": k}
    with_params: Callable[..., Any]  # the same with tensors [n, 1, ..] in the place of those numbers
    indices: bool  # takes constants of integers that must be looked at
    by_rows: bool  # {"batch": m} may stand for its sizes


ELEMENTWISE = """
abs.default neg.default sign.default sgn.default exp.default exp2.default expm1.default log.default log2.default
log10.default log1p.default sqrt.default rsqrt.default reciprocal.default square.default sin.default cos.default
tan.default asin.default acos.default atan.default sinh.default cosh.default tanh.default asinh.default acosh.default
atanh.default sigmoid.default relu.default silu.default mish.default softplus.default elu.default gelu.default
leaky_relu.default hardtanh.default hardsigmoid.default hardswish.default
erf.default erfc.default sinc.default logit.default deg2rad.default rad2deg.default
floor.default ceil.default round.default round.decimals trunc.default frac.default nan_to_num.default
isnan.default isinf.default isfinite.default signbit.default logical_not.default bitwise_not.default
atan2.default hypot.default copysign.Tensor copysign.Scalar maximum.default minimum.default fmax.default fmin.default
heaviside.default xlogy.Tensor lerp.Scalar lerp.Tensor addcmul.default addcdiv.default
add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar rsub.Scalar rsub.Tensor
pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar
gt.Scalar gt.Tensor ge.Scalar ge.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor eq.Scalar eq.Tensor ne.Scalar ne.Tensor
logical_and.default logical_or.default logical_xor.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor
clamp.default clamp.Tensor clamp_min.default clamp_min.Tensor clamp_max.default clamp_max.Tensor
where.self masked_fill.Scalar masked_fill.Tensor fill.Scalar fill.Tensor copy.default
mse_loss.default smooth_l1_loss.default huber_loss.default
""".split()
FLOATING = "floor_divide.default div.Tensor_mode remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar".split()
REDUCTIONS = """
sum.default sum.dim_IntList mean.default mean.dim prod.default prod.dim_int amax.default amin.default
max.default max.dim min.default min.dim argmax.default argmin.default
any.default any.dim all.default all.dim count_nonzero.default count_nonzero.dim_IntList nansum.default
var.correction std.correction linalg_vector_norm.default logsumexp.default _softmax.default _log_softmax.default
linalg_cross.default dot.default mv.default mm.default bmm.default addmm.default
""".split()
FRESH_SHAPES = """
cat.default stack.default repeat.default roll.default flip.default constant_pad_nd.default
select_scatter.default slice_scatter.default index.Tensor index_select.default index_put.default _to_copy.default
""".split()
VIEWS = """
view.default _unsafe_view.default reshape.default expand.default permute.default transpose.int t.default
unsqueeze.default squeeze.default squeeze.dim squeeze.dims select.int slice.Tensor unbind.int split.Tensor
split_with_sizes.default
""".split()
IDENTITIES = "alias.default detach.default lift_fresh.default lift_fresh_copy.default clone.default".split()
FACTORIES = "zeros.default ones.default full.default arange.default arange.start arange.start_step".split()
FACTORIES += "linspace.default eye.default eye.m scalar_tensor.default".split()
LIKE = "zeros_like.default ones_like.default full_like.default new_zeros.default new_ones.default new_full.default"

LITERALS = {
    **{f"{op}.Tensor": ("other",) for op in ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne")},
    **{f"{op}.Scalar": ("other",) for op in ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne", "rsub")},
    "maximum.default": ("other",), "minimum.default": ("other",), "where.self": ("self", "other"),
    "clamp.default": ("min", "max"), "clamp_min.default": ("min",), "clamp_max.default": ("max",),
    "fill.Scalar": ("value",), "fill.Tensor": ("value",), "full.default": ("fill_value",),
    "full_like.default": ("fill_value",), "masked_fill.Scalar": ("value",), "floor_divide.default": ("other",),
}  # fmt: skip


def _overload(name: str) -> Callable[..., Any]:
    base, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, base), overload)


def _to_copy(x: Tensor, dtype: Optional[torch.dtype] = None, memory_format: Any = torch.preserve_format) -> Tensor:
    return x.to(dtype=x.dtype if dtype is None else dtype, copy=True, memory_format=memory_format)


def _slice(x: Tensor, dim: int = 0, start: Optional[int] = None, end: Optional[int] = None, step: int = 1) -> Tensor:
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]  # faster than torch.ops.aten.slice


def _index(x: Tensor, indices: List[Optional[Tensor]]) -> Tensor:
    return x[tuple(slice(None) if at is None else at for at in indices)]


def _rsub(x: Tensor, other: Tensor) -> Tensor:
    return torch.sub(other, x)


def _div(x: Tensor, other: Tensor) -> Tensor:
    """Divides by a number by multiplying with its inverse, as torch does on a GPU."""
    return torch.mul(x, torch.reciprocal(other)) if x.is_cuda else torch.div(x, other)


def _full(size: List[int], value: Tensor, **_: Any) -> Tensor:
    return value.expand(size).clone(memory_format=torch.contiguous_format)


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy of source in x's shape, type and layout; always new memory, unlike torch.ops.aten.copy."""
    return torch.empty_like(x).copy_(source)


def _full_like(x: Tensor, value: Tensor, **_: Any) -> Tensor:
    return _copy(x, value)


def _masked_fill(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return torch.where(mask, value, x)


def _clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clamp with at least one tensor as bound."""
    x = x if min is None else torch.clamp_min(x, min)
    return x if max is None else torch.clamp_max(x, max)


METHODS = "view expand repeat new_zeros new_ones new_full copysign".split()
FUNCTIONS: Dict[str, Callable[..., Any]] = {  # faster than the overload, or one that torch has under no plain name
    "_to_copy.default": _to_copy, "slice.Tensor": _slice, "index.Tensor": _index,
    "copy.default": _copy,
    "linalg_vector_norm.default": torch.linalg.vector_norm, "linalg_cross.default": torch.linalg.cross,
    **{name: lambda x: x for name in IDENTITIES if not name.startswith("clone")},
}  # fmt: skip
OVERLOADS = "split split_with_sizes lift_fresh rsub fill index_put".split()  # torch has none such, or a slower one
WITH_PARAMS: Dict[str, Callable[..., Any]] = {
    "rsub.Scalar": _rsub, "div.Tensor": _div, "div.Scalar": _div, "clamp.default": _clamp, "full.default": _full,
    "full_like.default": _full_like, "fill.Scalar": _full_like, "fill.Tensor": _full_like,
    "masked_fill.Scalar": _masked_fill,
}  # fmt: skip


def _call(name: str) -> Callable[..., Any]:
    base = name.split(".")[0]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if base in METHODS:
        return getattr(Tensor, base)
    return _overload(name) if base in OVERLOADS or not hasattr(torch, base) else getattr(torch, base)


def _op(name: str) -> Op:
    schema = _overload(name)._schema  # type: ignore[attr-defined]
    arguments = tuple(
        Argument(
            a.name,
            str(getattr(a, "real_type", a.type)).replace("Sym", ""),
            not a.has_default_value(),
            a.default_value,
            a.kwarg_only,
        )
        for a in schema.arguments
    )
    several = len(schema.returns) != 1
    results = len(schema.returns) if several else 0 if str(schema.returns[0].type) == "List[Tensor]" else 1
    call = _call(name)
    return Op(
        "aten." + name,
        call,
        arguments,
        results,
        name in VIEWS,
        name in IDENTITIES,
        name in FACTORIES,
        name in FLOATING,
        LITERALS.get(name, ()),
        WITH_PARAMS.get(name, call),
        name in INDEXED,
        name in SIZED,
    )


def _known(names: List[str]) -> Dict[str, Op]:
    """Operations that this version of torch has; Isaac Gym's version is old."""
    found = {}
    for name in names:
        base, overload = name.split(".")
        if hasattr(torch.ops.aten, base) and overload in getattr(torch.ops.aten, base).overloads():
            found["aten." + name] = _op(name)
    return found


INDEXED = "index.Tensor index_select.default index_put.default".split()
SIZED = "view.default _unsafe_view.default reshape.default expand.default repeat.default slice.Tensor new_zeros.default"
SIZED += " new_ones.default new_full.default zeros.default ones.default full.default slice_scatter.default"
ALLOWED = ELEMENTWISE + FLOATING + REDUCTIONS + FRESH_SHAPES + VIEWS + IDENTITIES + FACTORIES + LIKE.split()
OPS: Dict[str, Op] = _known(ALLOWED)
