#!/usr/bin/env python3
"""``envolve run`` under its old name: python3 GTN_master.py default_config_cartpole_syn_env.yaml --single"""

from __future__ import annotations

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("GTN_master.py")  # before all that takes time to import

from envolve.experiments.run import main

if __name__ == "__main__":
    interrupt.run(main)
