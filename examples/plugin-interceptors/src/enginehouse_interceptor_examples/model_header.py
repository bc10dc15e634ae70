"""The interceptor ``model_header``: the header ``x-model`` names the model, in place of the body."""

from __future__ import annotations

import msgspec

from enginehouse_kit.interceptors import Change, InterceptedRequest, Interceptor


class ModelHeader(Interceptor):
    async def before(self, request: InterceptedRequest) -> Change | None:
        model = request.headers.get("x-model")
        try:
            body = msgspec.json.decode(request.body, type=dict)
        except (ValueError, RecursionError):
            return None
        return Change({**body, "model": model}) if model else None
