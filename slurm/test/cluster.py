"""SLURM cluster of one machine, in its own folder: munged, slurmctld and slurmd with own sockets, spool and logs."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
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
# OverSubscribe: eight tasks on a small machine. No accounting, as on many clusters.
CONFIG = """\
ClusterName=envolve
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
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
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} Boards=1 SocketsPerBoard=1 CoresPerSocket={cores} ThreadsPerCore=1 \
State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:{share}
"""


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


@contextlib.contextmanager
def one_machine(folder: Path, tasks: int) -> Iterator[None]:
    """Inside, sbatch and the like talk to a SLURM that runs ``tasks`` tasks of one CPU at the same time here.

    ``folder`` must be new and reachable by the daemons. They are children of this process, and end with the block,
    however it ends. Raises ClusterError.
    """
    cores, host = len(os.sched_getaffinity(0)), socket.gethostname().split(".")[0]
    for name in ("state", "spool", "log", "munge"):
        (folder / name).mkdir(parents=True)
    config = folder / "slurm.conf"
    config.write_text(
        CONFIG.format(
            folder=folder,
            host=host,
            user=getpass.getuser(),
            ports=free_ports(2),
            cores=cores,
            share=-(-tasks // cores),
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
    try:
        for command in (munged, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c"]):
            with open(folder / "log" / f"{command[0]}.out", "wb") as output:
                daemons.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                    )
                )
            if command is munged:
                _wait(lambda: (munge / "socket").exists(), "munged does not start", folder, daemons)
        _wait(_idle, "the node does not become idle", folder, daemons)
        yield
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
    return _output("sinfo", "-h", "-o", "%T") == "idle"


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
