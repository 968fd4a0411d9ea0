"""Somebody who starts a master and its workers, kills them with SIGKILL, and starts anew whoever has died."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.outer.small import ROOT, default_sigint

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
AIMS = (
    "at once",
    "by the clock",
    "while writing",
    "after the scores",
    "in mid-chunk",
    "a chunk is handed out",
    "an answer",
)


class Supervisor:
    """One run in ``cwd``/results. ``single``: the master has the workers; otherwise they are started here."""

    def __init__(self, cwd: Path, config: Path, overrides: tuple[str, ...], workers: int, seed: int, single=False):
        self.cwd, self.config, self.overrides, self.count, self.single = cwd, config, overrides, workers, single
        self.random = random.Random(seed)
        self.master: subprocess.Popen | None = None
        self.workers: dict[int, subprocess.Popen] = {}
        self.kills: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()  # of masters that ended by themselves

    # ------------------------------------------------------------------------------------------------ processes

    def run_dir(self) -> Path | None:
        """The folder of the run, once there is something to resume."""
        for folder in sorted(self.cwd.glob("results/*_seed*")):
            if (folder / "config.yaml").exists():
                return folder
            if self.master is None:  # killed before it had written its configuration
                shutil.rmtree(folder)
        return None

    def sync(self) -> Path:
        folder = self.run_dir() if self.single else None
        return folder / "sync" if folder else self.cwd / "sync"

    def _python(self, log: str, *args: object) -> subprocess.Popen:
        with open(self.cwd / log, "ab") as output:
            return subprocess.Popen(
                [sys.executable, *map(str, args)],
                cwd=self.cwd,
                env=ENV,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=default_sigint,
            )

    def start_master(self) -> None:
        self.master, folder = None, self.run_dir()
        args: list[object] = [ROOT / "GTN_master.py"]
        args += ["--resume", folder] if folder else [self.config, "--set", *self.overrides]
        args += ["--workers", self.count] if self.single else ["--sync-dir", "sync"]
        self.master = self._python("master.log", *args)
        self.starts["master"] += 1

    def start_worker(self, worker_id: int) -> None:
        script = ROOT / "GTN_worker.py"
        self.workers[worker_id] = self._python("workers.log", script, 0, worker_id, "--sync-dir", "sync")
        self.starts["worker"] += 1

    def look_after(self) -> bool:
        """Starts whoever has died; True once the master has ended with exit code 0."""
        for worker_id in range(0 if self.single else self.count):
            process = self.workers.get(worker_id)
            if process is None or process.poll() is not None:
                self.start_worker(worker_id)
        if self.master is None or self.master.poll() is not None:
            if self.master is not None:
                self.codes[self.master.returncode] += 1
                if self.master.returncode == 0:
                    return True
            self.start_master()
        return False

    def close(self) -> None:
        for process in [self.master, *self.workers.values()]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    # ------------------------------------------------------------------------------------------------ killing

    def worker_pids(self) -> list[int]:
        if not self.single:
            return [p.pid for p in self.workers.values() if p.poll() is None]
        pids = []
        for beat in self.sync().glob("0_[0-9]*_heartbeat"):
            try:
                content = json.loads(beat.read_text())
                command = Path(f"/proc/{content['pid']}/cmdline").read_bytes()
            except (OSError, ValueError):
                continue
            if b"/worker.py" in command and str(self.cwd).encode() in command:  # an old file may name a new process
                pids.append(content["pid"])
        return pids

    def wait_for(self, aim: str) -> None:
        """Until the moment has come, by looking at the files; or a few seconds, whatever comes first."""
        until = time.monotonic() + (self.random.uniform(0.05, 2.5) if aim == "by the clock" else 3.0)
        folder, sync = self.run_dir(), self.sync()
        scores = folder / "scores.csv" if folder else None
        size = self._size(scores)
        while aim != "at once" and time.monotonic() < until:
            names = self._names(sync)
            if aim == "while writing" and any(n.endswith(".tmp") for n in names + self._names(folder)):
                return
            if aim == "after the scores" and self._size(scores) != size:  # the checkpoint is about to be written
                return
            if aim == "in mid-chunk" and self._busy(sync, names):
                return
            if aim == "a chunk is handed out" and any(n.endswith("_input.pt") for n in names):
                return
            if aim == "an answer" and any(n.endswith("_result.pt") for n in names):
                return
            if self.look_after():
                return
            time.sleep(0.0005)

    @staticmethod
    def _size(path: Path | None) -> int:
        try:
            return path.stat().st_size if path else -1
        except OSError:
            return -1

    @staticmethod
    def _names(folder: Path | None) -> list[str]:
        try:
            return os.listdir(folder) if folder else []
        except OSError:
            return []

    @staticmethod
    def _busy(sync: Path, names: list[str]) -> bool:
        for name in names:
            try:
                if name.endswith("_heartbeat") and re.search(r'"doing": "[0-9a-f]{64}"', (sync / name).read_text()):
                    return True
            except OSError:
                pass
        return False

    def kill_one(self) -> None:
        """The master in two of five cases, else one of the workers; sometimes both at the same moment."""
        aim = self.random.choice(AIMS)
        self.wait_for(aim)
        victims = []
        if self.random.random() < 0.4 or not (pids := self.worker_pids()):
            victims.append(("master", self.master.pid))
        else:
            victims.append(("worker", self.random.choice(sorted(pids))))
        for who, pid in victims:
            if who == "master" and self.master.poll() is not None:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.kills[f"{who}, {aim}"] += 1
            if who == "master":
                self.master.wait()

    def run(self, kills: int, seconds: float = 600.0) -> Path:
        """That many kills, then undisturbed to the end -> the run's folder."""
        end = time.monotonic() + seconds
        try:
            while not self.look_after():
                assert time.monotonic() < end, self.log()[-3000:]
                if sum(self.kills.values()) < kills:
                    self.kill_one()
                else:
                    time.sleep(0.05)
            assert sum(self.kills.values()) >= kills, f"the run ended after {dict(self.kills)}"
        finally:
            self.close()
        folder = self.run_dir()
        assert folder is not None
        return folder

    def log(self) -> str:
        return (self.cwd / "master.log").read_text(errors="replace")

    def report(self) -> str:
        log = self.log()
        said = {
            text: log.count(text)
            for text in ("is sent again", "is late", "discarded a result", "rejected", "given up", "resumed at")
        }
        return f"kills {sum(self.kills.values())}: {dict(self.kills)}; starts {dict(self.starts)}; {said}; {self.codes}"
