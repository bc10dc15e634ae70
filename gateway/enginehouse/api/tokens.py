"""Callers whom an identity provider names: signed tokens (JWT), checked with the provider's public keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enginehouse.api.callers import Account, CallerLimits, KeyHolder
from enginehouse.config.auth import JwtSettings, KeySettings
from enginehouse.domain.client_names import kept_name
from enginehouse.domain.errors import ConfigError, Unauthorized
from enginehouse.domain.foreign import describe
from enginehouse.domain.usage import UsageRow

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Of keys whose public part is no secret: with others, whoever knows it could sign."""
_LEEWAY_S = 30
_MOST_CALLERS = 10_000


class _Known(NamedTuple):
    holder: KeyHolder
    until: float


class TokenCallers:
    """Recognises the tokens that ``settings`` describe.

    ``keys`` are the provider's, by their ids; ``wants_keys`` is set when a token names an unknown one. ``epoch`` tells
    the time of day. Raises ``ConfigError`` if the library is not installed.
    """

    def __init__(self, settings: JwtSettings, limits: CallerLimits, epoch: Callable[[], float]) -> None:
        self._jwt = token_library()
        self.settings = settings
        self.wants_keys = True
        self.keys: dict[str, Any] = {}
        self._limits = limits
        self._epoch = epoch
        self._known: dict[bytes, _Known] = {}

    @property
    def is_active(self) -> bool:
        return True

    @property
    def has_operator(self) -> bool:
        return bool(self.settings.admin_claim)

    def use_keys(self, document: Mapping[str, Any]) -> None:
        """Take a JSON Web Key Set. Keys that cannot be used are left out. Raises ``ValueError`` if none is left."""
        try:
            found = self._jwt.PyJWKSet.from_dict(dict(document)).keys
        except (self._jwt.PyJWTError, AttributeError, TypeError) as error:
            raise ValueError(f"it is not a key set: {error}") from None
        self.keys = {key.key_id or "": key for key in found}
        self.wants_keys = False
        self._known.clear()

    def find(self, shown: bytes) -> KeyHolder | None:
        if shown.count(b".") != 2:
            return None
        digest = hashlib.sha256(shown).digest()
        known = self._known.get(digest)
        if known is None:
            known = self._checked(shown)
            if len(self._known) >= _MOST_CALLERS:
                self._known.clear()
            self._known[digest] = known
        if self._epoch() >= known.until:
            raise Unauthorized("The token has expired")
        return known.holder

    def named(self, name: str) -> KeyHolder | None:
        """Nobody: only a token says what its bearer may do."""
        return None

    def recall(self, name: str, rows: Iterable[UsageRow], now: float) -> None:
        """Count what a caller used before the gateway started: limits belong to the name, whatever its token says."""
        self._account(name).recall(rows, now)

    def _checked(self, shown: bytes) -> _Known:
        jwt = self._jwt
        try:
            id = str(jwt.get_unverified_header(shown).get("kid") or "")
            key = self.keys.get(id)
            if key is None:
                self.wants_keys = True
                raise Unauthorized("The token is signed with a key that the gateway does not know yet; try again")
            claims = jwt.decode(
                shown,
                key.key,
                algorithms=_ALGORITHMS,
                issuer=self.settings.issuer,
                audience=self.settings.audience,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except Unauthorized:
            raise
        except jwt.PyJWTError as error:
            raise Unauthorized(f"The token is not valid: {error}") from None
        except Exception as error:  # the library raises others too, such as for an algorithm of another kind of key
            raise Unauthorized(f"The token is not valid: {describe(error)}") from None
        return _Known(self._holder(claims), float(claims["exp"]) + _LEEWAY_S)

    def _holder(self, claims: Mapping[str, Any]) -> KeyHolder:
        """The caller whom ``claims`` name, with the rights that they give to this token."""
        settings = self.settings
        name = claims.get(settings.name_claim)
        if not isinstance(name, str) or not name:
            raise Unauthorized(f"The token has no claim '{settings.name_claim}'")
        name = f"jwt/{settings.issuer}/{kept_name(name)}"
        models, admin = _models(claims, settings.models_claim), _is_admin(claims, settings.admin_claim)
        return KeyHolder(KeySettings(name=name, key="", models=models, admin=admin), self._account(name))

    def _account(self, name: str) -> Account:
        account = Account(name, self._limits, f"Key '{name}'", passing=True)
        account.configure(self.settings)
        return account


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
