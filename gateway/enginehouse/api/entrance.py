"""What both doors do before a request becomes an exchange."""

from __future__ import annotations

from enginehouse.api.keys import KeyHolder, Keyring
from enginehouse.domain.errors import BodyTooLarge
from enginehouse.domain.request import Headers
from enginehouse.relay.relay import Relay

INFERENCE_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/rerank",
    "/v1/messages",
    "/v1/audio/speech",
)
"""The endpoints whose ``POST`` is relayed to an engine: JSON with a ``model``."""


class Entrance:
    """Checks the head of a request: may it come in, and is its body of a size that we take?"""

    def __init__(self, relay: Relay, keyring: Keyring, *, max_body: int) -> None:
        self.relay = relay
        self.keyring = keyring
        self.max_body = max_body
        self.hot_paths = {path.encode(): path for path in INFERENCE_PATHS}

    def enter(self, headers: Headers) -> KeyHolder | None:
        """Who sends this request; raises ``Unauthorized``, ``BodyTooLarge`` or ``ShuttingDown``."""
        self.relay.check_open()
        caller = self.keyring.caller(headers)
        for name, value in headers:
            if name == b"content-length" and int(value) > self.max_body:
                raise self.too_large()
        return caller

    def enter_to_engine(self, headers: Headers) -> KeyHolder | None:
        """As ``enter``, for what nobody looks into; also raises ``Forbidden`` for a key whose tokens are counted."""
        caller = self.enter(headers)
        if caller is not None:
            caller.check_uncounted()
        return caller

    def too_large(self) -> BodyTooLarge:
        """The error for a body of more than ``server.max_body``."""
        return BodyTooLarge(f"The request body is larger than {self.max_body} bytes (server.max_body)")
