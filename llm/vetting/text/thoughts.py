"""Replies without what a model thought aloud."""

from __future__ import annotations

_BEGIN, _END = "<think>", "</think>"


def without_thoughts(reply: str) -> str:
    """The reply without its <think> parts; one without an end stays. Linear in the reply."""
    kept, at = [], 0
    while (begin := reply.find(_BEGIN, at)) >= 0 and (end := reply.find(_END, begin)) >= 0:
        kept.append(reply[at:begin])
        at = end + len(_END)
    return "".join([*kept, reply[at:]])
