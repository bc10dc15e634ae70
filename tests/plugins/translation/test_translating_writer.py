"""What clients get of an answer that cannot be translated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse_kit.protocols import Envelope, Native, ProtocolRequest, Translation
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_translation.translating_writer import TranslatingWriter, TranslationTurns
from enginehouse_translation.watching_writer import WatchingWriter

BODY = b'{"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
ODD = b'data: {"choices": [{"delta": {"content": 5}}]}\n\n'


class Client(ResponseWriter):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.written = b""

    def start(self, status: int, lines: bytes, length: int | None) -> None: ...

    def write(self, chunk: bytes) -> None:
        self.written += chunk

    finish = write

    def abort(self) -> None: ...

    def unread(self) -> int:
        return 0


def opened(translation: Translation) -> tuple[TranslatingWriter, Client]:
    client = Client()
    writer = TranslatingWriter(client, Messages(), EngineMemory(), TranslationTurns())
    writer.translation = translation
    writer.start(200, b"content-type: text/event-stream\r\n", None)
    return writer, client


def translated() -> Translation:
    made = Messages().translate(ProtocolRequest("/v1/messages", BODY, lambda _: True))
    assert isinstance(made, Translation)
    return made


def test_an_odd_event_is_the_engines_fault(caplog: pytest.LogCaptureFixture) -> None:
    writer, client = opened(translated())
    writer.finish(ODD)
    assert b"event: error" in client.written
    assert b"The engine's answer cannot be read: its content is int" in client.written
    assert not caplog.records


@pytest.mark.parametrize("error", [KeyError("usage"), SystemExit("usage")])
def test_what_the_protocol_fails_at_is_in_the_log(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    class Fails(Translation):
        def answer(self, answer: dict[str, Any]) -> bytes:
            raise NotImplementedError

        def event(self, event: dict[str, Any]) -> bytes:
            raise error

        def error_event(self, status: int, envelope: Envelope) -> bytes:
            return b"failed"

    writer, client = opened(Fails())
    writer.finish(ODD)
    assert b"failed" in client.written
    assert "The protocol 'messages' failed" in caplog.text
    assert type(error).__name__ in caplog.text


def test_the_last_event_may_have_blanks() -> None:
    writer, client = opened(translated())
    writer.finish(b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata:  [DONE] \n\n')
    assert b"message_stop" in client.written
    assert b"event: error" not in client.written


def test_an_answer_is_watched_also_if_pings_came_before_an_engine_had_the_request() -> None:
    seen: list[tuple[str, bytes]] = []

    def watch(backend: str, piece: bytes) -> bool:
        seen.append((backend, piece))
        return True

    live: Any = SimpleNamespace(backend="")
    watching = WatchingWriter(Client(), Native(watch=watch), Messages())
    watching.exchange = live
    watching.start(200, b"content-type: text/event-stream\r\n", None)
    watching.write(b": ping\n\n")
    live.backend = "a"
    watching.write(b"data: {}\n\n")
    assert seen == [("a", b"data: {}\n\n")]
