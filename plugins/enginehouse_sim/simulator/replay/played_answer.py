"""The answer of an engine of a replay, on its way to the gateway."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse_sim.simulator.model.timing import TOKEN
from enginehouse_sim.simulator.replay.figures.answer import AnswerRecord
from enginehouse_sim.simulator.replay.played_client import PlayedClient
from enginehouse_sim.simulator.replay.played_connection import LAST_CHUNK, STREAM_HEAD, Asked, PlayedConnection
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine

_EVENT = (
    b'data: {"id":"%s","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"%s"%s,'
    b'"finish_reason":%s}]%s}\n\n'
)
_WHOLE = (
    b'{"id":"%s","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"%s",'
    b'"finish_reason":"length"}]%s%s}'
)
_USAGE = b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}'
_TOKENS = b"%d," % TOKEN
_DONE = b"data: [DONE]\n\n"


class PlayedAnswer:
    """Sends the tokens of ``answer``: as a stream, or as a whole.

    Only the first and the last tokens of a stream are sent as they are made. Those between are sent when somebody would
    notice: from time to time, before the gateway stops reading, and before the engine breaks.

    - ``answers`` has this one until it ends, or the gateway leaves.
    - ``client``: ``None`` if the gateway asks on its own behalf.
    - ``id``: of the request at the engine.
    - ``base``: the number of tokens that other engines had made when this one began.
    - ``sent``: the number of tokens of this one that the gateway has already.
    - ``more``: fields of a whole answer.
    - ``on_end`` is called when the engine has made the last token.
    """

    def __init__(
        self,
        connection: PlayedConnection,
        engine: PlayedEngine,
        asked: Asked,
        answer: AnswerRecord,
        client: PlayedClient | None,
        id: str,
        answers: dict[PlayedAnswer, None],
        base: int,
        sent: int = 0,
    ) -> None:
        self.engine = engine
        self.answer = answer
        self.client = client
        self.id = id
        self.more = b""
        self.base = base
        self.on_end: Callable[[], None] | None = None
        self._answers = answers
        answers[self] = None
        self._asked = asked
        self._connection = connection
        self._sent = sent
        self._has_begun = self._has_ended = False
        answer.owner = self
        answer.is_unread = False
        connection.reader = self

    # --- from the engine

    def first_token(self) -> None:
        """The engine has made the first token."""
        if self.client is not None:
            self.client.begins_part(self.answer.first_token, self.answer.cached_tokens)
        self._send()

    def ended(self) -> None:
        """The engine has made the last token."""
        self._has_ended = True
        self._answers.pop(self, None)
        if self.on_end is not None:
            self.on_end()
        if not self._connection.is_paused:
            self._finish()

    def catch_up(self) -> None:
        """Send the tokens so far."""
        self.engine.catch_up()
        self._send()

    def break_off(self) -> None:
        """Send the tokens so far: the engine has ended, and the connection breaks."""
        self._send()
        if self.client is not None:
            self.client.is_broken = True

    # --- from the connection

    def paused(self) -> None:
        self.catch_up()
        self.answer.is_unread = True

    def resumed(self) -> None:
        self.answer.is_unread = False
        if self._has_ended:
            self._finish()

    def left(self) -> None:
        if self._has_ended:
            return
        self._answers.pop(self, None)
        if self.answer.owner is self and self.engine.has(self.id):
            self.engine.abort(self.id)

    # --- inside

    def _send(self) -> None:
        if self._asked.stream and not self._connection.is_paused and not self._has_ended:
            count = self._take()
            if count:
                self._connection.send(self._head() + _chunk(self._event(count, b"null", b"")))

    def _finish(self) -> None:
        count, answer = self._take(), self.answer
        usage = _USAGE % (answer.input_length, answer.output_tokens, answer.cached_tokens)
        self._connection.reader = None
        if self._asked.stream:
            events = self._event(count, b'"length"', usage) + _DONE
            self._connection.send(self._head() + _chunk(events) + LAST_CHUNK)
        else:
            self._connection.answer(200, _WHOLE % (self.id.encode(), b"x" * count, usage, self.more))

    def _take(self) -> int:
        """The number of tokens to send now."""
        answer = self.answer
        count, self._sent = answer.output_tokens - self._sent, answer.output_tokens
        if self.client is not None and count:
            self.client.received(count, answer.last_token)
        return count

    def _head(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return STREAM_HEAD

    def _event(self, count: int, finish: bytes, usage: bytes) -> bytes:
        ids = b',"token_ids":[%s]' % (_TOKENS * count)[:-1] if self._asked.return_token_ids else b""
        return _EVENT % (self.id.encode(), b"x" * count, ids, finish, usage)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
