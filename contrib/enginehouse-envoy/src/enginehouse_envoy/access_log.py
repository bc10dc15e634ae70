"""Learns from Envoy's access log which requests have ended.

External authorization has no end of a request, and a processing stream that ends after the request phase has none
either. Envoy's gRPC access log reports each request once, some milliseconds after its end.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from typing import Any

import grpc

from enginehouse.picking import Pick
from enginehouse_envoy import envoy_pb2 as pb

SERVICE = "envoy.service.accesslog.v3.AccessLogService"
HEADER = "x-enginehouse-pick"
"""The header by which the access log names a request."""


class AccessLogService:
    """Ends the requests that the access log names."""

    def __init__(self, picks: OpenPicks) -> None:
        self._picks = picks

    async def stream(self, messages: AsyncIterator[pb.StreamAccessLogsMessage], context: Any) -> Any:
        """Read the log of one of Envoy's threads until it is disconnected."""
        self._picks.logs += 1
        try:
            async for message in messages:
                for entry in message.http_logs.log_entry:
                    self._ended(entry)
        finally:
            self._picks.log_lost()
        return pb.StreamAccessLogsResponse()

    def handler(self) -> grpc.GenericRpcHandler:
        """For a gRPC server."""
        method = grpc.stream_unary_rpc_method_handler(
            self.stream,
            request_deserializer=pb.StreamAccessLogsMessage.FromString,
            response_serializer=pb.StreamAccessLogsResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"StreamAccessLogs": method})

    def _ended(self, entry: pb.HTTPAccessLogEntry) -> None:
        pick = self._picks.take(entry.request.request_headers.get(HEADER, ""))
        if pick is None:
            return
        common, flags = entry.common_properties, entry.common_properties.response_flags
        status = entry.response.response_code.value
        if flags.downstream_connection_termination or not status:
            pick.client_left()
        elif flags.upstream_connection_failure or flags.upstream_connection_termination or flags.upstream_remote_reset:
            pick.broke(entry.response.response_code_details or "Envoy lost its connection")
        else:
            sent, came = common.time_to_first_upstream_tx_byte, common.time_to_first_upstream_rx_byte
            took = came.seconds - sent.seconds + (came.nanos - sent.nanos) / 1e9
            pick.answered(status, first_byte=max(0.0, took))
            pick.ended(status)


class OpenPicks:
    """Keeps requests open until the access log reports their end. Without an access log they end at once.

    ``logs``: how many logs are connected.
    """

    def __init__(self) -> None:
        self.logs = 0
        self._open: dict[str, Pick] = {}
        self._ids = itertools.count(1)
        self._prefix = os.urandom(6).hex()

    def __len__(self) -> int:
        return len(self._open)

    def keep(self, pick: Pick) -> str:
        """Keep ``pick`` until its end is reported. Returns its name in the log."""
        name = f"{self._prefix}{next(self._ids):x}"
        oldest = next(iter(self._open), None)
        if oldest is not None and self._open[oldest].has_ended:  # its end was not reported: Envoy may drop entries
            del self._open[oldest]
        if self.logs:
            self._open[name] = pick
        else:
            asyncio.get_running_loop().call_soon(pick.ended)  # it may be in the middle of ``begin``
        return name

    def take(self, name: str) -> Pick | None:
        """The request of that ``name``, whose end is known now."""
        return self._open.pop(name, None)

    def log_lost(self) -> None:
        """Note that a log is disconnected. After the last one nobody reports ends, so all requests end."""
        self.logs -= 1
        if not self.logs:
            for pick in self._open.values():
                pick.ended()
            self._open.clear()
