"""Asks drivers and engines for the request that continues a stream."""

from __future__ import annotations

import msgspec

from enginehouse.drivers import Continuation, EngineClient, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_continuation.stream_history import StreamHistory


async def continuation_of(
    history: StreamHistory, body: bytes, driver: SupportsContinuation, engine: EngineClient, *, exact: bool = True
) -> Continuation:
    """The request with which ``engine`` continues the stream; ``exact``: by its tokens, if the driver can.

    ``body``: the client's request, as that engine would get it.

    Raises ``CannotContinue``, or what the driver and the engine raise.
    """
    if why := history.why_not_continuable():
        raise CannotContinue(f"The stream cannot be continued: {why}")
    answer = history.partial(body)
    if not exact:
        answer = msgspec.structs.replace(answer, ids=None, pieces=None)
    answer = await driver.fill_in(engine, answer)
    if answer.prompt_ids is not None:
        history.progress.learn_prompt(answer.prompt_ids)
    return driver.continuation(answer)
