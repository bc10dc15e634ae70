"""An engine that echoes what comes over WebSockets, and says at ``/ready`` and nowhere else that it is ready."""

from __future__ import annotations

import asyncio
import sys

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response


def page(connection: ServerConnection, request: Request) -> Response | None:
    if request.headers.get("upgrade") == "websocket":
        return None
    return connection.respond(200 if request.path == "/ready" else 404, f"{request.path}\n")


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)
    print(f"closed with {socket.close_code}", flush=True)


async def main(port: int) -> None:
    async with serve(echo, "127.0.0.1", port, process_request=page) as server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))
