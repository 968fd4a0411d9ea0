"""Decides which tasks of a run should be in the queue, and how to correct the difference.

:meth:`Fleet.look` decides from three inputs alone: its own state (``state.json``), SLURM's queue, and the exit codes of
tasks (``slurm/exit/``). So it can be killed and restarted at any time, even between sending a job and noting it: jobs
are recognised by the name that the state file fixed before the first was sent.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envolve.core.files import TABLE_BYTES, read_text
from envolve.slurm.batch import Entry
from envolve.slurm.commands import EXIT_WRONG, MASTER, STUDY, WORKER, Exit, write_text

FORMAT = 1
SETTLE = 2  # looks in a row without a task until it counts as gone: one that is requeued may be between two states
STOP_GRACE = 60.0  # seconds that tasks have to end by themselves after their master
MAX_DELAY = 300.0  # seconds until a task is sent again, at most
LONG = 600.0  # seconds; tasks that vanish sooner after a submit wait longer for the next one


@dataclass
class Task:
    """One index of one of the two arrays. Times are seconds since 1970, so that another process can continue."""

    role: str
    index: int
    sent: int = 0  # how often it was submitted
    sent_at: float = 0.0
    absent: int = 0  # looks in a row in which the queue did not show it
    quick: int = 0  # how often in a row it was gone soon
    over_at: float = 0.0  # since when it is not needed any more
    job: str = ""  # the last one seen
    given_up: str = ""  # why
    held: bool = False  # it waits for the user, who was notified

    @property
    def label(self) -> str:
        return f"{self.role} {self.index}"


@dataclass
class Actions:
    """Actions to take now. ``send``: indices by role; ``code``: end with this exit code."""

    send: dict[str, list[int]] = field(default_factory=dict)
    cancel: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gone: list[Task] = field(default_factory=list)  # those of ``send`` that were there before
    code: int | None = None


@dataclass
class Fleet:
    masters: int
    workers_per_master: int
    kind: str
    settings: dict[str, Any]  # the rest of what submit.py needs to send a task again
    name: str
    max_sends: int = 20  # of one task
    array_size: int = 0  # indices that one array may have, 0: any number
    workers_per_task: int = 1  # the last task of a master may have fewer
    tasks: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.tasks:
            self.tasks = [Task(MASTER, i) for i in range(self.masters)]
            self.tasks += [Task(WORKER, i) for i in range(self.masters * self.tasks_per_master)]

    @property
    def tasks_per_master(self) -> int:
        """Tasks of its workers."""
        return -(-self.workers_per_master // self.workers_per_task)

    def job_name(self, role: str, first: int = 0) -> str:
        """Name of the array that begins with this index; SLURM counts from 0 in each."""
        return f"{self.name}-{role}s" + (f"-{first}" if first else "")

    def arrays(self, role: str, indices: Sequence[int]) -> dict[int, list[int]]:
        """Maps the first index of each array to those of ``indices`` in it."""
        found: dict[int, list[int]] = {}
        for index in sorted(indices):
            first = index - index % self.array_size if self.array_size else 0
            found.setdefault(first, []).append(index)
        return found

    def job_names(self) -> dict[str, tuple[str, int]]:
        """Maps the name of each array to its role and first index."""
        numbers = {MASTER: range(self.masters), WORKER: range(self.masters * self.tasks_per_master)}
        firsts = [(role, first) for role in numbers for first in self.arrays(role, numbers[role])]
        return {self.job_name(role, first): (role, first) for role, first in firsts}

    def task(self, role: str, index: int) -> Task:
        return self.tasks[index if role == MASTER else self.masters + index]

    # ------------------------------------------------------------------------------------------------ one look

    def look(self, now: float, queue: Sequence[Entry], exits: Mapping[tuple[str, int], Exit]) -> Actions:
        """Decides. ``exits``: the content of slurm/exit/, by role and index. Changes the tasks; the caller saves and
        acts."""
        actions = Actions()
        there: dict[tuple[str, int], list[Entry]] = {}
        names = self.job_names()
        for entry in sorted(queue, key=lambda e: e.order):
            if entry.name in names:
                role, first = names[entry.name]
                there.setdefault((role, first + entry.index), []).append(entry)
        for task in self.tasks:
            entries = there.get((task.role, task.index), [])
            if entries:
                task.job, task.absent = entries[0].job, 0
                actions.cancel += [e.job for e in entries[1:] if e.state != "COMPLETING"]
                held = entries[0].state == "PENDING" and "held" in entries[0].reason.lower()
                if held and not task.held:
                    release = f"look into its log, then: scontrol release {task.job}"
                    actions.notes.append(f"{task.label} is held ({entries[0].reason}); {release}")
                task.held = held
            if self._over(task, exits):
                task.over_at = min(task.over_at or now, now)
                late = now - task.over_at >= STOP_GRACE
                states = ("PENDING", "RUNNING") if late else ("PENDING",)
                actions.cancel += [e.job for e in entries[:1] if e.state in states]
            elif not entries:
                self._absent(task, now, exits.get((task.role, task.index)), actions)
        self._hopeless(actions)
        if not any(there.values()) and all(self._over(task, exits) for task in self.tasks):
            actions.code = self._code(exits)
        return actions

    def _ended_well(self, bohb_id: int, exits: Mapping[tuple[str, int], Exit]) -> bool:
        ended = exits.get((MASTER, bohb_id))
        return ended is not None and ended.code == 0

    def _over(self, task: Task, exits: Mapping[tuple[str, int], Exit]) -> bool:
        """True if the task is no longer needed: its master has ended, or the search (master 0's) of the study."""
        bohb_id = task.index if task.role == MASTER else task.index // self.tasks_per_master
        masters = {bohb_id, 0} if self.kind == STUDY else {bohb_id}
        ended = any(self._ended_well(b, exits) or self.task(MASTER, b).given_up for b in masters)
        return ended or bool(task.given_up)

    def _absent(self, task: Task, now: float, ended: Exit | None, actions: Actions) -> None:
        if not task.sent:
            self._send(task, now, actions)
            return
        task.sent_at = min(task.sent_at, now)  # another login node's clock may be ahead of this one's
        task.absent += 1
        if task.absent < SETTLE:
            return
        if ended is not None and ended.code == EXIT_WRONG:
            task.given_up = "exit code 2: wrong arguments or configuration; see its log"
        elif task.sent >= self.max_sends:
            task.given_up = f"submitted {task.sent} times; see its logs"
        else:
            if task.absent == SETTLE:
                task.quick = task.quick + 1 if now - task.sent_at < LONG else 0
                actions.gone.append(task)
            if now - task.sent_at >= min(5.0 * 2**task.quick, MAX_DELAY):
                self._send(task, now, actions)
            return
        actions.notes.append(f"{task.label} is given up: {task.given_up}")

    def _send(self, task: Task, now: float, actions: Actions) -> None:
        task.sent, task.sent_at, task.absent = task.sent + 1, now, 0
        actions.send.setdefault(task.role, []).append(task.index)

    def unsent(self, role: str, indices: Sequence[int]) -> None:
        """Takes back a submit that sbatch refused."""
        for index in indices:
            self.task(role, index).sent -= 1

    def _hopeless(self, actions: Actions) -> None:
        """Gives up masters without any worker, which would wait for ever."""
        for b in range(self.masters):
            w = self.tasks_per_master
            workers = [self.task(WORKER, i) for i in range(b * w, (b + 1) * w)]
            master = self.task(MASTER, b)
            if workers and all(t.given_up for t in workers) and not master.given_up:
                master.given_up = "all its workers are given up"
                actions.notes.append(f"{master.label} is given up: {master.given_up}")

    def _code(self, exits: Mapping[tuple[str, int], Exit]) -> int:
        needed = [0] if self.kind == STUDY else range(self.masters)
        return 0 if all(self._ended_well(b, exits) for b in needed) else 1

    # ------------------------------------------------------------------------------------------------ the state file

    def save(self, path: Path) -> None:
        write_text(path, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Fleet:
        """Reads the state. Raises ValueError, OSError."""
        content = json.loads(read_text(path, TABLE_BYTES))
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"{path}: not a state file of this version; choose another folder")
        try:
            content["tasks"] = [Task(**task) for task in content["tasks"]]
            return cls(**content)
        except (KeyError, TypeError) as e:
            raise ValueError(f"{path}: not a state file of this version ({e}); choose another folder") from None

    def forgive(self) -> None:
        """Starts afresh at a user's request: tasks that are not in the queue are sent at once, and counts begin at
        0."""
        self.tasks = [Task(task.role, task.index, job=task.job) for task in self.tasks]


def new_name(run_dir: Path) -> str:
    """Job name used by this run and no other."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', run_dir.name)[:30]}-{uuid.uuid4().hex[:8]}"
