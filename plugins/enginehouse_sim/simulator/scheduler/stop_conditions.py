"""The conditions under which a request finishes by itself."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus


def append_until_stop(request: RequestState, token_ids: Sequence[int]) -> tuple[Sequence[int], bool]:
    """Append tokens until a stop condition holds. Return the appended tokens, and whether the request stopped."""
    for position, token in enumerate(token_ids, 1):
        request.append(token)
        if len(request.all_token_ids) >= request.max_num_tokens or token in request.ending_tokens:
            status = stop_status(request, token)
            if status is not None:
                request.status = status
                return token_ids[:position], True
    return token_ids, False


def stop_status(request: RequestState, last_token: int) -> RequestStatus | None:
    """The final status if ``last_token``, already appended, finishes the request, else ``None``.

    A stop token that is also the last allowed token stops the request. The sampler keeps ``min_tokens``.
    """
    if last_token == request.eos_token_id and not request.ignore_eos:
        return RequestStatus.FINISHED_STOPPED
    if last_token in request.stop_token_ids:
        request.stop_reason = last_token
        return RequestStatus.FINISHED_STOPPED
    return RequestStatus.FINISHED_LENGTH_CAPPED if len(request.all_token_ids) >= request.max_num_tokens else None
