"""Nothing that a model writes stalls the master: reading a reply takes time in proportion to its length."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from envolve.llm.gym.allowlist import check_method
from envolve.llm.gym.reward import extract_method
from envolve.llm.search.notes import notes_of
from envolve.llm.vetting.allow.allowlist import check_source
from envolve.llm.vetting.normal.normalise import normalise
from envolve.llm.vetting.text.edits import edited, edits_of
from envolve.llm.vetting.text.extract import MOST_REPLY, VetError, extract
from envolve.llm.vetting.text.fences import fences, unfenced
from envolve.llm.vetting.text.naming import nearest
from envolve.llm.vetting.text.scan import MOST_DEPTH, measure
from tests.llm.vetting.families import families

TYPES = ("compute_reward", "compute_observation")
FAMILIES = dict(families())
MARK = 0.5  # s of CPU time that a reply may take
LENGTHS = (2_000, 4_000, 6_000, 9_000, 13_000, 20_000, 30_000, 39_000, 120_000, MOST_REPLY)  # limits are in between


def physics(reply: str) -> str:
    """What the master does with a reply before the jail has it."""
    code = normalise(extract(reply, TYPES).code, TYPES, "Anymal").code
    check_source(code, TYPES)
    return code


def gym(reply: str) -> str:
    """The same for a user's Gymnasium environment."""
    code = extract_method(reply.replace("def compute_reward(", "def compute_reward(self, "))
    check_method(normalise(code, ["compute_reward"], torch=False).code)
    return code


def extras(reply: str) -> str:
    """The same with --edits and --notes."""
    return notes_of(reply) + (edited("x = 1\n", reply) or "")


READERS: dict[str, Callable[[str], str]] = {"physics": physics, "gym": gym, "extras": extras}


def read(reader: Callable[[str], str], reply: str) -> str:
    """What is said; what raises anything else than VetError fails."""
    try:
        reader(reply)
    except VetError as e:
        assert e.message and len(e.message) < 20_000
        return f"{e.stage}: {e.message.splitlines()[0][:60]}"
    return "accepted"


def calls(work: Callable[[], Any]) -> int:
    """Functions entered, Python's and C's, and generators resumed."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_there_are_families_of_all_kinds() -> None:
    assert len(FAMILIES) > 150
    assert all(len(family(3_000)) < 60_000 or "40k" in name for name, family in FAMILIES.items())


def check_growth(name: str, which: str, lengths: tuple[int, int]) -> None:
    short, long = (FAMILIES[name](n) for n in lengths)
    if short == long:  # it has a length of its own
        return
    few, many = (calls(lambda reply=reply: read(READERS[which], reply)) for reply in (short, long))
    longer = max(1.0, len(long) / len(short))
    assert many <= 1.8 * longer * few + 3_000, f"{name} ({which}): {few} calls, then {many}"


@pytest.mark.parametrize("part", range(4))
def test_four_times_the_reply_takes_four_times_the_steps(part: int) -> None:
    """Counted, not timed; below the limits that end all growth."""
    for k, name in enumerate(FAMILIES):
        if k % 4 == part:
            check_growth(name, "gym" if k % 16 == part else "physics", (300, 1_200))


@pytest.mark.slow
@pytest.mark.parametrize("which", READERS)
@pytest.mark.parametrize("length", [700, 2_000, 8_000])
def test_and_so_it_is_at_other_lengths(which: str, length: int) -> None:
    for name in FAMILIES:
        check_growth(name, which, (length, 4 * length))


@pytest.mark.parametrize("name", ["tildes", "tildes on many lines", "backticks", "quotes", "triple quotes without end",
                                  "marks of lists before fences", "blanks before a fence", "letters", "bare brackets",
                                  "constants that are none above bare code", "imports that are prose", "backslashes",
                                  "bare code, lines that almost assign", "one long comment", "thoughts without an end",
                                  "changes without a divider", "changes without an end", "notes"])  # fmt: skip
def test_no_pattern_goes_back_over_what_it_has_seen(name: str) -> None:
    """Regular expressions count no calls, so their time at two lengths, with much room for a busy machine."""
    taken = []
    for n in (25_000, 200_000):
        reply = FAMILIES[name](n)[:n]
        took = []
        for _ in range(3):
            began = time.process_time()
            fences(reply), unfenced(reply), measure(reply, 10**9), edits_of(reply), notes_of(reply)
            took.append(time.process_time() - began)
        taken.append(min(took))
    assert taken[1] < 8 * 4 * taken[0] + 0.1


@pytest.mark.slow
def test_every_family_at_every_length_takes_less_than_half_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Each family in a process of its own, which is ended where it takes far more."""
    rows = []
    for name, family in FAMILIES.items():
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            for n in LENGTHS:
                reply = family(n)[:MOST_REPLY]
                for which, reader in READERS.items():
                    began = time.process_time()
                    said = read(reader, reply)
                    took = time.process_time() - began
                    os.write(into, f"{took:.3f}\t{n}\t{which}\t{said!a:.100}\n".encode())
            os._exit(0)
        os.close(into)
        with os.fdopen(out) as lines:
            found = [line.split("\t") for line in lines]
        _, status = os.waitpid(child, 0)
        assert status == 0 and len(found) == len(LENGTHS) * len(READERS), f"{name}: status {status} after {found[-1:]}"
        rows += [(float(took), int(n), which, name, said.strip()) for took, n, which, said in found]
    rows.sort(reverse=True)
    with capsys.disabled():
        print(f"\n{len(rows)} replies of {len(FAMILIES)} families; the slowest:")
        for took, n, which, name, said in rows[:25]:
            print(f"{took:6.3f} s {n:7} {which:8} {name:40} {said}")
    assert [row for row in rows if row[0] > MARK] == []


