"""The gRPC server of an engine: Llumnix's commands, and the hand-over between engines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from enginehouse_sim.clock import Clock
from enginehouse_sim.llumlet import parcels
from enginehouse_sim.llumlet.arrival import Reception
from enginehouse_sim.llumlet.arrivals import Arrivals
from enginehouse_sim.llumlet.departure import Call, Departure
from enginehouse_sim.llumlet.llumlet_pb2 import AbortRequests, AbortResponse, MigrateRequest, MigrateResponse
from enginehouse_sim.llumlet.selection import ORDERS, RULES, Candidate, select
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.server.batching_engine import BatchingEngine
from enginehouse_sim.server.engine import Listener
from enginehouse_sim.server.traffic import Traffic
from enginehouse_sim.steps.transfer import KvTransfer

_PATIENCE_S = 5.0
_VALUES = {"NUM_REQ": "num_reqs", "TOKEN": "num_tokens", "RATIO": "kv_cache_usage_ratio"}
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Llumlet:
    """Moves requests of ``engine`` away, and takes others in. ``start`` and ``stop`` are the life of its server."""

    def __init__(
        self, engine: BatchingEngine, arrivals: Arrivals, traffic: Traffic, transfer: KvTransfer, clock: Clock
    ) -> None:
        self._engine = engine
        self._traffic = traffic
        self._transfer = transfer
        self._clock = clock
        self._reception = Reception(engine, arrivals, traffic, self._left)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._away: dict[str, Departure] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_migrating = False
        self._server = grpc.aio.server(options=_OPTIONS)

    async def start(self, host: str, port: int) -> int:
        """Listen; the port. Raises ``OSError`` when it cannot be had."""
        migrate = grpc.unary_unary_rpc_method_handler(
            self._migrate, MigrateRequest.FromString, MigrateResponse.SerializeToString
        )
        abort = grpc.unary_unary_rpc_method_handler(
            self._abort, AbortRequests.FromString, AbortResponse.SerializeToString
        )
        move_in = grpc.stream_stream_rpc_method_handler(self._reception.receive, parcels.read_source, parcels.encode)
        service, method = parcels.MOVE_IN.strip("/").split("/")
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("llumlet.Llumlet", {"Migrate": migrate, "Abort": abort}),
                grpc.method_handlers_generic_handler(service, {method: move_in}),
            )
        )
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(str(error)) from error
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """End every move, and what moved away."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(None)
        for channel in self._channels.values():
            await channel.close()

    # --- commands

    async def _migrate(self, command: MigrateRequest, context: Any) -> MigrateResponse:
        rule, order = command.migration_type, command.migration_req_policy
        if rule not in RULES or command.WhichOneof("migration_value") != _VALUES.get(rule):
            wanted = ", ".join(f"{name} with {value}" for name, value in _VALUES.items())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"migration_type and its value: one of {wanted}")
        if order not in ORDERS:
            known = ", ".join(ORDERS)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"migration_req_policy: one of {known}")
        if self._is_migrating:
            return MigrateResponse(success=False, message="Another migration is under way.")
        self._is_migrating = True
        try:
            moved = await self._move(self._chosen(command), f"{command.dst_engine_ip}:{command.dst_engine_port}")
        finally:
            self._is_migrating = False
        if not moved:
            return MigrateResponse(success=False, message="No request could be moved.")
        message = f"Migrate requests from {command.src_engine_id} to {command.dst_engine_id}."
        return MigrateResponse(success=True, message=message)

    async def _abort(self, command: AbortRequests, context: Any) -> AbortResponse:
        here = [name for name in command.request_ids if self._engine.listener(name) is not None]
        away = [self._away[name] for name in command.request_ids if name in self._away]
        self._engine.abort(here)
        for departure in away:
            departure.abort()
        found = len(here) + len(away)
        return AbortResponse(success=found > 0, message=f"{found} of {len(command.request_ids)} requests aborted.")

    # --- moves

    def _chosen(self, command: MigrateRequest) -> Sequence[str]:
        state, rule = self._engine.state, command.migration_type
        value = getattr(command, _VALUES[rule])
        if rule == "RATIO":
            value = int(value * state.constants.total_gpu_blocks * state.constants.block_size)
        running = sorted(state.running, key=lambda request: request.arrival_time)
        return select(
            [_candidate(request) for request in running],
            [_candidate(request) for request in state.staging],
            rule,
            command.migration_req_policy,
            value,
        )

    async def _move(self, request_ids: Sequence[str], address: str) -> bool:
        """Whether at least one was moved in time; those that take longer go on moving."""
        moves = [self._spawn(self._move_one(request_id, address)) for request_id in request_ids]
        if not moves:
            return False
        done, _ = await asyncio.wait(moves, timeout=_PATIENCE_S)
        return any(not move.cancelled() and move.result() for move in done)

    async def _move_one(self, request_id: str, address: str) -> bool:
        request = self._engine.state.requests.get(request_id)
        if request is None or not self._traffic.outgoing.slots:
            return False
        call: Call = self._channel(address).stream_stream(parcels.MOVE_IN)()
        departure = Departure(request_id, self._engine, call, self._transfer, self._clock)
        with self._traffic.outgoing.travel(request.num_tokens):
            moved = await departure.go()
        if moved:
            self._away[request_id] = departure
            self._spawn(self._follow(departure))
        return moved

    async def _follow(self, departure: Departure) -> None:
        try:
            await departure.follow()
        finally:
            if self._away.get(departure.request_id) is departure:
                del self._away[departure.request_id]

    def _left(self, request_id: str, listener: Listener) -> None:
        """Whoever listens from elsewhere is gone: end the request here, or wherever it has moved on to."""
        if self._engine.listener(request_id) is listener:
            self._engine.end((request_id,))
        departure = self._away.get(request_id)
        if departure is not None and departure.listener is listener:
            departure.end((request_id,))

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channels[address]

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _candidate(request: RequestState) -> Candidate:
    return Candidate(request.request_id, request.num_tokens, len(request.output_token_ids))
