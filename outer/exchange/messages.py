"""Messages between master and workers: four ``.pt`` files per worker in one sync folder.

For master B and worker W: ``B_W_input.pt``, ``B_W_input_check.pt`` (a chunk of members to evaluate) and
``B_W_result.pt``, ``B_W_result_check.pt`` (what came of it). How such pairs are written and read is
``outer/exchange/pairs.py``; here is what is in them. Nothing that is read is trusted: every field is checked by type,
shape and dtype, and what does not fit raises :class:`Rejected`, for it will never be valid.

Python 3.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from envolve.core.cleaning import MAX_TEXT, clip, one_line
from envolve.core.torch_quick import Encoded, Unfit, encode
from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.pairs import IDENTITY, SCHEMA, short

QUIT = "quit"  # the mode of an input that tells a worker to stop
PLUGINS = "refused: "  # begins the error of a worker that may not execute the user's own code
DTYPES = (torch.float64, torch.float32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@dataclass
class Chunk:
    """Unit of work: members that one worker trains side by side. ``worlds`` [p, D] float32, ``seeds`` [p] int64.
    ``recipe``: how ``worlds`` were drawn (``outer/search/recipe.py``), for engines that send that in their place."""

    run_id: str
    generation: int
    chunk_id: int
    attempt: int
    mode: str
    config: Dict[str, Any]
    worlds: Tensor
    seeds: Tensor
    recipe: Any = None

    @property
    def label(self) -> str:
        return f"generation {self.generation} chunk {self.chunk_id} ({self.mode})"


@dataclass
class ChunkResult:
    """Result of ``evaluate``: ``values[name]`` [p, ...] with at least ``score`` [p] float64, NaN where a member failed;
    ``reasons`` [p], empty where it did not. ``error`` is the text of an exception that ended the chunk."""

    run_id: str
    generation: int
    chunk_id: int
    attempt: int
    input_sha256: str
    values: Dict[str, Tensor]
    reasons: List[str]
    error: str = field(default="")

    @classmethod
    def failed(cls, chunk: Chunk, input_sha256: str, error: str) -> ChunkResult:
        """Result of a failed chunk: NaN scores, the reason at every member."""
        p = len(chunk.seeds)
        error = clip(error)
        scores = torch.full((p,), math.nan, dtype=torch.float64)
        return cls(
            chunk.run_id,
            chunk.generation,
            chunk.chunk_id,
            chunk.attempt,
            input_sha256,
            {"score": scores},
            [error] * p,
            error,
        )


def chunk_content(chunk: Chunk, issue: str) -> Dict[str, Any]:
    """Encodes a chunk. ``issue`` makes the bytes of every sending unique, so that an answer identifies its question."""
    content = {key: getattr(chunk, key) for key in IDENTITY}
    content.update(schema=SCHEMA, kind="input", issue=issue, mode=chunk.mode, config=_tree(chunk.config))
    # clone: a view would save the whole tensor it looks into
    content.update(worlds=chunk.worlds.detach().clone().contiguous(), seeds=chunk.seeds.detach().clone().contiguous())
    return content


def encoded_config(config: Dict[str, Any]) -> Optional[Encoded]:
    """A configuration for :func:`chunk_sent`, of thousands of chunks; None if each must encode its own."""
    try:
        return encode(config)
    except Unfit:
        return None


def chunk_sent(chunk: Chunk, issue: str, config: Union[Encoded, Dict[str, Any], None]) -> Dict[str, Any]:
    """:func:`chunk_content` for a chunk that is packed or checked at once, with its configuration encoded before."""
    if config is None:
        return chunk_content(chunk, issue)
    content = {key: getattr(chunk, key) for key in IDENTITY}
    content.update(schema=SCHEMA, kind="input", issue=issue, mode=chunk.mode, config=config)
    content.update(worlds=chunk.worlds.detach(), seeds=chunk.seeds.detach())
    return content


def _tree(value: Any) -> Any:
    """Copies a value so that no list or dict occurs twice, as ``read_torch`` requires."""
    if type(value) is list:
        return [_tree(item) for item in value]
    return {key: _tree(item) for key, item in value.items()} if type(value) is dict else value


def chunk_from(content: Dict[str, Any], received: bool = True) -> Chunk:
    """Raises :class:`Rejected` with the field's name if anything is not as :class:`Chunk` says. received: whether the
    content came from elsewhere; the tensors of one that is to be sent may be views."""
    _fields(content, ("schema", "kind", "issue", "mode", "config", "worlds", "seeds") + IDENTITY)
    identity = _identity(content)
    mode = _text(content, "mode", 64)
    _text(content, "issue", 64)
    config = content["config"]
    if type(config) is not dict:
        raise Rejected(f"config is {type(config).__name__}, not a dict")
    _plain(config, "config", depth=12)
    worlds = _tensor(content["worlds"], "worlds", (torch.float32,), received)
    seeds = _tensor(content["seeds"], "seeds", (torch.int64,), received)
    if worlds.ndim != 2 or seeds.ndim != 1 or len(worlds) != len(seeds):
        raise Rejected(f"worlds {list(worlds.shape)} and seeds {list(seeds.shape)} are not [p, D] and [p]")
    if len(seeds) == 0 and mode != QUIT:
        raise Rejected("a chunk without members")
    return Chunk(mode=mode, config=config, worlds=worlds, seeds=seeds, **identity)


def quit_chunk(run_id: str) -> Chunk:
    return Chunk(run_id, 0, 0, 0, QUIT, {}, torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64))


def result_content(result: ChunkResult) -> Dict[str, Any]:
    content = {key: getattr(result, key) for key in IDENTITY}
    content.update(schema=SCHEMA, kind="result", input_sha256=result.input_sha256, error=result.error)
    content.update(values=dict(result.values), reasons=list(result.reasons))
    return content


def result_from(content: Dict[str, Any], received: bool = True) -> ChunkResult:
    """Raises :class:`Rejected` with the field's name if anything is not as :class:`ChunkResult` says. received: as of
    :func:`chunk_from`; tensors that were made here own their memory."""
    _fields(content, ("schema", "kind", "input_sha256", "error", "values", "reasons") + IDENTITY)
    identity = _identity(content)
    sha256 = _text(content, "input_sha256", 64)
    error = _text(content, "error", MAX_TEXT)
    values, reasons = content["values"], content["reasons"]
    if type(values) is not dict or not all(type(k) is str and 0 < len(k) <= 64 for k in values) or len(values) > 256:
        raise Rejected("values is not a dict of names and tensors")
    if type(reasons) is not list or not all(type(r) is str and len(r) <= MAX_TEXT for r in reasons):
        raise Rejected("reasons is not a list of short texts")
    for name, value in values.items():
        if not name.isprintable():
            raise Rejected(f"values has the name {short(name)}")
        if _tensor(value, name, DTYPES, received).ndim < 1 or value.shape[0] != len(reasons):
            raise Rejected(f"{name} {list(value.shape)} does not have the {len(reasons)} members of reasons")
    score = values.get("score")
    if score is None or score.dtype != torch.float64 or score.ndim != 1:
        raise Rejected("score is missing or not float64 [p]")
    reasons, error = [one_line(r, MAX_TEXT) for r in reasons], one_line(error, MAX_TEXT)  # they go to logs and tables
    return ChunkResult(input_sha256=sha256, values=values, reasons=reasons, error=error, **identity)


def result_of(chunk: Chunk, input_sha256: str, returned: Dict[str, Any]) -> ChunkResult:
    """Turns what ``evaluate`` returned (arrays, tensors or lists [p, ...], and ``reason``) into a :class:`ChunkResult`.

    Raises :class:`Rejected` if it is not of the shapes that the schema asks for.
    """
    values = {k: _as_tensor(v, k) for k, v in returned.items() if k != "reason"}
    reasons = [clip(str(r)) for r in returned.get("reason", [""] * len(chunk.seeds))]
    if len(reasons) != len(chunk.seeds):
        raise Rejected(f"evaluate returned {len(reasons)} reasons for {len(chunk.seeds)} members")
    identity = {key: getattr(chunk, key) for key in IDENTITY}
    result = ChunkResult(input_sha256=input_sha256, values=values, reasons=reasons, **identity)
    return result_from(result_content(result))


def _as_tensor(value: Any, name: str) -> Tensor:
    tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    if name == "score":
        tensor = tensor.to(torch.float64)
    return tensor.clone().contiguous()


def _fields(content: Dict[str, Any], names: Tuple[str, ...]) -> None:
    if set(content) != set(names):
        odd = sorted(map(short, set(content) ^ set(names)))
        raise Rejected(f"unknown or missing fields: {', '.join(odd[:8])}")


def _identity(content: Dict[str, Any]) -> Dict[str, Any]:
    for key in ("generation", "chunk_id", "attempt"):
        if type(content[key]) is not int or not 0 <= content[key] < 2**53:
            raise Rejected(f"{key} is {short(content[key])}, not a count")
    _text(content, "run_id", 256)
    return {key: content[key] for key in IDENTITY}


def _text(content: Dict[str, Any], key: str, limit: int) -> str:
    text = content[key]
    if type(text) is not str or len(text) > limit:
        raise Rejected(f"{key} is {short(text)}, not a text of at most {limit} characters")
    _plain(text, key, depth=0)
    return text


def _tensor(value: Any, name: str, dtypes: Tuple[torch.dtype, ...], received: bool = True) -> Tensor:
    if type(value) is not Tensor or value.dtype not in dtypes or value.layout != torch.strided or value.requires_grad:
        raise Rejected(f"{name} is {short(type(value).__name__)}, not a plain tensor of {dtypes[0]}")
    if value.device.type != "cpu" or value.is_neg():
        raise Rejected(f"{name} is not a plain tensor in memory")
    # A stride of 0 claims any shape from one number; whatever is contiguous owns what it claims.
    if received and not (
        value.is_contiguous() and value.untyped_storage().nbytes() == value.numel() * value.element_size()
    ):
        raise Rejected(f"{name} does not own its memory")
    return value


def _plain(value: Any, name: str, depth: int) -> None:
    """Checks for plain YAML values only: None, bool, int, float, str, and lists and dicts of them."""
    if type(value) is str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise Rejected(f"{name} is {short(value)}, which UTF-8 cannot say") from None
    if value is None or type(value) in (bool, int, float, str):
        return
    if depth == 0:
        raise Rejected(f"{name} is nested too deeply")
    if type(value) is list:
        for item in value:
            _plain(item, name, depth - 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) not in (str, int):
                raise Rejected(f"{name} has a key that is {type(key).__name__}")
            _plain(item, f"{name}.{short(key)}", depth - 1)
    else:
        raise Rejected(f"{name} is of type {type(value).__name__}, not plain data")
