"""MKL's products, on which torch's rest on a CPU: reproducible on processors that are not Intel's. Python 3.8."""

from __future__ import annotations

import os

from envolve.core.files import read_piece

CPU_INFO = "/proc/cpuinfo"


def same_bits_at_any_address() -> None:
    """Has MKL give the same bits wherever in memory a matrix begins, as a member alone and one among others differ in
    that. Intel's processors do so by themselves; on others MKL_CBWR=AUTO takes no more time. MKL looks for it at its
    first product."""
    try:
        head = read_piece(CPU_INFO, 0, 500)
    except OSError:  # no Linux
        return
    if b"vendor_id" in head and b"GenuineIntel" not in head:
        os.environ.setdefault("MKL_CBWR", "AUTO")
