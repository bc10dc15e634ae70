"""An API server that knows EndpointSlices and pods: lists them, and plays watches as the API's documentation has them.

https://kubernetes.io/docs/reference/using-api/api-concepts/ describes versions, watches, bookmarks and 410 Gone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

SLICES, PODS = "endpointslices", "pods"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: "secret-token"}}}}]
contexts: [{{name: test, context: {{cluster: c, user: u}}}}]
"""


def endpoint_slice(*endpoints: Mapping[str, Any], name: str = "vllm-1", port: int = 8000) -> dict[str, Any]:
    ports = [{"name": "metrics", "port": 9000}, {"name": "http", "port": port}]
    return {"metadata": {"name": name}, "addressType": "IPv4", "endpoints": list(endpoints), "ports": ports}


def endpoint(pod: str, address: str = "10.0.0.1", **conditions: bool) -> dict[str, Any]:
    return {
        "addresses": [address],
        "conditions": {"ready": True, "serving": True, "terminating": False, **conditions},
        "nodeName": "node-1",
        "zone": "zone-a",
        "targetRef": {"kind": "Pod", "name": pod},
    }


def pod(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {f"enginehouse.dev/{key}": v for key, v in annotations.items()}}}


class FakeApiServer:
    """``asked``: the paths, queries and tokens of all requests. ``silent``: ``list`` or ``watch``, without answers."""

    def __init__(self) -> None:
        self.silent = ""
        self.asked: list[tuple[str, Mapping[str, str], str]] = []
        self._objects: dict[str, dict[str, dict[str, Any]]] = {SLICES: {}, PODS: {}}
        self._version = 100
        self._watches: dict[str, list[asyncio.Queue[Any]]] = {SLICES: [], PODS: []}
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/{tail:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def stop(self) -> None:
        """Go down: no connection stays, and nobody listens."""
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self, folder: Path) -> str:
        file = folder / "kubeconfig"
        file.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{self.port}"))
        return str(file)

    def put(self, resource: str, changed: dict[str, Any], *, seen: bool = True) -> None:
        """Create or change an object. ``seen``: whether those who watch are told."""
        known = changed["metadata"]["name"] in self._objects[resource]
        self._version += 1
        changed["metadata"]["resourceVersion"] = str(self._version)
        self._objects[resource][changed["metadata"]["name"]] = changed
        if seen:
            self._tell(resource, {"type": "MODIFIED" if known else "ADDED", "object": changed})

    def delete(self, resource: str, name: str) -> None:
        self._tell(resource, {"type": "DELETED", "object": self._objects[resource].pop(name)})

    def gone(self) -> None:
        """Tell all who watch that their version is too old."""
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        for resource in self._watches:
            self._tell(resource, {"type": "ERROR", "object": status})

    def bookmark(self) -> None:
        for resource in self._watches:
            self._tell(resource, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}})

    def cut(self) -> None:
        """End all watches, as a server does after their time."""
        for resource in self._watches:
            self._tell(resource, None)

    def watched(self) -> bool:
        return all(self._watches.values())

    def _tell(self, resource: str, event: object) -> None:
        for queue in self._watches[resource]:
            queue.put_nowait(event)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, dict(request.query), request.headers.get("authorization", "")))
        resource = request.path.rpartition("/")[2]
        if resource not in self._objects:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if self.silent == ("watch" if "watch" in request.query else "list"):
            await asyncio.Event().wait()
        if "watch" in request.query:
            return await self._watch(request, resource)
        items = list(self._objects[resource].values())
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "application/json"})
        await answer.prepare(request)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._watches[resource].append(queue)
        try:
            while (event := await queue.get()) is not None:
                await answer.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watches[resource].remove(queue)
        return answer
