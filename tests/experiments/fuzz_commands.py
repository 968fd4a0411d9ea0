"""Runs wrong command lines, each in a forked child of one process that has imported the commands already:

    python3 -m tests.experiments.fuzz_commands SEED COUNT [MODULE ...]

A child has 20 s of CPU time and two minutes, a folder to run in, and its output in files. ``wrong_with`` says what is
asserted of a line. Prints a line of JSON per failure, and at last how many lines were run.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from envolve.core import interrupt
from tests.experiments.fuzz_lines import BASES, FILES, ROOT, Line, lines

CPU_SECONDS, SECONDS = 20, 120
BORDER = "╭╰"


def said(err: str) -> list[str]:
    """The lines of an error. argparse's usage (its first line and what is indented below it) is none. A box of tyro,
    from ╭ to ╰, is one: it says one thing, broken to the terminal's width. Notes and warnings are not errors."""
    found, in_usage, in_box = [], False, False
    for line in err.splitlines():
        in_usage = line.startswith("usage:") or (in_usage and line.startswith(" "))
        if line.startswith(BORDER[0]):
            found.append(line)
        in_box = line.startswith(BORDER[0]) or (in_box and not line.startswith(BORDER[1]))
        framed = in_box or line.startswith(BORDER[1])
        if line.strip() and not in_usage and not framed and not line.startswith(("note: ", "warning: ")):
            found.append(line)
    return found


def listing() -> set[str]:
    """All that there is where the line runs, and the names of the project's results."""
    results = ROOT / "results"
    here = {str(p) for p in Path().rglob("*")}
    return here | ({str(p) for p in results.iterdir()} if results.is_dir() else set())


def child(line: Line, words: list[str]) -> None:
    """Runs the line, and never returns."""
    code: object = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        for name, number in (("out.txt", 1), ("err.txt", 2)):
            os.dup2(os.open(Path("..") / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        module = importlib.import_module(line.module)
        sys.argv = [str(ROOT / (line.module.replace(".", "/") + ".py")), *words]
        interrupt.listen(Path(sys.argv[0]).name)
        interrupt.run(lambda: module.main(words) or 0)
    except SystemExit as e:
        code = e.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):  # as Python does
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


def run(line: Line, words: list[str]) -> tuple[int, str]:
    """-> exit code (minus a signal's number, -99: it hung), what stderr said."""
    pid = os.fork()
    if pid == 0:
        child(line, words)
    end = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            code = -99
            break
        time.sleep(0.005)
    return code, Path("../err.txt").read_text(errors="replace")


def wrong_with(line: Line, code: int, err: str, left: set[str]) -> list[str]:
    """What a wrong line must not do."""
    found = []
    if "Traceback" in err:
        found.append("a traceback")
    if code < 0:
        found.append(f"hung or died: {code}")
    elif code not in ((1, 2) if line.about_file else (2,)):
        found.append(f"exit code {code}")
    if left:
        found.append(f"left behind: {sorted(left)[:3]}")
    verdict = line.module == "envolve.experiments.vet_shaper" and line.about_file  # its output
    if len(said(err)) > 1 or not (said(err) or verdict):
        found.append(f"{len(said(err))} lines of error")
    if re.search(r"[\x00-\x08\x0b-\x1f]", err):
        found.append("control characters")
    return found


def main(argv: list[str]) -> int:
    seed, count, modules = int(argv[0]), int(argv[1]), argv[2:] or list(BASES)
    for module in modules:
        importlib.import_module(module)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "here"
        (here / "folder").mkdir(parents=True)
        for name, content in FILES.items():
            (here / name).write_bytes(content)
        os.chdir(here)
        for i, line in enumerate(lines(modules, seed, count)):
            words = [word.replace("{dir}", f"own{i}") for word in line.words]
            if i % 25 == 0:
                print(f"line {i}", file=sys.stderr, flush=True)
            before = listing()
            code, err = run(line, words)
            wrong = wrong_with(line, code, err, listing() - before)
            if wrong:
                failures += 1
                command = shlex.join([line.module, *words])
                print(
                    json.dumps(
                        {"seed": seed, "line": command, "fault": line.fault, "wrong": wrong, "stderr": err[-1500:]}
                    ),
                    flush=True,
                )
        os.chdir(ROOT)
    print(f"{count} lines of {len(modules)} commands, seed {seed}: {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
