"""``kv_projection``: requests leave an instance before its KV cache runs out of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from enginehouse.rescheduling import RequestView, ReschedulingSettings
from enginehouse_kit.offload import OffloadCandidate, plan_offload
from enginehouse_kit.projection import ProjectionParams, RequestFigures, RequestProjection, project
from enginehouse_kit.rescheduling import ClusterView, DroppedPair, InstanceView, Migration, Plan, ReschedulingPolicy
from enginehouse_rescheduling.policies.instances import Pair, failed_domain

_TYPE = "kv_projection"


class KvProjection(ReschedulingPolicy):
    """Projects the blocks that running requests need if none of them ends early, and moves requests that would not fit.

    The requests with the fewest blocks in the worst pass, but enough of them, move to the instance with the most room
    that shares a model. It stays below ``ratio``.
    """

    class Config(msgspec.Struct, frozen=True):
        """``ratio``: the used share of a cache from which on to project it. ``lookahead``: tokens of each request."""

        ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8
        lookahead: Annotated[int, msgspec.Meta(ge=1)] = 64

    def __init__(self, config: Config | None = None) -> None:
        self._config = config or self.Config()

    def prepare(self, settings: ReschedulingSettings) -> None:
        self._settings = settings

    def reads_streams(self, instance: InstanceView) -> bool:
        return _has_blocks(instance) and _used_share(instance) >= self._config.ratio

    def plan(self, view: ClusterView) -> Plan:
        failed = failed_domain(view, self._settings.failover_domain, self._settings.instance_staleness)
        instances = [each for each in view.instances if each.id not in failed and _has_blocks(each)]
        room = {each.id: self._room(each) for each in instances}
        migrations: list[Migration] = []
        dropped: list[DroppedPair] = []
        for source in sorted(instances, key=lambda each: (-_used_share(each), each.id)):
            moving = self._moving(source)
            if not moving:
                continue
            destination = _roomiest(source, instances, room)
            fitting = list(_fitting(moving, destination, room)) if destination else []
            if destination and fitting:
                pair = Pair(source, destination)
                migrations.append(pair.migration(_TYPE, "NUM_REQ", "SR", len(fitting), fitting))
            elif destination:
                why = f"{source.id} runs out of blocks, and {destination.id} has no room for any of its requests"
                dropped.append(Pair(source, destination).dropped(_TYPE, why))
        return Plan(migrations=tuple(migrations), dropped=tuple(dropped))

    def _room(self, instance: InstanceView) -> int:
        """The tokens that an instance can take and stay below the ratio."""
        status = instance.status
        return max(0, int(self._config.ratio * status.num_total_gpu_tokens) - status.num_used_gpu_tokens)

    def _moving(self, instance: InstanceView) -> Sequence[RequestView]:
        """The requests that must move so that the others fit in the worst pass; none below the ratio."""
        running = {each.id: each for each in instance.requests if each.running}
        if _used_share(instance) < self._config.ratio or not running:
            return ()
        size, status = instance.block_size, instance.status
        total = status.num_total_gpu_tokens // size
        params = ProjectionParams(block_size=size, total_blocks=total, lookahead=self._config.lookahead)
        figures = [self._figures(each) for each in running.values()]
        worst_case = project(figures, params)
        needs = worst_case.predicted_blocks_per_pass
        used = _blocks(status.num_used_gpu_tokens, size)
        others = max(0, used - sum(_held(each, size) for each in running.values()))
        deficit = max(needs) + others - total
        if deficit <= 0:
            return ()
        movable = [each for each in worst_case.per_request if running[each.request_id].stays is None]
        offload = plan_offload(list(_candidates(movable, needs.index(max(needs)), size)), deficit)
        return [running[each.request_id] for each in offload.selected]

    def _figures(self, request: RequestView) -> RequestFigures:
        most = self._config.lookahead if request.max_tokens is None else request.max_tokens - request.output_tokens
        return RequestFigures(
            request_id=request.id,
            num_tokens=request.num_tokens,
            num_computed_tokens=max(0, request.num_tokens - 1),
            remaining_tokens=max(1, most),
        )


def _candidates(requests: Sequence[RequestProjection], worst: int, size: int) -> Iterator[OffloadCandidate]:
    """The requests with the blocks that each needs in the pass ``worst``: 0 if it ends before."""
    for each in requests:
        alive = worst < each.steps_until_completion
        yield OffloadCandidate(
            request_id=each.request_id,
            blocks=_blocks(each.current_tokens + worst, size) if alive else 0,
            remaining_tokens=each.remaining_tokens,
        )


def _has_blocks(instance: InstanceView) -> bool:
    return instance.block_size > 0 and instance.status.num_total_gpu_tokens >= instance.block_size


def _used_share(instance: InstanceView) -> float:
    return instance.status.num_used_gpu_tokens / instance.status.num_total_gpu_tokens


def _blocks(tokens: int, size: int) -> int:
    return -(-tokens // size)


def _held(request: RequestView, size: int) -> int:
    """The blocks that a running request has now."""
    return _blocks(max(0, request.num_tokens - 1), size)


def _roomiest(source: InstanceView, instances: Sequence[InstanceView], room: dict[str, int]) -> InstanceView | None:
    others = [
        each for each in instances if each is not source and each.role is source.role and Pair(source, each).suits
    ]
    return min(others, key=lambda each: (-room[each.id], each.id), default=None)


def _fitting(moving: Sequence[RequestView], destination: InstanceView, room: dict[str, int]) -> Iterator[RequestView]:
    """The requests that fit the room of ``destination``, which they take."""
    for request in moving:
        needed = _blocks(request.num_tokens, destination.block_size) * destination.block_size
        if needed <= room[destination.id]:
            room[destination.id] -= needed
            yield request
