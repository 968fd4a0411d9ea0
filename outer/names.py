"""Names that several rooms write and read. Importing this costs nothing. Python 3.8."""

from __future__ import annotations

# files of a run's folder
CONFIG_FILE = "config.yaml"
SCORES = "scores.csv"
CHECKPOINT = "checkpoint.pt"

# what follows a learner in agent_name: it varies, counts states or is curious
VARY_SUFFIX, COUNT_BASED_SUFFIX, CURIOUS_SUFFIX = "_vary", "_cb", "_icm"

HUMAN = "human"  # the candidate that replaces nothing: the task's own shapers
