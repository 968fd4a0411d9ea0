"""Reads files of ``torch.save`` from untrusted sources: plain values, lists, dicts and tensors, never anything
executed.

``torch.load(weights_only=True)`` alone executes nothing either, but still builds unwanted objects: tensors
without memory, with a sign bit pending, keys nested a million deep at which Python itself crashes, containers that
contain themselves. So the instructions in the file are read first, as data: the few that ``torch.save`` needs for a
tree of values pass, with the sizes that the file really holds. What has passed is packed anew, so that ``torch.load``
sees no byte that was not looked at. Files that ``core/torch_quick.py`` wrote are read there, in a tenth of the time.
Python 3.8.
"""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any, Dict, List, Tuple

import torch

from envolve.core import torch_quick

MAX_ENTRIES = 2048  # of an archive: one per tensor and a few more
MAX_STEPS = 500_000  # instructions: at most about 200 bytes of memory each
MAX_DEPTH = 100  # of lists and dicts in each other
STORAGES = {  # bytes per element
    "torch FloatStorage": 4, "torch DoubleStorage": 8, "torch LongStorage": 8, "torch IntStorage": 4,
    "torch ShortStorage": 2, "torch CharStorage": 1, "torch ByteStorage": 1, "torch BoolStorage": 1,
}  # fmt: skip
TENSOR, ORDERED = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001  # of files from before the archives


class TorchFileError(Exception):
    """Not a file of plain values and tensors; the text says what is wrong, without the name of the file."""


def read_torch(data: bytes, legacy: bool = False) -> Any:
    """The object in the bytes. legacy: also the format of torch before 1.6. Raises TorchFileError, whatever they are.

    Tensors are on the CPU, own no more memory than the file has bytes, and may still have any shape and strides.
    """
    quick = torch_quick.read(data)
    if quick is not None:
        return quick[0]
    try:
        if data[:2] == b"PK" or not legacy:
            file = _repacked(data)
        else:
            _scan_legacy(data)
            file = io.BytesIO(data)
        return torch.load(file, map_location="cpu", weights_only=True)
    except TorchFileError:
        raise
    except Exception as e:  # damaged bytes surface in the parsers as almost any exception
        text = (str(e).strip().split("\n")[0] or type(e).__name__)[:500]
        raise TorchFileError(f"{type(e).__name__}: {text}") from e


