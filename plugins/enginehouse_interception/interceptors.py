"""All interceptors in force, and the answers that concern them."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.interceptors import InterceptedRequest
from enginehouse.middleware import MiddlewareFacts
from enginehouse_interception.filtering_writer import FilteringWriter
from enginehouse_interception.in_force import InForce
from enginehouse_interception.sharing_writer import SharingWriter
from enginehouse_interception.stage import Stage


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
        made = [InForce(*each) for each in gateway.interceptors]
        own, outer = [each for each in made if not each.outer], [each for each in made if each.outer]
        self.before = [each for each in (*outer, *own) if each.asks]
        self._answering = [each for each in (*own, *outer) if each.answers]
        self.may_join = any(each.joins for each in own)
        self.shared: dict[bytes, list[SharingWriter]] = {}
        self.listening: dict[FilteringWriter, None] = {}
        self.intercepted = gateway.intercepted
        self._memory = gateway.memory

    def stages(self, request: InterceptedRequest, answering: InForce | None = None) -> Sequence[Stage]:
        """The filters for the answer to a request, but for that of the interceptor that is ``answering`` it.

        Raises ``RequestError``.
        """
        made = [(each, each.answer(request)) for each in self._answering if each is not answering]
        return [Stage(filter, each, self._memory) for each, filter in made if filter is not None]

    def tell_silence(self, now: float) -> None:
        """Tell filters how long their streams have been silent at ``now``, in seconds of the gateway's clock."""
        for writer in list(self.listening):
            writer.tell_silence(now)
