"""Declares a configuration key once: name, default, help and limits in a plain dataclass.

The dataclass is all a worker needs (Python 3.8, no pydantic); on the master ``outer/config/load.py`` turns the same
declaration into a validating pydantic model, and ``--help`` and the error messages read their text from here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence


def option(
    default: Any,
    help: str,
    *,
    gt: Optional[float] = None,
    ge: Optional[float] = None,
    lt: Optional[float] = None,
    le: Optional[float] = None,
    choices: Optional[Sequence[Any]] = None,
) -> Any:
    """A dataclass field with its documentation and limits in ``metadata``."""
    limits = {k: v for k, v in (("gt", gt), ("ge", ge), ("lt", lt), ("le", le)) if v is not None}
    return dataclasses.field(default=default, metadata={"help": help, "limits": limits, "choices": choices})
