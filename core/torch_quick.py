"""Fast path of ``core/torch_file.py``: plain values and tensors as files of ``torch.save``, written and read without
torch's pickler, in a tenth of its time.

``write`` makes files that ``torch.load(weights_only=True)`` reads. ``read`` understands what ``write`` makes, to the
byte, and nothing else: of any other file it says None, and ``read_torch`` decides. What it understands it reads to the
same values. Nothing is executed: the program is compared with the few forms that ``write`` uses. Python 3.8.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

KINDS = {
    torch.float32: b"FloatStorage", torch.float64: b"DoubleStorage", torch.int64: b"LongStorage",
    torch.int32: b"IntStorage", torch.int16: b"ShortStorage", torch.int8: b"CharStorage", torch.uint8: b"ByteStorage",
    torch.bool: b"BoolStorage",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in KINDS.items()}
SIZES = {dtype: torch.empty(0, dtype=dtype).element_size() for dtype in KINDS}
MAX_DEPTH = 90  # of lists and dicts in each other
MAX_TENSORS = 1000
_BEFORE = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n"
_AFTER = b"\x89ccollections\nOrderedDict\n)RtR"
_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
_SIZE_AT = 18  # in _LOCAL
_NAMES = b"archive/data.pkl", b"archive/version", b"archive/byteorder"
_COUNT, _FLOAT = struct.Struct("<I"), struct.Struct(">d")
MAX_FORM = 1024  # bytes of a tensor in the program: 32 dimensions take 700
KNOWN = 1024  # forms and keys that are remembered: files of one kind repeat them
_DAY = 0x21  # 1980-01-01: the same content gives the same bytes


class Unfit(Exception):
    """Raised for what only the slow path can write or read."""


class Encoded(bytes):
    """A value that was encoded before: part of many files."""


def encode(value: Any) -> Encoded:
    """Encodes a value without tensors, to be written many times. Raises Unfit."""
    parts: List[bytes] = []
    _put(value, parts, None, MAX_DEPTH - 10)
    return Encoded(b"".join(parts))


def write(content: Any) -> bytes:
    """Bytes of a file with this content: None, bool, int, float, str, tensors, and lists and dicts of them. What is in
    two places is written twice; of a tensor what it shows, not what it looks into. Raises Unfit."""
    parts: List[bytes] = [b"\x80\x02"]
    tensors: List[Tensor] = []
    _put(content, parts, tensors, MAX_DEPTH)
    parts.append(b".")
    entries = [b"".join(parts), b"3\n", b"little", *map(_raw, tensors)]
    out, central, at = [], [], 0
    for i, data in enumerate(entries):
        name, crc, size = _name(i), zlib.crc32(data), len(data)
        if size >= 2**31 or at >= 2**31:
            raise Unfit("larger than an archive of this kind")
        out += [_local(name, crc, size), data]
        central.append(_directory(name, crc, size, at))
        at += _LOCAL.size + len(name) + size
    return b"".join([*out, *central, _end(len(entries), sum(map(len, central)), at)])


def _name(i: int) -> bytes:
    return _NAMES[i] if i < 3 else b"archive/data/%d" % (i - 3)


def _local(name: bytes, crc: int, size: int) -> bytes:
    return _LOCAL.pack(b"PK\x03\x04", 20, 0, 0, 0, _DAY, crc, size, size, len(name), 0) + name


def _directory(name: bytes, crc: int, size: int, at: int) -> bytes:
    fields = (b"PK\x01\x02", 20, 20, 0, 0, 0, _DAY, crc, size, size, len(name), 0, 0, 0, 0, 0, at)
    return _CENTRAL.pack(*fields) + name


def _end(count: int, size: int, at: int) -> bytes:
    return _END.pack(b"PK\x05\x06", 0, 0, count, count, size, at, 0)


def _raw(tensor: Tensor) -> bytes:
    raw: bytes = tensor.numpy().tobytes()  # in the order of the numbers, whatever the strides
    return raw


def _put(value: Any, parts: List[bytes], tensors: Optional[List[Tensor]], depth: int) -> None:
    kind = type(value)
    if kind is str:
        parts.append(_text(value))
    elif value is None:
        parts.append(b"N")
    elif kind is bool:
        parts.append(b"\x88" if value else b"\x89")
    elif kind is int:
        parts.append(_int(value))
    elif kind is float:
        parts.append(b"G" + _FLOAT.pack(value))
    elif kind is Encoded:
        parts.append(value)
    elif depth == 0:
        raise Unfit("nested too deeply")
    elif kind is dict:
        parts.append(b"}(" if value else b"}")
        for key, item in value.items():
            if type(key) is str:
                parts.append(_key(key))
            elif type(key) is int:
                parts.append(_int(key))
            else:
                raise Unfit(f"a key that is {type(key).__name__}")
            _put(item, parts, tensors, depth - 1)
        parts.append(b"u" if value else b"")
    elif kind is list:
        parts.append(b"](" if value else b"]")
        for item in value:
            _put(item, parts, tensors, depth - 1)
        parts.append(b"e" if value else b"")
    elif kind is Tensor and tensors is not None:
        parts.append(_tensor(value, len(tensors)))
        tensors.append(value)
    else:
        raise Unfit(f"a value of type {kind.__name__}")


def _text(value: str) -> bytes:
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError:
        raise Unfit("a text that UTF-8 cannot say") from None
    return b"X" + _COUNT.pack(len(data)) + data


_key = lru_cache(maxsize=KNOWN)(_text)


def _int(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K%c" % value
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    if size > 255:
        raise Unfit("an integer of more than 255 bytes")
    return b"\x8a%c" % size + value.to_bytes(size, "little", signed=True)


def _sizes(values: Tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_int, values)) + b"t" if values else b")"


def _tensor(tensor: Tensor, index: int) -> bytes:
    plain = tensor.layout == torch.strided and tensor.is_cpu and not tensor.is_neg()
    if tensor.dtype not in KINDS or not plain or tensor.requires_grad or index >= MAX_TENSORS:
        raise Unfit("a tensor that is not plain")
    if tensor.numel() * SIZES[tensor.dtype] > tensor.untyped_storage().nbytes():
        raise Unfit("a tensor that shows more than it has")
    return _form(tensor.dtype, tuple(tensor.shape), index)


@lru_cache(maxsize=KNOWN)
def _form(dtype: torch.dtype, shape: Tuple[int, ...], index: int) -> bytes:
    """A tensor in the program, without its numbers."""
    numel = 1
    for size in shape:
        numel *= size
    number = _text(str(index)) + b"X\x03\x00\x00\x00cpu" + _int(numel)
    return b"".join([_BEFORE, KINDS[dtype], b"\n", number, b"tQK\x00", _sizes(shape), _sizes(_strides(shape)), _AFTER])


def _strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """Strides of a contiguous tensor, in numbers."""
    out: List[int] = []
    step = 1
    for size in reversed(shape):
        out.append(step)
        step *= max(size, 1)
    return tuple(reversed(out))


# ------------------------------------------------------------------------------------------------------------ reading


def read(data: bytes) -> Optional[Tuple[Any]]:
    """(The content,) of a file that ``write`` has made; None for any other file."""
    try:
        entries = _entries(data)
        reader = _Reader(entries, 2)
        content = reader.value(MAX_DEPTH)
        if reader.data[:2] != b"\x80\x02" or reader.data[reader.at :] != b"." or reader.tensors != len(entries) - 3:
            return None
        return (content,)
    except (Unfit, struct.error, IndexError, ValueError, OverflowError, RuntimeError):
        return None


def _entries(data: bytes) -> List[bytes]:
    """Contents of the archive, which is to the byte what ``write`` would make of them."""
    at = 0
    found: List[bytes] = []
    central: List[bytes] = []
    while data.startswith(b"PK\x03\x04", at):
        name = _name(len(found))
        begin = at + _LOCAL.size + len(name)
        (size,) = _COUNT.unpack_from(data, at + _SIZE_AT)
        content = data[begin : begin + size]
        crc = zlib.crc32(content)
        if len(found) > MAX_TENSORS + 3 or data[at:begin] != _local(name, crc, size):
            raise Unfit
        found.append(content)
        central.append(_directory(name, crc, size, at))
        at = begin + size
    directory = b"".join(central)
    if found[1:3] != [b"3\n", b"little"] or data[at:] != directory + _end(len(found), len(directory), at):
        raise Unfit
    return found


class _Reader:
    """Follows the program of an archive."""

    def __init__(self, entries: List[bytes], at: int) -> None:
        """at: where the program begins in the first entry."""
        self.data, self.storages, self.at = entries[0], entries[3:], at
        self.tensors = 0

    def value(self, depth: int) -> Any:
        data, at = self.data, self.at
        code = data[at]
        self.at = at + 1
        if code == 0x58:  # X
            begin = at + 5
            self.at = end = begin + _COUNT.unpack_from(data, at + 1)[0]
            if end > len(data):
                raise Unfit
            return data[begin:end].decode("utf-8")
        if code in (0x4B, 0x4D, 0x4A, 0x8A):  # K M J LONG1
            return self.integer(code)
        if code == 0x47:  # G
            self.at = at + 9
            return _FLOAT.unpack_from(data, at + 1)[0]
        if code == 0x4E:  # N
            return None
        if code in (0x88, 0x89):
            return code == 0x88
        if depth == 0:
            raise Unfit
        if code == 0x7D:  # }
            return self.dictionary(depth - 1)
        if code == 0x5D:  # ]
            return self.sequence(depth - 1)
        if code == 0x63:  # c
            return self.tensor(at)
        raise Unfit

    def integer(self, code: int) -> int:
        at, data = self.at, self.data
        if code == 0x4B:
            self.at = at + 1
            return data[at]
        if code == 0x4D:
            self.at, found = at + 2, struct.unpack_from("<H", data, at)[0]
        elif code == 0x4A:
            self.at, found = at + 4, struct.unpack_from("<i", data, at)[0]
        else:
            self.at = at + 1 + data[at]
            if self.at > len(data):
                raise Unfit
            found = int.from_bytes(data[at + 1 : self.at], "little", signed=True)
        number: int = found
        return number

    def dictionary(self, depth: int) -> Dict[Any, Any]:
        out: Dict[Any, Any] = {}
        if not self.opens():
            return out
        data = self.data
        while data[self.at] != 0x75:  # u
            key = self.value(0)
            if type(key) is not str and type(key) is not int:
                raise Unfit
            out[key] = self.value(depth)
        self.at += 1
        return out

    def sequence(self, depth: int) -> List[Any]:
        out: List[Any] = []
        if not self.opens():
            return out
        while self.data[self.at] != 0x65:  # e
            out.append(self.value(depth))
        self.at += 1
        return out

    def opens(self) -> bool:
        """Whether items follow."""
        if self.data[self.at] != 0x28:  # (
            return False
        self.at += 1
        return True

    def skip(self, expected: bytes) -> None:
        end = self.at + len(expected)
        if self.data[self.at : end] != expected:
            raise Unfit
        self.at = end

    def sizes(self) -> Tuple[int, ...]:
        code = self.data[self.at]
        self.at += 1
        if code == 0x29:  # )
            return ()
        if code != 0x28:
            raise Unfit
        out = []
        while self.data[self.at] != 0x74:  # t
            self.at += 1
            out.append(self.integer(self.data[self.at - 1]))
        self.at += 1
        return tuple(out)

    def tensor(self, at: int) -> Tensor:
        end = self.data.index(_AFTER, at, at + MAX_FORM) + len(_AFTER)
        index, self.at, self.tensors = self.tensors, end, self.tensors + 1
        dtype, shape, count = _formed(self.data[at:end], index)
        raw = self.storages[index]
        if len(raw) != count * SIZES[dtype]:
            raise Unfit
        if not count:
            return torch.empty(shape, dtype=dtype)
        numbers = torch.frombuffer(bytearray(raw), dtype=dtype)
        return numbers if len(shape) == 1 else numbers.reshape(shape)

    def form(self, index: int) -> Tuple[torch.dtype, Tuple[int, ...], int]:
        self.skip(_BEFORE)
        end = self.data.index(b"\n", self.at, self.at + 20)
        dtype = DTYPES.get(self.data[self.at : end])
        if dtype is None:
            raise Unfit
        self.at = end + 1
        self.skip(_text(str(index)) + b"X\x03\x00\x00\x00cpu")
        self.at += 1
        count = self.integer(self.data[self.at - 1])
        self.skip(b"tQK\x00")
        shape, strides = self.sizes(), self.sizes()
        self.skip(_AFTER)
        numel = 1
        for size in shape:
            numel *= size
        fits = all(0 <= size < 2**31 for size in shape) and numel == count and self.at == len(self.data)
        if not fits or strides != _strides(shape) or len(shape) > 32:
            raise Unfit
        return dtype, shape, count


@lru_cache(maxsize=KNOWN)
def _formed(form: bytes, index: int) -> Tuple[torch.dtype, Tuple[int, ...], int]:
    """Kind, shape and number of numbers of what :func:`_form` made. Raises Unfit, ..."""
    return _Reader([form], 0).form(index)
