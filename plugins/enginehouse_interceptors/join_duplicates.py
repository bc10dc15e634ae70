"""The interceptor ``join_duplicates``."""

from __future__ import annotations

from collections import Counter, OrderedDict
from functools import partial
from hashlib import sha256
from typing import Annotated

import msgspec

from enginehouse import Period
from enginehouse_interceptors.asked import key_of
from enginehouse_interceptors.kept_answers import KeepingFilter, KeptAnswers
from enginehouse_kit.interceptors import Answer, AnswerFilter, InterceptedRequest, Interceptor, Join, Refuse

_MOST = 10_000
"""Requests in flight, and idempotency keys, that are remembered."""


class JoinDuplicates(Interceptor):
    """Gives a request the answer of the same one that is in flight, or was answered just now.

    The same are requests of one caller with the same body, or with the same ``Idempotency-Key``; if their bodies
    differ then, the later one is refused. Clients choose the ids of requests: none joins an id that several have.

    ``_live``: the ids of requests in flight, by what they ask. ``_asked``: all of both, and a few that were refused.
    ``_names``: how many of these have an id.
    """

    class Config(msgspec.Struct, frozen=True):
        """``most_bytes``: of all answers that are given again together."""

        keep: Annotated[Period, msgspec.Meta(description="how long an answer is repeated")] = 60
        most_bytes: Annotated[int, msgspec.Meta(ge=0, description="the memory for answers")] = 64 << 20

    def __init__(self, config: Config) -> None:
        self._answers = KeptAnswers(config.keep, config.most_bytes)
        self._largest = config.most_bytes // 10
        self._live: dict[bytes, str] = {}
        self._asked: OrderedDict[tuple[bytes, str], None] = OrderedDict()
        self._names: Counter[str] = Counter()
        self._bodies: OrderedDict[bytes, bytes] = OrderedDict()

    async def before(self, request: InterceptedRequest) -> Answer | Join | Refuse | None:
        key = key_of(request)
        name = request.headers.get("idempotency-key")
        if name is not None and self._differs(f"{request.caller or ''}\n{request.path}\n{name}", key):
            return Refuse(422, "idempotency_key_reused", "The Idempotency-Key was used for another request")
        if (found := self._answers.find(key)) is not None:
            return found
        first = self._live.get(key)
        if first is not None and self._names[first] == 1:
            return Join(first)
        self._begun(key, request.headers["x-request-id"])
        return None

    def answer(self, request: InterceptedRequest) -> AnswerFilter:
        key, name = key_of(request), request.headers["x-request-id"]
        self._begun(key, name)  # an earlier one may never have got so far
        return KeepingFilter(self._answers, key, self._largest, partial(self._ended, key, name))

    def _begun(self, key: bytes, name: str) -> None:
        self._live[key] = name
        if (key, name) not in self._asked:
            self._asked[key, name] = None
            self._names[name] += 1
        if len(self._asked) > _MOST:
            self._ended(*next(iter(self._asked)))

    def _ended(self, key: bytes, name: str) -> None:
        if self._live.get(key) == name:
            del self._live[key]
        if (key, name) in self._asked:
            del self._asked[key, name]
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def _differs(self, name: str, key: bytes) -> bool:
        """Whether another request had this idempotency key."""
        known = self._bodies.setdefault(sha256(name.encode()).digest(), key)
        if len(self._bodies) > _MOST:
            self._bodies.popitem(last=False)
        return known != key