def test_a_reply_is_measured_before_anything_else() -> None:
    reply = "```python\n" * 10**6
    assert calls(lambda: read(extras, reply)) < 60 and extras(reply) == ""  # what ``extract`` refuses has no changes
    for reader in (physics, gym):
        steps = calls(lambda reader=reader: read(reader, reply))  # type: ignore[misc]
        assert steps < 60
        with pytest.raises(VetError, match="the reply has 10000000 characters, at most 200000 are read: write less"):
            reader(reply)


def test_the_last_blocks_are_read_where_not_all_can_be() -> None:
    old, new = ("```python\ndef compute_reward(state):\n    return state['" + x + "']\n```\n" for x in ("old", "new"))
    filler = "```python\n" + "x = [1, 2, 3, 4]\n" * 1_500 + "```\n"
    assert extract(old * 2_000 + new, TYPES).code.endswith("state['new']\n")
    assert extract(filler * 5 + new, TYPES).code.endswith("state['new']\n")
    assert extract(new + filler, TYPES).code.endswith("state['new']\n")
    assert extract(new + filler * 4, TYPES).code.endswith("state['new']\n")
    with pytest.raises(VetError, match="more than .* names, numbers and signs"):
        extract(new.replace("return", "a=1;" * 9_000 + "return"), TYPES)


@pytest.mark.parametrize(
    ("code", "parts", "depth", "line"),
    [
        ("", 0, 0, 1),
        ("a = 1\n", 3, 0, 1),
        ("f(a, [b])\n", 8, 2, 1),
        ("# (((\nx = '((' + \"]]\" + '''(\n('''\n(1)\n", 11, 1, 4),
        ("x = 'it\\'s (' + (1)\n", 7, 1, 1),
        ("x = '(\ny = (1)\n", 8, 1, 2),
        ("x = '''((((", 3, 0, 1),
        ("x = f'{a} {b}'", 12, 0, 1),
        ("x = rb'((' + R'''('''", 5, 0, 1),
        (")))(", 4, 1, 1),
        ("x = '\\", 4, 0, 1),
        ("(" * 500, MOST_DEPTH + 1, MOST_DEPTH + 1, 1),
    ],
)  # fmt: skip
def test_code_is_counted_as_it_is_written(code: str, parts: int, depth: int, line: int) -> None:
    assert measure(code, 1_000) == (parts, depth, line)
    assert measure(code, 2).parts <= 40


def test_the_nearest_of_many_names_is_found_by_looking_at_few(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest("value_x", known := [f"value_{i}" for i in range(3_000)] + ["velocity", "forward_velocity", "v" * 10_000])
    assert nearest("velocty", known) == "velocity" and nearest("forward_velocitty", known) == "forward_velocity"
    assert nearest("v" * 9_999, known) is None and nearest("qqq", known) is None and nearest("a", []) is None
    assert calls(lambda: nearest("value_y", known)) < 20 * len(known)
