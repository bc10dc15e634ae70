"""Decides whether a failed request is sent again, and where. Nothing here waits or has effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from enginehouse.config.routing import HedgeAfter
from enginehouse.domain.errors import ReplicaLost, RequestError, UpstreamInvalid, UpstreamTimeout
from enginehouse.domain.replica import Route

_MOST_TIMES_SENT_BACK: Final = 10
"""A scheduler that ends replicas as fast as it starts them would otherwise keep a request for ever."""


class Outcome(Enum):
    """The end of an attempt that did not serve its request."""

    ANSWERED = "the engine's answer is worth a retry"
    TIMED_OUT = "a time limit has passed"
    BROKEN = "the connection broke, or could not be made"
    EXITED = "the connection broke, and the engine has exited"
    INVALID = "the engine's answer is not what its content type says"
    REJECTED = "the queue rejected the request"
    JOINED_LOAD_FAILED = "a load failed that had begun before the request asked for it"
    NOT_LOADED = "the server says that the model is not loaded"
    TOO_LONG = "the engine's context is too short for the request"
    UNFIT = "the engine cannot continue the stream"
    REPLICA_LOST = "the queue rejected the request because its replica was lost"
    PROMPT_LOST = "another engine failed to read the prompt"

    @classmethod
    def of_engine(cls, error: RequestError) -> Outcome:
        """The outcome of an attempt that the engine failed with ``error``."""
        if isinstance(error, UpstreamInvalid):
            return cls.INVALID
        return cls.TIMED_OUT if isinstance(error, UpstreamTimeout) else cls.BROKEN

    @classmethod
    def of_queue(cls, error: RequestError, joined_load: bool = False) -> Outcome:
        """The outcome of an attempt that the queue rejected with ``error``; ``joined_load``: because a load failed."""
        if isinstance(error, ReplicaLost):
            return cls.REPLICA_LOST
        return cls.JOINED_LOAD_FAILED if joined_load else cls.REJECTED


class FailedAttempt(NamedTuple):
    """An attempt that did not serve its request.

    ``replica``: the one that failed it. ``sent``: the engine may have the request. ``repeatable``: the request may
    reach an engine twice. ``launched``: the gateway launches the engine, and can launch it again.
    """

    outcome: Outcome
    replica: str
    sent: bool
    repeatable: bool
    launched: bool


class RetryState(NamedTuple):
    """The failures of a request so far.

    ``failed``: replicas that failed it; they are not asked again. ``resent``: replicas whose engine exited while it had
    the request; they are asked once more. ``sent_back``: how often a replica was lost before it had the request.
    ``stale``: replicas that may have got the request on a stale connection, and again on a new one.
    ``reloaded``: a load that the request had joined failed, and it waits for another one.

    No engine process gets a request more than twice: a stale connection is replaced once, and after an exit a new
    process is asked.
    """

    failed: tuple[str, ...] = ()
    resent: tuple[str, ...] = ()
    sent_back: int = 0
    stale: tuple[str, ...] = ()
    reloaded: bool = False

    @property
    def retries(self) -> int:
        """The number of used retries, without the times that a replica was lost before it had the request."""
        return len(self.failed) + len(self.resent)

    def elsewhere(self, replica: str, max_retries: int) -> RetryState | None:
        """The state after ``replica`` failed the request; ``None`` if the request may not be retried."""
        return self._replace(failed=(*self.failed, replica)) if self.retries < max_retries else None

    def resend(self, replica: str, max_retries: int) -> RetryState | None:
        """The state after the engine of ``replica`` exited: allowed once, as the request may be the cause."""
        if replica in self.resent or self.retries >= max_retries:
            return None
        return self._replace(resent=(*self.resent, replica))

    def asked_twice(self, replica: str) -> bool:
        """Whether ``replica`` must not get the request once more."""
        return replica in self.resent or replica in self.stale

    def load_again(self) -> RetryState | None:
        """The state after a load failed that others had asked for: the request may ask for one load of its own."""
        return None if self.reloaded else self._replace(reloaded=True)

    def send_back(self) -> RetryState | None:
        """The state after a replica was lost that did not have the request yet."""
        return self._replace(sent_back=self.sent_back + 1) if self.sent_back < _MOST_TIMES_SENT_BACK else None


class SendAgain(NamedTuple):
    """Send the request along ``route``, with ``body``; ``state`` is the next decision's."""

    state: RetryState
    route: Route
    body: bytes


class Otherwise(Enum):
    """What to do with a request that is not sent again now."""

    SPENT = "answer the client with the failure, for the retry budget is spent"
    FIND_OUT = "find out whether the engine has exited, then decide again"
    FAIL = "answer the client with the failure"


RetryDecision = SendAgain | Otherwise

FindRoute = Callable[[tuple[str, ...]], "tuple[Route, bytes] | None"]
"""The route to any replica but those given, and the body to send there; ``None`` if there is no route."""


def decide(
    attempt: FailedAttempt, state: RetryState, max_retries: int, find_route: FindRoute, *, in_budget: bool = True
) -> RetryDecision:
    """Decide about a request that ``attempt`` failed; its earlier retries are in ``state``.

    ``in_budget``: the retry budget has room. Without it, a request that an engine may still work on is not sent again.
    """
    spent = False
    for following in _options(attempt, state, max_retries):
        found = find_route(following.failed)
        if found is not None:
            if in_budget or not _adds_work(attempt, state):
                return SendAgain(following, *found)
            spent = True
    if spent:
        return Otherwise.SPENT
    if attempt.outcome is Outcome.BROKEN and _after_exit(attempt, state, max_retries) is not None:
        return Otherwise.FIND_OUT
    return Otherwise.FAIL


