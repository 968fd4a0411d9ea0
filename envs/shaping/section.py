"""Section ``envs.<task>`` of a configuration for a task in a physics engine that candidates shape."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence

from envolve.core.files import TEXT_BYTES, read_plain
from envolve.core.option import option
from envolve.core.places import CODE
from envolve.envs.managers.library import NAMES
from envolve.envs.physics.task import SHAPER_TYPES
from envolve.envs.shaping.candidate import Candidate, candidate_files, load_candidate, tell_other_task
from envolve.envs.sim.simulator import ENGINES


@dataclass(frozen=True)
class ShapedSection:
    """Options: candidates, engine, length of training."""

    solved_reward: Optional[float] = option(None, "score that counts as solved; default: none")
    shapers: str = option(
        "", "file or folder of candidates, from the project's folder; default: envs/user_functions/<task>"
    )
    shaper_types: str = option("", f"functions to use, separated by spaces: {' '.join(SHAPER_TYPES)}; default: all")
    num_envs_per_shaper: int = option(64, "environments of each candidate", ge=1, le=10**5)
    iterations: int = option(100, "iterations of the learner: rollouts that it learns from", ge=1, le=10**8)
    engine: str = option("mujoco", "physics engine", choices=(*ENGINES, *NAMES))
    shapers_sha256: str = option(
        "", "digest of the candidates' files; set by the master, so that workers refuse other files"
    )

    def types(self) -> List[str]:
        return self.shaper_types.split() or list(SHAPER_TYPES)


def shaper_files(section: ShapedSection, task: str) -> List[Path]:
    """Candidates' files, by name. Raises FileNotFoundError."""
    return candidate_files(CODE / (section.shapers or f"envs/user_functions/{folder_name(task)}"))


def folder_name(task: str) -> str:
    """Name of a task's folder of candidates: in lower case, for a task of a library without ``mjlab:``."""
    return task.lower().rpartition(":")[2]


def shapers_digest(files: Sequence[Path]) -> str:
    """SHA-256 of the files' names and contents."""
    digest = hashlib.sha256()
    for path in files:
        content = read_plain(path, TEXT_BYTES)
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def candidates_of(section: ShapedSection, task: str) -> List[Candidate]:
    """Every candidate, in the order of ``shaper_files``. Raises ValueError if the files are not those that the
    configuration was resolved with."""
    files = shaper_files(section, task)
    if section.shapers_sha256 and shapers_digest(files) != section.shapers_sha256:
        raise ValueError(f"{files[0].parent}: the candidates' files are not those that this run began with")
    candidates = [load_candidate(path, section.types()) for path in files]
    tell_other_task(candidates, task)  # the master makes no environments, which tell it as well
    return candidates
