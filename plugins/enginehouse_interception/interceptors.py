"""The interceptors in force, and what follows from what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from enginehouse import Interceptor
from enginehouse.interceptors import Answer, AnswerFilter, InterceptedRequest, Join
from enginehouse.middleware import ChosenInterceptor, EngineMemory, MiddlewareFacts, shown
from enginehouse.runtime import wrong_result
from enginehouse_interception.filtering_writer import FilteringWriter
from enginehouse_interception.in_force import InForce
from enginehouse_interception.sharing_writer import SharingWriter
from enginehouse_interception.stage import Stage

_ALLOWED = "None, Refuse, Change or Answer"
_ALLOWED_WITH_JOIN = "None, Refuse, Change, Answer or Join"
Said = bytes | Answer | Join | None
"""What an interceptor says of a request: another body, an answer, that it joins another one; ``None`` lets it go on."""


class InterceptorInForce(NamedTuple):
    """An interceptor on ``terms``.

    ``asks``: it looks at requests. ``answers``: it may look at answers. ``joins``: it may let a request join another
    one.
    """

    terms: InForce
    interceptor: Interceptor
    asks: bool
    answers: bool
    joins: bool

    @classmethod
    def of(cls, chosen: ChosenInterceptor) -> InterceptorInForce:
        has, terms = type(chosen.interceptor), InForce(chosen.plugin, chosen.timeout, chosen.passes)
        asks, answers = has.before is not Interceptor.before, has.answer is not Interceptor.answer
        return cls(terms, chosen.interceptor, asks, answers, asks and not chosen.outer)

    async def before(self, request: InterceptedRequest) -> Said:
        """What it says of a request. Raises ``RequestError``."""
        return await self.terms.ask(self.interceptor.before, self._read, request)

    def _read(self, said: object) -> Said:
        terms = self.terms
        if self.joins and isinstance(said, Join) and isinstance(said.request_id, str):
            return said
        if not isinstance(said, Answer):
            return terms.changed(said, _ALLOWED_WITH_JOIN if self.joins else _ALLOWED)
        if not (isinstance(said.status, int) and 200 <= said.status <= 599 and isinstance(said.content_type, str)):
            raise wrong_result(terms.plugin, f"must answer with a status from 200 to 599 and a type, got {shown(said)}")
        if not isinstance(said.body, (bytes, dict)) or not _is_line(said.content_type):
            raise wrong_result(terms.plugin, f"must answer with bytes or a dict, and a content type, got {shown(said)}")
        return said

    def stage(self, request: InterceptedRequest, memory: EngineMemory) -> Stage | None:
        """Its filter for the answer to a request, if it wants one. Raises ``RequestError``."""
        try:
            filter: object = self.interceptor.answer(request)
        except BaseException as error:
            failure = self.terms.failure(error)
            if failure is None:
                return None
            raise failure from error
        if isinstance(filter, AnswerFilter):
            return Stage(filter, self.terms, memory)
        if filter is not None:
            wrong = wrong_result(self.terms.plugin, f"must return an AnswerFilter or None, got {shown(filter)}")
            if not self.terms.passes:
                raise wrong
        return None


class Interceptors:
    """All interceptors, in their order, and the ``outer`` ones: those that an adapter has made.

    The outer ones see requests first, so that what another interceptor answers is allowed, and answers last, so that
    they see what clients get.

    - ``before``: those that look at requests.
    - ``may_join``: one of them may let a request join another one, so answers are kept for that.
    - ``shared``: live answers that may be joined, by the ids of their requests.
    - ``listening``: the streams whose filters want to know of silence.
    - ``intercepted``: counts what became of a request, by the interceptor's type.
    """

    def __init__(self, gateway: MiddlewareFacts) -> None:
        made = [(each.outer, InterceptorInForce.of(each)) for each in gateway.interceptors]
        own, outer = [each for is_outer, each in made if not is_outer], [each for is_outer, each in made if is_outer]
        self.before = [each for each in (*outer, *own) if each.asks]
        self._answering = [each for each in (*own, *outer) if each.answers]
        self.may_join = any(each.joins for each in own)
        self.shared: dict[bytes, list[SharingWriter]] = {}
        self.listening: dict[FilteringWriter, None] = {}
        self.intercepted = gateway.intercepted
        self._memory = gateway.memory

    def stages(self, request: InterceptedRequest, answering: InterceptorInForce | None = None) -> Sequence[Stage]:
        """The filters for the answer to a request, but for that of the interceptor that is ``answering`` it.

        Raises ``RequestError``.
        """
        made = [each.stage(request, self._memory) for each in self._answering if each is not answering]
        return [each for each in made if each is not None]

    def tell_silence(self, now: float) -> None:
        """Tell filters how long their streams have been silent at ``now``, in seconds of the gateway's clock."""
        for writer in list(self.listening):
            writer.tell_silence(now)


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable()
