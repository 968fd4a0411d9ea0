"""A worker process with an evaluation that tests can steer by ``mode``: ``GTN_worker.main`` with another function.

Mode "slow" takes ten minutes; "die once" makes the file config["marker"] and kills itself, unless the file is there
already.
"""

from __future__ import annotations

import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("fake_worker.py", limit=1.5)

from envolve.experiments.worker import main


def evaluate(config, worlds, seeds, mode, threads):
    if mode == "slow":
        time.sleep(600.0)
    if mode == "die once":
        try:
            os.close(os.open(config["marker"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"score": worlds.sum(1), "reason": [""] * len(seeds)}


if __name__ == "__main__":
    interrupt.run(lambda: main(evaluate=evaluate))
