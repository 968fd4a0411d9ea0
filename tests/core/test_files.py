from __future__ import annotations

import os
from pathlib import Path

import pytest

from envolve.core.files import UnfitFileError, check_plain, read_end, read_piece, read_plain, read_text
from tests.core.odd_files import make_odd

WORDS = {
    "pipe": "found a named pipe, expected a plain file",
    "device": "found a device, expected a plain file",
    "folder": "found a folder, expected a plain file",
    "sparse": "found 20,000,000,000 bytes, expected at most 1,000",
}


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("read", [read_plain, read_text, check_plain])
def test_odd_files_are_refused_before_they_are_read(kind: str, read: object, tmp_path: Path) -> None:
    path = make_odd(kind, tmp_path / "odd")
    with pytest.raises(UnfitFileError) as e:
        read(path, 1000)  # type: ignore[operator]
    assert e.value.strerror == WORDS[kind] and e.value.filename == str(path)


def test_plain_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("grün\n".encode())
    assert read_plain(path, 6) == "grün\n".encode() and read_text(path, 6) == "grün\n"
    assert read_end(path, 2) == b"n\n" and read_end(path, 100) == "grün\n".encode()
    check_plain(path, 6)
    (tmp_path / "link").symlink_to(path)
    assert read_text(tmp_path / "link") == "grün\n"
    path.write_bytes(b"")
    assert read_plain(path, 0) == b"" and read_end(path, 5) == b""


def test_the_end_of_a_large_file(tmp_path: Path) -> None:
    path = make_odd("sparse", tmp_path / "log")
    assert read_end(path, 1000) == bytes(1000)
    path.write_bytes(b"0123456789")
    assert [read_piece(path, at, 4) for at in (0, 4, 8, 10, 99)] == [b"0123", b"4567", b"89", b"", b""]
    with pytest.raises(UnfitFileError, match="named pipe"):
        read_piece(make_odd("pipe", tmp_path / "another"), 0, 4)
    with pytest.raises(UnfitFileError, match="named pipe"):
        read_end(make_odd("pipe", tmp_path / "pipe"), 1000)


def test_what_is_wrong_is_an_os_error_with_words_and_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        read_plain(tmp_path / "nothing", 10)
    assert missing.value.filename == str(tmp_path / "nothing")
    path = make_odd("binary", tmp_path / "binary")
    with pytest.raises(UnfitFileError) as text:
        read_text(path)
    assert text.value.strerror == "found bytes at 0 that are not UTF-8, expected text"
    with pytest.raises(UnfitFileError) as name:
        read_plain("a\0b", 10)
    assert "null byte" in str(name.value.strerror)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for kind in WORDS:
        path = make_odd(kind, tmp_path / kind)
        for _ in range(3):
            with pytest.raises(UnfitFileError):
                read_plain(path, 1000)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_read_that_gives_less_than_all_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "file", os.read
    path.write_bytes(bytes(range(200)))
    monkeypatch.setattr(os, "read", lambda fd, size: read(fd, min(size, 70)))
    assert read_plain(path, 200) == bytes(range(200))
