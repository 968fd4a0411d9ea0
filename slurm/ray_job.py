#!/usr/bin/env python3
"""A Ray cluster on the nodes of one SLURM job, and an envolve command on it; slurm/ray.sbatch calls this.

    python3 slurm/ray_job.py --run-dir DIR -- run CONFIG.yaml

The head and a node daemon on every other node are started with srun, and end with the job. The cluster has a token of
its own; on a single node it listens on the loopback alone. A daemon that dies is started again; without its head the
cluster is made anew, and the command goes on from its checkpoint. Outside SLURM the cluster is this machine. Needs
Python 3.10, its standard library, and the package ray."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("ray_job.py")  # until main() takes the signals itself

import argparse
import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from envolve.core.child import Child, end
from envolve.core.environ import added
from envolve.core.supervisor import RestartPolicy, StartError, Supervisor
from envolve.outer.ray.address import OPEN
from envolve.slurm.arguments import at_least, seconds
from envolve.slurm.commands import EXIT_WRONG, ROOT, SetupError, begun_run, split_words
from envolve.slurm.task import ENDED, OVER, SIGNALS, free_signals, requeue, say, tend

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0  # that the head may take; a node reads Python's packages from the file server
STORE_BYTES = 200 * 2**20  # of a node: messages are small
HEAD_SECONDS, LOOK_SECONDS = 60.0, 5.0  # without a head, beside --kill-after; between two looks
STOP_SECONDS = 15.0  # from SIGTERM to SIGKILL of daemons
STOPPED = (0, EXIT_WRONG, 130, 143)  # exit codes after which another cluster would not help
ON_RAY = ("run", "tune")  # commands that are told where Ray is, and where their folder is
MINE = str(Path(__file__).resolve())


def command_of(python: str, words: Sequence[str], run_dir: Path, address: str) -> list[str]:
    """The envolve command for a cluster at ``address``; repeated, it goes on. Raises SetupError."""
    if not words:
        raise SetupError("found no command, expected one of envolve's after --, e.g. run CONFIG.yaml")
    where = f"ray:{address}"
    values = {"RAY": where, "RUN_DIR": str(run_dir)}
    told = any("{RAY}" in word or word.startswith("--workers-on") for word in words)
    name, *rest = (re.sub(r"\{(RAY|RUN_DIR)\}", lambda m: values[m[1]], word) for word in words)
    if name == "run" and not _has(rest, "--resume"):
        found = begun_run(run_dir)
        rest = ["--resume", str(found)] if found else [*rest, "--results-dir", str(run_dir)]
    elif name == "tune" and not _has(rest, "--resume") and not _has(rest, "--run-dir"):
        rest += ["--run-dir", str(run_dir)]
    if name in ON_RAY and not told:
        rest += ["--workers-on", where]
    return [python, "-m", "envolve", name, *rest]


def _has(words: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


# -------------------------------------------------------------------------------------------------------- the cluster


def hosts_of(environ: Mapping[str, str]) -> list[str]:
    """Names of the job's nodes, this one first; [] outside SLURM. Raises SetupError."""
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    if not nodes:
        return []
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise SetupError(f"scontrol show hostnames {nodes}: {e}") from None
    names = done.stdout.split()
    mine = environ.get("SLURMD_NODENAME", names[0] if names else "")
    return [mine, *(name for name in names if name != mine)]


def address_of_node(name: str) -> str:
    """The name of a node, or SLURM's address of it where the name is known to SLURM alone."""
    with contextlib.suppress(OSError):
        socket.gethostbyname(name)
        return name
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "node", name], capture_output=True, text=True, timeout=60, check=True
        )
        if found := re.search(r"\bNodeAddr=(\S+)", done.stdout):
            return found[1]
    return name


