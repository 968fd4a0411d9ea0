"""A guess from a few words of a file: right for every shipped configuration, and never an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from envolve.agents.common.compiling import STEPS
from envolve.outer import early
from envolve.outer.config.load import load_config
from envolve.outer.evaluate import compiled

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(ROOT.glob("default_config_*.yaml"))


def known(path, overrides, monkeypatch):
    """What compiled.py has compiled, once all is read."""
    found = [None]
    monkeypatch.setattr(compiled, "beside", found.append)
    compiled.compiled_beside(load_config(path, overrides).data)
    return found[-1]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_guess_of_shipped_configurations(path, monkeypatch):
    right = known(path, [], monkeypatch)
    found = early.guess([str(path), "--single"])
    assert found == right or found is None and (right is None or right.endswith(STEPS))


@pytest.mark.parametrize(
    "override", ["agents.gtn.agent_name=PPO", "agents.gtn.agent_name=DuelingDDQN_vary", "env_name=CartPole-v0"]
)
def test_guess_with_overrides(override, monkeypatch):
    path = ROOT / "default_config_cartpole_syn_env.yaml"
    found = early.guess(["--set", override, "seed=1", "--single", str(path)])
    assert found == known(path, [override], monkeypatch)


def test_only_for_runs_with_workers_of_their_own(monkeypatch, tmp_path):
    begun = []
    monkeypatch.setattr(early, "begin", begun.append)
    path = str(ROOT / "default_config_cartpole_syn_env.yaml")
    for words in ([path], [path, "--single", "--check"], ["--single"], [str(tmp_path / "no.yaml"), "--single"], []):
        early.compile_early(words)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe env_name: \x00")
    early.compile_early([str(tmp_path / "bytes.yaml"), "--single"])
    early.compile_early([str(tmp_path / "bytes.yaml"), "--single", "--resume"])
    assert not begun
    (tmp_path / "config.yaml").write_text(Path(path).read_text())
    early.compile_early([path, "--num-workers=2"])
    early.compile_early(["--resume", str(tmp_path), "--single"])
    assert begun == ["ddqn"] * 2
