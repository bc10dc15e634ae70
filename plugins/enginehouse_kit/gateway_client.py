"""The client of a running gateway, for commands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import click
import msgspec

from enginehouse import GatewayError
from enginehouse.commands import config_option, configured_url

__all__ = ["GatewayClient", "gateway_options"]

T = TypeVar("T")

_TIMEOUT_S = 10.0
_LARGEST_PIECE = 64 * 1024
_URL, _KEY = "ENGINEHOUSE_URL", "ENGINEHOUSE_KEY"


class GatewayClient:
    """Sends requests to the gateway at ``url``, with ``key`` if there is one. Every method raises ``GatewayError``."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._key = key
        self._open = build_opener(ProxyHandler({})).open  # never through a proxy of the environment
        if not _is_address(url):
            raise GatewayError(f"'{url}' is not the address of a gateway: write it as http://host:port")
        if key is not None and not key.isprintable():
            raise GatewayError("The key holds characters that cannot be sent: give it without line breaks")

    @classmethod
    def of(cls, config: Path | None, url: str | None, key: str | None) -> GatewayClient:
        """The client of the gateway at ``url``, else at the address in ``config``, else in the configuration found."""
        return cls(url or configured_url(config), key)

    def get(self, path: str, timeout: float = _TIMEOUT_S) -> bytes:
        """Return the answer to ``GET``; ``timeout`` in s."""
        return self._ask("GET", path, timeout)

    def post(self, *path: str, query: str = "", body: object = None, timeout: float = _TIMEOUT_S) -> bytes:
        """Return the answer to ``POST``. Parts of the path are quoted, ``body`` is sent as JSON; ``timeout`` in s."""
        return self._ask("POST", _path(path) + query, timeout, None if body is None else msgspec.json.encode(body))

    def delete(self, *path: str) -> bytes:
        """Return the answer to ``DELETE``. Parts of the path are quoted."""
        return self._ask("DELETE", _path(path))

    def stream(self, *path: str, **query: str) -> Iterator[bytes]:
        """Yield the answer to ``GET`` as it arrives, without a time limit."""
        with self._asked("GET", f"{_path(path)}?{urlencode(query)}", None) as response:
            try:
                while piece := response.read1(_LARGEST_PIECE):
                    yield piece
            except (OSError, HTTPException) as error:
                raise self._broke_off(error) from None

    def events(self, *path: str, body: object) -> Iterator[bytes]:
        """Yield the data of each event of the answer to ``POST``, without a time limit, but not the last ``[DONE]``."""
        with self._asked("POST", _path(path), None, msgspec.json.encode(body)) as response:
            try:
                for line in response:
                    data = line.rstrip(b"\r\n").removeprefix(b"data:").strip()
                    if line.startswith(b"data:") and data != b"[DONE]":
                        yield data
            except (OSError, HTTPException) as error:
                raise self._broke_off(error) from None

    def read(self, answer: bytes, type: type[T]) -> T:
        """Decode an answer."""
        try:
            return msgspec.json.decode(answer, type=type)
        except msgspec.DecodeError:
            raise self._no_gateway() from None

    def _ask(self, method: str, path: str, timeout: float = _TIMEOUT_S, body: bytes | None = None) -> bytes:
        with self._asked(method, path, timeout, body) as response:
            return response.read()

    @contextmanager
    def _asked(
        self, method: str, path: str, timeout: float | None, body: bytes | None = None
    ) -> Iterator[HTTPResponse]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = Request(self._url + path, body, headers, method=method)
        if self._key is not None:
            # Not sent to the target of a redirect. http.client encodes headers as Latin-1, the gateway reads UTF-8.
            request.add_unredirected_header("Authorization", f"Bearer {self._key}".encode().decode("latin-1"))
        try:
            with self._open(request, timeout=timeout) as response:
                yield response
        except HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read()) from None
        except (OSError, HTTPException) as error:
            why = error.reason if isinstance(error, URLError) else error
            remedy = f"start it, or name another with --url or ${_URL}"
            raise GatewayError(f"No gateway can be reached at {self._url}: {why} ({remedy})") from None

    def _refusal(self, status: int, body: bytes) -> GatewayError:
        try:
            message = msgspec.json.decode(body, type=_Envelope).error.message
        except msgspec.DecodeError:
            return self._no_gateway(f" (status {status})")
        remedy = f" (the key is taken from --key or ${_KEY})" if status in (401, 403) else ""
        return GatewayError(f"{self._url}: {message}{remedy}")

    def _broke_off(self, error: Exception) -> GatewayError:
        return GatewayError(f"The gateway at {self._url} broke off: {error!r}")

    def _no_gateway(self, how: str = "") -> GatewayError:
        return GatewayError(f"The server at {self._url} does not answer as a gateway does{how}")


class _Error(msgspec.Struct):
    message: str


class _Envelope(msgspec.Struct):
    error: _Error


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--url``, ``--key`` and ``--config``, which become the first argument, a ``GatewayClient``."""

    @config_option
    @click.option("--url", envvar=_URL, help=f"The gateway. By default ${_URL}, else the configured one.")
    @click.option("--key", envvar=_KEY, help=f"An admin key, if keys are set; else ${_KEY}.")
    @functools.wraps(command)
    def with_gateway(config: Path | None, url: str | None, key: str | None, **rest: Any) -> None:
        command(GatewayClient.of(config, url, key), **rest)

    return with_gateway


def _path(parts: tuple[str, ...]) -> str:
    return "".join("/" + quote(part, safe="") for part in parts)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