def _adds_work(attempt: FailedAttempt, state: RetryState) -> bool:
    """Whether another attempt adds to work that engines still do, or have lost more than once.

    An engine that never had the request does none. One whose connection broke has ended its own: the first time, the
    next attempt takes its place, so the crash of an engine does not fail its requests, however many there are.
    """
    if attempt.outcome in (Outcome.NOT_LOADED, Outcome.TOO_LONG):
        return False
    ended = attempt.outcome in _ENDED and not state.retries
    return attempt.sent and not ended


_ENDED: Final = (Outcome.BROKEN, Outcome.EXITED, Outcome.INVALID, Outcome.PROMPT_LOST)


def _options(attempt: FailedAttempt, state: RetryState, max_retries: int) -> Iterator[RetryState]:
    if attempt.outcome is Outcome.EXITED:
        options = [_after_exit(attempt, state, max_retries)]
    elif attempt.outcome is Outcome.NOT_LOADED:
        options = [state.send_back()]
    elif attempt.sent and not attempt.repeatable:
        options = []
    else:
        options = [state.elsewhere(attempt.replica, max_retries)]
        if attempt.outcome is Outcome.REPLICA_LOST:
            options.insert(0, state.send_back())  # first: the replica did nothing wrong, and may be back already
        elif attempt.outcome is Outcome.JOINED_LOAD_FAILED:
            options.append(state.load_again())
    return (option for option in options if option is not None)


def _after_exit(attempt: FailedAttempt, state: RetryState, max_retries: int) -> RetryState | None:
    if not attempt.launched or (attempt.sent and not attempt.repeatable):
        return None
    return state.resend(attempt.replica, max_retries) if attempt.sent else state.send_back()


_CELL_S: Final = 1.0
_CELLS: Final = 10
AT_LEAST: Final = 100
"""The number of tries that ten seconds always allow, even without traffic: ten per second, as in Finagle."""


class RetryBudget:
    """Allows a ``share`` of the requests of the last ten seconds to be sent once more, and at least 100.

    It has no clock: times are arguments, in seconds, and never decrease. The window moves in steps of one second.
    Finagle and Linkerd bound retries by such budgets, which keep an overload from feeding itself.
    """

    __slots__ = ("_cells", "_ends", "_requests", "_tries", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self._requests = self._tries = 0
        self._ends = 0.0
        self._cells: deque[tuple[int, int]] = deque(maxlen=_CELLS)

    def count(self, now: float, requests: int) -> None:
        """Count new requests."""
        if now >= self._ends:
            self._move(now)
        self._requests += requests

    def has_room(self, now: float) -> bool:
        """Whether a request may be sent once more."""
        if now >= self._ends:
            self._move(now)
        requests = self._requests + sum([cell[0] for cell in self._cells])
        tries = self._tries + sum([cell[1] for cell in self._cells])
        return tries < max(AT_LEAST, requests * self.share)

    def take(self, now: float) -> None:
        """Count a request that is sent once more."""
        if now >= self._ends:
            self._move(now)
        self._tries += 1

    def _move(self, now: float) -> None:
        """Begin the second of ``now``."""
        passed = min((now - self._ends) // _CELL_S + 1, _CELLS + 1)
        self._cells.append((self._requests, self._tries))
        self._cells.extend([(0, 0)] * (int(passed) - 1))
        self._requests = self._tries = 0
        self._ends = self._ends + passed * _CELL_S if passed <= _CELLS else now + _CELL_S


_KEPT: Final = 200
_RENEW_EVERY: Final = 20
_MOST_MODELS: Final = 1000


class _FirstBytes:
    """The times to the first byte of one model. ``found``: the percentile of the last ones, once there are enough."""

    def __init__(self) -> None:
        self.last: deque[float] = deque(maxlen=_KEPT)
        self.seen = 0
        self.found: float | None = None


class HedgeDelay:
    """A fixed time, or a percentile of a model's last 200 times to the first byte. ``after``: which of them.

    The nearest-rank percentile is sought again after every 20 of them. Of more than 1000 models, the oldest is
    forgotten.
    """

    def __init__(self, after: HedgeAfter) -> None:
        self.after = after
        self._models: dict[str, _FirstBytes] = {}

    def of(self, model: str) -> float | None:
        """The delay in seconds; ``None`` while fewer than 20 times are known."""
        if not self.after.percentile:
            return self.after.seconds
        times = self._models.get(model)
        return None if times is None else times.found

    def observe(self, model: str, seconds: float) -> None:
        """Add an engine's time to its first byte. If another engine won, the real time is longer."""
        share = self.after.percentile
        if not share:
            return
        times = self._models.get(model)
        if times is None:
            if len(self._models) == _MOST_MODELS:
                del self._models[next(iter(self._models))]
            times = self._models[model] = _FirstBytes()
        last = times.last
        last.append(seconds)
        times.seen += 1
        if times.seen % _RENEW_EVERY == 0:
            times.found = sorted(last)[-(-len(last) * share // 100) - 1]
