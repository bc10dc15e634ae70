"""HTTP to a real engine, without the gateway's own client."""

from __future__ import annotations

import httpx

from enginehouse import EngineResponse, UpstreamError
from tests.support import plain_httpx


class HttpxClient:
    """The least there is to talk to a real engine."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        try:
            async with plain_httpx.AsyncClient(base_url=self._address) as client:
                response = await client.request(method, path, content=body)
        except httpx.HTTPError as error:
            raise UpstreamError(f"The engine cannot be reached: {error!r}") from error
        return EngineResponse(response.status_code, response.headers.raw, response.content)
