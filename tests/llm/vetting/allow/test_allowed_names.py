"""Every name that the allow-list lets pass can be written as a graph, so that no model is led astray by it."""

from __future__ import annotations

import pytest

from envolve.llm.vetting.allow import allowed_names
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.trace.tracer import trace_candidate
from tests.llm.traced import probe

# how names are used; v: [n], q and p: [n, 8], p > 0, s in (-1, 1). Others: torch.name(q), or torch.name(q, p)
FUNCTIONS = {
    "acos": "torch.acos(s)", "acosh": "torch.acosh(p+1)", "addcdiv": "torch.addcdiv(q, q, p, value=0.5)",
    "addcmul": "torch.addcmul(q, q, p, value=0.5)", "all": "torch.all(q > 0, dim=1).float()",
    "amax": "torch.amax(q, dim=1)", "amin": "torch.amin(q, dim=1)", "any": "torch.any(q > 0, dim=1).float()",
    "arange": "q * torch.arange(8)", "arccos": "torch.arccos(s)", "arccosh": "torch.arccosh(p+1)",
    "arcsin": "torch.arcsin(s)", "arctanh": "torch.arctanh(s)", "argmax": "torch.argmax(q, dim=1).float()",
    "argmin": "torch.argmin(q, dim=1).float()", "as_tensor": "q * torch.as_tensor(0.5)", "asin": "torch.asin(s)",
    "atanh": "torch.atanh(s)", "atleast_1d": "torch.atleast_1d(q)", "atleast_2d": "torch.atleast_2d(q)",
    "bitwise_and": "torch.bitwise_and(q > 0, p > 1).float()", "bitwise_not": "torch.bitwise_not(q > 0).float()",
    "bitwise_or": "torch.bitwise_or(q > 0, p > 1).float()", "bitwise_xor": "torch.bitwise_xor(q > 0, p > 1).float()",
    "bmm": "torch.bmm(q.view(-1, 2, 4), p.view(-1, 4, 2)).flatten(1)",
    "broadcast_tensors": "torch.broadcast_tensors(v, v)[0]",
    "broadcast_to": "torch.broadcast_to(v.unsqueeze(1), (v.shape[0], 3))", "cat": "torch.cat([q, p], 1)",
    "chunk": "torch.chunk(q, 2, dim=1)[0]", "clamp": "torch.clamp(q, -1, 1)", "clamp_max": "torch.clamp_max(q, 1)",
    "clamp_min": "torch.clamp_min(q, 1)", "clip": "torch.clip(q, -1, 1)",
    "column_stack": "torch.column_stack([v, v])", "concat": "torch.concat([q, p], 1)",
    "concatenate": "torch.concatenate([q, p], 1)", "cosine_similarity": "torch.cosine_similarity(q, p, dim=1)",
    "count_nonzero": "torch.count_nonzero(q > 0, dim=1).float()", "cross": "torch.cross(q[:, :3], p[:, :3], dim=1)",
    "deg2rad": "torch.deg2rad(q)", "diff": "torch.diff(q, dim=1)", "div": "torch.div(q, p)",
    "divide": "torch.divide(q, p)", "dot": "q * torch.dot(torch.ones(2), torch.ones(2))",
    "dstack": "torch.dstack([q, p]).flatten(1)", "einsum": "torch.einsum('ni, ni->n', q, p)",
    "eq": "torch.eq(q, p).float()", "eye": "q @ torch.eye(8)", "flatten": "torch.flatten(q, 1)",
    "flip": "torch.flip(q, [1])", "fliplr": "torch.fliplr(q)", "flipud": "torch.flipud(q)",
    "floor_divide": "torch.floor_divide(q, p)", "fmod": "torch.fmod(q, p)", "full": "torch.full((v.shape[0], ), 0.5)",
    "full_like": "torch.full_like(q, 0.5)", "ge": "torch.ge(q, p).float()", "greater": "torch.greater(q, p).float()",
    "greater_equal": "torch.greater_equal(q, p).float()", "gt": "torch.gt(q, p).float()",
    "heaviside": "torch.heaviside(q, p)", "hstack": "torch.hstack([q, p])",
    "index_select": "torch.index_select(q, 1, torch.tensor([0, 2]))",
    "is_tensor": "q * 1.0 if torch.is_tensor(q) else q", "isfinite": "torch.isfinite(q).float()",
    "isinf": "torch.isinf(q).float()", "isnan": "torch.isnan(q).float()", "le": "torch.le(q, p).float()",
    "lerp": "torch.lerp(q, p, 0.3)", "less": "torch.less(q, p).float()",
    "less_equal": "torch.less_equal(q, p).float()", "linspace": "q * torch.linspace(0, 1, 8)", "log": "torch.log(p)",
    "log10": "torch.log10(p)", "log1p": "torch.log1p(p)", "log2": "torch.log2(p)",
    "log_softmax": "torch.log_softmax(q, dim=1)", "logical_and": "torch.logical_and(q > 0, p > 1).float()",
    "logical_not": "torch.logical_not(q > 0).float()", "logical_or": "torch.logical_or(q > 0, p > 1).float()",
    "logical_xor": "torch.logical_xor(q > 0, p > 1).float()", "logit": "torch.logit(p/(p+1))",
    "logsumexp": "torch.logsumexp(q, dim=1)", "lt": "torch.lt(q, p).float()",
    "masked_fill": "torch.masked_fill(q, q > 0, 1.0)", "matmul": "torch.matmul(q, torch.ones(8, 2))",
    "max": "torch.max(q, dim=1).values", "mean": "torch.mean(q, dim=1)",
    "meshgrid": "q * torch.meshgrid(torch.ones(2), torch.ones(2), indexing='ij')[0].sum()",
    "min": "torch.min(q, dim=1)[0]", "mm": "torch.mm(q, torch.ones(8, 2))", "moveaxis": "torch.moveaxis(q, 0, 0)",
    "movedim": "torch.movedim(q, 0, 0)", "mv": "torch.mv(q, torch.ones(8))", "nansum": "torch.nansum(q, dim=1)",
    "ne": "torch.ne(q, p).float()", "norm": "torch.norm(q, dim=1)", "not_equal": "torch.not_equal(q, p).float()",
    "ones": "torch.ones(v.shape[0], 2)", "ones_like": "torch.ones_like(q)",
    "outer": "q * torch.outer(torch.ones(2), torch.ones(2)).sum()",
    "permute": "torch.permute(q.view(-1, 2, 4), (0, 2, 1)).flatten(1)", "pow": "torch.pow(q, 2)",
    "prod": "torch.prod(q, dim=1)", "ravel": "torch.ravel(q).view(-1, 8)", "reciprocal": "torch.reciprocal(p)",
    "remainder": "torch.remainder(q, p)", "reshape": "torch.reshape(q, (-1, 8))", "roll": "torch.roll(q, 1, 1)",
    "rsqrt": "torch.rsqrt(p)", "rsub": "torch.rsub(q, p)", "scalar_tensor": "q * torch.scalar_tensor(0.5)",
    "select": "torch.select(q, 1, 0)", "signbit": "torch.signbit(q).float()", "softmax": "torch.softmax(q, dim=1)",
    "split": "torch.split(q, 4, dim=1)[0]", "sqrt": "torch.sqrt(p)", "squeeze": "torch.squeeze(q[:, :1], 1)",
    "stack": "torch.stack([v, v], 1)", "std": "torch.std(q, dim=1)", "sum": "torch.sum(q, dim=1)",
    "swapaxes": "torch.swapaxes(q.view(-1, 2, 4), 1, 2).flatten(1)",
    "swapdims": "torch.swapdims(q.view(-1, 2, 4), 1, 2).flatten(1)", "t": "torch.t(torch.t(q))",
    "tensor": "q * torch.tensor(0.5)", "tensor_split": "torch.tensor_split(q, 2, dim=1)[0]",
    "tensordot": "torch.tensordot(q, torch.ones(8, 2), dims=1)", "tile": "torch.tile(q, (1, 2))",
    "transpose": "torch.transpose(q.view(-1, 2, 4), 1, 2).flatten(1)", "true_divide": "torch.true_divide(q, p)",
    "unbind": "torch.unbind(q, 1)[0]", "unflatten": "torch.unflatten(q, 1, (2, 4)).flatten(1)",
    "unsqueeze": "torch.unsqueeze(v, 1)", "var": "torch.var(q, dim=1)", "vstack": "torch.vstack([q, p])[:v.shape[0]]",
    "where": "torch.where(q > 0, q, p)", "xlogy": "torch.xlogy(q, p)", "zeros": "torch.zeros(v.shape[0], 2)",
    "zeros_like": "torch.zeros_like(q)",
}  # fmt: skip
METHODS = {
    "bool": "q.bool().float()", "contiguous": "q.contiguous()", "detach": "q.detach()", "dim": "q * q.dim()",
    "double": "q.double().float()", "expand": "v.unsqueeze(1).expand(-1, 3)",
    "expand_as": "v.unsqueeze(1).expand_as(q)", "float": "q.float()*1", "heaviside": "q.heaviside(p)",
    "int": "q.int().float()", "is_floating_point": "q * 1.0 if q.is_floating_point() else q",
    "long": "q.long().float()", "ndimension": "q * q.ndimension()", "new_full": "v.new_full((v.shape[0], ), 2.0)",
    "new_ones": "v.new_ones(v.shape[0])", "new_tensor": "q * v.new_tensor([1.0])",
    "new_zeros": "v.new_zeros(v.shape[0], 2)", "numel": "q*(q.numel()//v.shape[0])", "repeat": "q.repeat(1, 2)",
    "size": "q * q.size(1)", "to": "q.to(torch.float32)", "type_as": "q.type_as(p)", "view": "q.view(-1, 8)",
    "view_as": "q.clone().view_as(p)", "where": "q.where(q > 0, p)",
}  # fmt: skip
FUNCTIONAL = {
    "cosine_similarity": "F.cosine_similarity(q, p, dim=1)", "huber_loss": "F.huber_loss(q, p, reduction='none')",
    "l1_loss": "F.l1_loss(q, p, reduction='none')", "log_softmax": "F.log_softmax(q, dim=1)",
    "mse_loss": "F.mse_loss(q, p, reduction='none')", "normalize": "F.normalize(q, dim=1)", "pad": "F.pad(q, (1, 0))",
    "smooth_l1_loss": "F.smooth_l1_loss(q, p, reduction='none')", "softmax": "F.softmax(q, dim=1)",
    "softmin": "F.softmin(q, dim=1)",
}  # fmt: skip
LINALG = {
    "norm": "torch.linalg.norm(q, dim=1)", "vector_norm": "torch.linalg.vector_norm(q, dim=1)",
    "cross": "torch.linalg.cross(q[:, :3], p[:, :3], dim=1)", "vecdot": "torch.linalg.vecdot(q, p)",
}  # fmt: skip
OF_TWO = "add arctan2 atan2 copysign fmax fmin hypot maximum minimum mul multiply sub subtract".split()
OF_CONTAINERS = "append copy extend get insert items keys update values".split()


