"""The learner: P members' agents, their gradient steps, and the files that a run goes on from.

Version v of the policy is what iteration v collects with; after it come ``num_steps_per_iter`` gradient steps and
version v + 1. Before iteration 0 comes RANDOM, the turn that fills the memory.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agents.kernels.update import update_of
from agents.population import keep_pages
from agents.sac import SAC
from distributed.agent import actor_of, load_rows, make_algorithm, policy_content, rows_state
from distributed.params import TrainParamsBase
from distributed.policy_file import checkpoint_name, save_policy
from distributed.rows import RANDOM, Widths
from envs import rng
from envs.torch_file import TorchFileError, read_torch
from envs.world_file import write_atomic
from outer.checkpoint import CheckpointError

FORMAT = "envolve-learner-1"
BLOCK = 10  # gradient steps whose minibatches are fetched at once
POLICIES = Path("policies") / "checkpoints"
CHECKPOINT = "learner.pt"
Sample = Callable[[int, int], Tensor]  # (first, count) -> float32 [count, P, W, B]


class Learner:
    def __init__(self, params: TrainParamsBase, widths: Widths, keys: Tensor, folder: Path) -> None:
        """keys: int64 [P], of the members; folder: of the run. Raises ParamsError."""
        keep_pages()
        self.params, self.widths, self.folder = params, widths, folder
        self.algorithm = make_algorithm(params, widths, keys)
        self._update = update_of(self.algorithm)
        self.version, self.updates = RANDOM, 0
        self.update_key = rng.fold(keys, rng.UPDATE)
        P, B = len(keys), params.batch_size
        self.weight = torch.full((P, B), 1 / B)
        self.learns = torch.ones(P, dtype=torch.bool)
        self.ahead: Executor | None = None  # where samples are fetched from afar: a thread for it
        self.policy_delay = self.algorithm.policy_delay
        (folder / POLICIES).mkdir(parents=True, exist_ok=True)

    @property
    def complete(self) -> bool:
        return self.version >= self.params.num_iter

    def policy(self) -> Tensor:
        """Of all members, a copy: float32 [P, D]."""
        return actor_of(self.algorithm).clone()

    def iteration(self, sample: Sample) -> None:
        """The gradient steps of one iteration; none after the turn that fills the memory."""
        count = self.params.num_steps_per_iter if self.version > RANDOM else 0
        parts = [(self.updates + i, min(BLOCK, count - i)) for i in range(0, count, BLOCK)]
        for batches in map(lambda part: sample(*part), parts) if self.ahead is None else self._fetched(sample, parts):
            for batch in batches:
                self.update(batch)
        self.version += 1

    def _fetched(self, sample: Sample, parts: list[tuple[int, int]]) -> Iterator[Tensor]:
        """Each part while the one before it is learned from."""
        assert self.ahead is not None
        coming = self.ahead.submit(sample, *parts[0]) if parts else None
        for following in [*parts[1:], None]:
            if coming is not None:
                now, coming = coming.result(), following and self.ahead.submit(sample, *following)
                yield now

    def update(self, batch: Tensor) -> None:
        """One gradient step of every member. batch: float32 [P, W, B]."""
        self.updates += 1
        rows = self.algorithm.rows
        due = self.updates % self.params.target_update_period == 0
        rows.tau.fill_(self.params.tau if due else 0.0)
        number = torch.full_like(self.update_key, self.updates)
        actor = self.updates % self.policy_delay == 0
        learned = batch[:, : self.widths.learned]
        self._update(learned, self.weight, self.learns, number, self.update_key, actor)

    def metrics(self) -> dict[str, float]:
        """Means over members, for the log."""
        rows: Any = self.algorithm.rows
        return {"alpha": float(rows.log_alpha.exp().mean())} if isinstance(self.algorithm, SAC) else {}

    def finite(self) -> bool:
        return bool(torch.isfinite(self.algorithm.rows.params).all())

    # --------------------------------------------------------------------------------------------------------- files

    def due(self, period: int) -> bool:
        """Whether what happens every ``period`` iterations is due now, before the iteration of this version."""
        return self.version >= 0 and (self.version % period == 0 or self.complete)

    def save_policy(self) -> Path:
        """The greedy policy of now, named after the gradient steps so far. Raises OSError."""
        path = self.folder / POLICIES / (checkpoint_name(self.updates) + ".pt")
        save_policy(path, policy_content(self.params, self.widths, self.algorithm, self.updates))
        return path

    def save(self) -> None:
        """Everything. Raises OSError."""
        buffer = io.BytesIO()
        content = {"version": self.version, "updates": self.updates, "rows": rows_state(self.algorithm)}
        torch.save(content, buffer)
        body = buffer.getvalue()
        write_atomic(str(self.folder / CHECKPOINT), f"{FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body)

    def load(self) -> bool:
        """Go on from the checkpoint; whether there is one. Raises CheckpointError."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return False
        head, _, body = path.read_bytes().partition(b"\n")
        if head.decode("ascii", "replace") != f"{FORMAT} {hashlib.sha256(body).hexdigest()}":
            raise CheckpointError(f"{path}: damaged or of another version (its checksum does not fit); start a new run")
        try:
            content = read_torch(body)
            if type(content) is not dict or set(content) != {"version", "updates", "rows"}:
                raise TorchFileError("expected version, updates and rows")
            counts = content["version"], content["updates"]
            if not all(type(n) is int and RANDOM <= n < 2**60 for n in counts):
                raise TorchFileError("its counters are none")
            load_rows(self.algorithm, content["rows"])
        except (TorchFileError, ValueError) as e:
            raise CheckpointError(f"{path}: not of agents like these ({e}); start a new run") from None
        self.version, self.updates = counts
        return True
