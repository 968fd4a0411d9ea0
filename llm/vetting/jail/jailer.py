"""Master's end of the process that runs code from models (``jailed.py``): starts it, asks it, ends it."""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from envolve.core.places import CODE, IMPORTS
from envolve.llm.vetting.jail import jailed
from envolve.llm.vetting.jail import locks as jail
from envolve.llm.vetting.probe import Probe
from envolve.llm.vetting.text.extract import VetError

log = logging.getLogger(__name__)
MODULE = "envolve.llm.vetting.jail.jailed"
START_SECONDS = 120.0  # a cold disk, a busy machine
GRACE_SECONDS = 5.0  # beyond what the server gives a candidate, until it is the server that is taken to hang
LOST = "the process that runs candidates ended while it ran this one"


class Jailer:
    """Server that is restarted when it dies. Its methods may be called from several threads."""

    def __init__(self, probe: Probe, types: list[str], allow_unprotected: bool, seconds: float) -> None:
        """seconds: that a candidate may do nothing; of CPU time it has half as many. The server gets ready meanwhile.
        Raises JailError where code cannot be locked up and allow_unprotected is not set."""
        lacks = tuple(lack for lack in jail.missing() if not (bubblewrap() and lack.startswith("Landlock")))
        if lacks:
            jail.demand(lacks, allow_unprotected)
        options = {"types": types, "allow_unprotected": bool(jail.missing()), "seconds": seconds}
        self._options, self._patience = json.dumps(options).encode(), jailed.FAR * seconds + GRACE_SECONDS
        self._probe = probe.to_bytes()
        self._lock = threading.Lock()
        self._server = _Server(self._options, self._probe, self._patience)

    def trace(self, code: str) -> bytes:
        """Traces code in a child -> untrusted bytes. Raises VetError if the code breaks its limits or takes the server
        with it, and JailError if no server can be started."""
        return self._running().ask({"code": code})

    def check(self, code: str, traced: bytes) -> bytes:
        """Checks the result of ``trace`` in another child, which does not run the code -> the graph file. Raises as
        ``trace``."""
        return self._running().ask({"code": code, "traced": traced.decode("utf-8", "replace")})

    def _running(self) -> _Server:
        with self._lock:
            if not self._server.alive():
                log.warning("the process that runs candidates has ended; starting another")
                self._server.close()
                self._server = _Server(self._options, self._probe, self._patience)
            return self._server

    def close(self) -> None:
        """Ends the server and all its children."""
        with self._lock:
            self._server.close()


