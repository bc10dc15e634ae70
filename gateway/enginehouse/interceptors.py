"""Interceptors and guards: what they see of a request and its answer, and what they decide."""

from __future__ import annotations

from enginehouse.interfaces.guards import GuardAnswer, GuardRequest
from enginehouse.interfaces.interceptors import (
    Answer,
    AnswerFilter,
    Change,
    Event,
    InterceptedRequest,
    Join,
    Passed,
    Refuse,
)

__all__ = [
    "Answer",
    "AnswerFilter",
    "Change",
    "Event",
    "GuardAnswer",
    "GuardRequest",
    "InterceptedRequest",
    "Join",
    "Passed",
    "Refuse",
]
