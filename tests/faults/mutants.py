"""Files that nobody should accept: mutations of a good one, by family, from a seed.

``FAMILIES`` maps a name to a function (good: Good, random) -> bytes. Checksums inside a mutant fit wherever the mutant
is meant to reach what lies behind them; ``Good.seal`` sees to that.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import subprocess
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import torch

Random = random.Random


@dataclass
class Good:
    """A file that is accepted. content: what torch.load finds in it; seal: makes a whole file of other bytes."""

    data: bytes  # of the archive, as torch.save wrote it
    content: dict[str, Any]
    canary: str  # a file that comes to be if anything is executed
    seal: Callable[[dict[str, Any], bytes], bytes]  # (changed content, its archive) -> with checksums inside that fit


def save(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {i.filename: archive.read(i) for i in archive.infolist()}


def archive(parts: dict[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as out:
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            out.writestr(name, content)
    return buffer.getvalue()


def program_of(data: bytes) -> tuple[dict[str, bytes], str]:
    parts = entries(data)
    return parts, next(name for name in parts if name.endswith("data.pkl"))


def with_program(good: Good, program: bytes) -> bytes:
    parts, name = program_of(good.data)
    return archive({**parts, name: program})


def op(text: str) -> bytes:
    """BINUNICODE."""
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def placed(good: Good, value: bytes, r: Random) -> bytes:
    """A program of the good fields in which one key, or the whole, is what ``value`` makes (instructions)."""
    if r.random() < 0.2:
        return b"\x80\x02" + value + b"."
    victim = r.choice(sorted(good.content, key=str))
    plain = {k: v for k, v in good.content.items() if k != victim and type(v) in (int, str, float, bool)}
    program = b"\x80\x02}("
    for key, item in plain.items():
        program += op(str(key)) + pickle.dumps(item, 2)[2:-1].replace(b"q\x00", b"")
    return program + op(str(victim)) + value + b"u."


# ------------------------------------------------------------------------------------------------ bytes


def bits(good: Good, r: Random) -> bytes:
    data = bytearray(good.data)
    for _ in range(r.choice([1, 1, 1, 2, 8, 64])):
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    return bytes(data)


def stretch(good: Good, r: Random) -> bytes:
    data, at = bytearray(good.data), r.randrange(len(good.data))
    length = min(r.choice([2, 4, 16, 512]), len(data) - at)
    data[at : at + length] = r.choice([bytes(length), b"\xff" * length, r.randbytes(length)])
    return bytes(data)


def truncated(good: Good, r: Random) -> bytes:
    return good.data[: r.choice([0, 1, 4, r.randrange(len(good.data)), len(good.data) - 1])]


def extended(good: Good, r: Random) -> bytes:
    tail = r.choice([b"\0", r.randbytes(r.randrange(1, 400)), good.data, bytes(70_000), b"PK\x05\x06" + bytes(18)])
    return r.choice([good.data + tail, tail + good.data])


def shuffled(good: Good, r: Random) -> bytes:
    """Two blocks change places."""
    a, b, c = sorted(r.randrange(len(good.data)) for _ in range(3))
    return good.data[:a] + good.data[b:c] + good.data[a:b] + good.data[c:]


# ------------------------------------------------------------------------------------------------ fields


def _odd_values(good: Good, r: Random) -> Any:
    return r.choice(
        [
            None,
            True,
            0,
            -1,
            1,
            2**53,
            2**63,
            -(2**70),
            2**2000,
            0.5,
            float("nan"),
            float("inf"),
            "",
            "x",
            "\x00\x1b[2J",
            "x" * 3000,
            [],
            {},
            [[]],
            {"a": 1},
            (),
            (1, 2),
            [1, 2],
            b"bytes",
            {1, 2},
            1j,
            OrderedDict(a=1),
            [None] * 5000,
            torch.zeros(0),
            torch.zeros(2),
            torch.tensor(1),
            torch.zeros(2, 3),
            torch.zeros(2, dtype=torch.complex64),
            torch.zeros(2).half(),
            torch.zeros(2).to_sparse(),
            torch.nn.Parameter(torch.zeros(2)),
            torch.zeros(3).expand(4, 3),
            torch.zeros(9)[:3],
            torch.zeros(2, 2).t(),
            torch.zeros(2, device="meta"),
            torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8),
            torch.Size([1, 2]),
            torch.float32,
            torch.device("cpu"),
            np.float64(1.0),
        ]
    )


def _paths(value: Any, path: tuple = ()) -> list[tuple]:
    found = [path] if path else []
    if type(value) in (dict, OrderedDict):
        for key in value:
            found += _paths(value[key], (*path, key))
    elif type(value) is list:
        for i in range(len(value)):
            found += _paths(value[i], (*path, i))
    return found


def _copy(value: Any) -> Any:
    if type(value) in (dict, OrderedDict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if type(value) is list else value


def fields(good: Good, r: Random) -> bytes:
    """A field is missing, added, of another type or of another value."""
    content = _copy(good.content)
    top = [p for p in _paths(content) if len(p) == 1]
    path = r.choice(top if r.random() < 0.6 else _paths(content))
    place = content
    for key in path[:-1]:
        place = place[key]
    kind = r.choice(["missing", "added", "odd", "odd", "odd"])
    if kind == "missing":
        del place[path[-1]]
    elif kind == "added" and isinstance(place, dict):
        place[r.choice(["extra", "", "x" * 5000, "__class__", 7, True, None, (1, 2), 2.5])] = _odd_values(good, r)
    else:
        place[path[-1]] = _odd_values(good, r)
    return good.seal(content, save(content))


def tensors(good: Good, r: Random) -> bytes:
    """A tensor of another dtype, shape, layout, or with values that are not finite."""
    content = _copy(good.content)
    paths = [p for p in _paths(content) if torch.is_tensor(_at(content, p))]
    if not paths:
        return fields(good, r)
    path = r.choice(paths)
    place, value = _at(content, path[:-1]), _at(content, path)
    change = r.choice(
        [
            lambda t: t.double() if t.dtype != torch.float64 else t.float(),
            lambda t: t.to(torch.int32),
            lambda t: t.bool(),
            lambda t: t.to(torch.complex64),
            lambda t: t.half(),
            lambda t: t.bfloat16(),
            lambda t: t[None],
            lambda t: t[:-1],
            lambda t: t.reshape(-1)[:0],
            lambda t: torch.cat((t, t)),
            lambda t: t.reshape(-1),
            lambda t: t.expand(3, *t.shape),
            lambda t: t.to_sparse(),
            lambda t: t.to("meta"),
            lambda t: torch.nn.Parameter(t.float()),
            lambda t: t.reshape(-1)[0],
            lambda t: torch.flip(t, [0])[:1].expand(t.shape) if len(t) > 1 else t[None],
            lambda t: t.tolist(),
            lambda t: t.numpy().tobytes(),
        ]
    )
    place[path[-1]] = change(value)
    return good.seal(content, save(content))


def _at(content: Any, path: tuple) -> Any:
    for key in path:
        content = content[key]
    return content


# ------------------------------------------------------------------------------------------------ programs


def program(good: Good, r: Random) -> bytes:
    """Bytes of the pickle program changed, cut out, doubled or moved; the archive around it is whole."""
    parts, name = program_of(good.data)
    code = bytearray(parts[name])
    for _ in range(r.choice([1, 1, 2, 5])):
        at, length = r.randrange(len(code)), r.choice([1, 1, 3, 10])
        kind = r.randrange(4)
        if kind == 0:
            code[at] = r.choice(
                [r.randrange(256), *b"(.012FINPQRSTUVXabcdegijlopqrstu])}\x80\x81\x82\x85\x88\x8a\x8b\x8c\x93"]
            )
        elif kind == 1:
            del code[at : at + length]
        elif kind == 2:
            code[at:at] = code[at : at + length]
        else:
            code[at:at] = r.randbytes(length)
        code = code or bytearray(b".")
    return good.seal(good.content, archive({**parts, name: bytes(code)}))


def nested(good: Good, r: Random) -> bytes:
    """A million deep, containing itself, or as many as atoms in the universe by reference."""
    n = r.choice([13, 200, 5000, 100_000, 999_000])
    small = min(n, 30_000)
    value = r.choice(
        [
            b"]" * n + b"a" * (n - 1),
            b"(" * small + b"t" * small,
            b")" + b"\x85" * n,
            b"}" + b")" + b"\x85" * n + b"K\x01s",  # a key
            b"".join(b"}" + op("k") for _ in range(small)) + b"N" + b"s" * small,
            b"]q\x63h\x63a",  # contains itself
            b"}q\x63" + op("k") + b"h\x63s",
            b"]q\x01"
            + b"".join(
                b"](" + b"h" + bytes([i]) * 1 + (b"h" + bytes([i])) * 99 + b"eq" + bytes([i + 1]) for i in range(1, 12)
            ),
            b")q\x01" + b"".join((b"h" + bytes([i])) * 2 + b"\x86q" + bytes([i + 1]) for i in range(1, 60)),
            b"})q\x01"
            + b"".join((b"h" + bytes([i])) * 2 + b"\x86q" + bytes([i + 1]) for i in range(1, 60))
            + b"K\x01s",
            b"(" * n,
            b"N" * n,
            b"]" + b"(" + b"]" * n + b"e",
        ]
    )
    return good.seal(good.content, with_program(good, placed(good, value, r)))


def large(good: Good, r: Random) -> bytes:
    """Numbers and texts that are too long."""
    value = r.choice(
        [
            b"\x8a\xff" + b"\x7f" * 255,
            b"\x8b" + struct.pack("<i", 200_000) + b"\x7f" * 200_000,
            b"L" + b"9" * 100_000 + b"L\n",
            b"I" + b"9" * 5000 + b"\n",
            b"X\xff\xff\xff\xff",
            b"X\xff\xff\xff\x7fabc",
            b"\x8d" + b"\xff" * 8,
            b"T\xff\xff\xff\x7f",
            op("\U0001f40d" * 300_000),
            op("\x00" * 300_000),
            b"r\xff\xff\xff\x7f",
            b"Nr\xff\xff\xff\x7f",
            b"j\xff\xff\xff\x7f",
            b"X\x03\x00\x00\x00\xed\xa0\x80",
            b"X\x02\x00\x00\x00\xff\xfe",
            b"\x95" + b"\xff" * 8,
            b"\x8e" + b"\xff" * 7 + b"\x7f",
            b"\x96" + b"\xff" * 7 + b"\x7f",
            b"G" + struct.pack(">d", float("nan")),
        ]
    )
    return good.seal(good.content, with_program(good, placed(good, value, r)))


STORAGE_NAMES = [
    "FloatStorage",
    "DoubleStorage",
    "LongStorage",
    "HalfStorage",
    "ComplexFloatStorage",
    "UntypedStorage",
    "QInt8Storage",
]


def number(value: int) -> bytes:
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tensor_program(
    r: Random, storage: str, key: str, count: int, size: list[int], stride: list[int], offset=0, more=b""
) -> bytes:
    numbers = [b"(" + b"".join(map(number, x)) + b"t" for x in (size, stride)]
    location = r.choice(["cpu", "cpu", "cpu", "cuda:0", "meta", "../../x", ""])
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + op("storage")
        + f"ctorch\n{storage}\n".encode()
        + op(key)
        + op(location)
        + number(count)
        + b"tQ"
        + number(offset)
        + numbers[0]
        + numbers[1]
        + b"\x89ccollections\nOrderedDict\n)R"
        + more
        + b"tR"
    )


def shapes(good: Good, r: Random) -> bytes:
    """Tensors that claim more than the file holds, or what no tensor has."""
    huge = r.choice([2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, -1, -(2**40), 10**9])
    size, stride = r.choice(
        [
            ([huge], [1]),
            ([3, huge], [huge, 1]),
            ([3, huge], [0, 0]),
            ([huge, huge], [0, 0]),
            ([1] * 70, [1] * 70),
            ([3], []),
            ([], [1]),
            ([0, huge], [1, 1]),
            ([3, 5], [-1, 1]),
            ([3, 5], [2**62, 2**62]),
            ([huge], [0]),
        ]
    )
    count = r.choice([huge, 15, 0, 3, 2**40])
    storage, key = r.choice(STORAGE_NAMES), r.choice(["0", "0", "1", "99", "../data.pkl", ""])
    offset = r.choice([0, 0, 0, -1, 2**40, 2**63 - 1])
    sign = r.choice([b"", b"", b"}" + op("neg") + b"\x88s", b"}" + op("conj") + b"\x88s"])
    value = tensor_program(r, storage, key, count, size, stride, offset, sign)
    return good.seal(good.content, with_program(good, placed(good, value, r)))


# ------------------------------------------------------------------------------------------------ archives


def archives(good: Good, r: Random) -> bytes:
    """Compressed, double, renamed, lying about sizes, without or with too many parts."""
    parts, name = program_of(good.data)
    listed = list(parts.items())
    kind = r.randrange(10)
    if kind == 0:
        form = r.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
        bomb = {**parts, "archive/data/0": bytes(2 * 10**7 if form == zipfile.ZIP_DEFLATED else 10**6)}
        return good.seal(good.content, archive(bomb, form))
    if kind == 1:
        twice = r.choice(listed)
        return good.seal(good.content, archive(quietly(listed + [(twice[0], r.randbytes(len(twice[1])))])))
    if kind == 2:
        left_out = r.choice([n for n in parts if n.endswith(("data.pkl", "data/0", "byteorder")) or "/data/" in n])
        if left_out.endswith("byteorder"):
            return good.seal(good.content, archive({**parts, left_out: b"big"}))
        return good.seal(good.content, archive({n: e for n, e in parts.items() if n != left_out}))
    if kind == 3:
        many = {f"archive/data/{i}": b"" for i in range(r.choice([2500, 4000]))}
        return good.seal(good.content, archive({**parts, **many}))
    if kind == 4:  # the central directory says that an entry is larger
        data = bytearray(good.data)
        at = data.rfind(b"PK\x01\x02")
        struct.pack_into("<I", data, at + 20 + 4 * r.randrange(2), r.choice([2**31, 2**32 - 1, 2**20]))
        return good.seal(good.content, bytes(data))
    if kind == 5:  # entries that lie on top of each other
        data, first = bytearray(good.data), good.data.find(b"PK\x01\x02")
        second = good.data.find(b"PK\x01\x02", first + 4)
        data[second + 42 : second + 46] = data[first + 42 : first + 46]
        return good.seal(good.content, bytes(data))
    if kind == 6:
        renamed = {
            n.replace("/data/", r.choice(["/../data/", "//data/", "\\data\\", "/DATA/"])): e for n, e in parts.items()
        }
        if renamed.keys() == parts.keys():  # nothing was to be renamed
            return truncated(good, r)
        return good.seal(good.content, archive(renamed))
    if kind == 7:
        return good.seal(good.content, archive({**parts, name: parts[name] + r.choice([b".", b"N.", parts[name]])}))
    if kind == 8:  # cut shorter, with fitting checksums
        victim = r.choice([n for n in parts if n.endswith("data.pkl") or "/data/" in n])
        cut = parts[victim][: r.randrange(max(1, len(parts[victim])))]
        return good.seal(good.content, archive({**parts, victim: cut}))
    encrypted = bytearray(good.data)
    at = encrypted.find(b"PK\x01\x02")
    encrypted[at + 8] |= 1
    return good.seal(good.content, bytes(encrypted))


def quietly(parts: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    import warnings

    warnings.filterwarnings("ignore", "Duplicate name")
    return parts


# ------------------------------------------------------------------------------------------------ code


class Calls:
    """Pickles as a call of ``function``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple:
        return self.function, self.arguments