class _Server:
    """One process, and the callers that wait for its answers."""

    def __init__(self, options: bytes, probe: bytes, patience: float) -> None:
        """Starts it; it is ready some seconds later. patience: seconds in which it must answer."""
        self._patience = patience
        self._home, self._errors = tempfile.TemporaryDirectory(prefix="envolve-jail-"), tempfile.TemporaryFile()
        folders = os.pathsep.join([str(IMPORTS), *jail.library_folders()])
        self._process = subprocess.Popen(
            [*bubblewrap(), sys.executable, "-s", "-m", MODULE],
            cwd=self._home.name,
            env=jail.scrubbed(PYTHONPATH=folders),
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._sending, self._waiting = threading.Lock(), threading.Lock()  # of the pipe, of the two below
        self._answers: dict[int, Future[tuple[list[str] | None, bytes]]] = {}
        self._asked, self._closed = 0, False
        self._over = False  # it says nothing any more; its process may take a moment longer to end
        self._ready: Future[str] = Future()  # "", or why it does not start
        threading.Thread(target=self._talk, args=(options, probe), daemon=True, name="jail").start()

    def alive(self) -> bool:
        return not self._over and self._process.poll() is None

    def ask(self, request: dict[str, str]) -> bytes:
        """See ``Jailer.trace``."""
        try:
            failed = self._ready.result(START_SECONDS)
        except FutureTimeout:
            self._kill()
            failed = f"it is not ready after {START_SECONDS:g} s\n{self._last_words()}".rstrip()
        if failed:
            raise jail.JailError(f"the process that runs candidates does not start: {failed}")
        answer: Future[tuple[list[str] | None, bytes]] = Future()
        with self._waiting:
            self._asked += 1
            number = self._asked
            self._answers[number] = answer
            if self._over:
                answer.set_result((["limits", LOST], b""))
        try:
            with self._sending:
                if self._closed:  # the number of its pipe may be another file's by now
                    raise VetError("limits", LOST)
                jailed.send(self._to, json.dumps({"number": number, **request}).encode())
            reason, data = answer.result(self._patience)
        except (OSError, FutureTimeout):
            log.warning("the process that runs candidates does not answer, and is ended")
            self._kill()
            raise VetError("limits", LOST) from None
        finally:
            with self._waiting:
                self._answers.pop(number, None)
        if reason:
            raise VetError(*reason)
        return data

    def close(self) -> None:
        """Ends the process: it ends by itself when its input closes, else it is killed with all that it started."""
        if self._closed:
            return
        self._closed = True
        assert self._process.stdin
        if not self._ready.done():  # nothing is lost
            self._kill()
        if not self._sending.acquire(timeout=1):  # a question cannot be sent
            self._kill()
            self._sending.acquire()
        self._process.stdin.close()
        self._sending.release()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            pass
        self._kill()
        self._process.wait()
        self._errors.close()
        self._home.cleanup()

    def _talk(self, options: bytes, probe: bytes) -> None:
        """Thread: waits for the start of the server, then delivers answers until there are no more."""
        began, ready = time.monotonic(), None
        try:
            with self._sending:
                jailed.send(self._to, options)
                jailed.send(self._to, probe)
            ready = jailed.receive(self._from)
        except OSError:
            pass
        if ready is None:
            self._process.wait()
            self._ready.set_result(self._last_words() or "no reason given")
        else:
            layers = ", ".join(["bubblewrap"] * bool(bubblewrap()) + [str(jail.protection())])
            seconds = time.monotonic() - began
            log.info("candidates are run in a process of their own (%s), ready after %.1f s", layers, seconds)
            self._ready.set_result("")
            while (frame := jailed.receive(self._from)) is not None:
                head, _, data = frame.partition(b"\n")
                said = json.loads(head)
                self._deliver(said["number"], said["reason"], data)
        with self._waiting:
            self._over, unanswered = True, list(self._answers)
        for number in unanswered:
            self._deliver(number, ["limits", LOST], b"")
        assert self._process.stdout
        self._process.stdout.close()

    def _last_words(self) -> str:
        if self._errors.closed:  # it was ended before it was ready
            return ""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip()

    def _deliver(self, number: int, reason: list[str] | None, data: bytes) -> None:
        with self._waiting:
            answer = self._answers.pop(number, None)
        if answer is not None:  # else no caller waits any longer
            answer.set_result((reason, data))

    def _kill(self) -> None:
        """Kills the server and its children, which are one process group."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@functools.lru_cache(maxsize=None)
def bubblewrap() -> tuple[str, ...]:
    """The beginning of a command that runs in namespaces of its own, without a network and with no more of the file
    system than Python needs, read-only (https://github.com/containers/bubblewrap); empty where that does not work."""
    program = shutil.which("bwrap")
    if program is None:
        log.info("bubblewrap (bwrap) not found: the jail of model-written code has one layer less")
        return ()
    command = [program, "--unshare-all", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"]
    command += ["--tmpfs", "/tmp", "--chdir", "/tmp"]
    code = [str(IMPORTS / "envolve"), *(str(CODE / name) for name in ("core", "llm", "envs"))]
    for place in [*jail.needed_to_import(), *code]:
        if os.path.exists(place) and not place.startswith("/dev/"):
            command += ["--ro-bind", place, place]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if tried.returncode:
        log.info(
            "bubblewrap does not work here (%s): the jail of model-written code has one layer less",
            tried.stderr.strip(),
        )
        return ()
    return tuple(command)
