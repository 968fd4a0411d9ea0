"""A command under experiments/ as a user types it, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def exit_code(main: Callable[[list[str]], int], words: list[Any]) -> int:
    """What the process would end with."""
    try:
        return main([str(word) for word in words])
    except SystemExit as e:
        return int(e.code or 0)


def run(main, words, capsys, path):
    """-> exit code, stdout, stderr, content of the JSON file ``path``, which is removed; None if there is none."""
    code = exit_code(main, words)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    content = json.loads(path.read_text()) if path.exists() else None
    path.unlink(missing_ok=True)
    return code, out, err, content
