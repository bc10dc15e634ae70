"""Live migration on Llumnix's gRPC command: requests move between simulated engines with their KV cache.

As in Llumnix, KV is append-only, so each stage of the copy has the tokens that were added during the stage before, and
the downtime is that of the last stage, whatever the length of the request. After it, the source calls the destination
with the request. The answer is a stream of the request's further outputs, which the source passes on to its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
import msgspec

from enginehouse import RequestError
from enginehouse_kit.llumlet.llumlet_pb2 import MigrateRequest, MigrateResponse
from enginehouse_kit.selection import MIGRATION_ORDERS, MIGRATION_RULES, migration_budget, select_requests
from enginehouse_sim.simulator.core.migration import (
    MAX_MIGRATIONS,
    MigratedKv,
    MigrationSlots,
    computed_tokens,
    copy_stages,
    movable_requests,
)
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.server.batching_engine import (
    BatchingEngine,
    EngineFailed,
    Followers,
)
from enginehouse_sim.simulator.steps.costs import KvTransfer

_TIMEOUT_S = 5.0
"""Llumnix's RPC timeout, for a reply of the destination and for a whole command; later migrations still go on."""
_STEP_S = 0.001
"""Seconds between checks whether a step is over."""
_VALUES = {"NUM_REQ": "num_reqs", "TOKEN": "num_tokens", "RATIO": "kv_cache_usage_ratio"}
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_SERVICE, _METHOD = "enginehouse.sim.Migration", "MoveIn"


class MoveIn(msgspec.Struct, frozen=True):
    """A request that no longer runs at the source; the KV of its first ``num_computed_tokens`` has been copied."""

    request: EngineCoreRequest
    num_computed_tokens: int


class _Forwarder:
    """Queues the outputs of a request that has moved in; an error is the last element."""

    def __init__(self) -> None:
        self.outputs: asyncio.Queue[EngineCoreOutput | RequestError] = asyncio.Queue()

    def on_scheduled(self, now: float) -> None:
        pass

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        self.outputs.put_nowait(output)

    def on_error(self, error: RequestError) -> None:
        self.outputs.put_nowait(error)


