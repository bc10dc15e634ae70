"""Keeps the objects of one resource as the API server has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from kubernetes_asyncio.client import ApiException
from kubernetes_asyncio.watch import Watch

_GONE = 410
_WATCH_S = 30
"""After so many seconds, the server ends a watch, and a list confirms what is known."""
_PATIENCE_S = 15
"""For a list, and for the end of a watch: a server whose machine is gone closes no connection."""

List = Callable[..., Awaitable[Any]]
"""A function of the client library that lists a resource, or watches it."""


class Mirror:
    """Lists a resource, then follows its changes. ``objects`` are the current ones, by name.

    The protocol is https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
    """

    def __init__(self, list_objects: List, **selectors: str) -> None:
        self.objects: dict[str, Mapping[str, Any]] = {}
        self._list = list_objects
        self._selectors = selectors

    async def changes(self) -> AsyncIterator[None]:
        """Yield after each list and each change. A history that the server has dropped is listed again.

        Raises what the client library raises for a server that is down, ``TimeoutError`` for one that says nothing.
        """
        while True:
            version = await self._take_list()
            yield
            watch = Watch(return_type="object")
            events = watch.stream(
                self._list, **self._selectors, resource_version=version, allow_watch_bookmarks=True,
                timeout_seconds=_WATCH_S, _request_timeout=_WATCH_S + _PATIENCE_S,
            )  # fmt: skip
            try:
                async for event in events:
                    if self._apply(event["type"], event["raw_object"]):
                        yield
            except ApiException as error:
                if error.status != _GONE:
                    raise
            finally:
                await watch.close()

    async def _take_list(self) -> str:
        answer = await self._list(**self._selectors, _preload_content=False, _request_timeout=_PATIENCE_S)
        listed = json.loads(await answer.read())
        self.objects = {each["metadata"]["name"]: each for each in listed.get("items") or ()}
        return str(listed["metadata"]["resourceVersion"])

    def _apply(self, kind: str, changed: Mapping[str, Any]) -> bool:
        """Take one event; whether it changed an object."""
        if kind == "BOOKMARK":
            return False
        name = changed["metadata"]["name"]
        if kind == "DELETED":
            return self.objects.pop(name, None) is not None
        self.objects[name] = changed
        return True
