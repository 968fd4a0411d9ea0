"""Bad: returns a word."""

from __future__ import annotations


def compute_terminal(state):
    return "when it has fallen"
