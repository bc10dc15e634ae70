"""Keeps the limits of keys that several gateways share in Redis."""

from __future__ import annotations

from enginehouse import LimitStore, Register, hookimpl


@hookimpl
def register_limit_stores(register: Register[LimitStore]) -> None:
    """Offer ``limits.store = "redis"``."""
    from enginehouse_redis.redis_limits import RedisLimits

    register("redis", RedisLimits)
