"""Allow-list for ``compute_reward`` of a user's Gymnasium environment: the engine's table, and the method's signature.

Nothing is run here. What the rules let through may still be hostile or endless; the jail in which it is run
(``jailed.py``) is the boundary. The rules are there to tell a model early, in words it can act on, that a reward may
not change the environment that judges it; that it cannot is the work of ``view.py``.
"""

from __future__ import annotations

import ast
import collections.abc
import math
import typing

from envolve.llm.gym.reward import MEMORY, METHOD, StepCall
from envolve.llm.vetting.allow.allowed_names import INSTEAD, INSTEAD_OF_ATTRIBUTES, TYPING
from envolve.llm.vetting.allow.allowed_syntax import ALLOWED, REFUSED
from envolve.llm.vetting.allow.engine import check
from envolve.llm.vetting.allow.table import Limits, Owner, Table
from envolve.llm.vetting.problems import Problems, short
from envolve.llm.vetting.text.parsing import parse

LONGEST_OWNER = 30  # nodes of an expression that is shown
BUILTINS = frozenset(
    "abs all any bool dict enumerate float int isinstance len list max min pow range reversed round set slice sorted "
    "str sum tuple zip".split()
)
_NUMPY_CONSTANTS = frozenset(
    "bool_ e float32 float64 floating inf int32 int64 integer nan ndarray newaxis number pi".split()
)
NUMPY = frozenset(
    "abs absolute add all allclose any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin array "
    "array_equal asarray atleast_1d average bool_ cbrt ceil clip concatenate copysign cos cosh count_nonzero cross "
    "cumprod cumsum deg2rad degrees diff divide dot e equal exp exp2 expm1 eye float32 float64 floor fmax fmin full "
    "greater greater_equal heaviside hypot inf inner int32 int64 interp isclose isfinite isinf isnan less less_equal "
    "linspace log log10 log1p log2 logical_and logical_not logical_or logical_xor matmul max maximum mean median min "
    "minimum mod multiply nan nan_to_num ndarray ndim negative newaxis nonzero norm not_equal number ones ones_like "
    "outer pi power prod quantile rad2deg radians ravel reciprocal remainder repeat reshape round shape sign sin sinc "
    "sinh size sort sqrt square squeeze stack std subtract sum take tan tanh tile transpose trunc var vstack hstack "
    "where zeros zeros_like floating integer".split()
)
LINALG = frozenset({"norm", "det", "inv"})
MATH = frozenset(name for name in dir(math) if not name.startswith("_"))
READING = frozenset(
    "all any argmax argmin astype clip copy count cumsum dot flatten get index item items keys max mean min prod ravel "
    "reshape round squeeze std sum tolist transpose values var".split()
)
WRITING = frozenset({"append", "extend", "pop", "setdefault", "update"})
HIDDEN = frozenset("base ctypes data setflags unwrapped f_back f_globals f_locals gi_frame".split())
FRESH = {"dict", "list", "set", "sorted", "array", "zeros", "ones", "full", "zeros_like", "ones_like", "copy", "astype"}
MORE_SYNTAX = frozenset("Set GeneratorExp JoinedStr FormattedValue LShift RShift".split())
REFUSED_HERE = {  # syntax: its word, what to write instead
    **{kind: words for kind, words in REFUSED.items() if kind not in MORE_SYNTAX},
    "While": ("while", "write a for over a range"),
    "Try": ("try", "write conditions that hold, e.g. max(x, 1e-6) before a division"),
    "ClassDef": ("class", "write the method alone"),
    "With": ("with", "write the statements without it"),
    "Raise": ("raise", "return numbers in every case"),
    "Assert": ("assert", "write conditions in np.where or if"),
    "Global": ("global", f"keep it in self.{MEMORY}, a dict that is emptied at every reset"),
    "Starred": ("*", "write the arguments one by one"),
    "Yield": ("yield", "write return"),
    "Match": ("match", "write if and elif"),
    "SetComp": ("a set with for", "write a list: [... for ... in ...]"),
}
KEPT = f"keep what you need from step to step in self.{MEMORY}"
_NAMES = (
    "print eval exec open getattr setattr delattr hasattr vars dir globals locals object super callable compile".split()
)


def _owned(tree: ast.Module) -> Owner:
    """Only objects that the code made itself, and the memory: anything else may belong to the environment."""
    fresh = _fresh_names(tree)

    def why(node: ast.AST, what: str) -> str | None:
        assert isinstance(node, ast.expr)
        if _dotted(node) == f"self.{MEMORY}" or isinstance(node, ast.Name) and node.id in fresh:
            return None
        text = _text(node)
        return f"{text}{what} may change the environment; make your own first, e.g. x = np.array({text})"

    return why


