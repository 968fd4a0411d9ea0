"""What a population of agents is trained on: the argument that the learners of all rooms share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from envolve.agents.common.hyper import Hyper
from envolve.envs.section import EnvSection
from envolve.envs.task import Task


class Job(NamedTuple):
    """P agents, one in each world, that are tested on one task."""

    task: Task
    kind: str  # what the worlds are: "real", "se" or "rn"
    section: EnvSection
    worlds: Tensor  # float32 [P, W]; of any width for "real"
    hyper: Hyper  # of P members
    keys: np.ndarray  # int64 [P], where each member's random numbers begin
    test_each: bool = False  # test on the task after every training episode, and stop when it is solved

    def take(self, rows: np.ndarray) -> Job:
        """The members ``rows``, int64 [R]."""
        return self._replace(worlds=self.worlds[rows], hyper=self.hyper.take(rows), keys=self.keys[rows])
