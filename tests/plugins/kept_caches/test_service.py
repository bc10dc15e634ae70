"""The service that gives launched backends their keepers, and counts what becomes of caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from enginehouse.backends import LaunchedBackend
from enginehouse.drivers import EngineClient, KeepsCache
from enginehouse_kept_caches.service import CACHES_KEPT, KeptCaches
from enginehouse_kit.fake_service_gateway import FakeServiceGateway

CLIENT = cast(EngineClient, None)


class Engine(KeepsCache):
    """Writes one slot into ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def save_cache(self, engine: EngineClient) -> Mapping[str, int]:
        (self.folder / "slot-0").write_bytes(b"1")
        return {"slot-0": 10}

    async def restore_cache(self, engine: EngineClient, files: Sequence[str]) -> int:
        return 10


async def test_what_becomes_of_caches_is_counted(tmp_path: Path) -> None:
    gateway, service = FakeServiceGateway(), KeptCaches()
    service.start(gateway)
    assert gateway.keeps_with is not None
    keeper = gateway.keeps_with(LaunchedBackend("a", "m", tmp_path))
    for _ in range(2):
        await keeper.prepare("line", ["/bin/sh"], [])
        await keeper.restore(Engine(tmp_path), CLIENT)
        await keeper.save(Engine(tmp_path), CLIENT, 5.0, 1000)
    assert keeper.estimated == 10
    assert dict(service.measure()[CACHES_KEPT]) == {("m", "saved"): 2, ("m", "restored"): 1}
