"""Names that several rooms write and read. Importing this costs nothing. Python 3.8."""

from __future__ import annotations

# files of a run's folder
CONFIG_FILE = "config.yaml"
SCORES = "scores.csv"
CHECKPOINT = "checkpoint.pt"

HUMAN = "human"  # the candidate that replaces nothing: the task's own shapers
