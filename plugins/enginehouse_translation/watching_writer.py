"""Shows a protocol the answers of engines that speak it themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse import RequestError
from enginehouse.middleware import BatchedTransport, OpenExchange, PassingWriter, ResponseWriter, shown
from enginehouse.requests import Tokens
from enginehouse_kit.protocols import Native, NativeAnswer, Protocol
from enginehouse_translation.translating_writer import known

_MOST_WATCHED: Final = 1 << 20
"""Bytes of the beginning of an answer that a protocol sees."""


class WatchingWriter(PassingWriter):
    """Passes the answer to a ``native`` request on, and shows it to the protocol before the client has it.

    ``exchange``: whose answer it is.
    """

    __slots__ = ("_answer", "_held", "_protocol", "_size", "_streams", "_watch", "exchange")

    def __init__(self, writer: ResponseWriter, native: Native, protocol: Protocol) -> None:
        super().__init__(writer)
        self._watch = native.watch
        self._answer = native.answer
        self._protocol = protocol
        self._held: list[bytes] = []
        self._size = 0
        self._streams = False
        self.exchange: OpenExchange | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._streams = b"content-type: text/event-stream" in lines.lower()
        if status >= 300:
            self._watch = self._answer = None
        self._writer.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        if self._watch is not None:
            self._see(self._watch, chunk, ended=False)
        if self._is_whole(chunk, last=False):
            self._writer.write(chunk)

    def chunks_to(self) -> BatchedTransport | None:
        """Rare events come to ``write`` nevertheless: the first ones of a response are such."""
        return self._writer.chunks_to() if self._answer is None else None

    def finish(self, chunk: bytes) -> None:
        if self._watch is not None:
            self._see(self._watch, chunk, ended=True)
        if self._is_whole(chunk, last=True):
            self._writer.finish(chunk)

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        if self._answer is not None and self._answer.error is not None:
            then(self._answer.error)
        else:
            super().settle(then)

    def counted(self) -> Tokens | None:
        return super().counted() if self._answer is None else self._answer.tokens

    def _is_whole(self, chunk: bytes, *, last: bool) -> bool:
        """Whether an answer is whole as far as it has come. If it is not, its request ends."""
        if self._answer is None:
            return True
        try:
            self._answer.read(chunk, last=last)
            if last:
                _check(self._answer)
        except RequestError as error:
            assert self.exchange is not None
            self.exchange.cancel(error)
            return False
        except BaseException as error:
            known(error, self._protocol)
            self._answer = None
        return True

    def _see(self, watch: Callable[[str, bytes], bool], chunk: bytes, *, ended: bool) -> None:
        self._size += len(chunk)
        self._held.append(chunk)
        full = self._size > _MOST_WATCHED
        if not (self._streams or ended or full):
            return
        held, self._held = self._held, []
        backend = "" if self.exchange is None else self.exchange.backend
        try:
            enough = bool(backend) and watch(backend, b"".join(held))
        except BaseException as error:
            known(error, self._protocol)
            enough = True
        if enough or ended or full:
            self._watch = None


def _check(answer: NativeAnswer) -> None:
    """Raises ``TypeError`` if an answer that was read says nonsense."""
    tokens: object = answer.tokens
    error: object = answer.error
    counts = isinstance(tokens, Tokens) and type(tokens.input) is type(tokens.output) is int
    if not (counts or tokens is None) or not (error is None or isinstance(error, RequestError)):
        raise TypeError(f"an answer must have Tokens and a RequestError, or None, got {shown(tokens)}, {shown(error)}")
