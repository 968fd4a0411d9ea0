from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envolve.distributed.files.policy_file import checkpoint_name, load_policy, save_policy
from envolve.distributed.memory.rows import Widths
from envolve.distributed.programs.agent import make_agent, policy_content
from envolve.outer.checkpoint import CheckpointError
from tests.distributed.toy import small

WIDTHS = Widths(3, 2, (-2.0, 0.0), (2.0, 10.0))
GOALS = replace(WIDTHS, goal_size=1)


def content(algorithm: str = "SAC", members: int = 2) -> dict[str, Any]:
    params, widths = small(algorithm=algorithm), GOALS if algorithm == "CRL" else WIDTHS
    return policy_content(params, widths, make_agent(params, widths, torch.arange(members)), 500_000)


@pytest.mark.parametrize("algorithm", ["SAC", "TD3"])
def test_a_policy_that_was_stored_acts_as_before(tmp_path: Path, algorithm: str) -> None:
    """Against the learner's own rule, with the bounds written out."""
    params = small(algorithm=algorithm)
    agent: Any = make_agent(params, WIDTHS, torch.arange(2))
    path = tmp_path / (checkpoint_name(500_000) + ".pt")
    assert path.name == "policy_checkpoint_0000500000.pt"
    save_policy(path, policy_content(params, WIDTHS, agent, 500_000))
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    for member in range(2):
        expected = agent.algorithm.greedy(torch.tensor(obs).expand(2, 6, 3))[member].numpy()
        expected = np.stack([2 * expected[:, 0], 5 + 5 * expected[:, 1]], 1)
        found = load_policy(tmp_path / checkpoint_name(500_000), member)(obs)  # the name may lack its ending
        assert found.dtype == np.float32 and found.shape == (6, 2)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("more", [{}, {"activation": "swish", "skip_connections": 1, "hidden": (8, 8, 8)}])
def test_a_policy_with_goals_acts_as_before(tmp_path: Path, more: dict[str, Any]) -> None:
    params = small(algorithm="CRL", **more)
    agent: Any = make_agent(params, GOALS, torch.arange(2))
    agent.actor().add_(0.1 * torch.randn(agent.actor().shape, generator=torch.Generator().manual_seed(1)))
    save_policy(tmp_path / "p.pt", policy_content(params, GOALS, agent, 0))
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    seen = torch.tensor(obs).expand(2, 6, 3)
    for member in range(2):
        expected = agent.crl.greedy(seen[..., :2], seen[..., 2:])[member].numpy()
        expected = np.stack([2 * expected[:, 0], 5 + 5 * expected[:, 1]], 1)
        np.testing.assert_allclose(load_policy(tmp_path / "p", member)(obs), expected, atol=1e-5)


def test_the_bytes_depend_on_the_policy_alone(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        save_policy(tmp_path / name, content())
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", "other", "format envolve-policy-1"),
        ("algorithm", "PPO", "expected SAC or TD3"),
        ("inputs", 4, r"actor: found the shape \[2, \d+\], expected \[P, \d+\]"),
        ("actor", torch.zeros(2, 3, dtype=torch.float64), "actor: found torch.float64"),
        ("low", torch.zeros(3), r"low: found the shape \[3\], expected \[2\]"),
        ("hidden", 0, "without inputs"),
        ("step", -1, "step: found int"),
        ("layers", "2", "layers: found str, expected int"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, key: str, value: Any, words: str) -> None:
    refused(tmp_path, {**content(), key: value}, words)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("algorithm", "SAC", "expected a dictionary of"),  # which has no skip
        ("algorithm", torch.zeros(2), "expected a dictionary of"),
        ("algorithm", ["CRL"], "expected a dictionary of"),
        ("activation", "prelu", "CRL with prelu, expected .* CRL with relu or swish"),
        ("skip", -1, "skip: found int"),
        ("skip", 1.0, "skip: found float, expected int"),
        ("inputs", 4, r"actor: found the shape \[2, \d+\], expected \[P, \d+\]"),
        ("hidden", 2**39, "actor: found the shape"),
        ("layers", 65, "without inputs"),
    ],
)
def test_what_is_no_policy_of_goals_is_refused(tmp_path: Path, key: str, value: Any, words: str) -> None:
    refused(tmp_path, {**content("CRL"), key: value}, words)


def test_a_policy_of_goals_says_how_its_layers_are_joined(tmp_path: Path) -> None:
    found = content("CRL")
    del found["skip"]
    refused(tmp_path, found, "a dictionary of .*skip")


def refused(folder: Path, wrong: dict[str, Any], words: str) -> None:
    buffer = io.BytesIO()
    torch.save({"format": "envolve-policy-1", **wrong}, buffer)
    (folder / "p.pt").write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match=words) as error:
        load_policy(folder / "p")
    assert "p.pt" in str(error.value)


def test_files_that_are_not_there_or_not_whole(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found no policy there"):
        load_policy(tmp_path / "none")
    save_policy(tmp_path / "p.pt", content())
    (tmp_path / "p.pt").write_bytes((tmp_path / "p.pt").read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a policy of this version"):
        load_policy(tmp_path / "p")
    save_policy(tmp_path / "p.pt", content())
    with pytest.raises(CheckpointError, match="found 2 members, expected number 2 among them"):
        load_policy(tmp_path / "p", 2)
