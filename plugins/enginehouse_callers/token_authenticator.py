"""The authenticator ``jwt``: signed tokens of an identity provider, checked with the provider's public keys."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unicodedata import category
from urllib.request import urlopen

from enginehouse import Authenticator, ConfigError, Headers
from enginehouse.callers import Caller, JwtSettings, LimitAmounts
from enginehouse.errors import Unauthorized
from enginehouse.requests import kept_name
from enginehouse.services import Configured
from enginehouse_kit.credentials import shown_credentials

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Of keys whose public part is no secret: with others, whoever knows it could sign."""
_UNWRITABLE = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters: control characters, halves of surrogate pairs, ends of lines and paragraphs."""
_LEEWAY_S = 30
_MOST_CALLERS = 10_000
_log = logging.getLogger(__name__)
_EVERY_S = 600.0
_UNKNOWN_EVERY_S = 10.0
_TIMEOUT_S = 10.0
_LARGEST = 1 << 20


class TokenAuthenticator(Authenticator):
    """Tokens (JWT) that ``[auth.jwt]`` describes. Rights belong to a token, limits to its subject.

    ``keys``: the provider's. ``now`` tells the time of day.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._settings: JwtSettings | None = None
        self._known: dict[bytes, Caller] = {}
        self.keys = ProviderKeys(now, self._known.clear)
        self._jwt: Any = None

    def prepare(self, configured: Configured) -> bool:
        settings = configured.table("auth").jwt
        if settings is not None:
            self._jwt = token_library()
        if settings != self._settings:
            if _provider(settings) != _provider(self._settings):
                self.keys = ProviderKeys(self._now, self._known.clear)
            self._settings = settings
            self._known.clear()
        return settings is not None

    def caller(self, head: Headers) -> Caller | None:
        settings, problem = self._settings, None
        if settings is None:
            return None
        for shown in shown_credentials(head):
            if shown.count(b".") != 2:
                continue
            try:
                return self._caller(shown, settings)
            except Unauthorized as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return None

    def has_operators(self) -> bool:
        return self._settings is not None and bool(self._settings.admin_claim)

    def limits_of(self, name: str) -> LimitAmounts | None:
        settings = self._settings
        return settings if settings is not None and name.startswith(f"{settings.issuer}/") else None

    async def refresh(self) -> None:
        if self._settings is not None:
            await self.keys.refresh(self._settings)

    def _caller(self, shown: bytes, settings: JwtSettings) -> Caller:
        digest = hashlib.sha256(shown).digest()
        known = self._known.get(digest)
        if known is None:
            known = self._checked(shown, settings)
            if len(self._known) >= _MOST_CALLERS:
                self._known.clear()
            self._known[digest] = known
        if self._now() >= known.until:
            raise Unauthorized("The token has expired")
        return known

    def _checked(self, shown: bytes, settings: JwtSettings) -> Caller:
        jwt = self._jwt
        try:
            key = self.keys.find(str(jwt.get_unverified_header(shown).get("kid") or ""))
            if key is None:
                raise Unauthorized("The token is signed with a key that the gateway does not know yet; try again")
            claims = jwt.decode(
                shown,
                key.key,
                algorithms=_ALGORITHMS,
                issuer=settings.issuer,
                audience=settings.audience,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except Unauthorized:
            raise
        except jwt.PyJWTError as error:
            raise Unauthorized(f"The token is not valid: {error}") from None
        except Exception as error:  # the library raises others too, such as for an algorithm of another kind of key
            raise Unauthorized(f"The token is not valid: {type(error).__name__}: {error}") from None
        return _named(claims, settings, float(claims["exp"]) + _LEEWAY_S)


def _named(claims: Mapping[str, Any], settings: JwtSettings, until: float) -> Caller:
    """The caller whom ``claims`` name, with the rights that they give to this token."""
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not name:
        raise Unauthorized(f"The token has no claim '{settings.name_claim}'")
    if any(category(letter) in _UNWRITABLE for letter in name):  # stores, pages of metrics and lines of logs have names
        raise Unauthorized(f"The claim '{settings.name_claim}' of the token has characters that are no text")
    return Caller(
        f"{settings.issuer}/{kept_name(name)}",
        models=tuple(_models(claims, settings.models_claim)),
        admin=_is_admin(claims, settings.admin_claim),
        limits=settings,
        until=until,
    )


def _provider(settings: JwtSettings | None) -> tuple[str, str] | None:
    """What says whose keys are fetched."""
    return None if settings is None else (settings.issuer, settings.jwks_url)


def token_library() -> Any:
    """PyJWT, which checks tokens. Raises ``ConfigError`` if it is not installed."""
    try:
        import jwt
    except ImportError:
        remedy = "pip install enginehouse[jwt]"
        raise ConfigError("tokens need the library PyJWT", key="auth.jwt", remedy=remedy) from None
    return jwt


def _models(claims: Mapping[str, Any], claim: str) -> list[str]:
    if not claim:
        return ["*"]
    value = claims.get(claim)
    if isinstance(value, str):
        return value.split()
    return [name for name in value if isinstance(name, str)] if isinstance(value, Sequence) else []


def _is_admin(claims: Mapping[str, Any], claim: str) -> bool:
    name, equal, wanted = claim.partition("=")
    value = claims.get(name) if name else None
    if not equal:
        return value is True
    return value == wanted or (isinstance(value, list) and wanted in value)


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
        if 0 <= age < (_UNKNOWN_EVERY_S if self._wants else _EVERY_S):  # the clock may be set back
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
