"""For all tests: one thread. They run beside other work, and two threads on a busy core wait for each other."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
