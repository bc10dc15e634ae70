"""The public keys of an identity provider."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.request import urlopen

from enginehouse.callers import JwtSettings

_log = logging.getLogger(__name__)

_EVERY_S = 600.0
_UNKNOWN_EVERY_S = 10.0
_TIMEOUT_S = 10.0
_LARGEST = 1 << 20


class ProviderKeys:
    """Fetches keys every ten minutes, and sooner after a token has named an unknown one. ``now`` tells the seconds.

    While the provider cannot be reached, the known keys stay in use. ``on_keys`` is called when there are others.
    """

    def __init__(self, now: Callable[[], float], on_keys: Callable[[], None]) -> None:
        self._on_keys = on_keys
        self._keys: dict[str, Any] = {}
        self._wants = True
        self._now = now
        self._asked_at = -_EVERY_S
        self._problem = ""

    def find(self, id: str) -> Any:
        """The key called ``id``; ``None`` for an unknown one, which is looked for soon."""
        key = self._keys.get(id)
        if key is None:
            self._wants = True
        return key

    def use(self, document: Mapping[str, Any]) -> None:
        """Take a JSON Web Key Set. Keys that cannot be used are left out. Raises ``ValueError`` if none is left."""
        import jwt

        try:
            found = jwt.PyJWKSet.from_dict(dict(document)).keys
        except (jwt.PyJWTError, AttributeError, TypeError) as error:
            raise ValueError(f"it is not a key set: {error}") from None
        self._keys = {key.key_id or "": key for key in found}
        self._wants = False
        self._on_keys()

    async def refresh(self, settings: JwtSettings) -> None:
        """Fetch the keys, if it is time."""
        age = self._now() - self._asked_at
        if age < (_UNKNOWN_EVERY_S if self._wants else _EVERY_S):
            return
        self._asked_at = self._now()
        try:
            self.use(await asyncio.to_thread(_fetch, settings))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if not self._problem:
                _log.warning("The keys of %s cannot be fetched: %s", settings.issuer, problem)
            self._problem = problem
        else:
            self._problem = ""


def _fetch(settings: JwtSettings) -> dict[str, Any]:
    url = settings.jwks_url
    if not url:
        url = _read(f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration")["jwks_uri"]
    return _read(url)


def _read(url: str) -> dict[str, Any]:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"'{url}' is not an http address")
    with urlopen(url, timeout=_TIMEOUT_S) as answer:
        text = answer.read(_LARGEST)
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{url} does not answer with a JSON object")
    return found
