#!/usr/bin/env python3
"""Run masters and workers on one machine, each on its own CPUs, and restart them when they crash.

  envolve single-node --run-dir results/my_run -- default_config_cartpole_syn_env.yaml
  envolve single-node --masters 2 --run-dir results/my_study -- configs/spaces/cartpole_syn_env.yaml

The command uses the CPUs of its affinity mask; inside a SLURM job (slurm/single_node.sh) these are the CPUs of the job.
The CPUs are divided among the masters. Each master shares its CPUs with its workers, one worker per CPU. SIGTERM,
SIGINT and SIGUSR1 reach all processes as SIGTERM: masters save their state, and the same command continues later.
Workers end after the masters.

After --, give a study, a configuration with options of GTN_master.py, or any command, as for submit.py. {BOHB_ID} and
the other placeholders of submit.py are replaced in it. Logs: DIR/slurm/log/."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("single_node.py")  # until main() takes the signals itself

import argparse
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from envolve.core import commands
from envolve.core.child import Child, end
from envolve.core.supervisor import RestartPolicy, StartError, Supervisor
from envolve.slurm.arguments import at_least, seconds
from envolve.slurm.commands import (
    EXIT_WRONG,
    MASTER,
    STUDY,
    WORKER,
    SetupError,
    kind_of,
    master_command,
    split_words,
    worker_command,
)
from envolve.slurm.cpus import split
from envolve.slurm.task import SIGNALS, free_signals, say

EXIT_CODES = """\
Exit codes: 0 all masters are complete, else the highest code of a master: 1 it cannot start or continue, 2 wrong
arguments, 130 Ctrl-C, 143 SIGTERM (the same command continues)."""
QUICK_SECONDS, FIRST_DELAY, MAX_DELAY = 60.0, 0.5, 30.0  # a cluster's file system may need its time
FINAL = {MASTER: (0, EXIT_WRONG), WORKER: ()}  # exit codes after which a role is not started again
GRACE = 10.0  # seconds that processes have to end by themselves after their master


@dataclass
class Role:
    """Process that should run. Its command is computed at every start: a master that has started is resumed."""

    kind: str
    bohb_id: int
    child: Child
    code: int | None = None  # of a master that has ended for good


class Node:
    """Starts the roles, watches them, ends them. Times in seconds."""

    def __init__(
        self, roles: Sequence[Role], *, study: bool, max_starts: int = 10, kill_after: float = 60, grace: float = GRACE
    ) -> None:
        self.roles, self.study, self.kill_after, self.grace = roles, study, kill_after, grace
        self.role_of = {role.child: role for role in roles}
        policies = {role.child: RestartPolicy(FINAL[role.kind], math.inf, math.inf, max_starts) for role in roles}
        self.supervisor = Supervisor(policies, kill_after, needed=self._needed, tell=lambda _, text, *a: say(text % a))
        self.over_at: dict[int, float] = {}  # BOHB-ID -> since when its master has ended
        self.stopping = False

    def run(self, poll: float = 1.0) -> int:
        """Runs to the end -> the highest exit code of a master."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            while not self._look(time.monotonic()):
                got = signal.sigtimedwait(SIGNALS, poll)
                if got is not None and got.si_signo != signal.SIGCHLD:
                    say(f"{signal.Signals(got.si_signo).name}: all are told to stop")
                    self.stopping = True
                    break
        finally:
            self._end(self.roles)
        masters = [role for role in self.roles if role.kind == MASTER]
        needed = masters[:1] if self.study else masters
        return max(130 if role.code is None else role.code for role in needed)

    def _look(self, now: float) -> bool:
        """Handles ended processes, starts and stops; True when all masters have ended."""
        for child in self.supervisor.bury():
            self._react(self.role_of[child], now)
        for child in self.supervisor.start_due():
            cpus = ",".join(map(str, sorted(child.cpus or ())))
            say(f"started {child.name} on CPU {cpus} (pid {child.pid}, {child.log_path})")
        self._end([r for r in self.roles if (over := self._over(r)) is not None and now - over >= self.grace])
        masters = [role for role in self.roles if role.kind == MASTER]
        return all(role.child.process is None and self._over(role) is not None for role in masters)

    def _over(self, role: Role) -> float | None:
        """Time since when the role is no longer needed. A study ends with its search, which is master 0's."""
        ids = {role.bohb_id, 0} if self.study else {role.bohb_id}
        return min((self.over_at[b] for b in ids if b in self.over_at), default=None)

    def _needed(self, child: Child) -> bool:
        role = self.role_of[child]
        return role.code is None and self._over(role) is None

    def _react(self, role: Role, now: float) -> None:
        """After the end of its process."""
        if (code := self.supervisor.codes.get(role.child)) is not None:
            role.code = code
            say(f"{role.child.name} has ended with exit code {role.code}")
        workers = [r for r in self.roles if r.kind == WORKER and r.bohb_id == role.bohb_id]
        master = next(r for r in self.roles if r.kind == MASTER and r.bohb_id == role.bohb_id)
        if master.code is None and workers and all(r.code is not None for r in workers):
            say(f"{master.child.name} has no workers left")
            master.code = 1
        if master.code is not None:
            self.over_at.setdefault(role.bohb_id, now)

    def _end(self, roles: Sequence[Role]) -> None:
        """Ends processes with SIGTERM, and with SIGKILL if they do not end in time."""
        codes = end([role.child for role in roles], self.kill_after)
        for role in roles:
            code = codes.get(role.child)
            if code is not None and role.kind == MASTER and role.code is None and (code == 0 or self.stopping):
                role.code = 128 - code if code < 0 else code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="single_node.py",
        description=__doc__,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run-dir", type=Path, required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--masters", type=at_least(1), default=1, metavar="N", help="number of masters (default: 1)")
    parser.add_argument(
        "--workers",
        dest="workers_per_master",
        type=at_least(1),
        metavar="N",
        help="workers per master (default: one per CPU of its share)",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="Python interpreter for the processes (default: this one)",
    )
    parser.add_argument(
        "--max-starts",
        type=at_least(1),
        default=10,
        metavar="N",
        help="starts of one process before it is given up (default: 10)",
    )
    parser.add_argument(
        "--kill-after", type=seconds, default=60, metavar="SECONDS", help="time from SIGTERM to SIGKILL (default: 60)"
    )
    return parser


