"""Fetches the public keys of an identity provider."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

from enginehouse.aio.slow_work import run_slowly
from enginehouse.api.tokens import TokenCallers
from enginehouse.domain.foreign import describe

_log = logging.getLogger(__name__)

_EVERY_S = 600.0
_UNKNOWN_EVERY_S = 10.0
_TIMEOUT_S = 10.0
_LARGEST = 1 << 20


class TokenKeys:
    """Fetches keys every ten minutes, and sooner when a token names an unknown one. ``now`` tells the seconds.

    While the provider cannot be reached, the keys that are known stay in use.
    """

    def __init__(self, callers: TokenCallers, now: Callable[[], float]) -> None:
        self.callers = callers
        self._now = now
        self._asked_at = -_EVERY_S
        self._problem = ""

    async def refresh(self) -> None:
        """Fetch the keys, if it is time."""
        age = self._now() - self._asked_at
        if age < (_UNKNOWN_EVERY_S if self.callers.wants_keys else _EVERY_S):
            return
        self._asked_at = self._now()
        try:
            self.callers.use_keys(await run_slowly(self._fetch))
        except Exception as error:
            if not self._problem:
                _log.warning("The keys of %s cannot be fetched: %s", self.callers.settings.issuer, describe(error))
            self._problem = describe(error)
        else:
            self._problem = ""

    def _fetch(self) -> dict[str, Any]:
        settings = self.callers.settings
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
