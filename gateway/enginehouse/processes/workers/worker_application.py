"""The application of a worker, which answers what its fast door does not."""

from __future__ import annotations

from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from enginehouse.api.application import build_application
from enginehouse.app.request_path import RequestPath
from enginehouse.processes.workers.pages import OwnerPages


class WorkerApplication:
    """Relays requests along ``path``; ``pages`` of the owner are all else."""

    def __init__(self, path: RequestPath, pages: OwnerPages) -> None:
        self._local = build_application(path.admission, [*path.routes()], cors=path.config.server.cors)
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_local = any(route.matches(scope)[0] is Match.FULL for route in self._local.routes)
        await (self._local if is_local else self._pages)(scope, receive, send)
