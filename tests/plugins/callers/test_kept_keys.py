"""Keys that operators make while the gateway runs."""

from __future__ import annotations

import asyncio
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enginehouse import Requirements
from enginehouse.config.schema import KeySettings
from enginehouse.domain.errors import ConfigError, Forbidden, InvalidRequest, NotFound, Overloaded
from enginehouse.errors import Unauthorized
from enginehouse_callers.kept_key import NewKey
from enginehouse_callers.kept_keys import KeptKeys
from enginehouse_callers.keyring import Keyring
from tests.support.fake_clock import StoppedClock
from tests.support.keys import asking
from tests.support.served_gateway import limits_at
from tests.support.waiting import within


class Ring:
    """A keyring with keys of both sorts."""

    def __init__(self, folder: Path, *configured: KeySettings) -> None:
        self.clock = StoppedClock(1_000_000.0)
        self.ring = Keyring(configured, limits_at(self.clock), self.clock)
        self.kept = KeptKeys(self.ring.limits, lambda: [key.name for key in configured], self.clock)
        self.ring.kept = self.kept
        self.kept.open(folder)

    def new(self, name: str, **settings: object) -> str:
        return self.kept.new(NewKey(name=name, **settings), first=self.ring.is_open())  # type: ignore[arg-type]

    def who(self, secret: str) -> str:
        holder = asking(self.ring).caller([(b"authorization", b"Bearer " + secret.encode())])
        return holder.name if holder is not None else "anyone"


def files_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


OPS = KeySettings(name="ops", key="ops-secret", admin=True)


def test_a_new_key_is_known_at_once_and_after_a_restart(tmp_path: Path) -> None:
    secret = Ring(tmp_path, OPS).new("alice", models=["m"], requests_per_minute=5)
    again = Ring(tmp_path, OPS)
    assert again.who(secret) == "alice"
    assert again.who("ops-secret") == "ops"
    holder = again.ring.named("alice")
    assert holder is not None
    with pytest.raises(Forbidden):
        holder.admit(Requirements(model="n"), None)
    holder.admit(Requirements(model="m"), None)
    for wrong in (secret[:-1], secret + "x", "eh-1", "eh-a-b", "eh--", secret.replace("eh-", "eh-0", 1)):
        with pytest.raises(Unauthorized):
            again.who(wrong)


def test_the_file_has_no_secret_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    secret = Ring(tmp_path, OPS).new("alice")
    file = tmp_path / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret.split("-", 2)[2] not in file.read_text()


def test_equal_names_get_other_salts(tmp_path: Path) -> None:
    ring = Ring(tmp_path, OPS)
    first = ring.new("alice")
    before = (tmp_path / "keys.json").read_text()
    second = ring.kept.rotate("alice")
    assert before != (tmp_path / "keys.json").read_text()
    assert ring.who(second) == "alice"
    with pytest.raises(Unauthorized):
        ring.who(first)


def test_a_revoked_key_is_unknown_at_once(tmp_path: Path) -> None:
    ring = Ring(tmp_path, OPS)
    secret = ring.new("alice")
    assert ring.who(secret) == "alice"
    ring.kept.revoke("alice")
    with pytest.raises(Unauthorized):
        ring.who(secret)
    with pytest.raises(Unauthorized):
        Ring(tmp_path, OPS).who(secret)
    with pytest.raises(NotFound):
        ring.kept.revoke("alice")


def test_a_rotated_key_keeps_what_it_has_used(tmp_path: Path) -> None:
    ring = Ring(tmp_path, OPS)
    ring.new("alice", requests_per_minute=2)
    holder = ring.ring.named("alice")
    assert holder is not None
    holder.admit(Requirements(model="m"), None)
    ring.kept.rotate("alice")
    assert ring.ring.named("alice") is holder


@pytest.mark.parametrize("kept", [False, True])
def test_an_expired_key_is_refused(tmp_path: Path, kept: bool) -> None:
    if kept:
        ring = Ring(tmp_path, OPS)
        secret = ring.new("alice", expires="1970-01-12T14:00:00Z")
    else:
        secret = "alice-secret"
        ring = Ring(tmp_path, KeySettings(name="alice", key=secret, expires="1970-01-12T14:00:00"))
    ring.clock.now = 1_000_799.0
    assert ring.who(secret) == "alice"
    ring.clock.now = 1_000_800.0
    with pytest.raises(Unauthorized, match="Key 'alice' has expired"):
        ring.who(secret)


def test_the_first_key_must_be_an_operators(tmp_path: Path) -> None:
    ring = Ring(tmp_path)
    assert ring.who("whatever") == "anyone"
    with pytest.raises(InvalidRequest, match="must be an admin key"):
        ring.new("alice")
    secret = ring.new("boss", admin=True)
    assert ring.who(secret) == "boss"
    with pytest.raises(Unauthorized):
        ring.who("whatever")
    ring.new("alice")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "ops"}, "already"),
        ({"name": "a", "key": "chosen"}, "chooses the secret"),
        ({"name": "a", "expires": "soon"}, "ISO 8601"),
    ],
)
def test_a_key_that_cannot_be_made_is_refused(tmp_path: Path, settings: dict[str, str], why: str) -> None:
    ring = Ring(tmp_path, OPS)
    with pytest.raises(InvalidRequest, match=why):
        ring.new(**settings)
    assert not (tmp_path / "keys.json").exists()


def test_keys_of_the_configuration_stay_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="change it there"):
        Ring(tmp_path, OPS).kept.revoke("ops")


