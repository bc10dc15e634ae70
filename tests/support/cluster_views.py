"""Cluster views for tests of policies and the planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from enginehouse.rescheduling import InstanceStatus, ReschedulingSettings
from enginehouse_kit.rescheduling import ClusterView, InFlight, InstanceView, Plan, ReschedulingPolicy
from enginehouse_kit.testing import create

NOW_MS = 1_700_000_000_000


def instance(name: str, load: float = 0.0, **fields: Any) -> InstanceView:
    """An instance that uses the share ``load`` of its KV cache. ``fields``: its own, its status's or inflight's."""
    own = {key: fields.pop(key) for key in InstanceView.__struct_fields__ if key in fields}
    inflight = {key: fields.pop(key) for key in InFlight.__struct_fields__ if key in fields}
    figures = {
        "instance_id": name,
        "timestamp_ms": NOW_MS - 100,
        "num_total_gpu_tokens": 1000,
        "num_used_gpu_tokens": round(1000 * load),
    }
    status = InstanceStatus(**{**figures, **fields})
    return InstanceView(id=name, status=status, inflight=InFlight(**inflight), **own)


def view(*instances: InstanceView) -> ClusterView:
    return ClusterView(now_ms=NOW_MS, instances=instances)


def policy(type: str, **settings: Any) -> ReschedulingPolicy:
    """The bundled policy of that type, prepared."""
    made: ReschedulingPolicy = create("rescheduling_policy", type)
    made.prepare(ReschedulingSettings(**settings))
    return made


def pairs(plan: Plan) -> list[tuple[str, str]]:
    """The source and the destination of each migration."""
    return [(each.source, each.destination) for each in plan.migrations]


def half_batch_profile(folder: Path) -> dict[str, str]:
    """Settings with profiles: a decode step takes half a millisecond per request, a prompt one per token."""
    tpot = [
        {"batch_size": batch, "tokens_per_request": tokens, "p50": batch / 2}
        for batch in (1, 400)
        for tokens in (8, 100_000)
    ]
    ttft = [{"tokens_num": tokens, "p50": float(tokens)} for tokens in (1, 100_000)]
    paths = {"tpot_profile": folder / "tpot.json", "ttft_profile": folder / "ttft.json"}
    for path, results in zip(paths.values(), (tpot, ttft), strict=True):
        path.write_text(json.dumps({"metadata": {"model": "test"}, "results": results}))
    return {key: str(path) for key, path in paths.items()}
