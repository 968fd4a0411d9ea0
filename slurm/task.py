#!/usr/bin/env python3
"""One task of a job array: starts a master or a worker and passes SLURM's signals to it.

    python3 slurm/task.py --role worker --bohb-id 0 --index 4 --worker 1 --run-dir DIR
    python3 slurm/task.py --role master --bohb-id 1 --index 1 --masters 2 --run-dir DIR -- CONFIG.yaml --seed {BOHB_ID}

SIGUSR1 (the time limit is near): the program gets SIGTERM, writes its checkpoint and ends; then the task is requeued
(scontrol requeue) and continues later. SIGTERM, SIGINT (scancel, preemption, shutdown): the program gets SIGTERM, and
this script does not requeue the task. A worker ends when its master has ended. After --, give the master's CONFIG,
STUDY or command. The exit code of the program is stored in DIR/slurm/exit/. workers.sh, masters.sh and single_node.sh
call this script; it needs only Python 3.10 and its standard library.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("task.py")  # until main() takes the signals itself

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from envolve.slurm.arguments import seconds
from envolve.slurm.commands import (
    EXIT_WRONG,
    MASTER,
    STUDY,
    WORKER,
    Exit,
    SetupError,
    exit_file,
    kind_of,
    master_command,
    read_exit,
    split_words,
    workers_command,
    write_exit,
)

SIGNALS = {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
ENDED, TIME_LIMIT, CANCELLED, OVER = "ended", "time limit", "cancelled", "not needed any more"


def say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} task: {text}", flush=True)


def free_signals() -> None:
    """Resets signals in the child before its program starts: nothing blocked, nothing ignored."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def tend(
    command: Sequence[str],
    is_over: Callable[[], bool],
    *,
    poll: float = 10.0,
    grace: float = 10.0,
    kill_after: float = 60.0,
) -> tuple[int, str]:
    """Runs ``command`` to its end -> its exit code (128 + n if signal n ended it) and why it ended.

    ``is_over`` is asked every ``poll`` seconds; ``grace`` seconds after it said yes the program gets SIGTERM, as at
    once on a signal. ``kill_after`` seconds later comes SIGKILL: in a long evaluation a worker hears nothing else.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # they are waited for, so none can come at a wrong moment
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=free_signals)
    reason, over_since, kill_at = ENDED, None, float("inf")
    while child.poll() is None:
        got = signal.sigtimedwait(SIGNALS, min(poll, max(kill_at - time.monotonic(), 0.1)))
        now, stop = time.monotonic(), False
        if got is not None and got.si_signo != signal.SIGCHLD:
            name = signal.Signals(got.si_signo).name
            say(f"{name}: {'the time limit is near' if got.si_signo == signal.SIGUSR1 else 'told to stop'}")
            if got.si_signo != signal.SIGUSR1:
                reason = CANCELLED  # also while it stops for the time limit: a cancelled task is not requeued
            elif reason == ENDED:
                reason = TIME_LIMIT
            stop = True
        elif reason == ENDED and is_over():
            over_since = now if over_since is None else over_since
            if now - over_since >= grace:
                reason, stop = OVER, True
        if stop and kill_at == float("inf"):
            child.terminate()
            kill_at = now + kill_after
        if now >= kill_at:
            child.kill()
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return (0 if reason == OVER else code), reason


def requeue(environ: Mapping[str, str], most: int) -> bool:
    """Requeues this task. False, with a message, if that fails: submit.py then submits it anew."""
    job, restarts = job_of(environ), restarts_of(environ)
    if not job:
        say("not started by SLURM: nothing to put back into a queue")
        return False
    if restarts >= most:
        say(f"started again {restarts} times already; not put back into the queue (ENVOLVE_MAX_REQUEUES)")
        return False
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60, check=False)
        problem = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as e:
        problem = str(e)
    say(f"scontrol requeue {job}: {problem or 'done'}")
    return not problem


def job_of(environ: Mapping[str, str]) -> str:
    array = environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{environ.get('SLURM_ARRAY_TASK_ID')}" if array else environ.get("SLURM_JOB_ID", "")


def restarts_of(environ: Mapping[str, str]) -> int:
    text = environ.get("SLURM_RESTART_COUNT", "0")
    return int(text) if text.isdigit() else 0


def is_final(run_dir: Path, role: str, index: int) -> bool:
    """True if nothing more comes from the task: complete, given up (submit.py), or started wrongly."""
    ended = read_exit(exit_file(run_dir, role, index))
    return is_given_up(run_dir, role, index) or (ended is not None and ended.code in (0, EXIT_WRONG))


def is_given_up(run_dir: Path, role: str, index: int) -> bool:
    """True if submit.py gave the task up."""
    return exit_file(run_dir, role, index).with_suffix(".given_up").exists()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--role", choices=[MASTER, WORKER, "node"], required=True, help="program to run; node: single_node.py"
    )
    parser.add_argument(
        "--bohb-id", type=int, default=0, metavar="B", help="index of the master, or of the worker's master"
    )
    parser.add_argument("--index", type=int, default=0, metavar="I", help="index in the job array; names the exit file")
    parser.add_argument("--worker", type=int, default=0, metavar="ID", help="id of the worker, of several the first")
    parser.add_argument("--workers", type=int, default=1, metavar="K", help="workers of this task (default: 1)")
    parser.add_argument("--masters", type=int, default=1, metavar="M", help="number of masters of the run (default: 1)")
    parser.add_argument("--run-dir", type=Path, required=True, metavar="DIR", help="folder of the run")
    parser.add_argument(
        "--python", default=sys.executable, metavar="FILE", help="Python that runs the programs (default: this one)"
    )
    parser.add_argument(
        "--max-requeues", type=int, default=100, metavar="N", help="most requeues at the time limit (default: 100)"
    )
    parser.add_argument(
        "--kill-after", type=seconds, default=60, metavar="S", help="seconds from SIGTERM to SIGKILL (default: 60)"
    )
    return parser


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    options, words = split_words(sys.argv[1:] if argv is None else argv)
    args = build_parser().parse_args(options)
    run_dir = args.run_dir.resolve()
    mine = exit_file(run_dir, args.role, args.index)
    try:
        study = args.role != "node" and bool(words) and kind_of(words) == STUDY
        if args.role == WORKER:
            ids = range(args.worker, args.worker + args.workers)
            command = workers_command(args.python, args.bohb_id, ids, run_dir, study)
        elif args.role == MASTER:
            command = master_command(args.python, words, args.bohb_id, args.masters, run_dir)
        else:
            command = words
    except SetupError as e:
        print(f"task.py: {e}", file=sys.stderr)
        write_exit(mine, Exit(EXIT_WRONG, ENDED, job_of(environ), restarts_of(environ)))
        return EXIT_WRONG
    # A study ends with its search, which is master 0's.
    waits_for = ([args.bohb_id] if args.role == WORKER else []) + ([0] if study and args.bohb_id > 0 else [])

    def is_over() -> bool:
        return any(is_final(run_dir, MASTER, b) for b in waits_for)

    if is_over():
        say("the master has ended: nothing to do")
        code, reason = 0, OVER
    elif args.role != WORKER and (before := read_exit(mine)) is not None and before.code == 0:
        say(f"complete already, says {mine}; nothing to do")
        return 0
    else:
        say(f"job {job_of(environ) or '(none)'}, start {restarts_of(environ) + 1}: {' '.join(command)}")
        code, reason = tend(command, is_over, kill_after=args.kill_after)
    say(f"exit code {code} ({reason})")
    try:
        write_exit(mine, Exit(code, reason, job_of(environ), restarts_of(environ)))
    except OSError as e:  # a full disk: the task goes on later all the same
        say(f"{mine}: {e.strerror}; its exit code is not noted")
    if reason == TIME_LIMIT and code not in (0, EXIT_WRONG):
        requeue(environ, args.max_requeues)
    return code


if __name__ == "__main__":
    interrupt.run(main)
