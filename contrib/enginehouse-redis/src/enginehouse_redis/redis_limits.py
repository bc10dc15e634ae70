"""The limit store ``redis``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from enginehouse import ConfigError
from enginehouse_kit.limits import Lease, LeaseAsk, LeasedLimitStore, Leases

_SCRIPT = (files("enginehouse_redis") / "lease.lua").read_bytes()
_SHA = sha1(_SCRIPT, usedforsecurity=False).hexdigest()
_PREFIX = "{enginehouse}:"
"""In braces, so that all keys are on one node of a cluster: the script needs them together."""
_REMEDY = 'write limits.url = "redis://HOST:PORT", or "rediss://" for TLS'


class RedisLimits(LeasedLimitStore):
    """Limits that several gateways share. Each gateway asks Redis ten times a second, never while a request waits."""

    def __init__(self) -> None:
        super().__init__()
        self._redis: Redis | None = None

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        super().prepare(url, now, epoch)
        if not url:
            raise ConfigError("the limit store 'redis' needs an address", key="limits.url", remedy=_REMEDY)
        try:
            # Without retries: those of the library waited for seconds although its time limits were shorter.
            self._redis = Redis.from_url(
                url,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=self.patience,
                socket_connect_timeout=self.patience,
                max_connections=2,
                client_name="enginehouse",
            )
        except ValueError:  # its message may have the password
            raise ConfigError("is not the address of Redis", key="limits.url", remedy=_REMEDY) from None

    async def lease(self, gateway: str, asks: Sequence[LeaseAsk]) -> Leases:
        keys = [f"{_PREFIX}gateways", *(f"{_PREFIX}{ask.rule.per}:{ask.name}" for ask in asks)]
        arguments = [text for ask in asks for text in (ask.rule.per, ask.rule.amount, ask.want, ask.back)]
        numbers = [float(each) for each in await self._call(*keys, gateway, *map(str, arguments), keys=len(keys))]
        if len(numbers) != 1 + 3 * len(asks):
            raise ValueError(f"Redis answered {len(numbers)} numbers to {len(asks)} limits")
        leases = [Lease(*numbers[start : start + 3]) for start in range(1, len(numbers), 3)]
        return Leases(leases, int(numbers[0]))

    async def close(self) -> None:
        await super().close()
        if self._redis is not None:
            await self._redis.aclose()

    async def _call(self, *arguments: str, keys: int) -> Any:
        """Run the script; a Redis that has just started gets it first."""
        assert self._redis is not None
        try:
            return await self._redis.evalsha(_SHA, keys, *arguments)
        except NoScriptError:
            return await self._redis.eval(_SCRIPT, keys, *arguments)
