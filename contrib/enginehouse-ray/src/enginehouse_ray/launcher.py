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
from ray.exceptions import RayError
from ray.util.placement_group import get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from enginehouse import (
    EngineNeeds,
    EngineOutput,
    EngineProcess,
    Launcher,
    LaunchLine,
    LoadFailed,
    Place,
    PlacementOptions,
)
from enginehouse_ray.cluster import Cluster, Node, answer, room
from enginehouse_ray.process import Part, RayProcess

_FOUND_S = 5.0
"""How long a known actor may take to answer."""


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

    async def place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place:
        options = needs.options_as(RayPlacement)
        if needs.gpus % options.nodes:
            raise LoadFailed(
                f"{needs.gpus} GPUs cannot be split evenly over {options.nodes} nodes: change models.*.gpus"
            )
        names = [self._actor_name(name, rank) for rank in range(options.nodes)]
        await self._clear(name, names)
        gpus = needs.gpus // options.nodes
        if why := room(await self._cluster.nodes(), _wanted(options, gpus), options.labels, options.nodes):
            waits(why)
        creation = asyncio.ensure_future(self._actors(names, options, gpus))
        try:
            return await self._placed(names, await asyncio.shield(creation), needs)
        except BaseException:
            await asyncio.shield(self._give_up(creation, names))
            raise

    async def release(self, place: Place) -> None:
        await self._free(place.handle["actors"])

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        assert line.place is not None
        parts = await self._parts(line.place)
        path = line.environment.get("PATH")
        for part, command in zip(parts, [line.command, *line.others], strict=True):
            if why := await answer(part.actor.why_not.remote(list(command), path, list(files))):
                return f"on node {part.node}, {why}"
        return ""

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        assert line.place is not None
        parts = await self._parts(line.place)
        environment, withheld = dict(line.environment), sorted(line.withheld)
        for part, command in zip(parts, [line.command, *line.others], strict=True):
            try:
                why = await answer(part.actor.start.remote(list(command), environment, withheld))
            except RayError as error:
                raise LoadFailed(f"'{name}' did not start: node {part.node} was lost: {error}") from error
            if why:
                raise LoadFailed(f"'{name}' did not start on node {part.node}: {why}")
        return self._process(parts, line, output)

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        """Find an engine by the names of its actors. Actors without a running process are killed."""
        place = line.place
        if place is None:  # the gateway died while it waited for the place
            await self._clear(name, [self._actor_name(name, 0)])
            return None
        names = place.handle["actors"]
        actors = [await self._cluster.find(each) for each in names]
        if None in actors or not await self._run(actors):
            await self._free(names)
            return None
        parts = [Part(actor, node) for actor, node in zip(actors, place.handle["nodes"], strict=True)]
        return self._process(parts, line, output)

    # --- places

    def _actor_name(self, engine: str, rank: int) -> str:
        return f"{self._name}/{engine}" + (f"#{rank}" if rank else "")

    async def _clear(self, name: str, names: Sequence[str]) -> None:
        """Kill the actors of an earlier engine of this name. Raises ``LoadFailed`` for those of another gateway."""
        for each in names:
            actor = await self._cluster.find(each)
            if actor is None:
                continue
            with contextlib.suppress(RayError, asyncio.TimeoutError):
                owner, _ = await asyncio.wait_for(answer(actor.belongs_to.remote()), _FOUND_S)
                if owner != self._gateway:
                    raise LoadFailed(
                        f"'{name}' is an engine of the gateway {owner} in this Ray cluster: give each gateway a "
                        "server.name of its own"
                    )
        await self._free(names)

    async def _actors(self, names: Sequence[str], options: RayPlacement, gpus: int) -> Sequence[Any]:
        """Begin to create the actors: one, or one on each node of a placement group."""
        common: dict[str, Any] = {"num_cpus": options.cpus, "num_gpus": gpus, "resources": options.resources}
        if options.runtime_env:
            common["runtime_env"] = options.runtime_env
        if len(names) == 1:
            if options.labels:
                common["label_selector"] = options.labels
            return [await self._cluster.create(names[0], self._gateway, **common)]
        group = await self._cluster.call(_group, names, _wanted(options, gpus), options.labels)
        return [
            await self._cluster.create(
                name,
                self._gateway,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
                **common,
            )
            for rank, name in enumerate(names)
        ]

    async def _placed(self, names: Sequence[str], actors: Sequence[Any], needs: EngineNeeds) -> Place:
        """Wait until all actors run, and let the first one keep ports."""
        found = [await self._node_of(actor) for actor in actors]
        first, last = needs.ports
        address, count = found[0].address, 1 if len(found) == 1 else 2
        try:
            ports = await answer(actors[0].place.remote(address, first, last, count))
        except RayError as error:
            raise LoadFailed(f"Node {found[0].name} of the Ray cluster has no place: {error}") from error
        handle = {"actors": list(names), "nodes": [self._label(each) for each in found]}
        return Place(
            port=ports[0],
            bind=address,
            node=handle["nodes"][0],
            unit=found[0].labels.get(self._config.unit_label, ""),
            others=tuple(each.address for each in found[1:]),
            meet_at=f"{address}:{ports[1]}" if count > 1 else "",
            handle=handle,
        )

    async def _node_of(self, actor: Any) -> Node:
        id = await answer(actor.node.remote())
        nodes = {each.id: each for each in await self._cluster.nodes()}
        if id not in nodes:
            raise LoadFailed(f"Node {id} of the Ray cluster was lost while the engine was placed there")
        return nodes[id]

    def _label(self, node: Node) -> str:
        return node.labels.get(self._config.node_label, node.name)

    async def _parts(self, place: Place) -> list[Part]:
        parts = []
        for name, node in zip(place.handle["actors"], place.handle["nodes"], strict=True):
            actor = await self._cluster.find(name)
            if actor is None:
                raise LoadFailed(f"Node {node} of the Ray cluster was lost before the engine started there")
            parts.append(Part(actor, node))
        return parts

    async def _run(self, actors: Sequence[Any]) -> bool:
        """Whether all actors are of this gateway, and their processes run."""
        try:
            for actor in actors:
                owner, runs = await asyncio.wait_for(answer(actor.belongs_to.remote()), _FOUND_S)
                if owner != self._gateway or not runs:
                    return False
        except (RayError, asyncio.TimeoutError):
            return False
        return True

    async def _free(self, names: Sequence[str]) -> None:
        """Kill the actors and remove their placement group."""
        for name in names:
            await self._cluster.kill(name)
        if len(names) > 1:
            await self._cluster.call(_remove_group, names[0])

    async def _give_up(self, creation: asyncio.Future[Sequence[Any]], names: Sequence[str]) -> None:
        """Free what has been created: a cancelled call of Ray goes on in its thread."""
        await asyncio.wait({creation})
        await self._free(names)

    def _process(self, parts: Sequence[Part], line: LaunchLine, output: EngineOutput) -> RayProcess:
        assert line.place is not None
        handle = line.place.handle
        return RayProcess(
            parts,
            line,
            handle,
            output,
            lost_after=self._config.lost_after,
            free=lambda: self._free(handle["actors"]),
        )


def _wanted(options: RayPlacement, gpus: int) -> dict[str, float]:
    wanted = {"CPU": options.cpus, "GPU": float(gpus), **options.resources}
    return {name: float(amount) for name, amount in wanted.items() if amount}


def _group(names: Sequence[str], bundle: Mapping[str, float], labels: Mapping[str, str]) -> Any:
    """A placement group with a bundle on each of several nodes."""
    selectors = {"bundle_label_selector": [dict(labels)] * len(names)} if labels else {}
    bundles = [dict(bundle) for _ in names]
    return placement_group(bundles, strategy="STRICT_SPREAD", lifetime="detached", name=names[0], **selectors)


def _remove_group(name: str) -> None:
    with contextlib.suppress(ValueError):
        remove_placement_group(get_placement_group(name))
