"""Asks drivers and engines for the request that continues a stream."""

from __future__ import annotations

import msgspec

from enginehouse.domain.continuation import Continuation
from enginehouse.domain.errors import CannotContinue
from enginehouse.interfaces.drivers import EngineClient, SupportsContinuation
from enginehouse.relay.continuation.stream_history import StreamHistory

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode
_OF_STREAMS = frozenset({"stream_options", "min_tokens", "max_completion_tokens"})


def one_token(body: bytes) -> bytes:
    """``body`` as a request for one token, so that its engine reads the prompt."""
    fields = {name: value for name, value in _fields(body).items() if name not in _OF_STREAMS}
    return _encode({**fields, "max_tokens": 1, "stream": False})


async def continuation_of(
    history: StreamHistory, body: bytes, driver: SupportsContinuation, engine: EngineClient, *, exact: bool = True
) -> Continuation:
    """The request with which ``engine`` continues the stream; ``exact``: by its tokens, if the driver can.

    ``body``: the client's request, as that engine would get it.

    Raises ``CannotContinue``, or what the driver and the engine raise.
    """
    if why := history.why_not_movable():
        raise CannotContinue(f"The stream cannot be continued: {why}")
    answer = history.partial(body)
    if not exact:
        answer = msgspec.structs.replace(answer, ids=None, pieces=None)
    answer = await driver.fill_in(engine, answer)
    if answer.prompt_ids is not None:
        history.progress.learn_prompt(answer.prompt_ids)
    return driver.continuation(answer)
