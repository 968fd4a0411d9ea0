"""Pairs of files: data, and a check file that says which data. What is in them is ``outer/exchange/messages.py``.

The data file is written first and its check file strictly after; the check file holds size and SHA-256 of the data, so
a process that sees a check file can tell whether it also sees the data that belongs to it. Every write goes to a
temporary name in the same folder and is renamed. Nothing is fsynced: a chunk can always be computed again, and a file
torn by a power cut fails its checksum.

Nothing that is read is trusted: a limit on the size, the checksum, ``core/torch_file.py``. :class:`NotReady` means
"look again soon" (the other side may be in the middle of writing, or a network file system shows its files out of
order), :class:`Rejected` that it will never be valid. Python 3.8.
"""

from __future__ import annotations

import hashlib
import io
from typing import Any, Dict, Optional, Tuple, Union

import torch

from envolve.core import torch_quick
from envolve.core.cleaning import clip, one_line
from envolve.core.torch_file import TorchFileError, read_torch
from envolve.outer.exchange.machine import Files, NotReady, Rejected

SCHEMA = 1
MAX_FILE_BYTES = 512 * 2**20
MAX_RESULT_BYTES = 32 * 2**20  # a few numbers and a reason per member; of many workers at once
MAX_CHECK_BYTES = 64 * 2**10
IDENTITY = ("run_id", "generation", "chunk_id", "attempt")  # in data and check file both

Fetched = Optional[Tuple[bytes, Union[bytes, None, NotReady, Rejected]]]


def short(value: Any) -> str:
    """Shortens foreign text to one line for messages."""
    if type(value) is str:
        value = value[:80]
    elif type(value) not in (int, float, bool, type(None)) or (type(value) is int and abs(value) >= 2**64):
        return type(value).__name__
    return repr(value)[:80]


def stem(bohb_id: int, worker_id: int, kind: str) -> str:
    """``kind`` is "input" or "result"."""
    return f"{bohb_id}_{worker_id}_{kind}"


def pack(content: Dict[str, Any]) -> bytes:
    try:
        return torch_quick.write(content)
    except torch_quick.Unfit:  # of another type, or with integers or texts that it does not know
        buffer = io.BytesIO()
        torch.save(content, buffer)
        return buffer.getvalue()


def unpack(data: bytes, name: str) -> Dict[str, Any]:
    """Inverse of :func:`pack` for untrusted bytes. Raises :class:`Rejected` for anything but a dict."""
    try:
        content = read_torch(data)
    except TorchFileError as e:
        raise Rejected(f"{name} cannot be loaded: {one_line(clip(str(e)))}") from e
    if type(content) is not dict:
        raise Rejected(f"{name} holds {type(content).__name__}, not a dict")
    return content


def pack_pair(content: Dict[str, Any]) -> Tuple[bytes, bytes, str]:
    """Bytes of data and check file, and the SHA-256 of the data."""
    data = pack(content)
    sha256 = hashlib.sha256(data).hexdigest()
    check = {"schema": SCHEMA, "kind": content["kind"], "sha256": sha256, "size": len(data)}
    check.update({key: content[key] for key in IDENTITY})
    return data, pack(check), sha256


def put_pair(files: Files, name: str, data: bytes, check: bytes) -> None:
    files.write(name + ".pt", data)
    files.write(name + "_check.pt", check)


def write_pair(files: Files, name: str, content: Dict[str, Any]) -> str:
    """Writes ``<name>.pt``, then ``<name>_check.pt``; returns the SHA-256 of the data."""
    data, check, sha256 = pack_pair(content)
    put_pair(files, name, data, check)
    return sha256


def fetch_pair(files: Files, name: str, limit: int = MAX_FILE_BYTES) -> Fetched:
    """Bytes of check and data file, for :func:`parse_pair`; None if there is no check file. limit: of the data, in
    bytes."""
    check = files.read(name + "_check.pt", MAX_CHECK_BYTES)
    if check is None:
        return None
    try:
        return check, files.read(name + ".pt", limit)
    except (NotReady, Rejected) as e:
        return check, e


def read_pair(files: Files, name: str, kind: str) -> Optional[Tuple[Dict[str, Any], str]]:
    """:func:`fetch_pair`, then :func:`parse_pair`."""
    return parse_pair(fetch_pair(files, name), name, kind)


def parse_pair(fetched: Fetched, name: str, kind: str) -> Optional[Tuple[Dict[str, Any], str]]:
    """Content and SHA-256 of a pair of files; None if there is no check file.

    Raises :class:`NotReady` if the data does not (yet) belong to the check file, :class:`Rejected` if both are intact
    but not of this protocol.
    """
    if fetched is None:
        return None
    check_bytes, data = fetched
    try:
        check = unpack(check_bytes, name + "_check.pt")
    except Rejected as e:
        raise NotReady(str(e)) from e
    if type(check.get("schema")) is not int or check["schema"] != SCHEMA:
        raise Rejected(
            "{}_check.pt has schema {!r}, this program speaks {}: are master and worker of the same version?".format(
                name, short(check.get("schema")), SCHEMA
            )
        )
    if isinstance(data, (NotReady, Rejected)):
        raise data
    if data is None:
        raise NotReady(f"{name}.pt is missing")
    sha256 = hashlib.sha256(data).hexdigest()
    claimed = check.get("sha256"), check.get("size")
    if tuple(map(type, claimed)) != (str, int) or claimed != (sha256, len(data)):
        raise NotReady(f"{name}.pt does not match the checksum in {name}_check.pt")
    content = unpack(data, name + ".pt")
    for key in ("schema", "kind") + IDENTITY:
        kinds = type(content.get(key)), type(check.get(key))
        # Types first: comparing tensors or lists may raise whatever the writer likes.
        if kinds not in ((int, int), (str, str)) or content[key] != check[key]:
            raise Rejected(f"{name}.pt and its check file disagree about {key}")
    if content["kind"] != kind:
        raise Rejected("{}.pt is of kind {}, expected {}".format(name, short(content["kind"]), kind))
    return content, sha256


def remove_pair(files: Files, name: str) -> None:
    """Removes a pair, the check file first: data without a check file are ignored."""
    files.remove(name + "_check.pt")
    files.remove(name + ".pt")


def reject_pair(files: Files, name: str) -> None:
    files.put_aside(name + "_check.pt")
    files.put_aside(name + ".pt")