def _plain(prefix: str, name: str) -> str:
    return f"{prefix}{name}(q, p)" if name in OF_TWO else f"{prefix}{name}(q)"


def _as_method(name: str) -> str:
    if name in METHODS:
        return METHODS[name]
    written = FUNCTIONS.get(name, _plain("torch.", name))
    start = f"torch.{name}(q"
    if not written.startswith((start + ",", start + ")")):
        return written
    return f"q.{name}(" + written[len(start) :].removeprefix(", ")


USES = {
    **{f"torch.{n}": FUNCTIONS.get(n, _plain("torch.", n)) for n in allowed_names.TORCH},
    **{f"F.{n}": FUNCTIONAL.get(n, _plain("F.", n)) for n in allowed_names.FUNCTIONAL},
    **{f"torch.linalg.{n}": LINALG[n] for n in allowed_names.LINALG},
    **{f".{n}": _as_method(n) for n in allowed_names.METHODS if n not in OF_CONTAINERS},
}


@pytest.mark.parametrize("name", sorted(USES))
def test_it_can_be_traced(name: str) -> None:
    """The tracer compares the graph's bits with the function's."""
    code = f"""
def compute_observation(state):
    v = state["forward_velocity"]
    q = state["joint_position"]
    p = q.abs() + 0.1
    s = torch.tanh(q) * 0.9
    out = {USES[name]}
    return out.reshape(v.shape[0], -1) + 0.0
"""
    check_source(code, ("compute_observation",))
    file = trace_candidate(code, ("compute_observation",), probe("Ant"))
    assert file["functions"]["compute_observation"]["outputs"]
