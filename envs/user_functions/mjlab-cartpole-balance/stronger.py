"""The task's own reward, and twice the effort for an action."""

from __future__ import annotations

TERMS = {"actions.effort.scale": 2.0}
