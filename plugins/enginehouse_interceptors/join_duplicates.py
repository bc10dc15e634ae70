"""The interceptor ``join_duplicates``."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Annotated

import msgspec

from enginehouse import Period
from enginehouse_interceptors.kept_answers import KeepingFilter, KeptAnswers, key_of
from enginehouse_kit.interceptors import Answer, AnswerFilter, InterceptedRequest, Interceptor, Join, Refuse

_MOST = 10_000
"""Requests in flight that are remembered."""


class JoinDuplicates(Interceptor):
    """Gives a request the answer of the same one that is in flight, or was answered just now.

    The same are requests of one caller with the same body, or with the same ``Idempotency-Key``; if their bodies
    differ then, the later one is refused.
    """

    class Config(msgspec.Struct, frozen=True):
        """``most_bytes``: of all answers that are given again together."""

        keep: Annotated[Period, msgspec.Meta(description="how long an answer is repeated")] = 60
        most_bytes: Annotated[int, msgspec.Meta(ge=0, description="the memory for answers")] = 64 << 20

    def __init__(self, config: Config) -> None:
        self._answers = KeptAnswers(config.keep, config.most_bytes)
        self._largest = config.most_bytes // 10
        self._live: OrderedDict[bytes, str] = OrderedDict()
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    async def before(self, request: InterceptedRequest) -> Answer | Join | Refuse | None:
        key = key_of(request)
        name = request.headers.get("idempotency-key")
        if name is not None and self._differs(f"{request.caller or ''}\n{request.path}\n{name}", key):
            return Refuse(422, "idempotency_key_reused", "The Idempotency-Key was used for another request")
        if (found := self._answers.find(key)) is not None:
            return found
        if (first := self._live.get(key)) is not None:
            return Join(first)
        self._live[key] = request.headers["x-request-id"]
        if len(self._live) > _MOST:
            self._live.popitem(last=False)
        return None

    def answer(self, request: InterceptedRequest) -> AnswerFilter:
        key, name = key_of(request), request.headers["x-request-id"]
        self._live[key] = name  # an earlier one may never have got so far
        ended = partial(self._ended, key, name)
        return KeepingFilter(self._largest, partial(self._answers.keep, key), ended)

    def _ended(self, key: bytes, name: str) -> None:
        if self._live.get(key) == name:
            del self._live[key]

    def _differs(self, name: str, key: bytes) -> bool:
        """Whether another request had this idempotency key."""
        known = self._bodies.setdefault(name, key)
        if len(self._bodies) > _MOST:
            self._bodies.popitem(last=False)
        return known != key
