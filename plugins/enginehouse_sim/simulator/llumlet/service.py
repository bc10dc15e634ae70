"""The gRPC server of an engine: Llumnix's commands, and the migrations between engines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from enginehouse import MIGRATION_ORDERS, MIGRATION_RULES, migration_budget, select_requests
from enginehouse_sim.simulator.core.migration import MigratedKv, MigrationSlots, movable_requests
from enginehouse_sim.simulator.llumlet.llumlet_pb2 import AbortRequests, AbortResponse, MigrateRequest, MigrateResponse
from enginehouse_sim.simulator.llumlet.migrations import (
    MIGRATE_IN,
    Call,
    IncomingMigrations,
    OutgoingMigration,
    encode,
    read_source,
)
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, EngineClock
from enginehouse_sim.simulator.steps.costs import KvTransfer

_TIMEOUT_S = 5.0
_VALUES = {"NUM_REQ": "num_reqs", "TOKEN": "num_tokens", "RATIO": "kv_cache_usage_ratio"}
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Llumlet:
    """Migrates requests of ``engine`` out, and takes others in."""

    def __init__(
        self,
        engine: BatchingEngine,
        migrated_kv: MigratedKv,
        slots: MigrationSlots,
        transfer: KvTransfer,
        clock: EngineClock,
    ) -> None:
        self._engine = engine
        self._slots = slots
        self._transfer = transfer
        self._clock = clock
        self._incoming = IncomingMigrations(engine, migrated_kv, slots)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._outgoing: dict[str, OutgoingMigration] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_migrating = False
        self._server = grpc.aio.server(options=_OPTIONS)

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Raises ``OSError`` if the address cannot be used."""
        migrate = grpc.unary_unary_rpc_method_handler(
            self._migrate, MigrateRequest.FromString, MigrateResponse.SerializeToString
        )
        abort = grpc.unary_unary_rpc_method_handler(
            self._abort, AbortRequests.FromString, AbortResponse.SerializeToString
        )
        migrate_in = grpc.stream_stream_rpc_method_handler(self._incoming.receive, read_source, encode)
        service, method = MIGRATE_IN.strip("/").split("/")
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("llumlet.Llumlet", {"Migrate": migrate, "Abort": abort}),
                grpc.method_handlers_generic_handler(service, {method: migrate_in}),
            )
        )
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(str(error)) from error
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """Stop the server, all migrations, and all requests that migrated out."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(None)
        for channel in self._channels.values():
            await channel.close()

    # --- commands

    async def _migrate(self, command: MigrateRequest, context: Any) -> MigrateResponse:
        rule, order = command.migration_type, command.migration_req_policy
        if rule not in MIGRATION_RULES or command.WhichOneof("migration_value") != _VALUES.get(rule):
            wanted = ", ".join(f"{name} with {value}" for name, value in _VALUES.items())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"migration_type and its value: one of {wanted}")
        if order not in MIGRATION_ORDERS:
            known = ", ".join(MIGRATION_ORDERS)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"migration_req_policy: one of {known}")
        if self._is_migrating:
            return MigrateResponse(success=False, message="Another migration is under way.")
        self._is_migrating = True
        try:
            moved = await self._migrate_all(
                self._selected(command), f"{command.dst_engine_ip}:{command.dst_engine_port}"
            )
        finally:
            self._is_migrating = False
        if not moved:
            return MigrateResponse(success=False, message="No request could be moved.")
        message = f"Migrate requests from {command.src_engine_id} to {command.dst_engine_id}."
        return MigrateResponse(success=True, message=message, request_ids=moved)

    async def _abort(self, command: AbortRequests, context: Any) -> AbortResponse:
        here = [name for name in command.request_ids if self._engine.listener(name) is not None]
        away = [self._outgoing[name] for name in command.request_ids if name in self._outgoing]
        self._engine.abort_requests(here)
        for migration in away:
            migration.abort()
        found = len(here) + len(away)
        return AbortResponse(success=found > 0, message=f"{found} of {len(command.request_ids)} requests aborted.")

    # --- migrations

    def _selected(self, command: MigrateRequest) -> Sequence[str]:
        rule, requests = command.migration_type, movable_requests(self._engine.state)
        if command.request_ids:
            named = {each for name in command.request_ids for each in (name, f"cmpl-{name}", f"chatcmpl-{name}")}
            return [each.id for each in requests if each.id in named]
        capacity = self._engine.state.constants.token_capacity
        budget = migration_budget(rule, getattr(command, _VALUES[rule]), capacity)
        return select_requests(requests, rule, command.migration_req_policy, budget)

    async def _migrate_all(self, request_ids: Sequence[str], address: str) -> list[str]:
        """Migrate as many at once as there are slots. Return the requests that migrated in time; others continue."""
        turns = asyncio.Semaphore(max(1, self._slots.outgoing.available))
        migrations = {
            request_id: self._spawn(self._migrate_in_turn(request_id, address, turns)) for request_id in request_ids
        }
        if migrations:
            await asyncio.wait(migrations.values(), timeout=_TIMEOUT_S)
        return [
            request_id
            for request_id, task in migrations.items()
            if task.done() and not task.cancelled() and task.result()
        ]

    async def _migrate_in_turn(self, request_id: str, address: str, turns: asyncio.Semaphore) -> bool:
        async with turns:
            return await self._migrate_one(request_id, address)

    async def _migrate_one(self, request_id: str, address: str) -> bool:
        request = self._engine.state.requests.get(request_id)
        if request is None or not self._slots.outgoing.available:
            return False
        call: Call = self._channel(address).stream_stream(MIGRATE_IN)()
        migration = OutgoingMigration(request_id, self._engine, call, self._transfer, self._clock)
        with self._slots.outgoing.occupy(request.num_tokens):
            moved = await migration.run()
        if moved:
            self._outgoing[request_id] = migration
            self._spawn(self._forward_outputs(migration))
        return moved

    async def _forward_outputs(self, migration: OutgoingMigration) -> None:
        try:
            await migration.forward_outputs()
        finally:
            if self._outgoing.get(migration.request_id) is migration:
                del self._outgoing[migration.request_id]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channels[address]

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
