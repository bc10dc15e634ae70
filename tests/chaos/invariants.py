"""What must hold of every answer, whatever went wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.chaos.answers import Answer
from tests.chaos.asks import LAST_EVENTS, Ask
from tests.chaos.clients import Client
from tests.chaos.engines import Serving
from tests.chaos.faults import NO_JSON, OWN_ERROR
from tests.chaos.socket_invariants import socket_faults

if TYPE_CHECKING:
    from tests.chaos.world import World

_CODES = {
    400: {"invalid_request", "capability_mismatch"},
    401: {"unauthorized"},
    403: {"forbidden"},
    404: {"model_not_found", "not_found"},
    405: {"method_not_allowed"},
    413: {"invalid_request"},
    429: {"queue_full", "rate_limited"},
    499: {"cancelled"},
    500: {"plugin_failed"},
    502: {"upstream_error", "upstream_invalid"},
    503: {"no_healthy_backend", "overloaded", "fallback_exhausted", "load_failed", "shutting_down", "cancelled"},
    504: {"queue_timeout", "upstream_timeout"},
}
"""The gateway's own errors, as the reference has them."""


_PIECE = re.compile(rb"(?<![\w#-])([\w#-]+/\d+)\.(\d+) ")
"""A piece of a stream's text: which serving it is of, and its number there."""


def check_answers(world: World) -> None:
    """Report whatever a client must not see."""
    by_nonce: dict[bytes, list[Serving]] = {}
    for serving in world.servings:
        by_nonce.setdefault(serving.nonce, []).append(serving)
    for client in world.clients:
        for violation in client.violations:
            world.violated(violation)
        for ask in client.plan.asks:
            for what in _faults(world, client, ask, by_nonce.get(ask.nonce, [])):
                world.violated(f"{ask.name}: {what}")
    for socket in world.sockets:
        shaken = [serving for serving in world.socket_servings if serving.nonce == socket.plan.nonce]
        for what in socket_faults(world, socket, shaken, _CODES):
            world.violated(f"WebSocket {socket.plan.number}: {what}")


def _faults(world: World, client: Client, ask: Ask, servings: Sequence[Serving]) -> Iterator[str]:
    if not ask.repeatable and len(servings) > 1:
        yield f"is not repeatable, and was served {len(servings)} times"
    if not ask.served and servings:
        yield "is refused, and was served all the same"
    killed = ask.connection in world.network.killed
    if ask.complete and not (killed and ask.version == "1.0"):  # HTTP/1.0 ends an answer by closing the connection
        yield from _complete(ask, servings)
    if killed:
        return
    if ask.status:
        yield from _served_after_first_byte(world, ask)
    elif ask.sent and not client.left and world.taps.stopped_at is None and not client.plan.manner.pipelines:
        yield f"has no answer: {ask.broken}"
    if world.schedule.calm and ask.sent and not (ask.complete and ask.status == 200):
        yield f"got {ask.status} {ask.broken} {ask.answer[:300]!r} in a calm run"


def _complete(ask: Ask, servings: Sequence[Serving]) -> Iterator[str]:
    if b"x-enginehouse-backend" not in ask.answer_headers:
        if ask.status == 200 and ask.stream:
            yield from _told(ask, servings)
        else:
            yield from _own_error(ask)
        return
    backend = ask.answer_headers[b"x-enginehouse-backend"].decode()
    bodies = [
        body
        for serving in servings
        if serving.engine == backend and serving.answer is not None and serving.answer.status == ask.status
        for body in serving.answer.bodies
        if _is_whole(ask, serving.answer, body)
    ]
    if ask.answer in bodies:
        return
    if ask.stream and ask.status == 200 and (_is_broken_stream(ask, backend, servings) or _is_joined(ask, servings)):
        return
    said = [(serving.id, serving.fault) for serving in servings]
    yield f"{ask.status} from {backend} is no answer of {said}: {ask.answer[:200]!r} ... {ask.answer[-200:]!r}"


def _is_whole(ask: Ask, answer: Answer, body: bytes) -> bool:
    """Whether a client may take ``body`` for whole. The gateway reads streams that are not encoded."""
    head = answer.wire.partition(b"\r\n\r\n")[0]
    if b"text/event-stream" not in head or b"content-encoding" in head or ask.target.startswith("/upstream"):
        return True
    return body.rstrip().endswith(LAST_EVENTS[ask.path]) and not _has_bad_event(body)


def _has_bad_event(body: bytes) -> bool:
    return any(bad.strip() in body for bad in (OWN_ERROR, NO_JSON))


def _is_broken_stream(ask: Ask, backend: str, servings: Sequence[Serving]) -> bool:
    """Whether a stream is the beginning of one of the answers, and an error event follows."""
    before, found, error = ask.answer.rpartition(b"event: error\ndata: ")
    if not found or "error" not in json.loads(error) or _has_bad_event(before):
        return False
    return any(
        serving.engine == backend and serving.answer.text.startswith(before)
        for serving in servings
        if serving.answer is not None
    )


def _is_joined(ask: Ask, servings: Sequence[Serving]) -> bool:
    """Whether a stream that went on at other engines has every piece of each answer once and in order, and an end."""
    counts: dict[bytes, int] = {}
    for serving, number in _PIECE.findall(ask.answer):
        if int(number) != counts.get(serving, 0) or (serving in counts and serving != list(counts)[-1]):
            return False
        counts[serving] = int(number) + 1
    last = ask.answer.rstrip().rpartition(b"\n\n")[2]
    ended = LAST_EVENTS[ask.path] in last or last.startswith(b"event: error\n")
    return ended and {serving.id.encode() for serving in servings}.issuperset(counts)


def _told(ask: Ask, servings: Sequence[Serving]) -> Iterator[str]:
    """The faults of a stream whose client was told of its progress first."""
    said = _without_progress(ask.answer)
    answers = [each.answer for each in servings if each.answer is not None]
    whole = [_without_progress(each.text) for each in answers if _is_whole(ask, each, each.text)]
    if said in whole or _is_joined(ask, servings):
        return
    before, found, error = said.rpartition(b"event: error\ndata: ")
    begun = not before or any(_without_progress(each.text).startswith(before) for each in answers)
    if not found or "error" not in json.loads(error) or not begun or _has_bad_event(before):
        yield f"is no answer of {[serving.id for serving in servings]}: {said[:200]!r} ... {said[-200:]!r}"


def _without_progress(text: bytes) -> bytes:
    """A stream without its comments and without what the gateway says in the place of a model."""
    every = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    return b"\n\n".join(each for each in every if not each.startswith(b": ") and b'"reasoning_content"' not in each)


def _own_error(ask: Ask) -> Iterator[str]:
    try:
        code = json.loads(ask.answer)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        if ask.method == "POST":
            yield f"{ask.status} without an envelope: {ask.answer[:200]!r}"
        return
    if code not in _CODES.get(ask.status, ()):
        yield f"an error that the reference does not have: {ask.status} {code} {ask.answer[:300]!r}"


def _served_after_first_byte(world: World, ask: Ask) -> Iterator[str]:
    if ask.expects or (ask.status == 200 and b"x-enginehouse-backend" not in ask.answer_headers):
        return  # its first bytes are a 100 Continue, or tell of its progress
    if ask.stream and world.config["routing"]["broken_stream"] != "error":
        return  # another engine may go on with it
    began = world.taps.moment_of(ask.connection, ask.starts_at)
    later = [engine for moment, engine in world.taps.sent.get(ask.nonce, ()) if moment > began]
    if later:
        yield f"was sent to {later} after the first byte of its answer"
