"""Messages for exhausted memory: how much was requested, and which values need less.

Python and NumPy raise MemoryError, PyTorch RuntimeError, C++ std::bad_alloc, and all of them overflow errors of the
size itself. Standard library only. Python 3.8.
"""

from __future__ import annotations

import re
from typing import Optional

SIZES = "hidden_size, hidden_layer, batch_size, rb_size, num_envs, train_episodes or the number of agents"
_SIGNS = re.compile(
    r"std::bad_alloc|bad_array_new_length|(can't|cannot|unable to) allocate|(not enough|out of) memory"
    r"|size calculation overflow|integer multiplication overflow|array is too big|maximum allowed (size|dimension)",
    re.IGNORECASE,
)
_BYTES = re.compile(r"allocat\w* (\d+) bytes", re.IGNORECASE)
_AMOUNT = re.compile(r"allocate (\d+(?:\.\d+)? ?[KMGTPE]iB)", re.IGNORECASE)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def amount(text: str) -> str:
    """Amount of memory that an error reports as requested, e.g. 3.6 TiB; "" if it reports none."""
    counted = _BYTES.search(text)
    if counted is None:
        said = _AMOUNT.search(text)
        return said.group(1) if said else ""
    number, unit = float(counted.group(1)), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"


def shortage(e: Optional[BaseException], sizes: str = SIZES) -> str:
    """One line for an error about memory, else "". sizes: the values that determine the memory needed."""
    about = isinstance(e, (RuntimeError, ValueError)) and _SIGNS.search(str(e))
    if not isinstance(e, MemoryError) and not about:
        return ""
    asked = amount(str(e))
    found = f"asked for {asked} at once" if asked else "more than this machine can give was asked for at once"
    return f"not enough memory: {found}; lower {sizes}"
