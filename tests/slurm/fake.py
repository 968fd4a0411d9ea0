"""sbatch, squeue, scancel and scontrol as executables on PATH: a cluster in one JSON file that a test can bend."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!{python} -IS
import json, os, re, sys
path = {path!r}
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(path) as f:
    cluster = json.load(f)
cluster["calls"].append([name, *words])
code, out = 0, ""
if name in cluster["broken"]:
    code = 1
    print(name + ": error: " + cluster["broken"][name], file=sys.stderr)
elif name == "sbatch":
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    cluster["last"] += 1
    most = max(int(n) for part in options["array"].split("%")[0].split(",") for n in part.split("-"))
    if most >= cluster["max_array"]:
        print("sbatch: error: Batch job submission failed: Invalid job array specification", file=sys.stderr)
        sys.exit(1)
    for part in options["array"].split("%")[0].split(","):
        first, _, last = part.partition("-")
        for index in range(int(first), int(last or first) + 1):
            job = str(cluster["last"]) + "_" + str(index)
            cluster["tasks"][job] = [options["job-name"], index, "PENDING"]
    script = next(i for i, word in enumerate(words) if word.endswith("s.sh"))
    cluster["environ"] = {{k: v for k, v in os.environ.items() if k.startswith("ENVOLVE_")}}
    cluster["words"] = words[script + 1 :]
    out = str(cluster["last"])
elif name == "squeue":
    names = words[words.index("--name") + 1].split(",")
    lines = []
    for job, (job_name, index, state) in cluster["tasks"].items():
        if job_name in names:
            lines.append("|".join([job.split("_")[0], str(index), state, job_name, "None"]))
    out = "\\n".join(lines)
elif name == "scancel":
    for job in words:
        for known in [k for k in cluster["tasks"] if k == job or k.split("_")[0] == job]:
            del cluster["tasks"][known]
elif name == "scontrol" and words[0] == "requeue":
    cluster["tasks"][words[1]][2] = "PENDING"
elif name == "scontrol" and words == ["show", "config"]:
    out = "Configuration data as of 2025-01-01\\nMaxArraySize            = " + str(cluster["max_array_said"])
elif name == "scontrol":
    out = "JobId=7 JobState=CANCELLED Reason=None NodeList=node12 ExitCode=0:15 BatchHost=node12"
with open(path + ".new", "w") as f:
    json.dump(cluster, f)
os.replace(path + ".new", path)
print(out)
sys.exit(code)
"""


class FakeCluster:
    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self._path = folder / "cluster.json"
        self._write(
            {
                "last": 0,
                "tasks": {},
                "calls": [],
                "broken": {},
                "environ": {},
                "words": [],
                "max_array": 1001,
                "max_array_said": 1001,
            }
        )
        programs = folder / "bin"
        programs.mkdir()
        for name in ("sbatch", "squeue", "scancel", "scontrol"):
            program = programs / name
            program.write_text(PROGRAM.format(python=sys.executable, path=str(self._path)))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    def _write(self, content: dict[str, Any]) -> None:
        self._path.write_text(json.dumps(content))

    def __getitem__(self, key: str) -> Any:
        return json.loads(self._path.read_text())[key]

    def change(self, **values: Any) -> None:
        self._write(json.loads(self._path.read_text()) | values)

    def all_run(self) -> None:
        self.change(tasks={job: [name, index, "RUNNING"] for job, (name, index, _) in self["tasks"].items()})

    def end(self, *jobs: str) -> None:
        self.change(tasks={job: task for job, task in self["tasks"].items() if job not in jobs})

    def jobs(self, role: str) -> dict[int, str]:
        """Index -> job of the tasks in the queue. An array that is not the first has its first index in its name."""
        named = [
            (re.search(rf"-{role}s(?:-(\d+))?$", name), index, job) for job, (name, index, _) in self["tasks"].items()
        ]
        return {int(found[1] or 0) + index: job for found, index, job in named if found}

    def calls(self, name: str) -> list[list[str]]:
        return [call[1:] for call in self["calls"] if call[0] == name]
