"""The slow tests, a file at a time, so that a run of hours can be interrupted and is known to be complete.

    python -m tests.long                    every file that has not passed at this commit
    python -m tests.long --since COMMIT     ... nor at any commit since that one, itself included
    python -m tests.long tests/agents ...   only these files and folders
    python -m tests.long --list             what is left, without running it

Each file is a pytest process of its own; its outcome is a line of results/tests/long.jsonl. Ctrl-C loses the file that
is running. The exit code is 1 while a file has failed or is left.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

from benchmarks.common.cells import append

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "tests" / "long.jsonl"
CHOICE = "slow or hypothesis"
NONE_COLLECTED = 5  # pytest's exit code


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def pytest(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-m", CHOICE, *words]
    environ = {**os.environ, "ENVOLVE_EXAMPLES": "all"}
    return subprocess.run(command, cwd=ROOT, env=environ, text=True, check=False, **options)


def files(paths: list[str]) -> list[str]:
    """Files with slow tests, sorted."""
    done = pytest("--collect-only", "-q", "-o", "addopts=", "--color=no", *paths, capture_output=True)
    if done.returncode not in (0, NONE_COLLECTED):
        sys.exit(done.stdout + done.stderr)
    return sorted({line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line})


def records() -> list[dict[str, Any]]:
    """Outcomes so far; a line that was torn by a kill is none."""
    found = []
    for line in RECORD.read_text().splitlines() if RECORD.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def latest(rows: list[dict[str, Any]], commits: set[str]) -> dict[str, dict[str, Any]]:
    """The last outcome of each file at one of these commits."""
    return {row["file"]: row for row in rows if row["commit"] in commits}


def run(file: str, commit: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        pytest("-q", "-n", "0", f"--junitxml={folder}/out.xml", file)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        path = Path(folder, "out.xml")
        suite = next(xml.parse(path).iter("testsuite")).attrib if path.exists() else {}
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    bad = count["failures"] + count["errors"] or not suite
    return {
        "file": file, "commit": commit, "passed": not bad, **count, "cpu_s": round(cpu, 1),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["tests"])
    parser.add_argument("--since", metavar="COMMIT", default="HEAD")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    changed = git("status", "--porcelain", "--", ".", ":!results").strip()
    commit = git("rev-parse", "HEAD").strip() + ("+" if changed else "")  # of no commit: it is run again later
    since = git("rev-parse", args.since).strip()
    commits = {since, *git("rev-list", f"{since}..HEAD").split()}
    wanted, done = files(args.paths), latest(records(), commits)
    left = [file for file in wanted if not done.get(file, {"passed": False})["passed"]]
    print(f"{len(wanted) - len(left)} of {len(wanted)} files have passed", flush=True)
    if args.list:
        print("\n".join(left))
        return bool(left)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(left, 1):
        print(f"\n{number}/{len(left)} {file}", flush=True)
        row = run(file, commit)
        done[file] = row
        append(RECORD, row)
    failed = [file for file in wanted if not done[file]["passed"]]
    total = {name: sum(done[file][name] for file in wanted) for name in ("tests", "failures", "errors", "skipped")}
    hours = sum(done[file]["cpu_s"] for file in wanted) / 3600
    print("\n" + ", ".join(f"{n} {name}" for name, n in total.items()) + f", {hours:.1f} CPU-hours")
    print("\n".join(f"failed: {file}" for file in failed))
    return bool(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)
