"""Kernels that can be compiled ahead. Every room of ``agents/kernels/`` names its own in its ``__init__.py``, so a new
kernel needs no line elsewhere. Nothing here imports numba or torch.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from envolve.core.registry import Place, Registry

# name, as ``ahead.compiled_ahead`` takes it -> a function: this name -> parts, see ``shortest.parts``
AHEAD: Registry[Place] = Registry("kernel to compile")


def kernels() -> Registry[Place]:
    """``AHEAD``, once every room has named its own."""
    from envolve.agents import kernels as rooms

    for room in pkgutil.iter_modules(rooms.__path__):
        if room.ispkg:
            import_module(f"{rooms.__name__}.{room.name}")
    return AHEAD