async def test_it_is_known_when_a_key_was_used_last(tmp_path: Path) -> None:
    ring = Ring(tmp_path, OPS)
    secret = ring.new("alice")
    assert ring.kept.rows()[0]["last_used"] is None
    ring.clock.now += 5
    ring.who(secret)
    assert ring.kept.rows()[0]["last_used"] == 1_000_005.0
    await ring.kept.save_use()
    (row,) = Ring(tmp_path, OPS).kept.rows()
    assert row["last_used"] == 1_000_005.0
    assert not {"key", "hash", "salt", "id"} & row.keys()


def test_another_process_knows_at_once_what_was_made_and_revoked(tmp_path: Path) -> None:
    owner, worker = (Ring(tmp_path) for _ in range(2))
    assert worker.who("whatever") == "anyone"
    boss = owner.new("boss", admin=True)
    assert worker.who(boss) == "boss"
    secret = owner.new("alice", requests_per_minute=2)
    assert worker.who(secret) == "alice"
    holder = worker.ring.named("alice")
    other = owner.kept.rotate("alice")
    assert worker.who(other) == "alice"
    assert worker.ring.named("alice") is holder, "it keeps what it has used"
    owner.kept.revoke("alice")
    with pytest.raises(Unauthorized):
        worker.who(other)
    owner.kept.note_used(worker.kept.take_used())
    assert owner.kept.rows()[0]["last_used"] == 1_000_000.0


async def test_a_gateway_that_drains_does_not_undo_what_the_next_one_does(tmp_path: Path) -> None:
    old = Ring(tmp_path, OPS)
    first = old.new("alice")
    new = Ring(tmp_path, OPS)
    second = new.new("bob")
    assert old.who(first) == "alice"
    new.kept.revoke("alice")
    await old.kept.save_use()
    assert [row["name"] for row in Ring(tmp_path, OPS).kept.rows()] == ["bob"]
    assert old.who(second) == "bob"


async def test_a_slow_disk_holds_up_no_stream_and_brings_no_key_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(tmp_path, OPS)
    first, second = ring.new("alice"), ring.new("bob")
    assert [ring.who(first), ring.who(second)] == ["alice", "bob"]
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def sync(_: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(30)

    monkeypatch.setattr("os.fsync", sync)
    saving = asyncio.ensure_future(ring.kept.save_use())
    await within(begun.wait())
    ring.kept.revoke("alice")
    go_on.set()
    await saving
    (row,) = Ring(tmp_path, OPS).kept.rows()
    assert (row["name"], row["last_used"]) == ("bob", 1_000_000.0)
    assert files_in(tmp_path) == ["keys.json", "keys.required"]


@pytest.mark.parametrize("torn", [b"{", b'{"\xff": {}}'])
def test_a_broken_file_lets_nobody_in(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(torn)
    with pytest.raises(ConfigError, match="cannot be read"):
        Ring(tmp_path, OPS)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """As if idle connections had them all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_key_works_no_longer_where_the_change_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner, worker = (Ring(tmp_path, OPS) for _ in range(2))
    secret, other = owner.new("alice"), owner.new("bob")
    assert (worker.who(secret), worker.who(other)) == ("alice", "bob")
    owner.kept.revoke("alice")
    with no_descriptors():
        for _ in range(3):
            for each in (secret, other):
                with pytest.raises(Overloaded):
                    worker.who(each)
        assert worker.who("ops-secret") == "ops"
    assert len(caplog.records) == 1
    assert worker.who(other) == "bob"
    with pytest.raises(Unauthorized):
        worker.who(secret)


def test_a_gateway_that_drains_learns_of_a_revoked_key_within_a_second(tmp_path: Path) -> None:
    old = Ring(tmp_path, OPS)
    secret = old.new("alice")
    assert old.who(secret) == "alice"
    Ring(tmp_path, OPS).kept.revoke("alice")
    old.clock.now += 1
    with pytest.raises(Unauthorized):
        old.who(secret)


def test_the_last_key_that_is_revoked_opens_nothing(tmp_path: Path) -> None:
    ring = Ring(tmp_path)
    secret = ring.new("boss", admin=True)
    assert ring.ring.has_operator
    ring.kept.revoke("boss")
    for each in (ring, Ring(tmp_path)):
        assert not each.ring.is_open()
        assert not each.ring.has_operator
        with pytest.raises(Unauthorized):
            each.who(secret)


def test_a_file_that_is_lost_opens_nothing(tmp_path: Path) -> None:
    Ring(tmp_path).new("boss", admin=True)
    (tmp_path / "keys.json").unlink()
    with pytest.raises(Unauthorized):
        Ring(tmp_path).who("whatever")
    (tmp_path / "keys.required").unlink()
    assert Ring(tmp_path).who("whatever") == "anyone", "an operator may open it"


def test_keys_of_an_earlier_version_are_required_too(tmp_path: Path) -> None:
    Ring(tmp_path).new("boss", admin=True)
    (tmp_path / "keys.required").unlink()
    Ring(tmp_path)
    (tmp_path / "keys.json").unlink()
    assert not Ring(tmp_path).ring.is_open()


def test_the_first_key_must_not_expire(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="must not expire"):
        Ring(tmp_path).new("boss", admin=True, expires="2030-01-01")


def test_a_setting_of_a_later_version_is_named(tmp_path: Path) -> None:
    Ring(tmp_path, OPS).new("alice")
    file = tmp_path / "keys.json"
    file.write_text(file.read_text().replace('"models"', '"colour":"red","models"'))
    with pytest.raises(ConfigError, match=r"key 'alice': .*`colour`"):
        Ring(tmp_path, OPS)


def test_keys_of_the_configuration_need_no_mark(tmp_path: Path) -> None:
    ring = Ring(tmp_path, OPS)
    ring.new("alice")
    ring.kept.revoke("alice")
    assert Ring(tmp_path).who("whatever") == "anyone", "whoever removes the keys of the configuration means it"
