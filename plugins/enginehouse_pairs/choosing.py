"""Which two engines can serve a request together, and which serve none alone. Nothing here waits or has effects."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from enginehouse import Candidate, InvalidRequest, RequestError, Role, Route
from enginehouse.hand_overs import PairChoice
from enginehouse.routing_facts import Reason

_HANDED_OVER: Final = ("/v1/chat/completions", "/v1/completions")
"""The endpoints whose prompts engines can read for each other."""
_TOKENIZER_ONLY: Final = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
"""The endpoints for which no engine reads a prompt."""


def route_of(choice: PairChoice, failed: tuple[str, ...]) -> Route:
    """The route of the strategy, with a second engine that answers where the strategy says so.

    Passes over engines that serve no request alone, and find no other one. Raises ``InvalidRequest`` if all are such,
    and no request to its endpoint is handed over.
    """
    exclude, reason = failed, None
    while True:
        try:
            route = choice.find(exclude)
        except RequestError as error:
            none_left = error.code in ("no_healthy_backend", "fallback_exhausted")
            if exclude is failed or not none_left or choice.requirements.path in _HANDED_OVER:
                raise
            raise _unpaired(choice) from None
        route = _with_decode(choice, route, exclude)
        if reason is not None and route.reason is Reason.RETRY and not failed:
            route.reason = reason  # to pass over an engine is not a retry
        if route.prefill is not None or _serves_alone(choice, route.chosen):
            return route
        exclude, reason = (*exclude, route.chosen.replica), route.reason


def _with_decode(choice: PairChoice, route: Route, exclude: tuple[str, ...]) -> Route:
    """``route``, or the one in which another replica of its model answers after the chosen one read the prompt."""
    prefill = route.chosen
    if not _can_hand_over(choice, prefill):
        return route
    decode = choice.pick_decode(route, exclude)
    if decode is None or decode.replica == prefill.replica or not _can_pair(choice, prefill, decode):
        return route
    return replace(route, chosen=decode, prefill=prefill)


def _can_hand_over(choice: PairChoice, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` can read the prompt for another one, or answer what another one has read."""
    driver = choice.drivers[candidate.backend]
    if driver.hand_over is None or choice.requirements.path not in _HANDED_OVER:
        return False
    return driver.bootstrap is None or not driver.serves_alone(candidate.role)


def _can_pair(choice: PairChoice, prefill: Candidate, decode: Candidate) -> bool:
    """Whether ``decode`` can answer what ``prefill``, which can hand over, has read."""
    if not _can_hand_over(choice, decode):
        return False
    bootstraps = choice.drivers[prefill.backend].bootstrap is not None
    if bootstraps is not (choice.drivers[decode.backend].bootstrap is not None):
        return False
    return not bootstraps or (prefill.role is Role.PREFILL and decode.role is Role.DECODE)


def _serves_alone(choice: PairChoice, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` serves the request without another one."""
    path, driver = choice.requirements.path, choice.drivers[candidate.backend]
    return path in _TOKENIZER_ONLY or driver.serves_alone(candidate.role)


def _unpaired(choice: PairChoice) -> InvalidRequest:
    requirements = choice.requirements
    return InvalidRequest(
        f"Model '{requirements.model}' has only servers with the roles prefill and decode, which cannot pair up for "
        f"{requirements.path}: use {' or '.join(_HANDED_OVER)}"
    )
