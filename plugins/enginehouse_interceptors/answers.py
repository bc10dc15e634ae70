"""The interceptor ``answers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from enginehouse import Period
from enginehouse_interceptors.asked import asked_of, key_of
from enginehouse_interceptors.kept_answers import KeepingFilter, KeptAnswers
from enginehouse_kit.interceptors import Answer, AnswerFilter, InterceptedRequest, Interceptor


class Answers(Interceptor):
    """Answers a request as the same one of the same caller was answered.

    Only requests that an engine would answer alike again count: those with ``temperature = 0`` or a ``seed``, and
    embeddings. Errors are not kept.
    """

    class Config(msgspec.Struct, frozen=True):
        """``most_bytes``: of all answers together; an answer that takes more than a hundredth of it is not kept."""

        keep: Annotated[Period, msgspec.Meta(description="how long an answer is repeated")] = 3600
        most_bytes: Annotated[int, msgspec.Meta(ge=0, description="the memory for answers")] = 64 << 20

    def __init__(self, config: Config) -> None:
        self._answers = KeptAnswers(config.keep, config.most_bytes)
        self._largest = config.most_bytes // 100

    async def before(self, request: InterceptedRequest) -> Answer | None:
        return self._answers.find(key_of(request)) if _is_repeatable(request) else None

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        if not _is_repeatable(request):
            return None
        return _OfThatModel(self._answers, key_of(request), self._largest)


class _OfThatModel(KeepingFilter):
    """Keeps no answer of a fallback: the model may be back the next time."""

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        if headers.get("x-enginehouse-reason") != "fallback":
            super().head(status, headers)


def _is_repeatable(request: InterceptedRequest) -> bool:
    asked = asked_of(request)
    return request.path == "/v1/embeddings" or asked.get("temperature") == 0 or asked.get("seed") is not None