def own_address(peer: str) -> str:
    """Address by which this machine reaches the node ``peer``. Raises SetupError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((address_of_node(peer), 9))  # sends nothing
            return str(s.getsockname()[0])
    except OSError as e:
        raise SetupError(f"{peer}: {e.strerror or e}; expected a node of the job") from None


def free_port(host: str) -> int:
    with socket.socket() as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])


def environment(alone: bool) -> dict[str, str]:
    """Variables of every process of a cluster. alone: the cluster has one machine."""
    own = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_worker_niceness": "0",  # the default of 15 halves the speed beside any other process
        "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    }
    return own | ({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if alone else {})  # no address but 127.0.0.1


def daemon(python: str, address: str, ip: str, folder: str | None) -> list[str]:
    """``ray start`` of the head, which keeps its files in ``folder``, or of another node (None)."""
    words = [python, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={ip}"]
    words += [f"--num-cpus={len(os.sched_getaffinity(0))}", f"--object-store-memory={STORE_BYTES}"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]  # free ones: another job may share the node
    if folder is None:
        return [*words, f"--address={address}"]
    return [*words, "--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false",
            f"--ray-client-server-port={free_port(LOOPBACK)}", f"--temp-dir={folder}/{OPEN}"]  # fmt: skip


class Head:
    """The head, as another node sees it. ``lost``: it has been silent for ``patience`` seconds."""

    def __init__(self, address: str, patience: float) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._patience = (host, int(port)), patience
        self._seen = self._looked = time.monotonic()

    def lost(self) -> bool:
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if listens(*self._address):
                self._seen = now
        return now - self._seen > self._patience


def orphaned(job: str) -> bool:
    """Whether SLURM has taken the node of the job's script from it. It keeps such a job to the time limit, ends the
    steps that the script began, and starts nothing (22.05, --no-kill)."""

    def asked(*words: str) -> str:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    try:
        found = dict(re.findall(r"\b(JobState|BatchHost|NodeList)=(\S+)", asked("--oneliner", "show", "job", job)))
        nodes = asked("show", "hostnames", found.get("NodeList", "")).split()
    except (OSError, subprocess.SubprocessError) as e:
        say(f"scontrol show job {job}: {e}")
        return False
    return found.get("JobState") == "RUNNING" and found.get("BatchHost", "") not in ["", *nodes]


def listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), 1.0).close()
        return True
    return False


def node(args: argparse.Namespace) -> int:
    """One node's daemon, until SIGTERM. That of the head is not started again: its cluster is gone. Another's requeues
    the job if the node of the head is lost."""
    head = args.head_folder is not None
    host = args.address.rpartition(":")[0]
    ip = host if head or host == LOOPBACK else own_address(host)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    command = daemon(args.python, args.address, ip, args.head_folder)
    process = Child("ray", lambda: command, Path("/dev/stdout"), with_parent=True, prepare=free_signals)
    supervisor = Supervisor({process: RestartPolicy(starts=1 if head else float("inf"))}, STOP_SECONDS)
    there = None if head else Head(args.address, args.kill_after + HEAD_SECONDS)
    try:
        while process not in supervisor.codes:
            supervisor.look()
            got = signal.sigtimedwait(SIGNALS, 1.0)
            told = got is not None and got.si_signo != signal.SIGCHLD
            if there is not None and (told or there.lost()) and orphaned(os.environ.get("SLURM_JOB_ID", "")):
                say("the job has lost the node of its script")
                requeue(os.environ, args.max_requeues)
                return 1
            if told:
                return 0
        return supervisor.codes[process] or 1
    finally:
        end([process], STOP_SECONDS)
        if head:
            shutil.rmtree(args.head_folder, ignore_errors=True)


class Cluster:
    """The daemons of one cluster, as children: the head's, and one srun for all others."""

    def __init__(self, args: argparse.Namespace, hosts: Sequence[str]) -> None:
        """Raises SetupError."""
        alone = len(hosts) < 2
        ip = LOOPBACK if alone else own_address(hosts[1])
        self.address, self.environ = f"{ip}:{free_port(ip)}", environment(alone)
        folder = tempfile.mkdtemp(prefix="envolve_ray_", dir="/tmp")  # short: sockets' names have 107 characters
        self._folder = folder
        own = [args.python, MINE, "--run-dir", str(args.run_dir), "--python", args.python, "--address", self.address,
               f"--kill-after={args.kill_after}", f"--max-requeues={args.max_requeues}"]  # fmt: skip
        logs = args.run_dir / "slurm" / "log"

        def child(name: str, words: list[str]) -> Child:
            log = logs / f"ray_{name}_{os.environ.get('SLURM_JOB_ID', 'here')}.log"
            return Child(name, lambda: words, log, environ=self.environ, with_parent=True, prepare=free_signals)

        self.head = child("head", [*srun(hosts[:1]), *own, "--head-folder", folder])
        self.others = None if alone else child("nodes", [*srun(hosts[1:]), *own])

    def __enter__(self) -> Cluster:
        """Raises StartError if the head does not listen in time."""
        try:
            self.head.start()
            host, _, port = self.address.rpartition(":")
            until = time.monotonic() + START_SECONDS
            while not listens(host, int(port)):
                if self.lost() or time.monotonic() > until:
                    words = self.head.last_words() or "time is up"
                    raise StartError(f"the head of Ray does not start; the end of {self.head.log_path}:\n{words}")
                time.sleep(0.2)
            if self.others is not None:
                self.others.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        end([c for c in (self.others, self.head) if c is not None], STOP_SECONDS + 5)
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)  # the head's process, on its node, removes what is in it

    def lost(self) -> bool:
        """Whether the head has ended."""
        return self.head.process is None or self.head.process.poll() is not None


