from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distributed.agent import make_agent, policy_content
from distributed.policy_file import checkpoint_name, load_policy, save_policy
from distributed.rows import Widths
from outer.checkpoint import CheckpointError
from tests.distributed.toy import small

WIDTHS = Widths(3, 2, (-2.0, 0.0), (2.0, 10.0))


def content(algorithm: str = "SAC", members: int = 2) -> dict[str, Any]:
    params = small(algorithm=algorithm)
    return policy_content(params, WIDTHS, make_agent(params, WIDTHS, torch.arange(members)), 500_000)


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
    buffer = io.BytesIO()
    torch.save({"format": "envolve-policy-1", **content(), key: value}, buffer)
    (tmp_path / "p.pt").write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match=words) as error:
        load_policy(tmp_path / "p")
    assert "p.pt" in str(error.value)


def test_files_that_are_not_there_or_not_whole(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found no policy there"):
        load_policy(tmp_path / "none")
    save_policy(tmp_path / "p.pt", content())
    (tmp_path / "p.pt").write_bytes((tmp_path / "p.pt").read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="no policy of this version"):
        load_policy(tmp_path / "p")
    save_policy(tmp_path / "p.pt", content())
    with pytest.raises(CheckpointError, match="found 2 members, expected number 2 among them"):
        load_policy(tmp_path / "p", 2)
