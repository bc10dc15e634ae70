"""The migrator ``replay``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from enginehouse import EnginehouseError, RequestError
from enginehouse.errors import NotFound, UpstreamError
from enginehouse.rescheduling import InstanceAddress
from enginehouse_kit.request_ids import gateway_request_ids
from enginehouse_kit.rescheduling import ClusterView, InstanceView, Migrated, Migration, MigrationMeans, Migrator
from enginehouse_kit.selection import migration_budget, select_requests

_VALUES = {"NUM_REQ": "num_reqs", "TOKEN": "num_tokens", "RATIO": "kv_cache_usage_ratio"}


class Replay(Migrator):
    """Makes the destination continue each stream from its tokens. It needs nothing of the engines."""

    class Config(msgspec.Struct, frozen=True):
        """``at_once``: the most streams that move together, whose texts the destination then reads at the same time."""

        at_once: Annotated[int, msgspec.Meta(ge=1)] = 16

    _means: MigrationMeans

    def __init__(self, config: Config | None = None) -> None:
        self._config = config or self.Config()
        self._index = InstanceIndex()

    def prepare(self, means: MigrationMeans) -> None:
        self._means = means

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        known = self._index.of(view).keys()
        return "" if {migration.source, migration.destination} <= known else "the view does not have both instances"

    async def migrate(self, migration: Migration) -> Migrated:
        """Move the chosen streams, many at once. A stream that cannot be moved stays at its source."""
        chosen = migration.requests or self._chosen(migration)
        if not chosen:
            return Migrated(found_none=True)
        turns = asyncio.Semaphore(self._config.at_once)
        problems = await asyncio.gather(*(self._move(request, migration.destination, turns) for request in chosen))
        refused = {request: why for request, why in zip(chosen, problems, strict=True) if why}
        return Migrated(moved=tuple(request for request in chosen if request not in refused), refused=refused)

    def _chosen(self, migration: Migration) -> list[str]:
        total = self._means.kv_tokens(migration.source)
        budget = migration_budget(migration.rule, migration.value, total)
        return select_requests(self._means.live(migration.source), migration.rule, migration.order, budget)

    async def _move(self, request: str, destination: str, turns: asyncio.Semaphore) -> str:
        """Move one request when it is its turn; returns why it stays, or nothing."""
        async with turns:
            try:
                await self._means.move(request, destination)
            except EnginehouseError as error:
                return str(error)
        return ""


class Llumlet(Migrator):
    """Commands the llumlet of the source. The engines copy the KV cache, and the destination continues.

    If the destination offers the rest of a stream, the stream no longer depends on the source. Otherwise it still comes
    through the source.

    Needs gRPC: ``pip install 'enginehouse[llumlet]'``.
    """

    _means: MigrationMeans

    def __init__(self) -> None:
        self._index = InstanceIndex()

    def prepare(self, means: MigrationMeans) -> None:
        self._means = means
        self._has_grpc = _has_grpc()  # now, because the import takes long

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        instances = self._index.of(view)
        source, destination = instances.get(migration.source), instances.get(migration.destination)
        if source is None or destination is None:
            return "the view does not have both instances"
        if not self._has_grpc:
            return "gRPC is not installed: pip install 'enginehouse[llumlet]'"
        return _no_llumlet(source) or _no_kv_port(destination)

    async def migrate(self, migration: Migration) -> Migrated:
        """Send the command once, then ask the destination for the rest of each stream.

        A source that moves no request is a ``NotFound`` with its reason.
        """
        source, destination = self._means.address(migration.source), self._means.address(migration.destination)
        host = f"[{source.ip}]" if ":" in source.ip else source.ip
        response = await _send(_command(migration, destination), f"{host}:{source.llumlet_port}")
        if not response.success:
            raise NotFound(f"The llumlet of '{migration.source}' moved nothing: {response.message}")
        moved = await asyncio.gather(*(self._join(each, migration.destination) for each in response.request_ids))
        return Migrated(moved=tuple(moved))

    async def _join(self, engine_request: str, destination: str) -> str:
        """Get the rest of a stream from the destination, or else through the source."""
        whole, *others = gateway_request_ids(engine_request)
        for request in (whole, *others):
            try:
                await self._means.join(request, destination, engine_request)
            except NotFound:
                continue
            except RequestError:
                self._means.moved_by_engine(request, destination)
            return request
        return whole


def _no_llumlet(source: InstanceView) -> str:
    return "" if source.address.ip and source.address.llumlet_port else f"{source.id} has no llumlet"


def _no_kv_port(destination: InstanceView) -> str:
    address = destination.address
    return "" if address.ip and address.kvt_port else f"{destination.id} accepts no requests of other engines"


def _has_grpc() -> bool:
    try:
        import grpc  # noqa: F401
        from google import protobuf  # noqa: F401
    except ImportError:
        return False
    return True


def _command(migration: Migration, destination: InstanceAddress) -> Any:
    from enginehouse_kit.llumlet.llumlet_pb2 import MigrateRequest

    command = MigrateRequest(
        src_engine_id=migration.source,
        dst_engine_id=migration.destination,
        dst_engine_ip=destination.ip,
        dst_engine_port=destination.kvt_port,
        migration_type=migration.rule,
        migration_req_policy=migration.order,
        trigger_policy=migration.policy,
        request_ids=migration.requests,
    )
    setattr(command, _VALUES[migration.rule], migration.value if migration.rule == "RATIO" else int(migration.value))
    return command


async def _send(command: Any, address: str) -> Any:
    """The llumlet's response. Raises ``UpstreamError`` if it has none. The gateway limits the time."""
    import grpc

    from enginehouse_kit.llumlet.llumlet_pb2 import MigrateRequest, MigrateResponse

    async with grpc.aio.insecure_channel(address) as channel:
        migrate = channel.unary_unary(
            "/llumlet.Llumlet/Migrate",
            request_serializer=MigrateRequest.SerializeToString,
            response_deserializer=MigrateResponse.FromString,
        )
        try:
            return await migrate(command)
        except grpc.aio.AioRpcError as error:
            problem = f"{error.code().name}: {error.details()}"
            raise UpstreamError(f"The llumlet at {address} failed: {problem}") from None


class InstanceIndex:
    """The instances of the latest view, which all migrations of a round share: they are indexed once."""

    def __init__(self) -> None:
        self._view: ClusterView | None = None
        self._instances: Mapping[str, InstanceView] = {}

    def of(self, view: ClusterView) -> Mapping[str, InstanceView]:
        """The instances of ``view`` by id."""
        if view is not self._view:
            self._view, self._instances = view, {each.id: each for each in view.instances}
        return self._instances
