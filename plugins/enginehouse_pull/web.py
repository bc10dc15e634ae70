"""Requests to the servers that models come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from enginehouse.errors import PullFailed

T = TypeVar("T")

_TIMEOUT_S = 30.0
"""The longest silence of a server."""
_LARGEST_ANSWER = 16 << 20


class Refused(PullFailed):
    """The server answered with an error status."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answered {status}")
        self.answered = status


class BrokeOff(PullFailed):
    """The server cannot be reached, or its answer broke off: a later try may do better."""


@contextmanager
def opened(url: str, headers: Mapping[str, str] = {}, token: str = "") -> Iterator[HTTPResponse]:
    """The answer to ``GET url``. Redirects are followed; ``token`` is sent to the host of ``url`` alone.

    Raises ``Refused`` and ``BrokeOff``, also for what happens while the answer is read.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise PullFailed(f"{url} is not the address of a web server")
    request = Request(url, headers={"User-Agent": "enginehouse", **headers})
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:
            yield response
    except HTTPError as error:
        error.close()
        raise Refused(url, error.code) from None
    except (OSError, HTTPException) as error:
        why = error.reason if isinstance(error, URLError) else error
        raise BrokeOff(f"{url}: {why or type(error).__name__}") from None


def read(url: str, type: type[T], headers: Mapping[str, str] = {}, token: str = "") -> tuple[T, Mapping[str, str]]:
    """The decoded JSON at ``url``, and the answer's headers, in small letters. Raises ``PullFailed``, as ``opened``."""
    with opened(url, headers, token) as response:
        body = response.read(_LARGEST_ANSWER + 1)
        answered = {name.lower(): value for name, value in response.headers.items()}
    try:
        if len(body) > _LARGEST_ANSWER:
            raise ValueError("it is too large")
        return msgspec.json.decode(body, type=type), answered
    except ValueError as error:
        raise PullFailed(f"{url} answers something else than expected: {error}") from None
