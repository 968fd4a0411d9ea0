"""Parts of slurm/test/run.py for two nodes: several workers per task, refused arrays, and Ray in one job."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from envolve.slurm import batch
from envolve.slurm.commands import ROOT, WORKER, exit_file, read_exit
from envolve.slurm.test.cluster import MAX_ARRAY_SIZE, NODES, Nodes
from envolve.slurm.test.runs import (
    PLAIN,
    PLAIN_FILES,
    Submitted,
    TestError,
    generations,
    only_run,
    reference,
    same,
    say,
    until,
)

GROUPED, PER_TASK = 5, 2  # workers of each master, and of a task: three tasks, the last has one
LONGER = ["--set", "agents.gtn.max_iterations=45"]


def groups(folder: Path, nodes: Nodes) -> None:
    """``--workers-per-task``, of which a task is cancelled and one meets its time limit, and a lost node."""
    undisturbed = [reference(folder, b) for b in range(2)]
    say(f"two masters with {GROUPED} workers each, {PER_TASK} in a task, through sbatch")
    words = [*PLAIN, "--seed", "{BOHB_ID}"]
    run = Submitted(folder / "groups", words, f"--workers-per-task={PER_TASK}", workers=GROUPED)
    masters = [run.run_dir / f"master_{b}" for b in range(2)]
    try:
        until(lambda: min(map(generations, masters)) >= 1, "each master has a generation", run.process)
        sent = [task.index for task in run.fleet().tasks if task.role == WORKER]
        if len(sent) != 6 or len(run.fleet().job_names()) != 1 + -(-len(sent) // MAX_ARRAY_SIZE):
            raise TestError(f"found the tasks {sent} in the arrays {[*run.fleet().job_names()]}")
        run.cancel((WORKER, 1), (WORKER, 5))
        run.time_limit((WORKER, 3))
        done = [generations(master) for master in masters]
        nodes.lose(NODES[1])
        say(f"lost {NODES[1]} after {done} generations")
        until(lambda: [generations(m) for m in masters] > done, "the masters go on", run.process)
        nodes.come_back(NODES[1])
        run.finish()
        # the last worker of each master is alone in its task, whose log is its own
        logs = {path.stem for path in (run.run_dir / "slurm" / "log").glob("worker_[01]_[0-4].log")}
        if logs != {f"worker_{b}_{i}" for b in range(2) for i in range(GROUPED - 1)}:
            raise TestError(f"found logs of the workers {sorted(logs)}, expected {GROUPED - 1} of each master")
        for before, results in zip(undisturbed, masters):
            for name in PLAIN_FILES:
                same(before / name, only_run(results) / name)
    except BaseException:
        run.show()
        raise
    finally:
        run.close()
    say(f"groups: {' and '.join(PLAIN_FILES)} of both masters are the same bytes")


def refused(folder: Path, nodes: Nodes) -> None:
    """Workers that SLURM does not take: their masters are cancelled, and the same command may be given again."""
    run_dir = folder / "refused"
    command = [sys.executable, str(ROOT / "slurm" / "submit.py"), "--run-dir", str(run_dir), "--workers=2"]
    words = [*command, "--worker-sbatch=--partition=nowhere", "--", *PLAIN]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    said = done.stderr.strip()
    if done.returncode != 2 or "nowhere" not in said + done.stdout and "partition" not in said:
        raise TestError(f"refused workers: found exit code {done.returncode}, expected 2\n{done.stdout}{said}")
    if "cancelled what was submitted before: job" not in said:
        raise TestError(f"found no master that was cancelled:\n{said}")
    until(lambda: not _queue(), "the queue is empty")
    say(f"refused: exit code 2, the masters are cancelled: {said.splitlines()[-1]}")


def _queue() -> str:
    done = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ray(folder: Path, nodes: Nodes) -> None:
    """slurm/ray.sbatch on two nodes, of which the second is lost, then the first; and the time limit."""
    if importlib.util.find_spec("ray") is None:
        raise TestError("ray: found no package ray; pip install 'envolve[ray]'")
    undisturbed = reference(folder, 5, LONGER)
    run_dir, log = folder / "ray", folder / "ray.log"
    environ = os.environ | {
        "ENVOLVE_ROOT": str(ROOT),
        "ENVOLVE_RUN_DIR": str(run_dir),
        "ENVOLVE_PYTHON": sys.executable,
        "ENVOLVE_KILL_AFTER": "8",
    }
    cores = len(os.sched_getaffinity(0))
    options = ["--nodes=2", f"--cpus-per-task={cores}", "--time=00:30:00", f"--output={log}"]
    words = ["run", *PLAIN, *LONGER, "--seed", "5"]
    job = batch.submit(options, str(ROOT / "slurm" / "ray.sbatch"), words, environ)
    say(f"the same run on Ray, in job {job} of two nodes with {cores} CPUs each")

    def text() -> str:
        return log.read_text(errors="replace") if log.exists() else ""

    def more(than: int) -> bool:
        return generations(run_dir) > than

    try:
        until(lambda: more(0), "a generation is done")
        if "on 2 nodes" not in text():
            raise TestError("Ray does not run on two nodes")
        until(lambda: _workers_on(NODES[1]), f"a worker of Ray is on {NODES[1]}")
        done = generations(run_dir)
        nodes.lose(NODES[1])
        until(lambda: more(done), "the run goes on without it")
        say(f"lost {NODES[1]} after {done} generations; the job goes on on {NODES[0]}")
        nodes.come_back(NODES[1])
        subprocess.run(["scancel", "--signal=USR1", "--batch", job], check=True)
        until(lambda: text().count(f"job {job}, start 2: "), "the job is started again after its time limit")
        done = generations(run_dir)
        until(lambda: more(done), "the run goes on")
        say(f"told of the time limit, requeued, and went on after {done} generations")
        done = generations(run_dir)
        nodes.lose(NODES[0])
        until(lambda: "PENDING" in _state(job), f"{NODES[1]} requeues the job, whose script was on {NODES[0]}")
        nodes.come_back(NODES[0])
        until(lambda: text().count(f"job {job}, start 3: "), "SLURM starts the job again")
        say(f"lost {NODES[0]}, where the head was, after {done} generations; {NODES[1]} requeued the job")
        until(lambda: (end := read_exit(exit_file(run_dir, "node", 0))) and end.code == 0, "the job is done")
        for name in PLAIN_FILES:
            same(undisturbed / name, only_run(run_dir) / name)
        until(lambda: not _queue(), "the queue is empty")
        if left := [pid for name in NODES for pid in _workers_on(name)]:
            raise TestError(f"processes of Ray are left: {left}")
    except BaseException:
        for path in (log, *sorted((run_dir / "slurm" / "log").glob("*.log"))):
            print(f"--- {path.name}\n{path.read_text(errors='replace')[-2500:]}")
        raise
    finally:
        batch.cancel([job])
    say(f"ray: {' and '.join(PLAIN_FILES)} are the same bytes")


def _state(job: str) -> str:
    done = subprocess.run(
        ["squeue", "--noheader", "--job", job, "--format=%T"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _workers_on(name: str) -> list[int]:
    """Workers of Ray on this node."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, environ = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        if title.startswith(b"ray::Evaluator") and f"SLURMD_NODENAME={name}".encode() in environ.split(b"\0"):
            found.append(int(folder.name))
    return found
