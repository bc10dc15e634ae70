"""The interceptors in force, and what follows from what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from enginehouse.domain.foreign import shown
from enginehouse.interfaces.interceptors import Answer, AnswerFilter, InterceptedRequest, Interceptor, Join
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.intercepting.filtering_writer import FilteringWriter
from enginehouse.relay.intercepting.in_force import InForce
from enginehouse.relay.intercepting.sharing_writer import SharingWriter
from enginehouse.relay.intercepting.stage import Stage
from enginehouse.telemetry.plugin_failures import wrong_result

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
    def of(cls, interceptor: Interceptor, terms: InForce, *, joins: bool) -> InterceptorInForce:
        has = type(interceptor)
        asks, answers = has.before is not Interceptor.before, has.answer is not Interceptor.answer
        return cls(terms, interceptor, asks, answers, joins and asks)

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
    """

    def __init__(self, interceptors: Sequence[InterceptorInForce], outer: Sequence[InterceptorInForce]) -> None:
        self.before = [each for each in (*outer, *interceptors) if each.asks]
        self._answering = [each for each in (*interceptors, *outer) if each.answers]
        self.may_join = any(each.joins for each in interceptors)
        self.shared: dict[bytes, list[SharingWriter]] = {}
        self.listening: dict[FilteringWriter, None] = {}

    def stages(
        self, request: InterceptedRequest, memory: EngineMemory, answering: InterceptorInForce | None = None
    ) -> Sequence[Stage]:
        """The filters for the answer to a request, but for that of the interceptor that is ``answering`` it.

        Raises ``RequestError``.
        """
        made = [each.stage(request, memory) for each in self._answering if each is not answering]
        return [each for each in made if each is not None]

    def tell_silence(self, now: float) -> None:
        """Tell filters how long their streams have been silent at ``now``, in seconds of the gateway's clock."""
        for writer in list(self.listening):
            writer.tell_silence(now)


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable()
