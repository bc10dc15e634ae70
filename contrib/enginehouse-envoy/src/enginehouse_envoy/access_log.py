"""Learns from Envoy's access log which requests have ended.

External authorization has no end of a request, and a processing stream that ends after the request phase has none
either. Envoy's gRPC access log reports each request once, some milliseconds after its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from enginehouse_envoy import envoy_pb2 as pb
from enginehouse_envoy.open_picks import HEADER, OpenPicks

SERVICE = "envoy.service.accesslog.v3.AccessLogService"


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