class _Leaving:
    """A request that has left for another engine, as the location of its ``followers``.

    ``call``: sends the outputs, once the destination is asked to take the request. ``has_ended``: the client has left.
    """

    def __init__(self, followers: Followers, engine: BatchingEngine) -> None:
        followers.location = self
        self.followers = followers
        self.call: Any = None
        self.has_ended = False
        self._engine = engine

    async def forward(self) -> None:
        problem = "the destination is gone"
        try:
            async for output in self.call:
                self.followers.on_output(output, self._engine.clock.now())
                if self.has_ended or output.finish_reason is not None:
                    return
        except grpc.aio.AioRpcError as error:
            problem = error.details() or problem
        except asyncio.CancelledError:  # finish_requests has cancelled the call
            return
        self.followers.on_error(EngineFailed(f"The request migrated, and could not continue: {problem}"))

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish the request where it runs now, without a call to its listener."""
        self.has_ended = True
        if self.call is not None:
            self.call.cancel()


class Llumlet:
    """Moves requests of ``engine`` out, and takes others in."""

    def __init__(
        self, engine: BatchingEngine, migrated_kv: MigratedKv, slots: MigrationSlots, transfer: KvTransfer
    ) -> None:
        self._engine = engine
        self._migrated_kv = migrated_kv
        self._transfer = transfer
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._slots = slots
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns = asyncio.Semaphore(MAX_MIGRATIONS)
        self._is_migrating = False
        self._server = grpc.aio.server(options=_OPTIONS)

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Raises ``OSError`` if the address cannot be used."""
        migrate = grpc.unary_unary_rpc_method_handler(
            self._migrate, MigrateRequest.FromString, MigrateResponse.SerializeToString
        )
        move_in = grpc.unary_stream_rpc_method_handler(
            self._take_in, msgspec.msgpack.Decoder(MoveIn).decode, msgspec.msgpack.encode
        )
        handler = grpc.method_handlers_generic_handler
        self._server.add_generic_rpc_handlers(
            (handler("llumlet.Llumlet", {"Migrate": migrate}), handler(_SERVICE, {_METHOD: move_in}))
        )
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(str(error)) from error
        await self._server.start()
        return bound

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(None)
        for channel in self._channels.values():
            await channel.close()

    # --- out

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
            address = f"{command.dst_engine_ip}:{command.dst_engine_port}"
            moved = await self._move_all(self._selected(command), address)
        finally:
            self._is_migrating = False
        if not moved:
            return MigrateResponse(success=False, message="No request could be moved.")
        message = f"Migrate requests from {command.src_engine_id} to {command.dst_engine_id}."
        return MigrateResponse(success=True, message=message, request_ids=moved)

    def _selected(self, command: MigrateRequest) -> Sequence[str]:
        rule, requests = command.migration_type, movable_requests(self._engine.state)
        if command.request_ids:
            named = {each for name in command.request_ids for each in (name, f"cmpl-{name}", f"chatcmpl-{name}")}
            return [each.id for each in requests if each.id in named]
        budget = migration_budget(rule, getattr(command, _VALUES[rule]), self._engine.state.constants.token_capacity)
        return select_requests(requests, rule, command.migration_req_policy, budget)

    async def _move_all(self, request_ids: Sequence[str], address: str) -> list[str]:
        """Move as many at once as there are slots. Return the requests that moved in time; others continue."""
        moves = {request_id: self._spawn(self._move_in_turn(request_id, address)) for request_id in request_ids}
        if moves:
            await asyncio.wait(moves.values(), timeout=_TIMEOUT_S)
        return [name for name, task in moves.items() if task.done() and not task.cancelled() and task.result()]

    async def _move_in_turn(self, request_id: str, address: str) -> bool:
        async with self._turns:
            request = self._engine.state.requests.get(request_id)
            if request is None:
                return False
            with self._slots.outgoing.occupy(request.num_tokens):
                return await self._move(request_id, address)

    async def _move(self, request_id: str, address: str) -> bool:
        """Move one request. Return whether the destination has it; else it continues here."""
        copied = await copy_stages(self._engine.state, request_id, self._transfer, self._engine.clock.sleep)
        current = self._engine.state.requests.get(request_id)
        if current is None:
            return False
        computed = computed_tokens(current)
        request, followers = self._engine.detach_request(request_id)
        leaving = _Leaving(followers, self._engine)
        await self._engine.clock.sleep(self._transfer.seconds(max(0, computed - copied)))
        method = self._channel(address).unary_stream(
            f"/{_SERVICE}/{_METHOD}", msgspec.msgpack.encode, msgspec.msgpack.Decoder(EngineCoreOutput).decode
        )
        call = leaving.call = method(MoveIn(request, computed))
        with suppress(grpc.aio.AioRpcError, asyncio.TimeoutError):
            await asyncio.wait_for(call.initial_metadata(), _TIMEOUT_S)
            if not call.done():
                self._spawn(leaving.forward())
                return True
        call.cancel()
        await self._resume_here(request, leaving)
        return False

    async def _resume_here(self, request: EngineCoreRequest, leaving: _Leaving) -> None:
        """Continue the request here once its last step is over, unless its client has left."""
        while self._engine.is_known(request.request_id):
            await self._engine.clock.sleep(_STEP_S)
        if not leaving.has_ended:
            leaving.followers.location = self._engine
            self._engine.add_request(request, leaving.followers)

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channels[address]

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- in

    async def _take_in(self, moved: MoveIn, context: Any) -> AsyncIterator[EngineCoreOutput]:
        """Run a request of another engine. Its outputs go there until its end, or until that engine leaves."""
        request, forwarder = moved.request, _Forwarder()
        followers = Followers(request.request_id, self._engine, has_moved_in=True)
        followers.join(forwarder)
        if why := self._refusal(request):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        if moved.num_computed_tokens:
            self._migrated_kv.expect(request.request_id, moved.num_computed_tokens)
        try:
            self._engine.add_request(request, followers)
        except RequestError as error:
            self._migrated_kv.delivered(request.request_id)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)
        try:
            await context.send_initial_metadata(())
            while not isinstance(output := await forwarder.outputs.get(), RequestError):
                yield output
                if output.finish_reason is not None:
                    return
            await context.abort(grpc.StatusCode.UNAVAILABLE, output.message)
        finally:
            followers.leave(forwarder)

    def _refusal(self, request: EngineCoreRequest) -> str:
        engine, state = self._engine, self._engine.state
        if engine.failure or engine.sleep_level:
            return "the engine takes no requests now"
        if engine.is_known(request.request_id):
            return f"a request '{request.request_id}' exists already"
        if len(state.running) + len(state.waiting) >= state.constants.max_num_seqs:
            return "max_num_seqs requests run already"
        num_tokens = len(request.prompt_token_ids) + len(request.output_token_ids)
        if -(-num_tokens // state.constants.block_size) + 1 > state.kv_cache.num_free_blocks:
            return "there are too few free blocks"
        return ""
