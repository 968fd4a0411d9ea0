"""What the tutorials print is what their commands print: every ``$`` line is run, in the page's order.

Files with a title are written first. The expected output may leave things out ("..."); spaces at the ends of lines do
not count. ``python3`` is this process's Python.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FENCE = re.compile(r"^```(\w+)(?: title=\"([\w./]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 600


def files(text: str) -> dict[str, str]:
    """Name -> content."""
    return {name: content for _, name, content in FENCE.findall(text) if name}


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Command and expected output."""
    for language, _, content in FENCE.findall(text):
        if language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, _, expected = part.partition("\n")
                yield command, expected


def lines(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def matches(expected: str, got: str) -> bool:
    """A line of dots stands for any lines, or none; dots within a line for any text in it."""
    rule = ""
    for line in lines(expected).splitlines():
        rule += r"(?:.*\n)*?" if line == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
    return re.fullmatch(rule, lines(got)) is not None


def test_there_are_tutorials_with_commands() -> None:
    assert len(PAGES) == 6
    for page in PAGES:
        found = list(commands(page.read_text()))
        assert found and all(command.startswith(("python3 -m envolve ", "cat ")) for command, _ in found), page.name


def test_outputs_are_compared() -> None:
    assert matches("a\n...\nd 1.2 ...\n", "a\nb\nc\nd 1.2 times\n") and matches("a\n...\nb\n", "a\nb\n")
    assert not matches("a\n...\nd 1.2 ...\n", "a\nb\nd 1.3 times\n") and not matches("x\n", "x\ny\n")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_commands_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    (tmp_path / "results").mkdir()
    for path in [*ROOT.glob("default_config_*.yaml"), ROOT / "experiments"]:
        (tmp_path / path.name).symlink_to(path)
    for name, content in files(text).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    background: list[subprocess.Popen[bytes]] = []
    try:
        for command, expected in commands(text):
            line = command.replace("python3", shlex.quote(sys.executable), 1)
            if line.endswith("&"):
                background.append(subprocess.Popen("exec " + line[:-1], shell=True, cwd=tmp_path, env=environment))
                continue
            if command.startswith("cat "):  # a log of one that was told to end
                assert all(process.wait(60) == 0 for process in background)
            done = subprocess.run(
                line,
                shell=True,
                cwd=tmp_path,
                env=environment,
                text=True,
                check=False,
                capture_output=True,
                timeout=SECONDS,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert matches(expected, done.stdout), f"{page.name}: {command}\nprinted\n{done.stdout}"
        for process in background:
            assert process.wait(60) == 0
    finally:
        for process in background:
            process.kill()
