"""Defaults that are objects: written into a function only if no call can see what another has left in them."""

from __future__ import annotations

import ast

import pytest

from envolve.llm.vetting.normal.unchanged import only_read

READ = (
    "return s['x'] * w['a'] + w.b", "return s['x'] * w", "return torch.norm(w)",
    "for k in w:\n        pass\n    return s", "return sum(v for v in w.values())", "return s['x'] * len(w)",
    "return s['x'] * w.get('a', 1.0)",
)  # fmt: skip
CHANGED = (
    "w.append(1)\n    return s", "w['a'] = 2.0\n    return s", "w['a'] += 1.0\n    return s", "w += 1\n    return s",
    "v = w\n    v.append(1)\n    return s", "w.add_(1)\n    return s", "del w['a']\n    return s",
    "return helper(s, w)", "w.a = 1\n    return s", "w.data.add_(1)\n    return s",
    "torch.add(s, s, out=w)\n    return s", "w['a'].append(1)\n    return s", "return w", "v = [w]\n    return s",
    "torch.nn.init.zeros_(w)\n    return s", "w.clear()\n    return s", "return s if w is None else (w := s)",
    "w['a']['b'] = 1\n    return s",
)  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), [*((b, True) for b in READ), *((b, False) for b in CHANGED)])
def test_a_use_that_may_change_the_object_is_seen(body: str, expected: bool) -> None:
    (f,) = ast.parse(f"def compute_reward(s, w={{}}):\n    {body}\n").body
    assert isinstance(f, ast.FunctionDef) and only_read(f, "w") is expected
