#!/usr/bin/env python3
"""``envolve worker`` under its old name: python3 GTN_worker.py 0 0 &. Python 3.8."""

from __future__ import annotations

from envolve.core import interrupt

if __name__ == "__main__":
    # before slow imports; the parent process waits for this one
    interrupt.listen("GTN_worker.py", limit=1.5)

from envolve.experiments.worker import main

if __name__ == "__main__":
    interrupt.run(main)
