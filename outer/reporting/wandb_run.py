"""Weights & Biases for every command that trains: ``--wandb PROJECT``.

A run writes TensorBoard events anyway, some of them in processes of their own. A thread reads these files and passes
on what is new, so that no training waits for a network and every command is the same to it. At the end the run's
models and films follow as artifacts. How far each file was passed on is kept in the run's folder: a run that is
resumed goes on in the same place and repeats nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import secrets
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.board import EVENTS

log = logging.getLogger("envolve")

STATE = "wandb.json"
EVERY = 5.0  # seconds between two looks at the files
MOST_FILES = 64  # of events: each program or candidate of a run may have one
LEFT_OUT = ("runs", "wandb")  # folders of other runs, a study's trials, and of W&B itself
CONFIGS = ("study.yaml", "config.yaml", "config.json", "train_params.json")
MODELS = (
    "model.pt", "policy.pt", "best.pt", "learner.pt", "params.yaml", "best.yaml", "best.py", "best.graph.json",
    "best_reward.py", "policies/*.pt",
)  # fmt: skip
FILMS = ("*.mp4", "*.gif", "films/*.mp4", "films/*.gif")


def check_wandb(project: str | None) -> None:
    """Raises ConfigError where W&B is asked for and not installed, before there is a folder."""
    if project is None:
        return
    if not project.strip() or "/" in project:
        raise ConfigError([f"--wandb: found {project!r}, expected the name of a project"])
    try:
        missing = importlib.util.find_spec("wandb") is None
    except ValueError:  # a stand-in without a spec is there
        missing = False
    if missing:
        raise ConfigError(["--wandb needs Weights & Biases, which is not installed: pip install wandb"])


@contextlib.contextmanager
def followed(
    project: str | None, folder: Path, mode: str | None = None, group: str | None = None,
    settings: dict[str, Any] | None = None,
) -> Iterator[list[Path]]:  # fmt: skip
    """While this is open, W&B hears what the run in ``folder`` writes -> a list for films that lie elsewhere. project:
    None: nothing happens. mode: "online" or "offline"; None: as WANDB_MODE says. settings: the configuration, where the
    folder has none. Raises ConfigError if W&B cannot begin; later failures are logged once."""
    if project is None:
        yield []
        return
    check_wandb(project)
    follower = Follower(project, folder, mode, group, settings or {})
    code = 1
    try:
        yield follower.films
        code = 0
    finally:
        follower.close(code)


class Follower:
    """The thread. It alone calls W&B after the beginning, but for ``close``, which ends it first."""

    def __init__(
        self, project: str, folder: Path, mode: str | None, group: str | None, settings: dict[str, Any]
    ) -> None:
        """Raises ConfigError."""
        self.folder, self.broken = folder, False
        self.films: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.state = _state(folder)
        self.known: set[str] = set()  # tags whose axis W&B knows
        self.readers: dict[str, _Events] = {}
        self.too_many = False
        wandb = self.wandb = import_module("wandb")
        words: dict[str, Any] = {"group": group} if group else {}
        words |= {"mode": mode} if mode else {}
        try:
            # our own table is on the terminal; W&B's lines would tear it
            quiet = wandb.Settings(console="off", silent=True)
            self.run: Any = wandb.init(
                project=project, name=folder.resolve().name, id=self.state["id"], resume="allow",
                dir=str(folder), config=_config(folder) or settings, settings=quiet, **words,
            )  # fmt: skip
        except Exception as e:  # no key, no network, a wrong name: W&B has many classes for these
            advice = "WANDB_MODE=offline needs neither key nor network"
            raise ConfigError([f"--wandb: Weights & Biases cannot begin ({_line(e)}); {advice}"]) from e
        self._save()
        where = getattr(self.run, "url", None) or f"{folder / 'wandb'} (offline; later: wandb sync DIR)"
        log.info("Weights & Biases: %s", where)
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self.thread.start()

    def close(self, code: int) -> None:
        self.ending.set()
        self.thread.join()
        self._attempt(self._pass_on)
        self._attempt(self._artifacts)
        self._attempt(lambda: self.run.finish(exit_code=code))

    def _work(self) -> None:
        while not self.ending.wait(EVERY) and not self.broken:
            self._attempt(self._pass_on)

    def _attempt(self, what: Any) -> None:
        if self.broken:
            return
        try:
            what()
        except Exception as e:
            self.broken = True
            log.warning("Weights & Biases hears no more of this run, which goes on: %s", _line(e))

    # ----------------------------------------------------------------------------------------------------- figures

    def _pass_on(self) -> None:
        """Passes on what the event files have that W&B has not."""
        news = False
        for path in self._files():
            name = str(path.relative_to(self.folder))
            reader = self.readers.setdefault(name, _Events(path))
            prefix = path.parent.relative_to(self.folder).as_posix()
            prefix = "" if prefix == "." else f"{prefix}/"
            done = self.state["passed"].get(name, 0)
            for step, tag, value in reader.news():
                if reader.count > done:
                    self._log(prefix, step, tag, value)
                    news = True
            self.state["passed"][name] = max(done, reader.count)
        if news:
            self._save()

    def _log(self, prefix: str, step: int, tag: str, value: float) -> None:
        axis = f"{prefix}step"  # each folder of events has an axis of its own
        if prefix + tag not in self.known:
            self.run.define_metric(prefix + tag, step_metric=axis)
            self.known.add(prefix + tag)
        self.run.log({prefix + tag: value, axis: step})

    def _files(self) -> list[Path]:
        found = [p for p in sorted(self.folder.rglob(f"{EVENTS}*")) if not p.is_symlink()]
        found = [p for p in found if p.relative_to(self.folder).parts[0] not in LEFT_OUT]
        if len(found) > MOST_FILES and not self.too_many:
            self.too_many = True
            log.warning("Weights & Biases hears the first %d files of events of this run", MOST_FILES)
        return found[:MOST_FILES]

    # --------------------------------------------------------------------------------------------------- artifacts

    def _artifacts(self) -> None:
        for kind, patterns in (("model", MODELS), ("film", FILMS)):
            paths = [p for pattern in patterns for p in sorted(self.folder.glob(pattern))]
            paths += [p for p in self.films if kind == "film" and p.parent.resolve() != self.folder.resolve()]
            paths = [p for p in paths if p.is_file() and not p.is_symlink()]
            if not paths:
                continue
            artifact = self.wandb.Artifact(f"{kind}-{self.state['id']}", type=kind)
            for path in paths:
                inside = path.is_relative_to(self.folder)
                artifact.add_file(str(path), name=path.relative_to(self.folder).as_posix() if inside else path.name)
            self.run.log_artifact(artifact)
            if kind == "film":
                self.run.log({f"films/{p.stem}": self.wandb.Video(str(p), format=p.suffix[1:].lower()) for p in paths})

    def _save(self) -> None:
        write_atomic(str(self.folder / STATE), json.dumps(self.state).encode())


class _Events:
    """One file of TensorBoard events, read as it grows. count: scalars so far."""

    def __init__(self, path: Path) -> None:
        from tensorboard.backend.event_processing.event_file_loader import (  # type: ignore[import-untyped]
            EventFileLoader,
        )

        self.loader, self.count = EventFileLoader(str(path)), 0

    def news(self) -> Iterator[tuple[int, str, float]]:
        from tensorboard.util import tensor_util  # type: ignore[import-untyped]

        for event in self.loader.Load():
            for value in event.summary.value:
                array = tensor_util.make_ndarray(value.tensor) if value.HasField("tensor") else None
                if array is not None and array.size == 1 and array.dtype.kind == "f":
                    self.count += 1
                    yield int(event.step), str(value.tag), float(array.reshape(()))


def _state(folder: Path) -> dict[str, Any]:
    """What the folder knows of its run in W&B; a new one if there is none, or if it is damaged."""
    new: dict[str, Any] = {"id": secrets.token_hex(4), "passed": {}}
    try:
        found = json.loads(read_plain(folder / STATE, TEXT_BYTES))
        counts = {str(k): int(v) for k, v in found["passed"].items()}
        return {"id": str(found["id"]), "passed": counts} if str(found["id"]).isalnum() else new
    except FileNotFoundError:
        return new
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        log.warning("%s is damaged: a new run begins in Weights & Biases", folder / STATE)
        return new


def _config(folder: Path) -> dict[str, Any]:
    """The configuration that the run stored."""
    for name in CONFIGS:
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
            content = yaml.safe_load(read_plain(folder / name, TEXT_BYTES))
            if isinstance(content, dict):
                return content
    return {}


def _line(e: Exception) -> str:
    return (str(e).strip().partition("\n")[0] or type(e).__name__)[:200]
