"""Names that candidate code may use: modules, functions of torch, methods of tensors, builtins; and alternatives to
those that it may not use. A name in no table is refused."""

from __future__ import annotations

BUILTINS = frozenset(
    "abs bool dict enumerate float int isinstance len list max min range reversed round slice sum tuple zip".split()
)
TYPING = frozenset("Any Callable Dict Iterable List NamedTuple Optional Sequence Tuple Union".split())
CONSTANTS = frozenset("True False None".split())
GIVEN = frozenset(["torch", "math", "F", "Tensor", "Pose"]) | TYPING  # in the namespace without an import
MODULES = frozenset(["torch", "torch.nn", "torch.nn.functional", "torch.linalg", "math", "typing"])

MATH = frozenset(
    "acos asin atan atan2 ceil copysign cos cosh degrees exp fabs floor hypot isfinite isnan log log10 log1p log2 pow "
    "radians sin sinh sqrt tan tanh trunc".split()
)
_DTYPES = frozenset("float float32 float64 double long int int32 int64 bool".split())
TORCH_CONSTANTS = _DTYPES | {"pi", "e", "inf", "nan"}
MATH_CONSTANTS = frozenset("e inf nan pi tau".split())

# what torch and tensors both have
_BOTH = frozenset("""
abs absolute add addcdiv addcmul all amax amin any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_to ceil chunk
clamp clamp_max clamp_min clip clone copysign cos cosh count_nonzero cross deg2rad diff div divide dot eq erf erfc exp
exp2 expm1 flatten flip fliplr flipud floor floor_divide fmax fmin fmod frac ge greater greater_equal gt hypot
index_select isfinite isinf isnan le lerp less less_equal log log10 log1p log2 logical_and logical_not logical_or
logical_xor logit logsumexp lt masked_fill matmul max maximum mean min minimum mm movedim moveaxis mul multiply mv
nan_to_num nansum ne neg negative norm not_equal outer permute pow prod rad2deg ravel reciprocal relu remainder
reshape roll round rsqrt select sgn sigmoid sign signbit sin sinc sinh softmax log_softmax split sqrt square squeeze
std sub subtract sum swapaxes swapdims t tan tanh tensor_split tile transpose true_divide trunc unbind unflatten
unsqueeze var xlogy
""".split())  # fmt: skip
TORCH = _BOTH | frozenset("""
arange atleast_1d atleast_2d cat column_stack concat concatenate cosine_similarity dstack einsum eye full full_like
heaviside hstack is_tensor linspace meshgrid ones ones_like rsub stack tensor as_tensor tensordot vstack where zeros
zeros_like broadcast_tensors scalar_tensor
""".split())  # fmt: skip
METHODS = _BOTH | frozenset("""
bool contiguous detach dim double expand expand_as float int long ndimension new_full new_ones new_tensor new_zeros
numel repeat size to type_as view view_as where is_floating_point heaviside append copy extend get insert items keys
update values
""".split())  # fmt: skip
# methods that change a tensor, as x += 1 and x[:] = 1 do: of the function's own tensors, which the tracer sees to
IN_PLACE = frozenset("""
abs_ add_ addcdiv_ addcmul_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ copy_ cos_ div_ divide_ exp_ fill_ floor_ log_
masked_fill_ mul_ multiply_ neg_ pow_ reciprocal_ round_ rsqrt_ sigmoid_ sin_ sqrt_ square_ sub_ subtract_ tanh_
zero_
""".split())  # fmt: skip
PROPERTIES = frozenset("device dtype ndim shape T mT uniform normal values indices".split()) | {
    "root_state", "joint_position", "joint_velocity",
}  # fmt: skip
FUNCTIONAL = frozenset("""
cosine_similarity elu gelu hardsigmoid hardswish hardtanh huber_loss l1_loss leaky_relu log_softmax
mish mse_loss normalize pad relu relu6 selu sigmoid silu smooth_l1_loss softmax softmin softplus
softsign tanh tanhshrink
""".split())  # fmt: skip
LINALG = frozenset("norm vector_norm cross vecdot".split())
KEYWORDS_REFUSED = frozenset("out generator requires_grad pin_memory layout names memory_format".split())
# the first argument of these is a size
SIZED = frozenset(
    "zeros ones full eye arange linspace new_zeros new_ones new_full repeat tile expand broadcast_to view".split()
)

INSTEAD = {  # of names, by what a model may write
    "print": "leave it out",
    "getattr": "write the name itself",
    "eval": "write the expression itself",
    "exec": "write the code itself",
    "open": "there are no files",
    "str": "no text is needed",
    "set": "write a list",
    "map": "write [f(x) for x in ...]",
    "filter": "write [x for x in ... if ...]",
    "sorted": "write the order that you want",
    "any": "write torch.any(condition, dim=...), or | between conditions",
    "all": "write torch.all(condition, dim=...), or & between conditions",
    "pow": "write x ** y",
    "np": "write torch instead of numpy",
    "self": "write a plain function of state",
    "type": "leave it out: x.float() and x.long() change a tensor's type, isinstance(x, torch.Tensor) asks for it",
}
for _name in "setattr delattr hasattr vars dir globals locals id object super callable compile __import__".split():
    INSTEAD[_name] = "leave it out: code computes with tensors and looks at nothing else"
_RANDOM = "draw from random.uniform (compute_initial_state and compute_goal); elsewhere nothing may be random"
INSTEAD_OF_ATTRIBUTES = {  # of tensors and modules
    "item": "a tensor has a value per environment: leave it a tensor",
    "tolist": "leave it a tensor",
    "numpy": "leave it a tensor",
    "cpu": "leave it out: all tensors are on one device",
    "cuda": "leave it out: all tensors are on one device",
    "data": "leave it out",
    "requires_grad": "leave it out: nothing is differentiated",
    "type": "write x.float(), x.long(), x.bool() or x.to(torch.float32)",
    "astype": "write x.float(), x.long(), x.bool() or x.to(torch.float32)",
    "half": "write x.float()",
    "cumsum": "its order of summing is not fixed; write sums over slices",
    "gather": "indices must be constants: write torch.where, or a sum over a comparison with torch.arange",
    "scatter": "indices must be constants: write torch.where",
    "sort": "write torch.max, torch.min or comparisons",
    "topk": "write torch.max, torch.min or comparisons",
    "median": "it has no twin here; torch.mean is another statistic",
    "nonzero": "its shape depends on the data: write torch.where(condition, a, b)",
    "masked_select": "its shape depends on the data: write torch.where(condition, a, b)",
    "empty": "its numbers are arbitrary: write torch.zeros",
    "manual_seed": "leave it out: nothing may be random",
    "no_grad": "leave it out: nothing is differentiated",
    "format": "no text is needed",
}
for _name in "rand randn rand_like randn_like randint normal bernoulli uniform_ normal_ randperm multinomial".split():
    INSTEAD_OF_ATTRIBUTES[_name] = _RANDOM
for _name in INSTEAD_OF_ATTRIBUTES.keys() - {"type", "astype", "half", "data", "format"}:
    INSTEAD[_name] = INSTEAD_OF_ATTRIBUTES[_name]  # from torch import rand
