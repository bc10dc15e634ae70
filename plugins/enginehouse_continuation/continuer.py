"""Keeps streams, and continues them at other engines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from enginehouse import Continuer, Protocol, RequestError
from enginehouse.continuers import KeptStream, NewShare, Rest, StreamMove
from enginehouse.drivers import DriverSupport, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse.protocols import ProtocolRequest
from enginehouse_continuation.gathered_answer import MOST_GATHERED, GatheredAnswer
from enginehouse_continuation.moves import Moves
from enginehouse_continuation.progress import SavedStream
from enginehouse_continuation.rest import RestOfStream
from enginehouse_continuation.restrictions import PATHS, why_not
from enginehouse_continuation.stream_history import MOST_KEPT, StreamHistory
from enginehouse_continuation.typed_history import TypedHistory, typed_answer

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_saved_stream: Final = msgspec.msgpack.Decoder(SavedStream).decode


class StreamContinuer(Continuer):
    """Continues streams after their tokens, after their text, or from the beginning, as far as drivers can."""

    def __init__(self) -> None:
        self._moves = Moves()

    def keep(
        self, path: str, body: bytes, driver: SupportsContinuation, share: NewShare
    ) -> tuple[KeptStream | None, bytes]:
        asked = driver.continuable(path, body)
        return StreamHistory(path, body, driver.streams, share(MOST_KEPT), added=asked is not body), asked

    def keep_typed(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Protocol,
        knows: Callable[[str], bool],
    ) -> KeptStream | None:
        answer = typed_answer(protocol, path)
        if answer is None:
            return None
        return TypedHistory(answer, body, driver.streams, partial(_as_chat, protocol, path, knows), share(MOST_KEPT))

    def rest(self, kept: KeptStream, rule: str) -> Rest:
        assert isinstance(kept, StreamHistory)
        return RestOfStream(kept, rule)

    async def move(self, move: StreamMove) -> None:
        await self._moves.move(move)

    def restore(
        self, path: str, saved: bytes, drivers: Mapping[str, DriverSupport], share: NewShare
    ) -> tuple[KeptStream, str]:
        stream = _saved_stream(saved)
        driver = drivers.get(stream.backend)
        if driver is None:
            raise CannotContinue(f"Backend '{stream.backend}', which had begun the answer, is no longer configured")
        history = StreamHistory(path, stream.body, driver.continuation.streams, share(MOST_KEPT), added=False)
        history.restore(stream)
        return history, stream.model

    def gathered(self, path: str, body: bytes, share: NewShare) -> GatheredAnswer | None:
        try:
            continuable = path in PATHS and not why_not(_object(body))
        except (ValueError, RecursionError):  # an engine may read what the gateway does not
            return None
        return GatheredAnswer(share(MOST_GATHERED)) if continuable else None


def _as_chat(protocol: Protocol, path: str, knows: Callable[[str], bool], body: bytes) -> bytes:
    """The body for ``path`` as that of a chat. Raises ``RequestError`` for what no chat can say."""
    try:
        made = protocol.translate(ProtocolRequest(path, body, knows))
        if isinstance(made, Awaitable):
            if isinstance(made, Coroutine):
                made.close()
            raise CannotContinue("Its conversation is kept by its engine")
        return made.body
    except RequestError:
        raise
    except Exception as error:
        raise CannotContinue(f"the protocol '{protocol.name}' failed") from error
