"""SLURM cluster of two nodes on one machine, in its own folder: munged, slurmctld and a slurmd for each node, with own
sockets, spool and logs. Debian builds SLURM with --enable-multiple-slurmd, which this needs."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PACKAGES = ("slurm-wlm", "munge")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "scontrol")
START_SECONDS = 60.0

# cred_expire: how long a requeued job waits before it starts again (120 s unless told otherwise, at least 5).
# OverSubscribe: sixteen tasks on a small machine. No accounting, as on many clusters. MaxArraySize: larger arrays are
# split. Each node has all cores of the machine.
CONFIG = """\
ClusterName=envolve
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd_%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,sched_interval=2,batch_sched_delay=0,bf_interval=2
ReturnToService=2
MpiDefault=none
KillWait=10
MinJobAge=60
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MaxArraySize={array}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:{share}
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} Boards=1 SocketsPerBoard=1 "
    "CoresPerSocket={cores} ThreadsPerCore=1 State=UNKNOWN"
)
NODES = ("envolve-a", "envolve-b")
MAX_ARRAY_SIZE = 5  # an array has indices 0 to 4


class ClusterError(RuntimeError):
    """Raised if SLURM cannot be installed or started here; the message says why."""


def missing() -> list[str]:
    sbin = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [program for program in PROGRAMS if shutil.which(program, path=sbin) is None]


def install() -> None:
    """Installs missing programs from Debian's packages. Raises ClusterError."""
    if not missing():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(
            f"found no {', '.join(missing())}; as root on Debian or Ubuntu this script installs them, elsewhere: "
            f"install {' and '.join(PACKAGES)}"
        )
    print(f"installing {' '.join(PACKAGES)} (half a minute)", flush=True)
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(["apt-get", *command], env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"apt-get {' '.join(command)}: {done.stderr.strip()[-2000:]}")
    if missing():
        raise ClusterError(f"{' '.join(PACKAGES)} are installed, but found no {', '.join(missing())}")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Nodes:
    """The node daemons, of which one can be lost with all that runs there."""

    def __init__(self, folder: Path, daemons: list[subprocess.Popen[bytes]]) -> None:
        self._folder, self._daemons = folder, daemons
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        self._running[name] = _start(["slurmd", "-D", "-c", "-N", name], self._folder, self._daemons, name)

    def lose(self, name: str) -> None:
        """Kills a node's processes and its daemon, and tells SLURM, which else finds out by itself after minutes."""
        daemon = self._running.pop(name)
        self._daemons.remove(daemon)
        daemon.kill()
        daemon.wait()
        for signum in (signal.SIGSTOP, signal.SIGKILL):  # all at once: none may act on another's death
            for pid in _processes_on(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
        _output("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=lost")

    def come_back(self, name: str) -> None:
        self.start(name)
        _output("scontrol", "update", f"NodeName={name}", "State=RESUME")


def _processes_on(name: str) -> list[int]:
    """Processes of this node's tasks, after those of SLURM that watch them."""
    tasks, watchers = [], set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if f"SLURMD_NODENAME={name}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                tasks.append(int(folder.name))
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if Path(f"/proc/{parent}/comm").read_text().strip() == "slurmstepd":
                    watchers.add(int(parent))
    return [*watchers, *tasks]


def _start(
    command: list[str], folder: Path, daemons: list[subprocess.Popen[bytes]], name: str = ""
) -> subprocess.Popen[bytes]:
    with open(folder / "log" / f"{command[0]}{name}.out", "ab") as output:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    daemons.append(daemon)
    return daemon


@contextlib.contextmanager
def one_machine(folder: Path, tasks: int) -> Iterator[Nodes]:
    """Inside, sbatch and the like talk to a SLURM that runs tasks of ``tasks`` CPUs in all at the same time here.

    ``folder`` must be new and reachable by the daemons. They are children of this process, and end with the block,
    however it ends. Raises ClusterError.
    """
    cores, host = len(os.sched_getaffinity(0)), socket.gethostname().split(".")[0]
    for name in ("state", "log", "munge", *(f"spool_{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    config = folder / "slurm.conf"
    controller, *ports = free_ports(1 + len(NODES))
    nodes = [NODE.format(name=name, host=host, port=port, cores=cores) for name, port in zip(NODES, ports)]
    config.write_text(
        CONFIG.format(
            folder=folder,
            host=host,
            user=getpass.getuser(),
            port=controller,
            array=MAX_ARRAY_SIZE,
            nodes="\n".join(nodes),
            share=-(-tasks // (cores * len(NODES))),
        )
    )
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    munge = folder / "munge"
    munged = ["munged", "--foreground", "--force", f"--socket={munge / 'socket'}", f"--key-file={key}"]
    munged += [f"--pid-file={munge / 'pid'}", f"--seed-file={munge / 'seed'}", f"--log-file={munge / 'log'}"]
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    os.environ["SLURM_CONF"] = str(config)
    daemons: list[subprocess.Popen[bytes]] = []
    running = Nodes(folder, daemons)
    try:
        _start(munged, folder, daemons)
        _wait(lambda: (munge / "socket").exists(), "munged does not start", folder, daemons)
        _start(["slurmctld", "-D", "-c"], folder, daemons)
        for name in NODES:
            running.start(name)
        _wait(_idle, "the nodes do not become idle", folder, daemons)
        yield running
    finally:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # the tasks first, they are slurmd's children
            subprocess.run(["scancel", "--quiet", "--user", getpass.getuser()], timeout=20, check=False)
            _wait(_empty, "", folder, daemons, seconds=25, must=False)
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()


def _idle() -> bool:
    return _output("sinfo", "-h", "-o", "%T %D") == f"idle {len(NODES)}"


def _empty() -> bool:
    return not _output("squeue", "-h")


def _wait(
    condition: Callable[[], bool],
    problem: str,
    folder: Path,
    daemons: list[subprocess.Popen[bytes]],
    seconds: float = START_SECONDS,
    must: bool = True,
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        dead = [str(d.args[0]) for d in daemons if d.poll() is not None]  # type: ignore[index]
        if dead or time.monotonic() > end:
            if not must:
                return
            logs = sorted([*(folder / "log").iterdir(), folder / "munge" / "log"])
            for log in filter(Path.is_file, logs):
                print(f"--- {log}\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
            raise ClusterError(f"{problem}: {', '.join(dead) + ' ended' if dead else 'time is up'}; see the logs above")
        time.sleep(0.2)
