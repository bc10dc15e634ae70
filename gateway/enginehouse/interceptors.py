"""Interceptors and guards: what they see of a request and its answer, and what they decide."""

from __future__ import annotations

from enginehouse.interfaces.interceptors import (
    Answer,
    AnswerFilter,
    Change,
    Event,
    EventKind,
    InterceptedRequest,
    InterceptorAdapter,
    Join,
    Passed,
    Refuse,
    Whole,
)

__all__ = [
    "Answer",
    "AnswerFilter",
    "Change",
    "Event",
    "EventKind",
    "InterceptedRequest",
    "InterceptorAdapter",
    "Join",
    "Passed",
    "Refuse",
    "Whole",
]
