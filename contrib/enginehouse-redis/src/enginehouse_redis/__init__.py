"""Keeps the limits of keys that several gateways share in Redis."""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_kit.limit_stores import LimitStore


@hookimpl
def register_limit_stores(register: Register[LimitStore]) -> None:
    """Offer ``limits.store = "redis"``."""
    from enginehouse_redis.redis_limits import RedisLimits

    register("redis", RedisLimits)