def _repacked(data: bytes) -> io.BytesIO:
    """Same archive, reduced to the checked contents."""
    if data.count(b"PK\x01\x02") > MAX_ENTRIES:  # one per entry, before a list of them is made
        raise TorchFileError(f"more than {MAX_ENTRIES} entries in the archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        # torch.save never compresses; a compressed entry could unpack to a thousand times the file's size
        if any(i.compress_type != zipfile.ZIP_STORED or i.flag_bits & 1 for i in infos):
            raise TorchFileError("not an archive of torch.save: it is compressed")
        if sum(i.file_size for i in infos) > len(data):
            raise TorchFileError("the archive says that it holds more than it does")
        entries = {i.filename.partition("/")[2]: i for i in infos}
        if len(entries) != len(infos) or len({i.filename.partition("/")[0] for i in infos}) != 1:
            raise TorchFileError("not an archive of torch.save: names that occur twice or in several folders")
        if "data.pkl" not in entries:
            raise TorchFileError("not an archive of torch.save: no data.pkl")
        if "byteorder" in entries and archive.read(entries["byteorder"]) != b"little":
            raise TorchFileError("written on a machine of the other byte order")
        program = archive.read(entries["data.pkl"])
        end, storages = _Scan(program).run()
        if end != len(program):
            raise TorchFileError("something follows the end of data.pkl")
        packed, keys = io.BytesIO(), set()
        with zipfile.ZipFile(packed, "w") as checked:
            for name, content in (("data.pkl", program), ("version", b"3\n"), ("byteorder", b"little")):
                checked.writestr(zipfile.ZipInfo("archive/" + name), content)
            for storage in storages:  # one at a time: the numbers of a training may be gigabytes
                kind, key, size = _storage(storage, 5)
                entry = entries.get("data/" + key)
                if entry is None or entry.file_size != size:
                    raise TorchFileError(f"a tensor claims {size} bytes that the archive does not hold")
                if key not in keys:
                    checked.writestr(zipfile.ZipInfo("archive/data/" + key), archive.read(entry))
                    keys.add(key)
    packed.seek(0)
    return packed


def _scan_legacy(data: bytes) -> None:
    """Same for the legacy format: five programs in sequence, then each storage's length and bytes."""
    at, programs = 0, []
    for _ in range(5):
        scan = _Scan(data, at)
        at, storages = scan.run()
        programs.append((scan.result, storages))
    if programs[0][0] != MAGIC or programs[1][0] != LEGACY_VERSION:
        raise TorchFileError("neither an archive of torch.save nor a file of torch before 1.6")
    sizes = {key: size for _, key, size in (_storage(s, 6) for s in programs[3][1])}
    if sum(sizes.values()) + 8 * len(sizes) != len(data) - at or any(programs[i][1] for i in (0, 1, 2, 4)):
        raise TorchFileError("tensors claim another number of bytes than the file holds")


def _storage(parts: Any, length: int) -> Tuple[str, str, int]:
    """Kind, key and size in bytes of a storage reference ("storage", kind, key, location, elements[, None])."""
    if type(parts) is not tuple or len(parts) != length or parts[0] != "storage" or type(parts[1]) is not _Global:
        raise TorchFileError("a tensor without numbers")
    key, location, elements = parts[2:5]
    if type(key) is not str or type(location) is not str or type(elements) is not int or elements < 0:
        raise TorchFileError("a tensor without numbers")
    if parts[1].name not in STORAGES:
        raise TorchFileError(f"a tensor of {parts[1].name[:80]!r}")
    return parts[1].name, key, elements * STORAGES[parts[1].name]


class _Global:
    """Callable named in the program: one of STORAGES, TENSOR, ORDERED."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Node:
    """Outline of a list, dict, OrderedDict, tensor or storage."""

    __slots__ = ("kind", "depth", "keys")

    def __init__(self, kind: str) -> None:
        self.kind, self.depth = kind, 0
        self.keys: Tuple[Any, ...] = ()  # the latest ones put in


_PLAIN = _Node("value")  # None, bool, float: values that are not checked


class _Scan:
    """Follows a pickle program of protocol 2 without executing it. Raises TorchFileError, IndexError, ..."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at
        self.stack: List[Any] = []
        self.marks: List[int] = []
        self.memo: Dict[int, Any] = {}
        self.storages: List[Any] = []
        self.result: Any = None

    def run(self) -> Tuple[int, List[Any]]:
        """End of the program, and the storages that it refers to."""
        if self.data[self.at : self.at + 2] != b"\x80\x02":
            raise TorchFileError("not a pickle of protocol 2")
        self.at += 2
        for _ in range(MAX_STEPS):
            code = self.data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                (self.result,) = self.stack
                return self.at, self.storages
            step = _STEPS.get(code)
            if step is None:
                raise TorchFileError(f"instruction {bytes([code])!r}, which plain values and tensors do not need")
            step(self)
        raise TorchFileError(f"more than {MAX_STEPS} instructions")

    # ------------------------------------------------------------------------------------------------ instructions

    def take(self, form: str) -> Any:
        """Number that follows the instruction."""
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def raw(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise TorchFileError("a text that exceeds the file")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> None:
        self.stack.append(self.take(form))

    def long(self) -> None:
        self.stack.append(int.from_bytes(self.raw(self.take("<B")), "little", signed=True))

    def text(self) -> None:
        self.stack.append(self.raw(self.take("<I")).decode("utf-8"))

    def plain(self, skip: int = 0) -> None:
        self.raw(skip)
        self.stack.append(_PLAIN)

    def name(self) -> None:
        parts = self.data[self.at : self.at + 200].split(b"\n", 2)
        self.at += len(parts[0]) + len(parts[1]) + 2
        name = (parts[0] + b" " + parts[1]).decode("utf-8")
        if name not in STORAGES and name not in (TENSOR, ORDERED):
            raise TorchFileError(f"it asks for {name[:80]!r}")
        self.stack.append(_Global(name))

    def put(self, form: str) -> None:
        self.memo[self.take(form)] = self.stack[-1]

    def get(self, form: str) -> None:
        value = self.memo[self.take(form)]
        if type(value) is tuple or (type(value) is _Node and value.kind != "tensor"):
            # What is in one place only is a tree: finite, and no larger than the file.
            raise TorchFileError("one list or dict in two places")
        self.stack.append(value)

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def popped(self) -> List[Any]:
        """Items above the last mark of the stack."""
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def group(self, count: int = -1) -> None:
        if count < 0:
            items = self.popped()
        else:
            items = [self.stack.pop() for _ in range(count)][::-1]
        if any(type(y) is tuple for x in items if type(x) is tuple for y in x):
            raise TorchFileError("tuples nested too deeply")
        if any(x.keys or x.kind in ("list", "dict", "tensor") for x in items if type(x) is _Node):
            raise TorchFileError("a tuple with lists, dicts or tensors in it")
        self.stack.append(tuple(items))

    def make(self, kind: str) -> None:
        self.stack.append(_Node(kind))

    def append(self, many: bool) -> None:
        items = self.popped() if many else [self.stack.pop()]
        self._into(self.stack[-1], "list", items)

    def insert(self, many: bool) -> None:
        items = self.popped() if many else [self.stack.pop(), self.stack.pop()][::-1]
        node, keys = self.stack[-1], items[::2]
        if len(items) % 2 or not all(type(key) in (str, int) for key in keys):
            raise TorchFileError("a dict with keys that are neither text nor int")
        self._into(node, "dict", items[1::2])
        node.keys = (*node.keys[:1], *keys)

    @staticmethod
    def _into(node: Any, kind: str, items: List[Any]) -> None:
        if type(node) is not _Node or node.kind not in (kind, "ordered " + kind):
            raise TorchFileError(f"a {kind} that is none")
        for item in items:
            node.depth = max(node.depth, 1 + item.depth if type(item) is _Node else 0)
        if node.depth > MAX_DEPTH:
            raise TorchFileError("nested too deeply")

    def storage(self) -> None:
        self.storages.append(self.stack.pop())
        self.stack.append(_Node("storage"))

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        name = function.name if type(function) is _Global else ""
        if name == ORDERED and arguments == ():
            self.stack.append(_Node("ordered dict"))
        elif name == TENSOR and type(arguments) is tuple and len(arguments) == 6:  # a seventh could be a sign bit
            storage, hooks = arguments[0], arguments[5]
            if type(storage) is not _Node or storage.kind != "storage":
                raise TorchFileError("a tensor without numbers")
            if type(hooks) is not _Node or hooks.kind != "ordered dict" or hooks.keys:
                raise TorchFileError("a tensor with hooks")
            self.stack.append(_Node("tensor"))
        else:
            raise TorchFileError("it calls something in another way than torch.save does")

    def build(self) -> None:
        """Skips attributes: only the _metadata of a state_dict, which is not used here."""
        state, node = self.stack.pop(), self.stack[-1]
        if type(node) is not _Node or node.kind != "ordered dict" or type(state) is not _Node:
            raise TorchFileError("it sets attributes")
        if state.kind != "dict" or state.keys != ("_metadata",):
            raise TorchFileError("it sets attributes")


_STEPS: Dict[int, Any] = {
    ord("q"): lambda s: s.put("<B"),
    ord("r"): lambda s: s.put("<I"),
    ord("h"): lambda s: s.get("<B"),
    ord("j"): lambda s: s.get("<I"),
    ord("X"): _Scan.text,
    ord("K"): lambda s: s.number("<B"),
    ord("M"): lambda s: s.number("<H"),
    ord("J"): lambda s: s.number("<i"),
    0x8A: _Scan.long,
    ord("G"): lambda s: s.plain(8),
    ord("N"): _Scan.plain,
    0x88: _Scan.plain,  # True
    0x89: _Scan.plain,  # False
    ord("("): _Scan.mark,
    ord(")"): lambda s: s.group(0),
    0x85: lambda s: s.group(1),
    0x86: lambda s: s.group(2),
    0x87: lambda s: s.group(3),
    ord("t"): _Scan.group,
    ord("]"): lambda s: s.make("list"),
    ord("}"): lambda s: s.make("dict"),
    ord("a"): lambda s: s.append(False),
    ord("e"): lambda s: s.append(True),
    ord("s"): lambda s: s.insert(False),
    ord("u"): lambda s: s.insert(True),
    ord("c"): _Scan.name,
    ord("Q"): _Scan.storage,
    ord("R"): _Scan.call,
    ord("b"): _Scan.build,
}