def hostile(good: Good, r: Random) -> bytes:
    """Programs that would run something: whole files or one field, of every protocol and container."""
    touch = f"touch {good.canary}"
    python = f"open({good.canary!r}, 'w').close()"
    calls = [
        Calls(os.system, touch),
        Calls(eval, python),
        Calls(exec, python),
        Calls(subprocess.Popen, ["touch", good.canary]),
        Calls(open, good.canary, "w"),
        Calls(__import__, "antigravity"),
        Calls(getattr, "os", "system"),
        Calls(torch.load, good.canary),
        Calls(torch.hub.load, "x", "y"),
        Calls(torch.serialization.load, "x"),
    ]
    texts = [
        f"cos\nsystem\n({touch!r}\ntR".replace("'", '"').encode(),
        f"cposix\nsystem\n(S'{touch}'\ntR".encode(),
        f"(S'{touch}'\nios\nsystem\n".encode(),
        f"(cos\nsystem\nS'{touch}'\no".encode(),
        f"c__builtin__\neval\n(V{python}\ntR".encode(),
        f"cbuiltins\nexec\n(V{python}\ntR".encode(),
        f"\x8c\x02os\x8c\x06system\x93\x8c{chr(len(touch))}{touch}\x85R".encode("latin-1"),
        b"\x8c\x0atorch.hub\\",
        f"\x8c\x05torch\x8c\x09os.system\x93\x8c{chr(len(touch))}{touch}\x85R".encode("latin-1"),
        f"ctorch.serialization\nos.system\n(X{struct.pack('<I', len(touch)).decode('latin-1')}{touch}tR".encode(
            "latin-1"
        ),
        f"ctorch.storage\n_load_from_bytes\n(S'{touch}'\ntR".encode(),
        f"P{touch}\n".encode(),
        op(touch) + b"Q",
        b"(" + op("storage") + op(touch) + op("0") + op("cpu") + b"K\x01tQ",
        b"(" + op("module") + op(touch) + b"tQ",
        b"ctorch._utils\n_rebuild_tensor_v2\n" + op(touch) + b"\x85R",
        b"ctorch._utils\n_rebuild_tensor\n(NNNtR",
        b"ctorch._utils\n_rebuild_parameter\n(NNNtR",
        b"ctorch._utils\n_rebuild_sparse_tensor\n(NNtR",
        b"ctorch._utils\n_rebuild_device_tensor_from_numpy\n(NNNNtR",
        b"ctorch._utils\n_rebuild_qtensor\n(NNNNNNNtR",
        b"ctorch._utils\n_rebuild_wrapper_subclass\n(NNNNNNNtR",
        b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n"
        b"(ctorch\nfloat32\n(K\x03" + number(2**40) + b"t(" + number(2**40) + b"K\x01t\x89tR",
        b"ctorch\nTensor\n)\x81",
        b"ctorch\nTensor\n)R(NNNNtb",
        b"ctorch\nSize\n(NtR",
        b"ctorch\ndevice\n(NtR",
        b"ccollections\nOrderedDict\n)R}" + op("keys") + b"K\x01sb",
        b"ccollections\nOrderedDict\n)R}" + op("items") + op(touch) + b"sb",
        b"ccollections\nOrderedDict\n](]K\x01aeaR",
        b"ccollections\nCounter\n)R",
        b"ccollections\ndefaultdict\n(cos\nsystem\ntR",
        b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tNtR",
        b"cnumpy\ndtype\n(" + op("O") + b"tR",
        b"ccopyreg\n_reconstructor\n(NNNtR",
        b"\x82\x01",
        b"\x83\x01\x00",
        b"\x84\x01\x00\x00\x00",
        b"cfunctools\npartial\n(cos\nsystem\ntR",
        b"ctorch\n_C._jit\n(NtR",
        b"c" + b"a." * 5000 + b"b\nc\n(NtR",
        b"c\n\n)R",
        b"cenvs.torch_file\nread_torch\n(NtR",
    ]
    kind = r.randrange(7)
    if kind == 0:  # as torch.save would write it
        content = {**_copy(good.content), r.choice(sorted(good.content, key=str)): r.choice(calls)}
        return good.seal(good.content, save(content))
    if kind == 1:  # a bare pickle, no archive
        return good.seal(good.content, pickle.dumps(r.choice(calls), r.randrange(6)))
    if kind == 2:  # before torch 1.6
        buffer = io.BytesIO()
        torch.save({**_copy(good.content), "x": r.choice(calls)}, buffer, _use_new_zipfile_serialization=False)
        return good.seal(good.content, buffer.getvalue())
    if kind == 3:
        return good.seal(good.content, with_program(good, pickle.dumps(r.choice(calls), r.randrange(6))))
    if kind == 4:
        return good.seal(good.content, torchscript(r))
    return good.seal(good.content, with_program(good, placed(good, r.choice(texts), r)))


_SCRIPT: list[bytes] = []


def torchscript(r: Random) -> bytes:
    """A TorchScript module, or the good archive dressed up as one."""
    if not _SCRIPT:
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), buffer)
        _SCRIPT.append(buffer.getvalue())
    parts = entries(_SCRIPT[0])
    victim = r.choice(sorted(parts))
    if r.random() < 0.5:
        parts[victim] = parts[victim][: len(parts[victim]) // 2]
    return archive(parts)


FAMILIES: dict[str, Callable[[Good, Random], bytes]] = {
    f.__name__: f
    for f in (
        bits,
        stretch,
        truncated,
        extended,
        shuffled,
        fields,
        tensors,
        program,
        nested,
        large,
        shapes,
        archives,
        hostile,
    )
}
