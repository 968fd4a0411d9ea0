"""Replies from a file instead of a model: a finished run, or a recording written by hand."""

from __future__ import annotations

from dataclasses import replace

from envolve.core.places import shipped
from envolve.llm.models.record import RecordError, read_recording
from envolve.llm.models.request import Body, Call, RecordingEnds, Reply, Request, Unread


class Replay:
    """The Backend behind "replay:FILE". Call i gets the reply with index i, whichever thread asks first.

    models: the names by which a run asks it: those of the recorded run, so that requests are the same to the letter,
    or "replay:FILE" if the recording was written by hand. Raises RecordError.
    """

    free = True

    def __init__(self, name: str) -> None:
        self.recording = read_recording(shipped(name.removeprefix("replay:")))
        if not self.recording.entries:
            raise RecordError(f"{self.recording.path}: no reply in it")
        self.models = self.recording.models or [name]

    def send(self, call: Call) -> Reply:
        """Reply of the recording. Raises RecordingEnds, ReplayMismatch, or the ChatFailure of the recorded run."""
        entry = self.recording.find(call)
        if entry is None:
            raise RecordingEnds(f"recording {self.recording.path} has {self._count()}, none for call {call.index}")
        if entry.failure is not None and entry.failure.final:
            raise entry.failure
        if entry.failure is not None:  # the recorded run has stopped there
            raise RecordingEnds(f"recording {self.recording.path} has no reply for call {call.index}: {entry.failure}")
        reply = entry.reply_to(call)
        return reply if reply.model else replace(reply, model=call.request.model)

    def read(self, body: Body, request: Request) -> Reply:
        """Refuses bodies: a recording that ends in a body has no reply. Raises Unread."""
        raise Unread(f"recording {self.recording.path} holds a body that was not read")

    def _count(self) -> str:
        n = len(self.recording.entries)
        return f"{n} {'reply' if n == 1 else 'replies'}"

    def close(self) -> None:
        pass
