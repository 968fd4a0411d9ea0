"""Commands of the masters and workers of a run, and the files of a run on a cluster.

A run is a folder: ``sync/`` is the exchange, ``master_<b>/`` the output of master b of a plain run (a study writes into
the folder itself), ``slurm/`` the state shared by the scripts here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from envolve.core.files import read_text

ROOT = Path(__file__).resolve().parent.parent
MASTER, WORKER = "master", "worker"
CONFIG, STUDY, COMMAND = "config", "study", "command"
EXIT_WRONG = 2  # GTN_master.py, GTN_worker.py, optimize_params.py: wrong arguments; trying again does not help


class SetupError(ValueError):
    """Raised for arguments that do not describe a run; the message says which and what was expected."""


@dataclass(frozen=True)
class Exit:
    """End of a task, as stored in ``slurm/exit/``. ``code`` is the exit code of its program."""

    code: int
    reason: str  # "ended", "time limit", "cancelled", "not needed any more"
    job: str = ""  # <array job>_<index>, "" outside SLURM
    restarts: int = 0  # how often SLURM had started this job again


def exit_file(run_dir: Path, role: str, index: int) -> Path:
    return run_dir / "slurm" / "exit" / f"{role}_{index}.json"


def write_text(path: Path, text: str) -> None:
    """Writes atomically: readers on other nodes see the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_exit(path: Path, ended: Exit) -> None:
    write_text(path, json.dumps(asdict(ended)) + "\n")


def read_exit(path: Path) -> Exit | None:
    """Reads the end of a task; None if there is no file written by :func:`write_exit`."""
    try:
        content = json.loads(read_text(path))
        ended = Exit(**content)
    except (OSError, ValueError, TypeError):
        return None
    return ended if type(ended.code) is int else None


def split_words(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits words at the first ``--``; the second part may contain further ``--``."""
    arguments = list(arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def kind_of(words: Sequence[str]) -> str:
    """Kind of the words after ``--``: a study (a YAML file with ``space:``), a configuration, or another command."""
    if not words:
        raise SetupError("found no command, expected a CONFIG.yaml, a STUDY.yaml or a command after --")
    if not words[0].endswith((".yaml", ".yml")):
        return COMMAND
    try:
        text = read_text(words[0])
    except OSError as e:
        raise SetupError(f"{words[0]}: {e.strerror}; expected a configuration or a study") from None
    return STUDY if re.search(r"^space\s*:", text, re.MULTILINE) else CONFIG


def worker_command(python: str, bohb_id: int, worker: int, run_dir: Path, study: bool = False) -> list[str]:
    """Command of one worker. study: its master works for one, whose files of the user's own lie in the folder
    itself."""
    own = run_dir if study else run_dir / f"master_{bohb_id}"
    return [python, str(ROOT / "GTN_worker.py"), str(bohb_id), str(worker), "--sync-dir", str(run_dir / "sync"),
            "--plugins", str(own)]  # fmt: skip


def workers_command(python: str, bohb_id: int, ids: range, run_dir: Path, study: bool = False) -> list[str]:
    """Command of the workers of one task."""
    if len(ids) == 1:
        return worker_command(python, bohb_id, ids[0], run_dir, study)
    return [python, str(ROOT / "slurm" / "worker_group.py"), "--bohb-id", str(bohb_id), "--first", str(ids[0]),
            "--workers", str(len(ids)), "--run-dir", str(run_dir), "--python", python,
            *["--study"] * study]  # fmt: skip


def master_command(python: str, words: Sequence[str], bohb_id: int, masters: int, run_dir: Path) -> list[str]:
    """Command of a master. Repeated after a stop, a kill or a crash, it continues where the last one stopped.

    ``{BOHB_ID}``, ``{MASTERS}``, ``{RUN_DIR}`` and ``{SYNC_DIR}`` are replaced in the words.
    """
    kind = kind_of(words)
    words = replaced(words, bohb_id, masters, run_dir)
    if kind == COMMAND:
        return words
    options = master_options(kind, bohb_id, run_dir)
    if kind == STUDY:
        program = str(ROOT / "experiments" / "optimize_params.py")
        return [python, program, words[0], str(bohb_id), str(masters), *words[1:], *options]
    begun = begun_run(results_of(run_dir, bohb_id))
    what = ["--resume", str(begun)] if begun else [*words, "--results-dir", str(results_of(run_dir, bohb_id))]
    return [python, str(ROOT / "GTN_master.py"), *what, *options]


def replaced(words: Sequence[str], bohb_id: int, masters: int, run_dir: Path) -> list[str]:
    """The words of this master."""
    values = {"BOHB_ID": bohb_id, "MASTERS": masters, "RUN_DIR": run_dir, "SYNC_DIR": run_dir / "sync"}
    return [re.sub(r"\{(BOHB_ID|MASTERS|RUN_DIR|SYNC_DIR)\}", lambda m: str(values[m[1]]), word) for word in words]


def master_options(kind: str, bohb_id: int, run_dir: Path) -> list[str]:
    """Options of every start of a master of a study or a configuration."""
    if kind == STUDY:
        return ["--run-dir", str(run_dir)]
    return ["--bohb-id", str(bohb_id), "--sync-dir", str(run_dir / "sync")]


def results_of(run_dir: Path, bohb_id: int) -> Path:
    """Folder of the runs of a master."""
    return run_dir / f"master_{bohb_id}"


def begun_run(results: Path) -> Path | None:
    """Run left by an earlier start of this master. If there are several, because one was killed before its first
    checkpoint and a folder was copied here, the one with a checkpoint."""
    runs = [config.parent for config in results.glob("*/config.yaml")]
    return max(runs, key=lambda run: ((run / "checkpoint.pt").exists(), run.stat().st_mtime), default=None)
