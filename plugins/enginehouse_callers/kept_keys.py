"""Keys that operators make at run time. The gateway keeps salted hashes of their secrets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from enginehouse import ConfigError, InvalidRequest
from enginehouse.callers import NAMESPACES, KeySettings
from enginehouse.errors import NotFound, Overloaded
from enginehouse.runtime import replace_file
from enginehouse_callers.accounts import CallerLimits, KeyHolder, configured
from enginehouse_callers.kept_key import KeptKey, NewKey

_log = logging.getLogger(__name__)

_PREFIX = "eh"
_FILE, _DRAFT = "keys.json", "used-keys.json"
_MARK = "keys.required"
_MARK_TEXT = """\
Keys were made at run time, so everyone needs one, even if keys.json is lost.
Remove this file and keys.json to open the gateway to everyone.
"""
_MOST_VERIFIED = 10_000


class KeptKeys:
    """Recognises keys in a file of the gateway's state folder.

    From the first key on, everyone needs one: a mark beside the file remembers that, so that the last key that is
    revoked and a file that is lost open nothing.

    ``taken`` returns the names that keys of the configuration have. ``spaces``: how the names of other callers begin.
    ``epoch`` tells the time of day. ``changed`` is called after each change, and has all processes ``follow``.
    """

    def __init__(
        self,
        limits: CallerLimits,
        taken: Callable[[], Sequence[str]],
        epoch: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._taken = taken
        self.spaces: tuple[str, ...] = NAMESPACES
        self._epoch = epoch
        self.changed: Callable[[], None] | None = None
        self._file: Path | None = None
        self._keys: dict[str, KeptKey] = {}
        self._holders: dict[str, KeyHolder] = {}
        self._verified: dict[bytes, KeyHolder] = {}
        self._used: set[str] = set()
        self._is_noted = False
        """Whether it was noted when keys were used, but not written."""
        self._read_at = (0, 0)
        self._problem = ""
        self._required = False

    def open(self, folder: Path) -> None:
        """Read the keys in ``folder``. Raises ``ConfigError`` for a file that cannot be read: nobody may come in."""
        self._file = folder / _FILE
        self._read()
        if self._keys and not self._required:  # they are of a version that had no mark
            with suppress(OSError):
                self._require()

    def refresh(self) -> None:
        """Read the file again, if another process has replaced it."""
        if self._file is not None and self._stamp() != self._read_at:
            self._read()

    def follow(self) -> None:
        """Learn what other processes have changed. If that fails, nobody may use a key, since it may be revoked."""
        try:
            self.refresh()
            self._problem = ""
        except ConfigError as error:
            if not self._problem:
                _log.error("Nobody may use a key made at run time until the file can be read: %s", error)
            self._problem = str(error)

    def _check(self) -> None:
        if self._problem:
            raise Overloaded("The gateway cannot read its keys now; try again", retry_after=1)

    def _stamp(self) -> tuple[int, int]:
        assert self._file is not None
        try:
            found = self._file.stat()
        except OSError:
            return 0, 0
        return found.st_ino, found.st_mtime_ns

    def _read(self) -> None:
        assert self._file is not None
        stamp, before = self._stamp(), self._holders
        self._required = self._mark.exists()
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=dict[str, KeptKey])
            settings = {name: _settings(name, key.settings) for name, key in found.items()}
            holders = {name: configured(before.get(name), key, self._limits) for name, key in settings.items()}
        except FileNotFoundError:
            self._read_at = stamp
            return
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"the keys made at run time cannot be read: {error}",
                file=str(self._file),
                remedy="restore the file, or remove it to give up these keys",
            ) from None
        self._read_at = stamp
        self._keys, self._holders = found, holders
        self._verified.clear()

    @property
    def is_active(self) -> bool:
        """Whether there are keys, or have been. Raises ``Overloaded`` while the file cannot be read."""
        self._check()
        return self._required or bool(self._keys)

    @property
    def has_operator(self) -> bool:
        now = self._epoch()
        return any(holder.admin and now < holder.expires for holder in self._holders.values())

    def find(self, shown: bytes) -> KeyHolder | None:
        self._check()
        digest = hashlib.sha256(shown).digest()
        holder = self._verified.get(digest)
        if holder is None:
            holder = self._verify(shown)
            if holder is not None:
                if len(self._verified) >= _MOST_VERIFIED:
                    self._verified.clear()
                self._verified[digest] = holder
        if holder is not None:
            self._used.add(holder.name)
        return holder

    def _verify(self, shown: bytes) -> KeyHolder | None:
        parts = shown.decode("latin-1").split("-", 2)
        if len(parts) != 3 or parts[0] != _PREFIX:
            return None
        for name, key in self._keys.items():
            if key.id == parts[1] and hmac.compare_digest(_hash(key.salt, shown), key.hash):
                return self._holders[name]
        return None

    def named(self, name: str) -> KeyHolder | None:
        return self._holders.get(name)

    @property
    def holders(self) -> Iterable[KeyHolder]:
        """The holders of all keys, as far as the file was read."""
        return self._holders.values()

    # --- operators

    def rows(self) -> list[dict[str, Any]]:
        """What operators see of each key: all but its hash and salt."""
        self.refresh()
        self._note_use()
        return [{"name": name, **_row(key)} for name, key in self._keys.items()]

    def new(self, asked: NewKey, *, first: bool) -> str:
        """Make a key. Returns its secret, which nobody can read again. ``first``: no keys are set yet.

        Raises ``InvalidRequest``.
        """
        self.refresh()
        if not asked.name or not asked.name.isprintable():
            raise InvalidRequest("A key needs a name of printable characters", param="name")
        if asked.name.startswith(self.spaces):
            raise InvalidRequest(f"A key's name begins with none of {', '.join(self.spaces)}", param="name")
        if asked.key:
            raise InvalidRequest("The gateway chooses the secret: leave out 'key'", param="key")
        if asked.name in self._keys or asked.name in self._taken():
            raise InvalidRequest(f"There is a key '{asked.name}' already: rotate or revoke it", param="name")
        if first and not asked.admin:
            raise InvalidRequest(
                "The first key must be an admin key, since from then on everyone needs a key: set 'admin'",
                param="admin",
            )
        if first and asked.expires:
            raise InvalidRequest(
                "The first key must not expire, since it would lock everyone out: leave out 'expires'",
                param="expires",
            )
        try:
            holder = configured(None, asked, self._limits)
        except ValueError as error:
            raise InvalidRequest(f"'expires' is not a date or time in ISO 8601: {error}", param="expires") from None
        own = (name for name in asked.__struct_fields__ if name not in ("key", "name"))
        settings = msgspec.to_builtins({name: getattr(asked, name) for name in own})
        secret = self._put(asked.name, settings, self._epoch())
        self._holders[asked.name] = holder
        return secret

    def rotate(self, name: str) -> str:
        """Replace the secret of a key. Returns the new one; the old one is unknown at once. Raises ``NotFound``."""
        key = self._known(name)
        return self._put(name, key.settings, key.created, key.last_used)

    def revoke(self, name: str) -> None:
        """Delete a key. Raises ``NotFound``."""
        self._known(name)
        keys = {other: key for other, key in self._keys.items() if other != name}
        self._write(keys)
        del self._holders[name]
        if not keys and self._taken():  # those of the configuration keep the gateway closed
            self._mark.unlink(missing_ok=True)
            self._required = False

    def note_used(self, names: list[str]) -> None:
        """Note that another process has just used these keys."""
        self._used.update(names)

    def take_used(self) -> list[str]:
        """The keys that were used since the last time."""
        used = list(self._used)
        self._used.clear()
        return used

    async def save_use(self) -> None:
        """Write when keys were used, if any were since the last time. A thread does, since disks may be slow."""
        if not (self._used or self._is_noted) or self._file is None:
            return
        self.refresh()  # another gateway that takes over may have changed keys
        self._note_use()
        self._is_noted = False
        keys, draft = self._keys, self._file.with_name(_DRAFT)
        await asyncio.to_thread(replace_file, draft, msgspec.json.encode(keys), lasting=True)
        if self._keys is keys and self._stamp() == self._read_at:
            draft.replace(self._file)
            self._read_at = self._stamp()
        else:  # keys have changed meanwhile
            draft.unlink()

    def _note_use(self) -> None:
        now = self._epoch()
        for name in self._used & self._keys.keys():
            self._keys[name] = msgspec.structs.replace(self._keys[name], last_used=now)
            self._is_noted = True
        self._used.clear()

    def _known(self, name: str) -> KeptKey:
        self.refresh()
        if name in self._keys:
            return self._keys[name]
        if name in self._taken():
            raise NotFound(f"The configuration has the key '{name}': change it there")
        raise NotFound(f"There is no key '{name}'")

    def _put(self, name: str, settings: dict[str, Any], created: float, used: float | None = None) -> str:
        id, salt = secrets.token_hex(6), secrets.token_hex(16)
        secret = f"{_PREFIX}-{id}-{secrets.token_urlsafe(32)}"
        hashed = _hash(salt, secret.encode())
        key = KeptKey(id=id, salt=salt, hash=hashed, settings=settings, created=created, last_used=used)
        self._write({**self._keys, name: key})
        return secret

    def _write(self, keys: dict[str, KeptKey]) -> None:
        """Replace the file, then the keys in force."""
        assert self._file is not None
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._required:
            self._require()
        replace_file(self._file, msgspec.json.encode(keys), lasting=True)  # without them, nobody could come in
        self._read_at = self._stamp()
        self._keys = keys
        self._verified.clear()
        if self.changed is not None:
            self.changed()

    @property
    def _mark(self) -> Path:
        assert self._file is not None
        return self._file.with_name(_MARK)

    def _require(self) -> None:
        """Remember that everyone needs a key."""
        self._mark.write_text(_MARK_TEXT)
        self._required = True


def _hash(salt: str, secret: bytes) -> str:
    """A secret is 256 random bits, so one round of SHA-256 is as good as many."""
    return hashlib.sha256(bytes.fromhex(salt) + secret).hexdigest()


def _settings(name: str, settings: dict[str, Any]) -> KeySettings:
    """Raises ``ValueError`` that names the key and the setting at fault."""
    try:
        return msgspec.convert({**settings, "name": name}, NewKey)
    except msgspec.ValidationError as error:
        raise ValueError(f"key '{name}': {error}") from None


def _row(key: KeptKey) -> dict[str, Any]:
    return {**key.settings, "created": key.created, "last_used": key.last_used}
