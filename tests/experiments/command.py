"""A command under experiments/ as a user types it, in this process."""

from __future__ import annotations

import json


def run(main, words, capsys, path):
    """-> exit code, stdout, stderr, content of the JSON file ``path``, which is removed; None if there is none."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as e:
        code = e.code
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    content = json.loads(path.read_text()) if path.exists() else None
    path.unlink(missing_ok=True)
    return code, out, err, content
