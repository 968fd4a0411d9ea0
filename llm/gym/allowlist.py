"""Allow-list for ``compute_reward`` of a user's Gymnasium environment, applied to Python's syntax tree.

Nothing is run here. What the rules let through may still be hostile or endless; the jail in which it is run
(``jailed.py``) is the boundary. The rules are there to tell a model early, in words it can act on, and to keep
a reward from changing the environment that judges it.
"""

from __future__ import annotations

import ast
import builtins
import math

from envolve.llm.gym.reward import MEMORY, METHOD, StepCall
from envolve.llm.vetting.allow.allowed_syntax import PARTS, REFUSED
from envolve.llm.vetting.problems import Hint, Problems, near, short
from envolve.llm.vetting.text.parsing import VetError, parse

MAX_NODES, MAX_NUMBER, MAX_TEXT = 4_000, 1e12, 200
MOST_PROBLEMS = 30  # that are told at once
LONGEST_OWNER = 30  # nodes of an expression that is shown
BUILTINS = (
    "abs all any bool dict enumerate float int isinstance len list max min pow range reversed round set sorted str sum "
    "tuple zip"
).split()
NUMPY = set(
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
LINALG = {"norm", "det", "inv"}
MATH = {name for name in dir(math) if not name.startswith("_")}
READING = set(
    "all any argmax argmin astype clip copy count cumsum dot flatten get index item items keys max mean min prod ravel "
    "reshape round squeeze std sum tolist transpose values var".split()
)
WRITING = {"append", "extend", "pop", "setdefault", "update"}
HIDDEN = {"base", "ctypes", "data", "setflags", "unwrapped"} | {"f_back", "f_globals", "f_locals", "gi_frame"}
FRESH = {"dict", "list", "set", "sorted", "array", "zeros", "ones", "full", "zeros_like", "ones_like", "copy", "astype"}
NODES = (
    ast.Module | ast.FunctionDef | ast.arguments | ast.arg | ast.Return | ast.Assign | ast.AugAssign | ast.AnnAssign
    | ast.If | ast.For | ast.Expr | ast.Pass | ast.Break | ast.Continue | ast.BoolOp | ast.BinOp | ast.UnaryOp
    | ast.Compare | ast.IfExp | ast.Call | ast.keyword | ast.Attribute | ast.Subscript | ast.Slice | ast.Name
    | ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.GeneratorExp
    | ast.comprehension | ast.JoinedStr | ast.FormattedValue | ast.expr_context | ast.boolop | ast.operator
    | ast.unaryop | ast.cmpop
)  # fmt: skip
INSTEAD = {  # of syntax, by its name in the tree
    "While": "a for loop over a range",
    "Try": "conditions that hold, e.g. max(x, 1e-6) before a division",
    "Lambda": "a function with a name",
    "ClassDef": "the method alone",
    "Import": "np and math, which are there already",
    "ImportFrom": "np and math, which are there already",
    "Raise": "a return of numbers in every case",
    "Assert": "conditions in np.where or if",
    "Global": f"self.{MEMORY}, a dict that is emptied at every reset",
    "NamedExpr": "an assignment of its own",
    "Starred": "the arguments one by one",
    "With": "the statements without it",
    "AsyncFunctionDef": "def",
    "Yield": "return",
    "Match": "if and elif",
    "SetComp": "a list: [... for ... in ...]",
    "Delete": "another name",
}
WORDS = {kind: word for kind, (word, _) in REFUSED.items()}  # of syntax, as people call it
WORDS |= {"Import": "import", "ImportFrom": "import", "SetComp": "a set with for"}


def check_method(code: str, call: StepCall | None = None) -> None:
    """Raises VetError("allowlist") with all problems: line, what was found, what to write instead."""
    tree = parse(code, "allowlist")
    check = _Check(tree)
    check.signature(call)
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        check.problem(1, f"more than {MAX_NODES} names, numbers and operations: write a shorter reward")
    else:
        check.walk(tree)
    if check.problems:
        raise VetError("allowlist", check.problems.told(MOST_PROBLEMS, in_order=False))


class _Check:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.callable = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        firsts = [f.body[0] for f in self.functions.values()]
        self.documentation = {id(first.value) for first in firsts if isinstance(first, ast.Expr)}
        self.problems = Problems()
        self.fresh = _fresh_names(tree)

    def problem(self, where: ast.AST | int, text: str, hint: Hint | None = None) -> None:
        self.problems.add(where if isinstance(where, int) else getattr(where, "lineno", 1), text, hint)

    def signature(self, call: StepCall | None) -> None:
        function = self.functions.get(METHOD)
        if function is None:
            self.problem(1, f"no def {METHOD}(self, ...); write it")
            return
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        if not names or names[0] != "self":
            self.problem(function, f"{METHOD} is a method: its first argument must be self, found ({', '.join(names)})")
        elif call is not None and not arguments.vararg:
            low, high = len(names) - 1 - len(arguments.defaults), len(names) - 1
            if not low <= len(call.arguments) <= high or any(d is None for d in arguments.kw_defaults):
                asked = f"self.{METHOD}({', '.join(call.arguments)})"
                self.problem(function, f"step calls {asked}, but yours takes ({', '.join(names[1:])})")
        if not any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function)):
            self.problem(function, f"{METHOD} returns nothing; return total, components")

    def walk(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not _unknown_import(node):
                continue
            if isinstance(node, ast.alias):
                continue
            kind = type(node).__name__
            if not isinstance(node, NODES):
                if kind not in PARTS:  # of what is refused itself
                    word = WORDS.get(kind, "syntax of this kind")
                    self.problem(node, f"{word} is not allowed; use {INSTEAD.get(kind, 'something simpler')}")
                continue
            method = getattr(self, "on_" + kind, None)
            if method is not None:
                method(node)

    def on_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.decorator_list:
            self.problem(node, "decorators are not allowed; leave it away")
        if node.name.startswith("_"):
            self.problem(node, f"the name {short(node.name)} begins with an underscore; use another")
        if node.name in BUILTINS or node.name in ("np", "math"):
            self.problem(node, f"a function must not be called {node.name}")

    def on_Name(self, node: ast.Name) -> None:
        if node.id.startswith("_") and node.id != "_":
            self.problem(node, f"the name {short(node.id)} begins with an underscore; use another")
        elif node.id == "np" or node.id == "math" or node.id in BUILTINS:
            if not isinstance(node.ctx, ast.Load):
                self.problem(node, f"{node.id} must keep its meaning; use another name")
        elif isinstance(node.ctx, ast.Load) and hasattr(builtins, node.id):
            self.problem(node, f"{node.id} is not allowed; there are np, math and {', '.join(BUILTINS)}")

    def on_arg(self, node: ast.arg) -> None:
        if node.arg.startswith("_") and node.arg != "_":
            self.problem(node, f"the name {short(node.arg)} begins with an underscore; use another")

    def on_Attribute(self, node: ast.Attribute) -> None:
        name, owner = node.attr, _dotted(node.value)
        shown = short(name)
        if not isinstance(node.ctx, ast.Load):
            what = f"{_text(node.value)}.{shown} = ... would change the environment"
            key = f"self.{MEMORY}[{shown!r}]"
            self.problem(node, f"{what}; keep what you need from step to step in {key} (emptied at every reset)")
        elif name.startswith("_") or name.endswith("_") and owner != "np" or name in HIDDEN:
            self.problem(node, f"the attribute {shown} is not allowed; leave it out")
        elif owner in ("np", "numpy"):
            if name == "random":
                self.problem(node, "np.random is not allowed: the same step must give the same reward")
            elif name not in NUMPY and name != "linalg":
                hint = near(name, NUMPY, 0.6, "use other functions of np", "; did you mean np.{}")
                self.problem(node, f"np.{shown} is not allowed", hint)
        elif owner in ("np.linalg", "numpy.linalg") and name not in LINALG:
            self.problem(node, f"np.linalg.{shown} is not allowed; there are {', '.join(sorted(LINALG))}")
        elif owner == "math" and name not in MATH:
            self.problem(node, f"math has no {shown}", near(name, MATH, 0.6, "use np", "; did you mean math.{}"))

    def on_Call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg in (None, "out", "key", "where"):
                self.problem(node, f"the argument {keyword.arg or '**'} is not allowed; leave it out")
        function = node.func
        if isinstance(function, ast.Name):
            if function.id not in BUILTINS and function.id not in self.callable and not hasattr(builtins, function.id):
                text = f"{short(function.id)}() is not defined beside {METHOD}; only such functions may be called"
                self.problem(node, text, near(function.id, self.callable, 0.6, "write it", "; did you mean {}"))
        elif isinstance(function, ast.Attribute):
            owner, name = function.value, function.attr
            if _dotted(owner) in ("np", "numpy", "math", "np.linalg", "numpy.linalg"):
                return
            if isinstance(owner, ast.Name) and owner.id == "self":
                self.problem(node, f"self.{short(name)}() is not allowed; only attributes of self may be read")
            elif name in WRITING:
                self.writing(node, owner, f".{name}(...)")
            elif name not in READING:
                hint = near(name, READING | WRITING, 0.6, "use np", "; did you mean .{}")
                self.problem(node, f"the method .{short(name)}() is not allowed", hint)
        else:
            self.problem(node, "only functions with a name may be called")

    def on_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.writing(node, node.value, "[...] = ...")

    def writing(self, node: ast.AST, owner: ast.expr, what: str) -> None:
        """Allows assignments only to objects that the code made itself, or to the memory: anything else may belong to
        the environment."""
        if _dotted(owner) == f"self.{MEMORY}" or isinstance(owner, ast.Name) and owner.id in self.fresh:
            return
        text = _text(owner)
        self.problem(node, f"{text}{what} may change the environment; make your own first, e.g. x = np.array({text})")

    def on_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, (int, float)) and not abs(value) <= MAX_NUMBER:
            self.problem(node, f"a number above {MAX_NUMBER:g} is not allowed; write a smaller one")
        elif isinstance(value, (bytes, complex)):
            self.problem(node, f"a {type(value).__name__} is not allowed; write numbers")
        elif isinstance(value, str) and len(value) > MAX_TEXT and id(node) not in self.documentation:
            self.problem(node, f"a text of more than {MAX_TEXT} characters is not allowed; write a shorter one")


def _unknown_import(node: ast.stmt) -> bool:
    """numpy and math are there, and annotations are not looked at: imports of these do no harm, and nothing."""
    if isinstance(node, ast.Import):
        return any((a.name, a.asname) not in (("numpy", "np"), ("numpy", None), ("math", None)) for a in node.names)
    return isinstance(node, ast.ImportFrom) and node.module not in ("typing", "__future__", "collections.abc")


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
    return {name for name, values in assigned.items() if all(v is not None and _is_fresh(v) for v in values)}


def _is_fresh(value: ast.expr) -> bool:
    if isinstance(value, (ast.Dict, ast.List, ast.ListComp, ast.DictComp, ast.Set)):
        return True
    if isinstance(value, ast.Call):
        function = value.func
        return (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) in FRESH
    return False
