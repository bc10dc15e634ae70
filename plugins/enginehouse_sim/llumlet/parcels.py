"""What two engines tell each other while a request moves: one stream of parcels each way for each request.

The source sends a ``Knock`` and then, behind an ``Accepted``, a ``Commit``. The destination answers that with
``Committed`` and then with every output that the request gets; with ``Refused`` at any time before.
"""

from __future__ import annotations

import msgspec

from enginehouse_sim.scheduler.output import EngineCoreOutput
from enginehouse_sim.scheduler.request import RequestState

MOVE_IN = "/enginehouse.sim.HandOver/MoveIn"
"""The method's name, as gRPC has it."""


class Knock(msgspec.Struct, frozen=True, tag=True):
    """May a request of that length come? ``most_tokens`` is what it can grow to."""

    request_id: str
    num_tokens: int
    most_tokens: int


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """It may, and a place is kept for it."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It may not."""

    why: str


class Commit(msgspec.Struct, frozen=True, tag=True):
    """It runs here no more; the keys and values of its first ``num_computed_tokens`` have been copied."""

    request: RequestState
    num_computed_tokens: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """It goes on at the destination."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """It got this."""

    output: EngineCoreOutput


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The destination failed."""

    why: str


FromSource = Knock | Commit
FromDestination = Accepted | Refused | Committed | Progress | Broken

encode = msgspec.msgpack.Encoder().encode
read_source = msgspec.msgpack.Decoder(FromSource).decode
read_destination = msgspec.msgpack.Decoder(FromDestination).decode
