"""The head of an engine's answer."""

from __future__ import annotations


class AnswerHead:
    """The head of an engine's answer. It never changes.

    ``lines``: the headers for the client, as they stand on the wire. ``length``: of the body in bytes, if the engine
    announced it. ``until_close``: only the end of the connection marks the end of the body. ``stream``: the body is a
    stream of server-sent events.
    """

    __slots__ = ("length", "lines", "status", "stream", "until_close")

    def __init__(self, status: int, lines: bytes, length: int | None, until_close: bool, stream: bool) -> None:
        self.status = status
        self.lines = lines
        self.length = length
        self.until_close = until_close
        self.stream = stream
