"""Replies as language models write them: which are accepted, and that the mends that a refusal suggests are mends."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

import envolve.envs.physics  # noqa: F401  registers the tasks
from envolve.envs.physics.task import SHAPER_TYPES
from envolve.llm.vetting.allow.allowed_names import INSTEAD, INSTEAD_OF_ATTRIBUTES
from envolve.llm.vetting.allow.allowed_syntax import REFUSED
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.normal.normalise import normalise
from envolve.llm.vetting.probe import make_probe
from envolve.llm.vetting.text.extract import extract
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.vet import Vetted, Vetter
from tests.llm.replies import FOLDER, TASKS, Reply, replies

SEEN, UNSEEN, FRESH = replies(), replies(FOLDER / "unseen"), replies(FOLDER / "fresh")
# Of the 30 replies that were written after the pass was finished, and counted before anything was mended, 25 were
# accepted. One is still refused: objects with methods.
# Of the 40 that were written after that, over eight tasks, 38 were accepted when they were first counted. f22, which
# names slices, was mended since; f39 gives torch.dot a matrix, which no torch takes: its refusal is right.
STILL_REFUSED = {"u29"}


def static(reply: Reply) -> str:
    """ "accepted" or "refused" by the layers that run nothing."""
    try:
        code = normalise(extract(reply.text, reply.types).code, reply.types, reply.task).code
        check_source(code, reply.types)
    except VetError:
        return "refused"
    return "accepted"


def test_the_corpus_is_as_large_and_as_varied_as_it_says() -> None:
    assert len(SEEN) == 100 and len(UNSEEN) == 30
    assert len(FRESH) == 40 and len({r.name for r in SEEN + UNSEEN + FRESH}) == 170
    assert len({r.task for r in FRESH}) == 8 and set(Counter(r.style for r in FRESH).values()) == {8}
    assert len({r.task for r in SEEN}) >= 8 and len({r.style for r in SEEN}) == 5
    assert min(Counter(r.style for r in SEEN).values()) >= 12
    assert sum(r.verdict == "accepted" for r in SEEN) >= 95


def test_what_runs_nothing_lets_them_through() -> None:
    wrong = [r.name for r in SEEN if static(r) != r.verdict]
    assert wrong == ["pusher_llama_weights"]  # it reads what the state does not have: the tracer says so
    assert {r.name for r in UNSEEN if static(r) != "accepted"} == STILL_REFUSED
    assert len(UNSEEN) - len(STILL_REFUSED) >= 0.9 * len(UNSEEN)
    assert not [r.name for r in FRESH if static(r) != "accepted"]  # f39 is refused when it is run


@pytest.mark.slow
@pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")
@pytest.mark.parametrize("task", sorted(set(TASKS.values())))
def test_they_are_accepted_as_expected(task: str) -> None:
    with Vetter(make_probe(task), SHAPER_TYPES) as vetter:
        for reply in [r for r in SEEN + UNSEEN + FRESH if r.task == task]:
            vetter.types = list(reply.types)  # what this reply was asked for
            verdict = vetter.vet(reply.text, reply.name)
            accepted = reply.verdict == "accepted" and reply.name not in STILL_REFUSED
            assert isinstance(verdict, Vetted) == accepted, f"{reply.name}: {verdict}"
            if isinstance(verdict, Vetted):
                assert set(verdict.graph_file["functions"]) == set(reply.types), reply.name


# ----------------------------------------------------------------------------------------------------------- mends

# What is written, and what it is mended to as the message says; a line alone: "leave it out".
SYNTAX: dict[str, tuple[str, str]] = {
    "While": ("while True: y = x", "for i in range(2): y = x"),
    "Try": ("try: y = x\n    except KeyError: y = x", "y = torch.clamp(x, min=1e-6)"),
    "TryStar": ("try: y = x\n    except* KeyError: y = x", "y = x"),
    "Lambda": ("y = [f(x) for f in [lambda v: v]]", "def f(v): return v\n    y = f(x)"),
    "ClassDef": ("class A:\n        def f(self): return 1\n    y = x", "def f(): return 1\n    y = x"),
    "With": ("with x: pass", ""),
    "GeneratorExp": ("y = torch.stack(tuple(k for k in (v for v in [x])))", "y = torch.stack([k for k in [x]])"),
    "SetComp": ("y = {k for k in [1]}", "y = [k for k in [1]]"),
    "Set": ("y = {1, 2}", "y = [1, 2]"),
    "Global": ("global k\n    k = 1", "k = 1"),
    "Nonlocal": ("def f():\n        nonlocal x\n        x = 1", "def f(x): return x"),
    "Delete": ("del x[0]", ""),
    "Assert": ("assert x", ""),
    "Raise": ("raise ValueError", ""),
    "JoinedStr": ("y = f'{x}'", "y = 'text'"),
    "Yield": ("y = yield x", "return x"),
    "YieldFrom": ("yield from x", "return x"),
    "Await": ("await x", ""),
    "AsyncFunctionDef": ("async def f(): return 1", "def f(): return 1"),
    "AsyncFor": ("async for k in x: pass", "for k in [x]: pass"),
    "AsyncWith": ("async with x: pass", ""),
    "NamedExpr": ("y = (z := x) + 1", "z = x\n    y = z + 1"),
    "Starred": ("y = torch.stack([*[x, x]])", "y = torch.stack([x, x])"),
    "Match": ("match x:\n        case _: y = x", "y = torch.where(x > 0, x, -x)"),
    "LShift": ("y = 1 << 3", "y = 1 * 2 ** 3"),
    "RShift": ("y = 8 >> 3", "y = 8 / 2 ** 3"),
    "TypeAlias": ("type A = int", ""),
    "TemplateStr": ("y = t'{x}'", "y = 'text'"),
}
NAMES: dict[str, tuple[str, str]] = {
    "getattr": ("y = getattr(x, 'shape')", "y = x.shape"),
    "eval": ("y = eval('x + 1')", "y = x + 1"),
    "exec": ("exec('y = x')", "y = x"),
    "open": ("y = open('f')", ""),
    "str": ("y = str(x)", ""),
    "set": ("y = set([1, 2])", "y = [1, 2]"),
    "map": ("y = map(torch.exp, [x])", "y = [torch.exp(v) for v in [x]]"),
    "filter": ("y = filter(None, [x])", "y = [v for v in [x] if True]"),
    "sorted": ("y = sorted([2, 1])", "y = [1, 2]"),
    "any": ("y = any([x])", "y = torch.any(x > 0, dim=-1) | (x > 0)"),
    "all": ("y = all([x])", "y = torch.all(x > 0, dim=-1) & (x > 0)"),
    "pow": ("y = pow(x, 2, 3)", "y = x ** 2"),
    "np": ("y = np.interp(x, 1, 2)", "y = torch.lerp(x, x, 0.5)"),
    "self": ("y = self.x", "y = state['x']"),
    "type": ("y = type(x)", "y = isinstance(x, torch.Tensor)"),
}
ATTRIBUTES: dict[str, tuple[str, str]] = {
    "item": ("y = x.item()", "y = x"),
    "tolist": ("y = x.tolist()", "y = x"),
    "numpy": ("y = x.numpy()", "y = x"),
    "type": ("y = x.type()", "y = x.float() + x.long() + x.bool() + x.to(torch.float32)"),
    "astype": ("y = x.astype(float)", "y = x.float() + x.to(torch.float32)"),
    "half": ("y = x.half()", "y = x.float()"),
    "cumsum": ("y = x.cumsum(0)", "y = x[:, :2].sum(dim=1)"),
    "gather": ("y = x.gather(0, x)", "y = (x * (torch.arange(3) == 1)).sum(dim=1) + torch.where(x > 0, x, 0.0)"),
    "scatter": ("y = x.scatter(0, x, x)", "y = torch.where(x > 0, x, 0.0)"),
    "sort": ("y = x.sort()", "y = torch.max(x, torch.min(x, -x))"),
    "topk": ("y = x.topk(2)", "y = torch.max(x, torch.min(x, -x))"),
    "median": ("y = x.median()", "y = torch.mean(x, dim=-1)"),
    "nonzero": ("y = x.nonzero()", "y = torch.where(x > 0, x, 0.0)"),
    "masked_select": ("y = x.masked_select(x > 0)", "y = torch.where(x > 0, x, 0.0)"),
    "normal": ("y = x.normal()", ""),
    "empty": ("y = torch.empty(3)", "y = torch.zeros(3)"),
    "format": ("y = 'a'.format(x)", "y = 'a'"),
}


def code(line: str) -> str:
    return f"def compute_reward(state):\n    x = state['x']\n    {line or 'y = x'}\n    return x\n"


def told(line: str) -> str:
    with pytest.raises(VetError) as e:
        check_source(code(line), ("compute_reward",))
    return e.value.message


def fits(line: str) -> bool:
    """Python here can parse it (some syntax is of later versions)."""
    try:
        ast.parse(code(line))
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_the_mend_of_syntax_is_one(kind: str) -> None:
    bad, mended = SYNTAX[kind]
    if not fits(bad):
        pytest.skip(f"this Python has no {kind}")
    assert "line 3: " in told(bad) or "line 4: " in told(bad)
    assert REFUSED[kind][1] in told(bad)
    check_source(code(mended), ("compute_reward",))


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_the_mend_of_a_name_is_one(name: str) -> None:
    bad, mended = NAMES.get(name, (f"{name}(x)", ""))
    said = told(bad)
    assert "line 3: " in said and (INSTEAD[name] in said or INSTEAD_OF_ATTRIBUTES.get(name, "?") in said)
    check_source(code(mended), ("compute_reward",))


@pytest.mark.parametrize("name", sorted(INSTEAD_OF_ATTRIBUTES))
def test_the_mend_of_a_method_is_one(name: str) -> None:
    bad, mended = ATTRIBUTES.get(name, (f"y = x.{name}", ""))
    assert "line 3: " in told(bad) and INSTEAD_OF_ATTRIBUTES[name] in told(bad)
    check_source(code(mended), ("compute_reward",))
