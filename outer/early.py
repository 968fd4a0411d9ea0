"""Has a run's kernels compiled from its command's first moment, before anything is imported that takes long.

The reader of configurations takes long to import, so this guesses from a few words of the file. ``compiled.py`` knows:
it goes on with what was guessed right and ends it otherwise. Standard library only.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from envolve.agents.common.compiling import TABULAR, TASKS, begin, kernels_of
from envolve.agents.kernels.building.without_torch import NEED_NONE
from envolve.core.files import read_plain
from envolve.outer.names import CONFIG_FILE, VARY_SUFFIX

CONFIG_BYTES = 1_000_000
_WORDS = re.compile(r"^ *(env_name|agent_name|device): *([\w.-]+)", re.MULTILINE)


def compile_early(argv: Sequence[str]) -> None:
    """argv: of GTN_master.py. Never raises: the full reader of the configuration reports mistakes."""
    options = {word.split("=")[0].replace("_", "-") for word in argv}
    if options & {"--single", "--workers", "--num-workers"} and "--check" not in options:
        with contextlib.suppress(OSError, ValueError):
            found = guess(argv)
            if found:
                begin(found)


def guess(argv: Sequence[str]) -> str | None:
    """Name of the kernels of a run whose task has a twin. Raises OSError, ValueError."""
    files = [word for word in argv if word.endswith(".yaml")]
    folders = [folder for option, folder in zip(argv, argv[1:]) if option == "--resume"]
    path = Path(folders[0]) / CONFIG_FILE if folders else Path(files[0]) if files else None
    if path is None:
        return None
    said = dict(_WORDS.findall(read_plain(path, CONFIG_BYTES).decode()))
    for key, value in (word.split("=", 1) for word in argv if "=" in word):
        if key in ("env_name", "device", "agents.gtn.agent_name"):
            said[key.split(".")[-1]] = value
    name, task = said.get("agent_name", "").lower(), said.get("env_name", "")
    name = name[: -len(VARY_SUFFIX)] if name.endswith(VARY_SUFFIX) else name
    if said.get("device", "cpu") != "cpu" or not (name in TABULAR or (name in NEED_NONE and task in TASKS)):
        return None
    return kernels_of(name, task)
