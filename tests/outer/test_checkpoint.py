"""checkpoint.pt: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.outer.checkpoint import (
    FORMAT,
    UNKNOWN,
    CheckpointError,
    Progress,
    RunError,
    load_checkpoint,
    save_checkpoint,
)
from envolve.outer.search.nes import NESState
from tests.examples import examples

DIGEST = hashlib.sha256(b"configuration").hexdigest()


def contents(d=5):
    psi = torch.randn(d)
    nes = NESState(psi, psi + 1, torch.randn(d).double(), torch.rand(d).double(), generation=7, updates=3, restarts=1)
    progress = Progress(psi - 1, 193.25, 6, True, False, 2, [4, 6], 12345, 67, 890, 6.5)
    return nes, progress


def equal(a, b):
    for f in dataclasses.fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        assert type(x) is type(y) and (torch.equal(x, y) and x.dtype == y.dtype if torch.is_tensor(x) else x == y), f


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "checkpoint.pt"
    save_checkpoint(path, *contents(), DIGEST)
    return path.read_bytes()


def test_round_trip(tmp_path):
    path = tmp_path / "checkpoint.pt"
    for nes, progress in (contents(), (contents()[0], Progress(best_psi=torch.zeros(5)))):
        save_checkpoint(path, nes, progress, DIGEST)
        loaded = load_checkpoint(path, DIGEST)
        equal(loaded[0], nes)
        equal(loaded[1], progress)
    assert os.listdir(tmp_path) == ["checkpoint.pt"], "no temporary file is left"


def test_every_field_has_a_value_that_the_round_trip_would_miss():
    """Else a field that is not stored could pass unnoticed."""
    nes, progress = contents()
    for f in dataclasses.fields(progress):
        if f.default is not dataclasses.MISSING and f.name != "finished":
            assert getattr(progress, f.name) != f.default, f.name
    for f in dataclasses.fields(nes):
        if f.default is not dataclasses.MISSING:
            assert getattr(nes, f.name) != f.default, f.name


def test_missing(tmp_path):
    with pytest.raises(CheckpointError, match="checkpoint.pt: found no checkpoint to resume from"):
        load_checkpoint(tmp_path / "checkpoint.pt", DIGEST)


def test_of_another_configuration(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, *contents(), DIGEST)
    with pytest.raises(CheckpointError, match="another configuration than the config.yaml beside it"):
        load_checkpoint(path, hashlib.sha256(b"edited").hexdigest())


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_damaged_at_any_place(tmp_path_factory, saved, data):
    """Cut short, lengthened, or one bit turned: always the same clear error (the digest of the configuration aside)."""
    path = tmp_path_factory.mktemp("damaged") / "checkpoint.pt"
    how = data.draw(st.sampled_from(["cut", "bit", "more"]))
    at = data.draw(st.integers(0, len(saved) - 1))
    if how == "cut":
        damaged = saved[:at]
    elif how == "more":
        damaged = saved + b"x" * (1 + at % 5)
    else:
        damaged = saved[:at] + bytes([saved[at] ^ 1 << data.draw(st.integers(0, 7))]) + saved[at + 1 :]
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"checkpoint.pt: (damaged or of another version|belongs to another)"):
        load_checkpoint(path, DIGEST)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/envolve-evil",)


@pytest.mark.parametrize("content", [Evil(), {"nes": 1}, {"nes": {}, "progress": {}}, [1], {"nes": {"psi": 1}}])
def test_forged_with_a_checksum_that_fits(tmp_path, content):
    """Loaded weights-only: nothing in it runs; and it does not get further."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    body = buffer.getvalue()
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(f"{FORMAT} {hashlib.sha256(body).hexdigest()} {DIGEST}\n".encode() + body)
    with pytest.raises(CheckpointError, match="not what this version writes") as e:
        load_checkpoint(path, DIGEST)
    assert "\n" not in str(e.value) and isinstance(e.value, RunError)
    assert not os.path.exists("/tmp/envolve-evil")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch, call):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, *contents(), DIGEST)
    before = path.read_bytes()

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, call, full)
        with pytest.raises(OSError, match="No space left") as e:
            save_checkpoint(path, *contents(), DIGEST)
    assert e.value.filename == str(path), "the message can name the file"
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["checkpoint.pt"]


def stored(change):
    """A checkpoint with a fitting checksum, of which ``change`` has altered the content."""
    nes, progress = contents()
    content = {"nes": nes.to_dict(), "progress": dict(vars(progress))}
    change(content)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    body = buffer.getvalue()
    return f"{FORMAT} {hashlib.sha256(body).hexdigest()} {DIGEST}\n".encode() + body


def test_a_field_that_an_earlier_version_did_not_know(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(stored(lambda c: c["progress"].pop("member_episodes")))
    assert load_checkpoint(path, DIGEST)[1].member_episodes == 0
    path.write_bytes(stored(lambda c: c["progress"].pop("real_steps")))
    assert load_checkpoint(path, DIGEST)[1].real_steps == UNKNOWN, "what was not counted is not nothing"


def test_one_tensor_in_two_places(tmp_path):
    """A search that has just restarted: its world is its average, too."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(stored(lambda c: c["nes"].update(average=c["nes"]["psi"])))
    nes, _ = load_checkpoint(path, DIGEST)
    assert torch.equal(nes.psi, nes.average)


@pytest.mark.parametrize(
    "change,expected",
    [
        (lambda c: c["nes"].pop("psi"), "nes has other fields"),
        (lambda c: c["nes"].update(psi=torch.full((5,), float("nan"))), "nes.psi"),
        (lambda c: c["nes"].update(psi=torch.zeros(5).double()), "nes.psi"),
        (lambda c: c["nes"].update(moment1=torch.zeros(5)), "nes.moment1"),
        (lambda c: c["nes"].update(average=torch.zeros(6)), "different lengths"),
        (lambda c: c["nes"].update(generation=-1), "nes.generation"),
        (lambda c: c["nes"].update(generation=True), "nes.generation"),
        (lambda c: c["progress"].update(real_steps=-2), "progress.real_steps"),
        (lambda c: c["progress"].update(solved=1), "progress.solved"),
        (lambda c: c["progress"].update(seconds=None), "progress.seconds"),
        (lambda c: c["progress"].update(restart_generations=[1.5]), "progress.restart_generations"),
        (lambda c: c.update(more=1), "other parts"),
        (lambda c: c["nes"].update(psi=torch.zeros(5, device="meta")), "_rebuild_meta_tensor_no_storage"),
    ],
)
def test_fields_of_another_kind(tmp_path, change, expected):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(stored(change))
    with pytest.raises(CheckpointError, match=expected):
        load_checkpoint(path, DIGEST)
