"""Which engines hand prompts over, and to which others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from enginehouse.domain.replica import Candidate, Role
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.relay.events.stream_form import CHUNKED
from enginehouse.routing.router import HandOverRules

_TOKENIZER_ONLY = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
"""The endpoints for which no engine reads a prompt."""


def _can_hand_over(drivers: Mapping[str, DriverSupport], path: str, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` can read a prompt for another one, or answer what another one has read.

    ``drivers``: of every backend, by its name. ``path``: the endpoint of the request.
    """
    driver = drivers[candidate.backend]
    if path not in CHUNKED or driver.hand_over is None:
        return False
    return driver.bootstrap is None or never_alone(driver, candidate)


def _can_pair(drivers: Mapping[str, DriverSupport], prefill: Candidate, decode: Candidate) -> bool:
    """Whether ``decode`` can answer what ``prefill`` has read; each of them can hand over."""
    bootstraps = drivers[prefill.backend].bootstrap is not None
    if bootstraps is not (drivers[decode.backend].bootstrap is not None):
        return False
    return not bootstraps or (prefill.role is Role.PREFILL and decode.role is Role.DECODE)


def hand_over_rules(drivers: Mapping[str, DriverSupport], path: str) -> HandOverRules:
    """The rules for requests to ``path``."""

    def serves_alone(candidate: Candidate) -> bool:
        return path in _TOKENIZER_ONLY or not never_alone(drivers[candidate.backend], candidate)

    handing_over, pairing = partial(_can_hand_over, drivers, path), partial(_can_pair, drivers)
    return HandOverRules(handing_over, serves_alone, pairing, pairs=path in CHUNKED)


def never_alone(driver: DriverSupport, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` serves only requests that are handed over."""
    return driver.bootstrap is not None and candidate.role is not Role.NEUTRAL
