"""The head of an engine's answer."""

from __future__ import annotations


class AnswerHead:
    """The head of an engine's answer. It never changes.

    ``lines``: the headers for the client, as they stand on the wire. ``length``: of the body in bytes, if the engine
    announced it. ``until_close``: only the end of the connection marks the end of the body. ``stream``: the body is a
    stream of server-sent events. ``json``: it is said to be JSON, as it is. ``at_once``: clients have no use for a part
    of it, so it may be held until it is whole. ``opaque``: its coding hides the body, or it has none.
    """

    __slots__ = ("at_once", "json", "length", "lines", "opaque", "status", "stream", "until_close")

    def __init__(
        self,
        status: int,
        lines: bytes,
        length: int | None,
        until_close: bool,
        stream: bool,
        json: bool = False,
        at_once: bool = False,
        opaque: bool = False,
    ) -> None:
        self.status = status
        self.lines = lines
        self.length = length
        self.until_close = until_close
        self.stream = stream
        self.json = json
        self.at_once = at_once
        self.opaque = opaque

    def of_length(self, length: int) -> AnswerHead:
        """The same head for a whole body of ``length`` bytes."""
        return AnswerHead(self.status, self.lines, length, False, self.stream, self.json, self.at_once, self.opaque)
