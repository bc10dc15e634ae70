from __future__ import annotations

import pytest

from enginehouse import InvalidRequest
from enginehouse_kit.protocols import Envelope, Protocol, ProtocolRequest, Translation
from enginehouse_kit.testing import check_protocol


class Refuses(Protocol):
    """Awaits something before it refuses a request."""

    name = "refuses"
    paths = ("/refuses",)

    async def translate(self, request: ProtocolRequest) -> Translation:
        raise self.error_of(request)

    def error_of(self, request: ProtocolRequest) -> Exception:
        return InvalidRequest("No")

    def error(self, status: int, envelope: Envelope) -> bytes:
        return str(envelope).encode()


class Fails(Refuses):
    name = "fails"

    def error_of(self, request: ProtocolRequest) -> Exception:
        return KeyError("model")


def test_an_asynchronous_translation_may_refuse_a_request() -> None:
    check_protocol(Refuses)


def test_an_asynchronous_translation_that_fails_is_found() -> None:
    with pytest.raises(AssertionError, match="translate must raise InvalidRequest"):
        check_protocol(Fails)
