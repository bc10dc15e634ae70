"""The worst case of an engine's KV cache: what its requests will need, pass by pass, if none of them ends early.

A pass is one forward pass of the engine; pass 0 is the next one. A request that decodes needs room for its last token
when the pass begins, makes one more, and gives everything back once it has made its last one. So the blocks that a
request of ``n`` tokens needs in pass ``k`` are ``ceil((n + k * tokens_per_pass) / block_size)`` until it completes, and
none after that; one that still reads its prompt needs what it has read by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import msgspec


class ProjectionParams(msgspec.Struct, frozen=True, kw_only=True):
    """What is projected, and how far. Lengths are in tokens.

    ``total_blocks``: what the cache holds. ``lookahead``: the passes that are looked at, past any completion.
    ``tokens_per_pass_per_request``: 1, or more with speculative decoding. ``prefill_tokens_per_pass``: the most of one
    prompt that a pass reads; ``None`` is all of it. ``consider_only_running``: leave out requests that hold nothing;
    otherwise they are supposed to be admitted now.
    """

    block_size: int
    total_blocks: int
    lookahead: int = 64
    tokens_per_pass_per_request: int = 1
    prefill_tokens_per_pass: int | None = None
    consider_only_running: bool = True


class RequestFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one request. ``num_tokens``: prompt and outputs so far.

    ``num_computed_tokens``: how many of them are in the cache. ``remaining_tokens``: the most that it can still make,
    at least 1. ``shared_blocks``: names of those of its blocks that other requests hold as well.
    """

    request_id: str
    num_tokens: int
    num_computed_tokens: int
    remaining_tokens: int
    shared_blocks: Collection[int] = ()
    running: bool = True


class RequestProjection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request's worst case: it completes with pass ``steps_until_completion - 1``."""

    request_id: str
    current_tokens: int
    current_blocks: int
    remaining_tokens: int
    steps_until_completion: int


class WorstCaseProjection(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case of all requests together.

    ``wc_until_first_complete``: the passes until some request completes; ``None`` if there is none.
    ``wc_until_block_starvation``: the first pass that needs more blocks than there are; ``None`` if none does within
    ``lookahead``. ``predicted_blocks_per_pass``: what each pass needs, blocks that are shared counted once.
    """

    per_request: Sequence[RequestProjection]
    wc_until_first_complete: int | None
    wc_until_block_starvation: int | None
    predicted_blocks_per_pass: Sequence[int]

    def deficit(self, total_blocks: int) -> int:
        """How many blocks the worst pass is short of ``total_blocks``; 0 if none is."""
        return max(0, max(self.predicted_blocks_per_pass, default=0) - total_blocks)


def project(requests: Sequence[RequestFigures], params: ProjectionParams) -> WorstCaseProjection:
    """The worst case of ``requests``, in their order. Takes time in proportion to requests and blocks they grow by."""
    changes = [0] * (params.lookahead + 1)
    shared_until: dict[int, int] = {}
    projections = []
    for request in requests:
        if params.consider_only_running and not request.running:
            continue
        projection = _one(request, params)
        projections.append(projection)
        _add_private(changes, request, projection.steps_until_completion, params)
        for block in request.shared_blocks:
            shared_until[block] = max(shared_until.get(block, 0), projection.steps_until_completion)
    for until in shared_until.values():
        changes[0] += 1
        changes[min(until, params.lookahead)] -= 1
    predicted = list(accumulate(changes[: params.lookahead]))
    return WorstCaseProjection(
        per_request=projections,
        wc_until_first_complete=min((each.steps_until_completion for each in projections), default=None),
        wc_until_block_starvation=next((k for k, need in enumerate(predicted) if need > params.total_blocks), None),
        predicted_blocks_per_pass=predicted,
    )


def _one(request: RequestFigures, params: ProjectionParams) -> RequestProjection:
    reading = _reading_passes(request, params)
    making = -(-max(1, request.remaining_tokens) // params.tokens_per_pass_per_request)
    return RequestProjection(
        request_id=request.request_id,
        current_tokens=request.num_tokens,
        current_blocks=-(-request.num_computed_tokens // params.block_size),
        remaining_tokens=request.remaining_tokens,
        steps_until_completion=reading - 1 + making,
    )


def _reading_passes(request: RequestFigures, params: ProjectionParams) -> int:
    """Passes until the first new token: 1 for a request that decodes, whose last token is always still to be read."""
    chunk = params.prefill_tokens_per_pass
    unread = request.num_tokens - request.num_computed_tokens
    return 1 if chunk is None else max(1, -(-unread // chunk))


def _add_private(changes: list[int], request: RequestFigures, steps: int, params: ProjectionParams) -> None:
    """Add the blocks that only this request needs: where they grow, and where they are given back."""
    end, shared, held = min(steps, params.lookahead), len(request.shared_blocks), 0
    for k, blocks in _growth(request, end, params):
        private = max(0, blocks - shared)
        changes[k] += private - held
        held = private
    changes[end] -= held


def _growth(request: RequestFigures, end: int, params: ProjectionParams) -> Iterator[tuple[int, int]]:
    """The passes before ``end`` that need more blocks than the pass before them, and how many that is."""
    size, per_pass, chunk = params.block_size, params.tokens_per_pass_per_request, params.prefill_tokens_per_pass
    reading = _reading_passes(request, params)
    if chunk is not None:
        for k in range(min(reading - 1, end)):
            yield k, -(-(request.num_computed_tokens + (k + 1) * chunk) // size)
    k = reading - 1
    while k < end:
        tokens = request.num_tokens + (k - reading + 1) * per_pass
        blocks = -(-tokens // size)
        yield k, blocks
        k += (blocks * size - tokens) // per_pass + 1
