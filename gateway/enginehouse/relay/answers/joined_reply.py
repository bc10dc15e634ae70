"""The answer that a client gets if the engine of its stream changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse.interfaces.continuers import AnswerDiffers, Translator
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.events.sse import is_whole, whole_events
from enginehouse.relay.events.stream_check import BrokenStream, StreamCheck
from enginehouse.relay.events.stream_form import stream_form

_DIFFERS: Final = BrokenStream("does not continue where the stream broke off", 0, differs=True)


class JoinedReply(Reply):
    """Takes the answer to a continuation, and passes it on as the rest of the stream that ``before`` passed on.

    ``accept`` begins it, and ``on_joined`` is called before the first that is new to the client passes; it says whether
    that may pass. Without a translator nothing of the stream has passed yet, and the answer passes as it comes.
    """

    def __init__(self, before: Reply, on_joined: Callable[[], bool]) -> None:
        super().__init__(before.writer, before.form)
        self._stream = True
        self.status = before.status
        self.paused = before.paused
        self.history = before.history
        self.filters, self.captured = before.filters, before.captured
        self.translator: Translator | None = None
        self._meter = before._meter
        self._on_joined = on_joined

    def release(self) -> None:
        """Drop the callback, which refers to the exchange of this reply: their cycle would wait for the collector."""
        self._on_joined = _ended

    def accept(self, translator: Translator | None) -> None:
        """Begin an answer, which is a stream."""
        self.begun = True
        self.translator = translator
        self._held = b""
        form = self.form if translator is None else stream_form(translator.path)
        self._check = StreamCheck(form)

    def write(self, body: bytes) -> BrokenStream | None:
        if self.translator is None:
            return super().write(body)
        if self._held or not is_whole(body):
            body, self._held = whole_events(self._held + body)
        assert self._check is not None
        return self._translate(self.translator, body, self._check.look(body) if body else None)

    def finish(self, body: bytes) -> BrokenStream | None:
        if self.translator is None:
            return super().finish(body)
        assert self._check is not None
        body = self._held + body
        problem = self._translate(self.translator, body, self._check.end(body))
        if problem is None:
            self.end(b"")
        return problem

    def _translate(self, translator: Translator, body: bytes, problem: BrokenStream | None) -> BrokenStream | None:
        """Pass on what is good of ``body``, whose ``problem`` is known. Returns that, or what comes before it."""
        if problem is not None:
            body = body[: problem.good]
        events: list[bytes] = []
        had_begun = translator.has_begun
        try:
            events.extend(translator.translate(body))  # what comes before an error stays
        except (AnswerDiffers, ValueError, RecursionError):
            problem = _DIFFERS
        if translator.has_begun and not had_begun:
            on_joined, self._on_joined = self._on_joined, _ended  # as in ``release``
            if not on_joined():
                return _DIFFERS
        if written := b"".join(events):
            if self._meter is not None:
                self._meter.add(written)
            self._send(written)
        self.is_over = self.history is not None and self.history.ended
        return problem


def _ended() -> bool:
    return False
