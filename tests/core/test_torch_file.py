"""What torch.save writes comes back; what it never writes is refused before torch sees it."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict

import pytest
import torch

from envolve.core.torch_file import MAX_DEPTH, TorchFileError, read_torch


def save(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def archive(program, **parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("archive/data.pkl", b"\x80\x02" + program)
        out.writestr("archive/version", b"3\n")
        for name, part in parts.items():
            out.writestr("archive/data/" + name, part)
    return buffer.getvalue()


GOOD = {
    "none": None, "yes": True, "no": False, "int": -(2**70), "small": 7, "float": 0.5, "text": "ä" * 300, "empty": {},
    "list": [1, [2.5, {"x": []}]], 3: "three", "strings": ["x"] * 3000,
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_what_torch_saves_comes_back(options):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.PReLU())
    data = save({**GOOD, "model": module.state_dict(), "tuple": (1, 2)}, **options)
    back = read_torch(data, legacy=True)
    assert {k: back[k] for k in GOOD} == GOOD and type(back["model"]) is OrderedDict and back["tuple"] == (1, 2)
    for name, value in module.state_dict().items():
        assert torch.equal(back["model"][name], value)
    for dtype in (
        torch.float64,
        torch.float32,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ):
        value = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
        back = read_torch(save([value, value.t(), value], **options), legacy=True)
        assert back[0].dtype == dtype and torch.equal(back[0], value) and torch.equal(back[1], value.t())


def test_the_old_format_only_where_it_is_asked_for():
    with pytest.raises(TorchFileError, match="not a zip file"):
        read_torch(save({"a": 1}, _use_new_zipfile_serialization=False))


KEY = struct.pack("<I", 1) + b"k"
DEEP_KEY = b"})" + b"\x85" * 400_000 + b"K\x01s."


@pytest.mark.parametrize(
    "program,expected",
    [
        (DEEP_KEY, "tuples nested too deeply"),
        (b"]q\x00h\x00a.", "in two places"),
        (b")q\x00h\x00h\x00\x86.", "in two places"),
        (b"]" * (MAX_DEPTH + 2) + b"a" * (MAX_DEPTH + 1) + b".", "nested too deeply"),
        (b"]" * 600_000 + b".", "more than 500000 instructions"),
        (b"})K\x01s.", "neither text nor int"),
        (b"cos\nsystem\n.", "it asks for 'os system'"),
        (b"ctorch._utils\n_rebuild_parameter\n.", "_rebuild_parameter"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "another way than torch.save"),
        (b"ccollections\nOrderedDict\n)R}X" + KEY + b"K\x01sb.", "sets attributes"),
        (b"\x8b\x01\x00\x00\x00\x01.", "instruction"),
        (b"N.N.", "follows the end"),
        (b"X\xff\xff\xff\xffabc.", "exceeds the file"),
        (b"(]t.", "a tuple with lists"),
        (b"N", "IndexError"),
        (b"", "IndexError"),
    ],
)
def test_programs_that_torch_does_not_write(program, expected):
    with pytest.raises(TorchFileError, match=expected):
        read_torch(archive(program))


@pytest.mark.slow
def test_torch_alone_would_not_survive_a_deep_key(tmp_path):
    """Why the program is read before torch sees it. Once Python itself survives this, the reason is gone."""
    path = tmp_path / "deep.pt"
    path.write_bytes(archive(DEEP_KEY.replace(b"\x85" * 400_000, b"\x85" * 2_000_000)))
    program = "import resource, sys, torch; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
    program += "torch.load(sys.argv[1], weights_only=True)"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True)
    assert done.returncode < 0, "killed by a signal"


def test_a_tensor_that_claims_more_than_there_is():
    value = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
        b"X\x03\x00\x00\x00cpuK%ctQK\x00K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
    )
    assert torch.equal(read_torch(archive(value % 3, **{"0": bytes(12)})), torch.zeros(3))
    for numbers, part in ((4, 12), (2, 12), (3, 13)):
        with pytest.raises(TorchFileError, match="that the archive does not hold"):
            read_torch(archive(value % numbers, **{"0": bytes(part)}))
    with pytest.raises(TorchFileError, match="that the archive does not hold"):
        read_torch(archive(value % 3))
