"""The conformance check of continuers: a chat that passes, breaks off, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enginehouse import Continuer
from enginehouse.continuers import Gathering, KeptStream, Rest, StreamTokens
from enginehouse.drivers import Continuation, PartialAnswer, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_kit.expect import expect
from enginehouse_kit.fake_engine import FakeShare

_PATH = "/v1/chat/completions"
_BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'
_ROLE = _CHUNK % b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}'
_TEXT = _CHUNK % b'{"index":0,"delta":{"content":"Hello"},"finish_reason":null}'
_LAST = _CHUNK % b'{"index":0,"delta":{},"finish_reason":"stop"}' + b"data: [DONE]\n\n"


class _Driver(SupportsContinuation):
    """Of an engine that nothing can continue on."""

    def continuation(self, answer: PartialAnswer) -> Continuation:
        raise CannotContinue("nothing can")


def check_continuer(factory: Callable[[], Continuer]) -> None:
    """Check a continuer against the rules of its interface. Raises ``AssertionError``.

    What it keeps passes to the client, knows when the stream has ended, and gives its memory back.
    """
    it = factory()
    shares: list[FakeShare] = []

    def share(most: int) -> FakeShare:
        shares.append(FakeShare(most))
        return shares[-1]

    made: Any = it.keep(_PATH, _BODY, _Driver(), share, None, lambda name: True)
    expect(
        isinstance(made, tuple) and len(made) == 2, f"keep must return a KeptStream or None, and bytes, got {made!r}"
    )
    kept, asked = made
    expect(isinstance(asked, bytes), f"keep must return the request as bytes, got {asked!r}")
    if kept is None:
        return
    expect(isinstance(kept, KeptStream), f"keep must return a KeptStream, got {kept!r}")
    _check_kept(it, kept)
    expect(all(each.size == 0 for each in shares), "release must give all memory back")
    whole: Any = it.gathered(_PATH, _BODY, share)
    expect(whole is None or isinstance(whole, Gathering), f"gathered must return a Gathering, got {whole!r}")


def _check_kept(it: Continuer, kept: KeptStream) -> None:
    for piece in (_ROLE, _TEXT):
        passed: Any = kept.take(piece)
        expect(passed == piece, f"take must return what the client gets, {piece!r}, got {passed!r}")
    pieces: Any = getattr(kept, "pieces", None)
    expect(isinstance(pieces, list), f"pieces must be a list, got {pieces!r}")
    kept.read()
    expect(kept.pieces is pieces and not pieces, "read must empty pieces, and leave the same list there")
    tokens: Any = kept.tokens()
    expect(isinstance(tokens, StreamTokens), f"tokens must return StreamTokens, got {tokens!r}")
    why: Any = kept.why_not_movable()
    expect(isinstance(why, str), f"why_not_movable must return a text, got {why!r}")
    expect(not kept.ended and kept.ending() is None, "a stream without its last event has not ended")
    rest: Any = it.rest(kept, "continue")
    expect(isinstance(rest, Rest), f"rest must return a Rest, got {rest!r}")
    kept.take(_LAST)
    expect(kept.ending() == b"", "nothing is left of a stream whose last event has passed")
    expect(not kept.may_go_on() or kept.ended, "a stream whose last event has passed has ended")
    kept.release()
