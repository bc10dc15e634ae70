"""What must hold of WebSockets, whatever went wrong."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tests.chaos.sockets import SocketClient, SocketServing

if TYPE_CHECKING:
    from tests.chaos.world import World

Codes = Mapping[int, Collection[str]]


def socket_faults(world: World, client: SocketClient, servings: Sequence[SocketServing], codes: Codes) -> Iterator[str]:
    """What must not be: messages lost in the middle, changed, from elsewhere; a handshake without an answer.

    ``codes``: those of the gateway's own errors, by status.
    """
    yield from client.violations
    if client.refused or not client.asked:
        return
    if client.status == 101:
        yield from _messages(client, servings)
    elif client.status:
        yield from _refusal(client, servings, codes)
    elif world.taps.stopped_at is None:
        yield "its handshake has no answer"
    if world.schedule.calm and client.status != 101:
        yield f"got {client.status} {client.answer!r} in a calm run"


def _messages(client: SocketClient, servings: Sequence[SocketServing]) -> Iterator[str]:
    *before, last = servings
    if any(serving.peer is not None and serving.peer.got for serving in before):
        yield "an engine got messages of a WebSocket that another one serves"
    engine = last.peer
    if engine is None:
        yield f"is open, though {last.id} {last.opens}"
        return
    said = client.peer.got
    if said != engine.sent[: len(said)]:
        yield f"got other messages than {last.id} sent"
    if engine.got != client.peer.sent[: len(engine.got)]:
        yield f"{last.id} got other messages than its client sent"
    ended = last.ends == "closes" and client.peer.code == last.ends_with != 1000  # a client's own code is 1000
    if ended and len(said) < len(engine.sent):
        yield f"got {len(said)} of {len(engine.sent)} messages before the end"


def _refusal(client: SocketClient, servings: Sequence[SocketServing], codes: Codes) -> Iterator[str]:
    if any(serving.status == client.status for serving in servings):
        return
    try:
        code = json.loads(client.answer)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        code = client.answer[:200]
    if code not in codes.get(client.status, ()):
        yield f"a refusal that the reference does not have: {client.status} {code!r}"
