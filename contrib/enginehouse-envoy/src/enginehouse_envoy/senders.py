"""Who sends a request, as Envoy and the gateway in front of it tell in headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from enginehouse import Headers

_FORWARDED = b"x-forwarded-for"
_FAIRNESS = (b"x-gateway-inference-fairness-id", b"x-llm-d-inference-fairness-id")
_OBJECTIVE = (b"x-gateway-inference-objective", b"x-llm-d-inference-objective")
_TOLD = frozenset((_FORWARDED, *_FAIRNESS, *_OBJECTIVE))
_NOBODY = "default-flow"
"""Who sends a request without a fairness id, as llm-d's picker calls it."""


class Sender(NamedTuple):
    """The client's ``address`` and, if the headers tell them, the caller and the priority of the request."""

    address: str
    on_behalf: tuple[str, int] | None


def sender_in(headers: Headers, priorities: Mapping[str, int]) -> Sender:
    """The sender that ``headers`` tell. ``priorities``: of each objective; 0 for others.

    The last address of ``X-Forwarded-For`` is Envoy's own word (``use_remote_address``).
    """
    address = caller = objective = ""
    for name, value in headers:
        if name in _TOLD:
            text = value.decode("latin-1")
            if name == _FORWARDED:
                address = text.rpartition(",")[2].strip()
            elif name in _FAIRNESS:
                caller = text[:256]
            else:
                objective = text
    if not caller and objective not in priorities:
        return Sender(address, None)
    return Sender(address, (caller or _NOBODY, priorities.get(objective, 0)))
