"""An interceptor in force: what it says, with its time limit, and what follows if it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from enginehouse import Interceptor, RequestError
from enginehouse.interceptors import Answer, AnswerFilter, Change, InterceptedRequest, Join, Refuse
from enginehouse.middleware import ChosenInterceptor, GuardFailed, GuardRefused, shown
from enginehouse.runtime import await_plugin, log_plugin_failure, plugin_failed, run_within, wrong_result

T = TypeVar("T")

_LEAST_STATUS: Final = 400
_MOST_STATUS: Final = 599


_ALLOWED = "None, Refuse, Change or Answer"
_ALLOWED_WITH_JOIN = "None, Refuse, Change, Answer or Join"
Said = bytes | Answer | Join | None
"""What an interceptor says of a request: another body, an answer, that it joins another one; ``None`` lets it go on."""


class InForce(ChosenInterceptor):
    """An interceptor whose results are checked."""

    __slots__ = ()

    @property
    def asks(self) -> bool:
        """Whether it looks at requests."""
        return type(self.interceptor).before is not Interceptor.before

    @property
    def answers(self) -> bool:
        """Whether it may look at answers."""
        return type(self.interceptor).answer is not Interceptor.answer

    @property
    def joins(self) -> bool:
        """Whether it may let a request join another one."""
        return self.asks and not self.outer

    async def before(self, request: InterceptedRequest) -> Said:
        """What it says of a request. Raises ``RequestError``."""
        return await self.ask(self.interceptor.before, self._read, request)

    def _read(self, said: object) -> Said:
        if said is None or (self.joins and isinstance(said, Join) and isinstance(said.request_id, str)):
            return said
        if isinstance(said, Refuse):
            raise self.refusal(said)
        if isinstance(said, Change) and isinstance(said.body, (bytes, dict)):
            return self.encoded(said.body)
        if not isinstance(said, Answer):
            allowed = _ALLOWED_WITH_JOIN if self.joins else _ALLOWED
            raise wrong_result(self.plugin, f"must return {allowed}, got {shown(said)}")
        if not (isinstance(said.status, int) and 200 <= said.status <= 599 and isinstance(said.content_type, str)):
            raise wrong_result(self.plugin, f"must answer with a status from 200 to 599 and a type, got {shown(said)}")
        if not isinstance(said.body, (bytes, dict)) or not _is_line(said.content_type):
            raise wrong_result(self.plugin, f"must answer with bytes or a dict, and a content type, got {shown(said)}")
        return said

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        """Its filter for the answer to a request, if it wants one. Raises ``RequestError``."""
        try:
            filter: object = self.interceptor.answer(request)
        except BaseException as error:
            failure = self.failure(error)
            if failure is None:
                return None
            raise failure from error
        if filter is None or isinstance(filter, AnswerFilter):
            return filter
        wrong = wrong_result(self.plugin, f"must return an AnswerFilter or None, got {shown(filter)}")
        if not self.passes:
            raise wrong
        return None

    async def ask(self, method: Callable[..., Awaitable[object]], read: Callable[[object], T], *facts: object) -> T:
        """What the plugin says about ``facts``, as ``read`` makes it; that of ``None`` if it fails and requests pass.

        Raises ``RequestError``: the plugin's refusal, or its failure.
        """
        try:
            return read(await run_within(self.timeout, await_plugin(self.plugin, method, *facts)))
        except GuardRefused:
            raise
        except TimeoutError:
            log_plugin_failure(self.plugin, f"did not answer within {self.timeout:g} s")
            if not self.passes:
                text = f"The {self.plugin} did not answer within {self.timeout:g} s"
                raise GuardFailed(text, details=self.plugin.details) from None
        except RequestError:
            if not self.passes:
                raise
        return read(None)

    def failure(self, error: BaseException) -> RequestError | None:
        """The error that follows from one that the plugin raised; ``None`` if requests pass."""
        if isinstance(error, GuardRefused):
            return error
        failure = error if isinstance(error, RequestError) else plugin_failed(self.plugin, error)
        return None if self.passes else failure

    def refusal(self, said: Refuse) -> RequestError:
        """The error that the client gets."""
        if not (_is_error(said.status) and said.code and isinstance(said.message, str)):
            problem = f"must refuse with a status from {_LEAST_STATUS} to {_MOST_STATUS}, a code and a message"
            return wrong_result(self.plugin, f"{problem}, got {shown(said)}")
        return GuardRefused(said.status, said.code, said.message)

    def encoded(self, body: bytes | dict[str, object]) -> bytes:
        """A body that the plugin has made."""
        if isinstance(body, bytes):
            return body
        try:
            return msgspec.json.encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise plugin_failed(self.plugin, error) from error


def _is_error(status: object) -> bool:
    return isinstance(status, int) and _LEAST_STATUS <= status <= _MOST_STATUS


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable()
