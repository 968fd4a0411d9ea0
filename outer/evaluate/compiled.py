"""Compilation of kernels by a master while its own workers start."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from envolve.agents.common.compiling import beside, kernels_of
from envolve.outer.config.problem import curiosity, env_section, gtn_section, learner
from envolve.outer.config.section import SHAPER


def compiled_beside(data: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Compiles the kernels that workers need for this configuration, if any; not those of shapers, whose workers load a
    physics engine first."""
    gtn = gtn_section(data)
    kernels = gtn.backend in ("auto", "compiled") and data["device"] == "cpu" and curiosity(data) is None
    if not kernels or gtn.synthetic_env_type == SHAPER:
        return contextlib.nullcontext()
    if data.get("plugins"):  # a process of its own that compiles would know neither the task nor the learner
        return contextlib.nullcontext()
    apart = gtn.synthetic_env_type == 0 and env_section(data).contextual_bandit and not gtn.se_test_on_real
    return beside(kernels_of(learner(data)[0], data["env_name"], apart))
