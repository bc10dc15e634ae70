"""The part of an exchange that others see, and the moves of its stream to other engines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from enginehouse.domain.errors import CannotContinue
from enginehouse.domain.ticket import Phase
from enginehouse.relay.answers.joined_reply import JoinedReply
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.jobs.continuation_job import ContinuationJob
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.live_state import StreamTokens


class MovableExchange(LiveRequest):
    """The part of an exchange that operators, the watchdog and moves see.

    ``_rest``: the rest of a stream that an engine broke off. ``moving``: set while its stream is being moved; called if
    it ends meanwhile.
    """

    _reply: Reply
    _held: bool = False
    _rest: ContinuationJob | None = None
    moving: Callable[[], None] | None = None

    @property
    def _live_phase(self) -> Phase:
        if self.moving is not None or (self._rest is not None and not self._reply.begun):
            return Phase.MIGRATING
        if self._reply.begun and self._dispatch.attempt is None:  # what the engine has answered is still decided about
            return Phase.SERVING
        return self._dispatch.phase

    @property
    def waiting_reply(self) -> Reply | None:
        requirements = self.job.requirements
        waits = requirements is not None and requirements.stream and not self._reply.begun
        return self._reply if waits else None

    def tokens(self) -> StreamTokens:
        history = self._reply.history
        if history is None:
            return StreamTokens()
        history.read()
        output = None if history.why else history.progress.tokens()
        return StreamTokens(history.prompt_tokens, output, history.max_tokens)

    def answer_ends(self) -> tuple[bytes, bytes]:
        return self._reply.ends()

    @property
    def why_not_movable(self) -> str | None:
        history = self._reply.history
        if self._status:
            return "it has ended"
        if not (self._reply.begun and self._reply.status):
            return "its answer has not begun"
        if history is None:
            return "it is not a stream that another backend could continue"
        if why := history.why_not_movable():
            return why
        return "it is about to end" if history.finish is not None or history.ended else None

    # --- from a move

    @property
    def reply(self) -> Reply:
        """The answer for the client."""
        return self._reply

    def current_attempt(self) -> Attempt:
        """The attempt that serves the stream. Raises ``CannotContinue`` if none does."""
        attempt = self._dispatch.attempt
        if attempt is None or not self._reply.begun:
            raise CannotContinue("The request has no answer yet")
        return attempt

    def movable(self) -> StreamHistory:
        """The part that the client has. Raises ``CannotContinue`` with the reason why the stream stays where it is."""
        history, why = self._reply.history, self.why_not_movable
        if history is None or why:
            raise CannotContinue(f"The request stays where it is: {why}")
        return history

    def hold(self) -> None:
        """Stop reading the source's answer: the cut."""
        self._held = True
        if not self._reply.paused:
            self.current_attempt().pause()

    def read_on(self) -> None:
        """Read on at the source: the move failed."""
        self._held = False
        if not self._status and not self._reply.paused and self._dispatch.attempt is not None:
            self._dispatch.attempt.resume()

    def adopt(self, attempt: Attempt, reply: JoinedReply) -> bool:
        """Leave the source for ``attempt`` and ``reply``. ``False`` if the stream has ended."""
        if self._status:
            return False
        self._held = False
        self._dispatch.replace(attempt, "moved")
        reply.paused = self._reply.paused
        self._reply = reply
        self.moves += 1
        if reply.paused:
            attempt.pause()
        else:
            attempt.await_more()
        return True

    @abstractmethod
    def spoiled(self, problem: BrokenStream) -> None:
        """Treat a problem of the destination's answer as one of the stream's own engine."""

    @abstractmethod
    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        """Take what an engine sends: after a move, the stream is the ``Receiver`` of the destination."""

    @abstractmethod
    def broken(self, why: str, *, stale: bool) -> None:
        """The connection to the engine broke."""
