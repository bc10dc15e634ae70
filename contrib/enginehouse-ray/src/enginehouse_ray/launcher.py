"""The launcher ``ray``: detached named actors of Ray core keep places and run engines."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from enginehouse import Launcher
from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineNeeds, EngineOutput, EngineProcess, LaunchLine, Place, PlacementOptions
from enginehouse_ray.cluster import ActorLost, Cluster, no_room, room
from enginehouse_ray.messages import Node
from enginehouse_ray.process import RayProcess, parts_of

_FOUND_S = 5.0
"""How long a known actor may take to answer."""
_DYING_S = 60.0
"""Ray goes on placing actors on a node that has died until enough of its health checks have failed: half a minute."""
_PAUSE_S = 2.0


class RayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[plugins.ray]``: the cluster, and the labels of its nodes that name failure domains."""

    address: Annotated[str, Meta(description='address of the cluster; `"auto"` for one on this machine')] = "auto"
    namespace: Annotated[str, Meta(description="namespace of the actors")] = "enginehouse"
    node_label: Annotated[str, Meta(description="label that names a node; by default, Ray's name of it")] = ""
    unit_label: Annotated[str, Meta(description="label that names a unit of nodes")] = "ray.io/availability-zone"
    lost_after: Annotated[float, Meta(gt=0, description="seconds without an answer after which a node is lost")] = 6.0


class RayPlacement(PlacementOptions, frozen=True, forbid_unknown_fields=True):
    """``placement`` of a host or a model: what its nodes must have."""

    cpus: Annotated[float, Meta(ge=0, description="CPUs on each node")] = 1.0
    resources: Annotated[dict[str, float], Meta(description="custom resources on each node")] = {}
    labels: Annotated[dict[str, str], Meta(description="labels that nodes must have")] = {}
    nodes: Annotated[int, Meta(ge=1, description="nodes that one engine spans; its GPUs are split evenly")] = 1
    runtime_env: Annotated[dict[str, Any], Meta(description="Ray's runtime environment of the engine")] = {}


