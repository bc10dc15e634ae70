"""The messages between the two engines of a migration: one gRPC stream per request.

The source sends ``Reserve`` and, after ``Reserved``, ``Commit``. The destination replies ``Committed``, and then sends
every output of the request, until the source closes the stream. Before ``Committed``, it may reply ``Refused``.
"""

from __future__ import annotations

import msgspec

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, MovedRequest

MIGRATE_IN = "/enginehouse.sim.Migration/MigrateIn"
"""The full name of the gRPC method."""


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """Ask for a place for a request of ``num_tokens``, which can grow to ``most_tokens``."""

    request_id: str
    num_tokens: int
    most_tokens: int


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """The destination keeps a place."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The destination does not take the request."""

    why: str


class Commit(msgspec.Struct, frozen=True, tag=True):
    """The request no longer runs at the source; the KV of its first ``num_computed_tokens`` has been copied."""

    request: MovedRequest
    num_computed_tokens: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The request runs at the destination."""


class ForwardedOutput(msgspec.Struct, frozen=True, tag=True):
    """An output of the request."""

    output: EngineCoreOutput


class DestinationFailed(msgspec.Struct, frozen=True, tag=True):
    """The destination can no longer serve the request."""

    why: str


SourceMessage = Reserve | Commit
DestinationMessage = Reserved | Refused | Committed | ForwardedOutput | DestinationFailed

encode = msgspec.msgpack.Encoder().encode
read_source = msgspec.msgpack.Decoder(SourceMessage).decode
read_destination = msgspec.msgpack.Decoder(DestinationMessage).decode