def roles_of(args: argparse.Namespace, words: Sequence[str], cpus: Collection[int]) -> list[Role]:
    run_dir, logs = args.run_dir.resolve(), args.run_dir.resolve() / "slurm" / "log"

    def role(kind: str, bohb_id: int, label: str, log: str, command: Callable[[], list[str]], pinned: set[int]) -> Role:
        environ = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(len(pinned)))}
        child = Child(
            label,
            command,
            logs / log,
            environ=environ,
            cpus=pinned,
            with_parent=True,
            prepare=free_signals,
            quick_seconds=QUICK_SECONDS,
            first_delay=FIRST_DELAY,
            max_delay=MAX_DELAY,
        )
        return Role(kind, bohb_id, child)

    roles, study = [], kind_of(words) == STUDY
    for b, group in enumerate(split(sorted(cpus), args.masters, args.workers_per_master)):
        of_master = partial(master_command, args.python, words, b, args.masters, run_dir)
        of_master()  # wrong words are found out here
        roles.append(role(MASTER, b, f"master {b}", f"master_{b}.log", of_master, set(group.master)))
        for i, pinned in enumerate(group.workers):
            of_worker = partial(worker_command, args.python, b, i, run_dir, study)
            roles.append(role(WORKER, b, f"worker {i} of master {b}", f"worker_{b}_{i}.log", of_worker, set(pinned)))
    return roles


def main(argv: Sequence[str] | None = None) -> int:
    options, words = split_words(sys.argv[1:] if argv is None else argv)
    args = commands.parse_with("single_node.py", build_parser(), options)
    try:
        study = kind_of(words) == STUDY
        roles = roles_of(args, words, os.sched_getaffinity(0))
    except (SetupError, ValueError) as e:
        print(f"{commands.called('single_node.py')}: {e}", file=sys.stderr)
        return EXIT_WRONG
    try:
        code = Node(roles, study=study, max_starts=args.max_starts, kill_after=args.kill_after).run()
    except StartError as e:
        print(f"{commands.called('single_node.py')}: {e}", file=sys.stderr)
        return 1
    say(f"exit code {code}")
    return code


if __name__ == "__main__":
    interrupt.run(main)
