"""Learner: the agents of P members, their gradient steps, and the files to resume from.

Version v of the policy is what iteration v collects with; after it come ``num_steps_per_iter`` gradient steps and
version v + 1. Before iteration 0 comes RANDOM, the turn that fills the memory.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import torch
from torch import Tensor

from envolve.agents.common.population import keep_pages
from envolve.core.files import MIB, UnfitFileError, read_plain
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.files.policy_file import checkpoint_name, save_policy
from envolve.distributed.memory.rows import RANDOM, Widths
from envolve.distributed.programs.agent import load_state, make_agent, policy_content, state_of
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import CheckpointError

FORMAT = "envolve-learner-1"
BLOCK = 10  # gradient steps whose minibatches are fetched at once, first of all and if they are large; else ...
LARGER_BLOCK, BLOCK_BYTES = 50, 4 * MIB  # ... this many, or as many as fit into a message of this size
POLICIES = Path("policies") / "checkpoints"
CHECKPOINT = "learner.pt"
REST = 16 * MIB  # of it beside the numbers
Kept = Callable[[str], None]  # gets the name, within the folder, of a file that was written
Sample = Callable[[int, int], Tensor]  # (first, count) -> float32 [count, P, W, B]


def block_of(members: int, row: int, batch_size: int) -> int:
    """Gradient steps whose minibatches of ``batch_size`` rows of ``row`` numbers are fetched at once: a call costs as
    much as many small ones."""
    return max(BLOCK, min(LARGER_BLOCK, BLOCK_BYTES // (4 * members * row * batch_size)))


def stays(name: str) -> None:
    """Does nothing: a file in the run's own folder is kept already."""


class Learner:
    def __init__(self, params: TrainParamsBase, widths: Widths, keys: Tensor, folder: Path, kept: Kept = stays) -> None:
        """keys: int64 [P], random keys of the members; folder: of the run. Raises ParamsError."""
        keep_pages()
        self.params, self.widths, self.folder, self.kept = params, widths, folder, kept
        self.agent = make_agent(params, widths, keys)
        self.agent.prepare()
        self.block = block_of(len(keys), widths.row, params.batch_size)
        self.version, self.updates = RANDOM, 0
        self.ahead: Executor | None = None  # where samples are fetched from afar: a thread for it
        (folder / POLICIES).mkdir(parents=True, exist_ok=True)

    @property
    def complete(self) -> bool:
        return self.version >= self.params.num_iter

    def policy(self) -> Tensor:
        """Policies of all members, a copy: float32 [P, D]."""
        return self.agent.actor().clone()

    def iteration(self, sample: Sample) -> None:
        """Gradient steps of one iteration; none after the turn that fills the replay buffer."""
        count = self.params.num_steps_per_iter if self.version > RANDOM else 0
        starts = [*range(0, min(BLOCK, count), BLOCK), *range(BLOCK, count, self.block), count]  # the first comes soon
        parts = [(self.updates + a, b - a) for a, b in zip(starts, starts[1:])]
        for batches in map(lambda part: sample(*part), parts) if self.ahead is None else self._fetched(sample, parts):
            for batch in batches:
                self.update(batch)
        self.version += 1

    def _fetched(self, sample: Sample, parts: list[tuple[int, int]]) -> Iterator[Tensor]:
        """Minibatches of gradient steps, each sampled while the one before is in use."""
        assert self.ahead is not None
        coming = self.ahead.submit(sample, *parts[0]) if parts else None
        for following in [*parts[1:], None]:
            if coming is not None:
                now, coming = coming.result(), following and self.ahead.submit(sample, *following)
                yield now

    def update(self, batch: Tensor) -> None:
        """One gradient step of every member. batch: float32 [P, W, B]."""
        self.updates += 1
        self.agent.learn(batch[:, : self.widths.learned], self.updates)

    def metrics(self) -> dict[str, float]:
        """Metrics for the log, means over members."""
        return self.agent.metrics()

    def finite(self) -> bool:
        return bool(torch.isfinite(self.agent.weights()).all())

    # --------------------------------------------------------------------------------------------------------- files

    def due(self, period: int) -> bool:
        """True if an event of every ``period`` iterations is due now, before the iteration of this version."""
        return self.version >= 0 and (self.version % period == 0 or self.complete)

    def save_policy(self) -> Path:
        """Writes the current greedy policy, named after the gradient steps so far. Raises OSError."""
        name = POLICIES / (checkpoint_name(self.updates) + ".pt")
        save_policy(self.folder / name, policy_content(self.params, self.widths, self.agent, self.updates))
        self.kept(str(name))
        return self.folder / name

    def save(self) -> None:
        """Writes the checkpoint. Raises OSError."""
        buffer = io.BytesIO()
        content = {"version": self.version, "updates": self.updates, "rows": state_of(self.agent)}
        torch.save(content, buffer)
        body = buffer.getvalue()
        write_atomic(str(self.folder / CHECKPOINT), f"{FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body)
        self.kept(CHECKPOINT)

    def load(self) -> bool:
        """Resumes from the checkpoint -> whether there is one. Raises CheckpointError."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return False
        most = sum(part.numel() * part.element_size() for part in self.agent.parts().values()) + REST
        try:
            head, _, body = read_plain(path, most).partition(b"\n")
        except UnfitFileError as e:
            raise CheckpointError(f"{path}: {e.strerror}; start a new run") from None
        if head.decode("ascii", "replace") != f"{FORMAT} {hashlib.sha256(body).hexdigest()}":
            raise CheckpointError(f"{path}: damaged or of another version (its checksum does not fit); start a new run")
        try:
            content = read_torch(body)
            if type(content) is not dict or set(content) != {"version", "updates", "rows"}:
                raise TorchFileError("expected version, updates and rows")
            counts = content["version"], content["updates"]
            if not all(type(n) is int and RANDOM <= n < 2**60 for n in counts):
                raise TorchFileError("its counters are invalid")
            load_state(self.agent, content["rows"])
        except (TorchFileError, ValueError) as e:
            raise CheckpointError(f"{path}: not of agents like these ({e}); start a new run") from None
        self.version, self.updates = counts
        return True
