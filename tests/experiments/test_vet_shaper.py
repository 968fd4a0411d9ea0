from __future__ import annotations

import pytest

from envolve.envs.shaping.candidate import load_candidate
from envolve.experiments import vet_shaper
from envolve.llm.vetting.jail import locks as jail
from tests.experiments.command import run

GOOD = """Here is one:
```python
def compute_reward(state):
    upright_weight = 2.5
    return upright_weight * torch.cos(state["pole_angle"])
```
"""


def command(capsys, *words):
    return run(vet_shaper.main, words, capsys, vet_shaper.Path("/nonexistent"))[:3]


@pytest.mark.skipif(bool(jail.missing()), reason="no jail here")
def test_a_saved_reply_becomes_a_candidate(tmp_path, capsys, warm) -> None:
    file, out = tmp_path / "reply.txt", tmp_path / "mine.graph.json"
    file.write_text(GOOD)
    code, said, err = command(capsys, file, "--task", "Cartpole", "--shaper_types", "compute_reward", "--out", out)
    assert code == 0, err
    assert "accepted: compute_reward" in said and "upright_weight  2.5" in said and str(out) in said
    candidate = load_candidate(out)
    assert candidate.failure is None and candidate.param_names == ("upright_weight",)


@pytest.mark.skipif(bool(jail.missing()), reason="no jail here")
def test_a_refusal(tmp_path, capsys) -> None:
    file, out = tmp_path / "bad.py", tmp_path / "mine.graph.json"
    file.write_text("def compute_reward(state):\n    return open('secret').read()\n")
    code, said, _ = command(capsys, file, "--task", "Cartpole", "--out", out)
    assert code == 1 and said.startswith("refused (allowlist): line 2: ") and "'open' is not allowed" in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["@", "--task", "Cartpol"], "nearest: 'Cartpole'"),
        (["@", "--shaper_types", "compute_rewards"], "nearest: 'compute_reward'"),
        (["@", "--out", "x.json"], "ends with .graph.json"),
        (["@missing"], "found no"),
    ],
)
def test_wrong_arguments(tmp_path, capsys, words, said) -> None:
    file = tmp_path / "reply.txt"
    file.write_text(GOOD)
    code, _, err = command(capsys, *[word.replace("@", str(file)) for word in words])
    assert code == 2 and said in err


def test_without_a_jail(tmp_path, capsys, monkeypatch) -> None:
    file = tmp_path / "reply.txt"
    file.write_text(GOOD)
    monkeypatch.setattr(jail, "missing", lambda: ("seccomp filter",))
    code, _, err = command(capsys, file, "--task", "Cartpole")
    assert code == 2 and "no seccomp filter" in err
