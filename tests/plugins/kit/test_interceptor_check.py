from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from enginehouse_kit.guards import Guard, GuardRequest
from enginehouse_kit.interceptors import (
    Answer,
    AnswerFilter,
    Change,
    Event,
    InterceptedRequest,
    Interceptor,
    Passed,
    Refuse,
)
from enginehouse_kit.testing import check_guard, check_interceptor

_NO_JSON = {"model": "m", "messages": {object()}}


class Limited(Guard):
    """Lets some requests pass and refuses all others, whatever they say."""

    def __init__(self, most: int) -> None:
        self.left = most

    async def before(self, request: GuardRequest, caller: str | None) -> Refuse | None:
        self.left -= 1
        return None if self.left >= 0 else Refuse(429, "limited", "That was enough")


@pytest.mark.parametrize("most", [24, 25, 26])
def test_a_guard_may_count_requests(most: int) -> None:
    check_guard(lambda: Limited(most))


class ReadsRawText(Guard):
    async def before(self, request: GuardRequest, caller: str | None) -> Refuse | None:
        return Refuse(400, "private", "An address") if b"@" in request.body else None


def test_a_guard_that_reads_raw_json_is_found() -> None:
    with pytest.raises(AssertionError, match="before must decide alike"):
        check_guard(ReadsRawText)


class Says(Interceptor):
    def __init__(self, said: Any) -> None:
        self.said = said

    async def before(self, request: InterceptedRequest) -> Any:
        return self.said


@pytest.mark.parametrize("said", [Change(_NO_JSON), Answer(200, _NO_JSON)])
def test_a_body_that_is_not_for_json_is_found(said: object) -> None:
    with pytest.raises(AssertionError, match="before must return what is for JSON"):
        check_interceptor(lambda: Says(said))


class Repeats(Interceptor):
    class Filter(AnswerFilter):
        def event(self, event: Event) -> Passed:
            return deque([event, event])

    def answer(self, request: InterceptedRequest) -> AnswerFilter:
        return self.Filter()


def test_a_filter_may_return_any_sequence_of_events() -> None:
    check_interceptor(Repeats)