class RayLauncher(Launcher):
    """Places engines by Ray's scheduler. They run in actors that outlive the gateway and are found by their names."""

    Config = RayConfig
    Options = RayPlacement
    places_gpus = True

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._cluster = Cluster(config.address, config.namespace)
        self._gateway = self._name = ""

    async def prepare(self, logs: Path) -> None:
        self._gateway = f"{socket.gethostname()}:{logs.parent}"
        self._name = logs.parent.name
        await self._cluster.connect()

    async def no_room(self, needs: EngineNeeds) -> str:
        options = needs.options_as(RayPlacement)
        wanted = _wanted(options, needs.gpus // options.nodes)
        return no_room(await self._cluster.nodes(), wanted, options.labels, options.nodes)

    async def place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place:
        options = needs.options_as(RayPlacement)
        if needs.gpus % options.nodes:
            raise LoadFailed(
                f"{needs.gpus} GPUs cannot be split evenly over {options.nodes} nodes: change models.*.gpus"
            )
        names = [self._actor_name(name, rank) for rank in range(options.nodes)]
        gpus = needs.gpus // options.nodes
        end = asyncio.get_running_loop().time() + _DYING_S
        while True:
            try:
                await self._cluster.connect()
                await self._clear(name, names)
                if why := room(await self._cluster.nodes(), _wanted(options, gpus), options.labels, options.nodes):
                    waits(why)
                return await self._create(names, options, gpus, needs.ports)
            except ActorLost as error:
                if asyncio.get_running_loop().time() > end:
                    raise LoadFailed(f"The place of '{name}' was lost: {error}") from error
                waits(f"its place was lost, another one is wanted: {error}")
            await asyncio.sleep(_PAUSE_S)

    async def release(self, place: Place) -> None:
        with contextlib.suppress(ActorLost):
            await self._cluster.kill(place.handle["actors"])

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        node, why = await self._problem(line, "why_not", line.environment.get("PATH"), list(files))
        return f"on node {node}, {why}" if why else ""

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        node, why = await self._problem(line, "start", dict(line.environment), sorted(line.withheld))
        if why:
            raise LoadFailed(f"'{name}' did not start on node {node}: {why}")
        return RayProcess(self._cluster, line, output, lost_after=self._config.lost_after)

    async def _problem(self, line: LaunchLine, method: str, *arguments: Any) -> tuple[str, str]:
        """The first node whose actor has a problem with its command, and which; two empty texts if none has."""
        for part, command in zip(parts_of(line), [line.command, *line.others], strict=True):
            try:
                why = await self._cluster.ask(part.actor, method, list(command), *arguments)
            except ActorLost as error:
                why = f"it was lost: {error}"
            if why:
                return part.node, why
        return "", ""

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        """Find an engine by the names of its actors. Actors without a running process are killed."""
        if line.place is None:  # the gateway died while it waited for the place
            await self._clear(name, [self._actor_name(name, 0)])
            return None
        names = line.place.handle["actors"]
        if not await self._run(names):
            await self._cluster.kill(names)
            return None
        return RayProcess(self._cluster, line, output, lost_after=self._config.lost_after)

    # --- places

    def _actor_name(self, engine: str, rank: int) -> str:
        return f"{self._name}/{engine}" + (f"#{rank}" if rank else "")

    async def _clear(self, name: str, names: Sequence[str]) -> None:
        """Kill the actors of an earlier engine of this name. Raises ``LoadFailed`` for those of another gateway."""
        for each in names:
            if not await self._cluster.find(each):
                continue
            with contextlib.suppress(ActorLost, asyncio.TimeoutError):
                owner, _ = await asyncio.wait_for(self._cluster.ask(each, "belongs_to"), _FOUND_S)
                if owner != self._gateway:
                    raise LoadFailed(
                        f"'{name}' is an engine of the gateway {owner} in this Ray cluster: give each gateway a "
                        "server.name of its own"
                    )
        await self._cluster.kill(names)

    async def _create(self, names: Sequence[str], options: RayPlacement, gpus: int, ports: tuple[int, int]) -> Place:
        wanted = {
            "num_cpus": options.cpus,
            "num_gpus": gpus,
            "resources": options.resources,
            "label_selector": options.labels,
            "runtime_env": options.runtime_env,
        }
        creation = asyncio.ensure_future(self._cluster.create(names, self._gateway, _wanted(options, gpus), wanted))
        try:
            await asyncio.shield(creation)
            return await self._placed(names, ports)
        except BaseException:
            await asyncio.shield(self._give_up(creation, names))
            raise

    async def _placed(self, names: Sequence[str], ports: tuple[int, int]) -> Place:
        """Wait until all actors run, and let the first one keep ports."""
        found = [await self._node_of(name) for name in names]
        address, count = found[0].address, 1 if len(found) == 1 else 2
        try:
            kept = await self._cluster.ask(names[0], "place", address, *ports, count)
        except ActorLost as error:
            raise LoadFailed(f"Node {found[0].name} of the Ray cluster has no free resources: {error}") from error
        labels = [self._label(each) for each in found]
        return Place(
            port=kept[0],
            bind=address,
            node=labels[0],
            unit=found[0].labels.get(self._config.unit_label, ""),
            others=tuple(each.address for each in found[1:]),
            meet_at=f"{address}:{kept[1]}" if count > 1 else "",
            handle={"actors": list(names), "nodes": labels},
        )

    async def _node_of(self, actor: str) -> Node:
        id = await self._cluster.ask(actor, "node")
        nodes = {each.id: each for each in await self._cluster.nodes()}
        if id not in nodes:
            raise LoadFailed(f"Node {id} of the Ray cluster was lost while the engine was placed there")
        return nodes[id]

    def _label(self, node: Node) -> str:
        return node.labels.get(self._config.node_label, node.name)

    async def _run(self, names: Sequence[str]) -> bool:
        """Whether all actors are of this gateway, and their processes run."""
        try:
            for each in names:
                owner, runs = await asyncio.wait_for(self._cluster.ask(each, "belongs_to"), _FOUND_S)
                if owner != self._gateway or not runs:
                    return False
        except (ActorLost, asyncio.TimeoutError):
            return False
        return True

    async def _give_up(self, creation: asyncio.Future[None], names: Sequence[str]) -> None:
        """Free what has been created: a call that is cancelled here goes on in the agent."""
        await asyncio.wait({creation})
        with contextlib.suppress(ActorLost, LoadFailed):
            await self._cluster.kill(names)


def _wanted(options: RayPlacement, gpus: int) -> dict[str, float]:
    wanted = {"CPU": options.cpus, "GPU": float(gpus), **options.resources}
    return {name: float(amount) for name, amount in wanted.items() if amount}