GYMNASIUM = Table(
    limits=Limits(nodes=4_000, problems=30, work=2_000_000, turns=None, number=1e12, text=200),
    syntax=frozenset(ALLOWED) | MORE_SYNTAX,
    refused=REFUSED_HERE,
    builtins=BUILTINS,
    given={"np": "numpy", "numpy": "numpy", "math": "math"},
    types=TYPING,
    modules={
        "numpy": (NUMPY, _NUMPY_CONSTANTS, frozenset({"linalg"})),
        "numpy.linalg": (LINALG, frozenset(), frozenset()),
        "math": (MATH, frozenset({"pi", "e", "tau", "inf", "nan"}), frozenset()),
        "typing": (frozenset(), frozenset(typing.__all__), frozenset()),
        "collections.abc": (frozenset(), frozenset(collections.abc.__all__), frozenset()),
    },
    importable=frozenset({"numpy", "math", "typing", "collections.abc", "__future__"}),
    there="np and math are there already",
    methods=READING | WRITING,
    in_place=frozenset(),
    changing=WRITING,
    properties=None,
    hidden=HIDDEN,
    keywords=frozenset({"out", "key", "where", "copy", "overwrite_input"}),
    instead={name: INSTEAD[name] for name in _NAMES},
    instead_of_attributes={
        "random": "the same step must give the same reward",
        **{name: INSTEAD_OF_ATTRIBUTES[name] for name in ("data", "format", "type")},
    },
    others="use np and math",
    assigned=lambda owner, name: f"it would change the environment; {KEPT}[{name!r}], which is emptied at every reset",
    owner=_owned,
    sized=frozenset("zeros ones full eye arange linspace repeat tile".split()),
    closed=False,
    texts=True,
    read_only=frozenset({"self"}),
    whole="arrays",
)


def check_method(code: str, call: StepCall | None = None) -> None:
    """Raises VetError("allowlist") with all problems: line, what was found, what to write instead."""
    tree = parse(code, "allowlist")
    problems = Problems()
    _signature(tree, call, problems)
    check(tree, [METHOD], GYMNASIUM, problems)


def _signature(tree: ast.Module, call: StepCall | None, problems: Problems) -> None:
    function = next((n for n in reversed(tree.body) if isinstance(n, ast.FunctionDef) and n.name == METHOD), None)
    if function is None:
        return
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if not names or names[0] != "self":
        said = f"{METHOD} is a method: its first argument must be self, found ({', '.join(map(short, names))})"
        problems.add(function, said)
    elif call is not None and not arguments.vararg:
        low, high = len(names) - 1 - len(arguments.defaults), len(names) - 1
        if not low <= len(call.arguments) <= high or any(d is None for d in arguments.kw_defaults):
            asked = f"self.{METHOD}({', '.join(call.arguments)})"
            problems.add(function, f"step calls {asked}, but yours takes ({', '.join(map(short, names[1:]))})")
    if not any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function)):
        problems.add(function, f"{METHOD} returns nothing; return total, components")


def _dotted(node: ast.expr) -> str:
    """np, np.linalg, self.reward_memory: up to two names; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _text(node: ast.expr) -> str:
    """A short expression as it is written; of a longer one, what it ends in."""
    if sum(1 for _, _ in zip(ast.walk(node), range(LONGEST_OWNER))) == LONGEST_OWNER:
        return f"(...).{short(node.attr)}" if isinstance(node, ast.Attribute) else "(...)"
    return short(ast.unparse(node))


def _fresh_names(tree: ast.Module) -> set[str]:
    """Names that are only ever assigned objects that the code has just made."""
    assigned: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            targets = [node.target]
        elif isinstance(node, ast.arg):
            assigned.setdefault(node.arg, []).append(None)
        pairs = [(target, value) for target in targets]
        for target, given in pairs:
            if isinstance(target, ast.Tuple) and isinstance(given, ast.Tuple) and len(target.elts) == len(given.elts):
                pairs += zip(target.elts, given.elts)  # r, parts = 0.0, {}
                continue
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    assigned.setdefault(name.id, []).append(given if name is target else None)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}  # may be called zeros, too
    return {name for name, values in assigned.items() if all(v is not None and _is_fresh(v, own) for v in values)}


def _is_fresh(value: ast.expr, own: set[str]) -> bool:
    if isinstance(value, (ast.Dict, ast.List, ast.ListComp, ast.DictComp, ast.Set)):
        return True
    if isinstance(value, ast.Call):
        function = value.func
        if isinstance(function, ast.Name) and function.id in own:
            return False
        return (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) in FRESH
    return False
