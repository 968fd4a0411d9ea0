"""The task's own reward, and twice the effort for an action."""

TERMS = {"actions.effort.scale": 2.0}
