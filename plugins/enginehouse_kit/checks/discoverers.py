"""The conformance check of discoverers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from enginehouse.backends import FoundBackend
from enginehouse_kit.discoverers import Discoverer
from enginehouse_kit.expect import expect


def check_discoverer(factory: Callable[[], Discoverer], timeout: float = 10.0) -> None:
    """Check that ``watch`` first yields all backends by name, and can be closed. Call it in a synchronous test.

    ``timeout``: seconds until the first backends. The source must be reachable, or a fake.
    """
    asyncio.run(_check(factory(), timeout))


async def _check(it: Discoverer, timeout: float) -> None:
    watch: Any = it.watch()
    expect(hasattr(watch, "__anext__"), f"watch must be an async generator, got {watch!r}")
    try:
        found = await asyncio.wait_for(watch.__anext__(), timeout)
    except (asyncio.TimeoutError, StopAsyncIteration):
        raise AssertionError(f"watch must yield all backends within {timeout:g} seconds, even if none") from None
    expect(isinstance(found, Mapping), f"watch must yield a mapping of names to FoundBackend, got {found!r}")
    for name, backend in found.items():
        expect(isinstance(name, str) and name != "", f"a backend must have a name, got {name!r}")
        expect(isinstance(backend, FoundBackend), f"'{name}' must be a FoundBackend, got {backend!r}")
        url = backend.url
        expect(url.startswith(("http://", "https://")), f"the url of '{name}' must begin with http, got {url!r}")
    if close := getattr(watch, "aclose", None):
        await asyncio.wait_for(close(), timeout)
