"""The record of a request that has ended."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from enginehouse.domain.explanation import PrefixFacts, RouteDetails
from enginehouse.domain.replica import Reason
from enginehouse.domain.request import Headers


class StreamGap(msgspec.Struct, frozen=True, gc=False):
    """How an attempt took over a stream that another engine had begun. Its times are on the clock of the request."""

    cause: str
    """``broken``; or who moved it: an ``operator``, ``rescheduling`` or a ``drain``."""
    began: float
    """When the other engine broke it off, or when the move was decided."""
    seconds: float
    """How long the client waited for the next event."""
    ended: float
    """When it came."""
    tokens: int = 0
    """The tokens that the engine had to read again: of the prompt, if known, and of the answer so far."""

    @property
    def planned(self) -> bool:
        """Whether the stream was moved on purpose."""
        return self.cause != "broken"


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One try of a request at one replica. Its times are on the clock of the request's.

    Of attempts at the same time, the one that the client got is the last.
    """

    backend: str
    driver: str
    """The type of the backend's driver, such as ``vllm``."""
    replica: str
    model: str
    """The model name that the engine received."""
    reason: Reason
    """Why the gateway chose this model."""
    attempted: tuple[str, ...]
    """The models considered, in order."""
    outcome: str
    """``served``; ``answered``, if the answer was a reason to ask another replica; ``overtaken``, if a rival began
    first; ``moved``; ``client_left``; or the code of the error that ended the attempt."""
    why: str
    """The message of that error; empty without one."""
    status: int
    """The status of the engine's answer; 0 if there was none."""
    queued: bool
    """Whether the backend has a queue."""
    began: float
    """When the attempt was routed."""
    granted: float | None
    """When the queue let it go."""
    sent: float | None
    """From then on, the engine may have the request."""
    first_byte: float | None
    """When the first byte of the body of the engine's answer came."""
    ended: float
    details: RouteDetails | None = None
    """The figures of the routing decision. Only of traced requests."""
    gap: StreamGap | None = None
    """Only of an attempt that continued a stream."""
    prefix: PrefixFacts | None = None
    """What its replica had of the prompt, as the strategy estimated it."""


class EngineTimings(msgspec.Struct, frozen=True, gc=False):
    """What an engine measured of a request itself, as llama-server does."""

    prefill_rate: float | None = None
    """Tokens of the prompt that it read in a second."""
    decode_rate: float | None = None
    """Tokens of the answer that it wrote in a second."""
    drafted: int | None = None
    """Tokens that a draft model proposed."""
    accepted: int | None = None
    """Those of them that became part of the answer."""


class StreamTokens(NamedTuple):
    """The tokens of a stream: those of its prompt, those of its answer so far, and the most that this may have.

    ``None`` if no engine has told them, or if only the context limits the answer. Processes send it to each other, so
    it stands apart from compiled modules, which drop the types of its fields.
    """

    prompt: int | None = None
    output: int | None = None
    most: int | None = None


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """What the gateway knows of a request that has ended, without its contents.

    Times are in seconds of one clock with an arbitrary zero, so use only differences. ``time`` is the time of day, so
    what happened at ``t`` was at ``time - (ended - t)``. A step that was not reached is ``None``, and so is all that
    the gateway did not learn, such as the model of a request that it refused unread.
    """

    id: str
    """The value of ``x-request-id``. Clients may choose it, and repeat it."""
    method: str
    path: str
    status: int
    """The status that the client got, or would have got."""
    outcome: str
    """The last attempt's, or the code of the error that no attempt caused. ``answered`` says that an interceptor gave
    the answer, and ``joined`` that it is another request's; neither had an attempt."""
    arrived: float
    """When the request was whole, or else when its head was there."""
    ended: float
    caller: str | None = None
    """The name of the caller's key."""
    user: str | None = None
    """The end user that the request body names, or a hash of the name (``auth.hash_users``)."""
    asked: str | None = None
    """The model that the client asked for."""
    model: str | None = None
    """The model that served it, of the last attempt."""
    backend: str | None = None
    """The backend of the last attempt."""
    driver: str | None = None
    """The type of that backend's driver."""
    code: str | None = None
    """The code of the error that ended the request."""
    message: str = ""
    """The message of that error."""
    stream: bool = False
    """Whether the client asked for a stream."""
    attempts: tuple[AttemptRecord, ...] = ()
    """Every attempt, in the order in which they ended."""
    moves: int = 0
    """How often its stream was moved to another backend on purpose."""
    routed: float | None = None
    """When it was first routed."""
    granted: float | None = None
    """When a queue first let it go."""
    sent: float | None = None
    """When it was first sent to an engine."""
    first_byte: float | None = None
    """When the first byte of the answer's body came that the client got."""
    tokens_in: int | None = None
    """The tokens of the prompt, as the engine counted them."""
    tokens_cached: int | None = None
    """Those of them that the engine had in its cache, if it says so."""
    tokens_out: int | None = None
    """The tokens of the answer, as the engine counted them."""
    bytes_in: int = 0
    """Of the request body, as far as the gateway has read it."""
    bytes_out: int = 0
    """Of the body of the engine's answer, as far as it was sent to the client."""
    events: int = 0
    """Of a stream that the client got, without those that have no token: comments, the role, the end, the usage."""
    trace_id: str | None = None
    """Of a traced request."""
    timings: EngineTimings | None = None
    """What the engine measured itself, if it says so."""
    prefix: PrefixFacts | None = None
    """Of the attempt that gave the client its answer, or else of the last one."""
    time: float = 0.0
    """When it ended, in seconds since the epoch (1970, UTC)."""


class EndedRequest(NamedTuple):
    """A request that has ended. ``number``: above that of all that were known before. ``time``: when, since the epoch.

    ``headers``: as they came, so with the client's key; values of a large head are cut. ``address``: the client's.
    """

    number: int
    time: float
    record: RequestRecord
    headers: Headers
    address: str