def srun(hosts: Sequence[str]) -> list[str]:
    """What starts a program on these nodes, once on each; [] outside SLURM."""
    if not hosts:
        return []
    cpus = os.environ.get("SLURM_CPUS_PER_TASK")  # srun does not inherit it since 22.05
    words = ["srun", "--overlap", "--kill-on-bad-exit=0", f"--nodes={len(hosts)}", f"--ntasks={len(hosts)}"]
    words += ["--ntasks-per-node=1", f"--nodelist={','.join(hosts)}", "--export=ALL"]
    return words + ([f"--cpus-per-task={cpus}"] if cpus else [])


# ------------------------------------------------------------------------------------------------------- the program


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-dir", type=Path, required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="Python on the nodes")
    parser.add_argument("--kill-after", type=seconds, default=60, metavar="S", help="seconds from SIGTERM to SIGKILL")
    parser.add_argument("--max-clusters", type=at_least(1), default=10, metavar="N", help="most clusters, if heads die")
    parser.add_argument(
        "--max-requeues", type=int, default=100, metavar="N", help="most requeues for a lost first node"
    )
    parser.add_argument("--address", help=argparse.SUPPRESS)  # of the head: run a node's daemon
    parser.add_argument("--head-folder", help=argparse.SUPPRESS)  # this is the head
    return parser


def conduct(args: argparse.Namespace, words: Sequence[str]) -> int:
    """-> the exit code of the command. Raises SetupError, StartError."""
    command_of(args.python, words, args.run_dir, "")  # wrong words are found out here
    if importlib.util.find_spec("ray") is None:
        raise SetupError("found no package ray; pip install 'envolve[ray]'")
    hosts = hosts_of(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    code = 1
    for number in range(1, args.max_clusters + 1):
        with Cluster(args, hosts) as cluster:
            command = command_of(args.python, words, args.run_dir, cluster.address)
            say(f"Ray at {cluster.address} on {max(1, len(hosts))} nodes: {' '.join(command)}")
            with added(cluster.environ):
                code, reason = tend(command, cluster.lost, poll=1.0, kill_after=args.kill_after)
            if reason not in (ENDED, OVER) or not cluster.lost() or (reason == ENDED and code in STOPPED):
                return code
        say(f"the head of cluster {number} was lost; the command goes on with another")
    return code or 1


def main(argv: Sequence[str] | None = None) -> int:
    options, words = split_words(sys.argv[1:] if argv is None else argv)
    args = build_parser().parse_args(options)
    args.run_dir = args.run_dir.resolve()
    try:
        return node(args) if args.address else conduct(args, words)
    except (SetupError, StartError, OSError) as e:
        print(f"ray_job.py: {e}", file=sys.stderr)
        return EXIT_WRONG if isinstance(e, SetupError) else 1


if __name__ == "__main__":
    interrupt.run(main)
