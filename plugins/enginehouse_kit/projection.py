"""Projects the worst-case use of an engine's KV cache, pass by pass, if no request ends early.

A pass is one forward pass of the engine; pass 0 is the next one. In a pass, a decoding request stores its latest token
and generates the next one. It frees all blocks after its last token. So a decoding request of ``n`` tokens needs
``ceil((n + k * tokens_per_pass) / block_size)`` blocks in pass ``k`` until it completes, and none after that. A request
in prefill needs the blocks of the prompt tokens read so far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import msgspec

__all__ = ["ProjectionParams", "RequestFigures", "RequestProjection", "WorstCaseProjection", "project"]


class ProjectionParams(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a projection."""

    block_size: int
    """Tokens per block."""
    total_blocks: int
    """The size of the cache in blocks."""
    lookahead: int = 64
    """The number of passes to project."""
    tokens_per_pass_per_request: int = 1
    """The tokens that a request generates in one pass: more than 1 with speculative decoding."""
    prefill_tokens_per_pass: int | None = None
    """The most prompt tokens of one request that a pass reads; ``None`` for no limit."""


class RequestFigures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The current figures of one request."""

    request_id: str
    num_tokens: int
    """Tokens of the prompt and of the output so far."""
    num_computed_tokens: int
    """The tokens that are in the cache."""
    remaining_tokens: int
    """The most tokens that the request can still generate, at least 1."""
    shared_blocks: Collection[int] = ()
    """The ids of its blocks that other requests share."""


class RequestProjection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The worst case of one request. Its last pass is ``steps_until_completion - 1``."""

    request_id: str
    current_tokens: int
    current_blocks: int
    remaining_tokens: int
    steps_until_completion: int


class WorstCaseProjection(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case of all requests together."""

    per_request: Sequence[RequestProjection]
    wc_until_block_starvation: int | None
    """The first pass that needs more blocks than the cache has; ``None`` if there is none within ``lookahead``."""
    predicted_blocks_per_pass: Sequence[int]
    """The blocks that each pass needs. A shared block counts once."""


def project(requests: Sequence[RequestFigures], params: ProjectionParams) -> WorstCaseProjection:
    """Project the worst case of ``requests``. Runs in time linear in the requests and in the blocks that they add."""
    changes = [0] * (params.lookahead + 1)
    shared_until: dict[int, int] = {}
    projections = []
    for request in requests:
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
    """The passes until the first new token. 1 for a decoding request, whose latest token is not in the cache yet."""
    chunk = params.prefill_tokens_per_pass
    unread = request.num_tokens - request.num_computed_tokens
    return 1 if chunk is None else max(1, -(-unread // chunk))


def _add_private(changes: list[int], request: RequestFigures, steps: int, params: ProjectionParams) -> None:
    """Add the changes in the number of blocks that only this request needs, pass by pass."""
    end, shared, held = min(steps, params.lookahead), len(request.shared_blocks), 0
    for k, blocks in _growth(request, end, params):
        private = max(0, blocks - shared)
        changes[k] += private - held
        held = private
    changes[end] -= held


def _growth(request: RequestFigures, end: int, params: ProjectionParams) -> Iterator[tuple[int, int]]:
    """The passes before ``end`` that need more blocks than the previous pass, with the number of blocks."""
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
