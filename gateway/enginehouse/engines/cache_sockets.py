"""Where engines that the gateway launches publish the events of their prefix caches."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from enginehouse.config.kv_events import KvEventSettings
from enginehouse.domain.errors import ConfigError
from enginehouse.engines.state_file import state_folder

_LONGEST: Final = 100
"""Unix sockets have paths of at most 107 bytes."""


def launched_events(gateway: str, backend: str) -> KvEventSettings:
    """The sockets of a managed ``backend`` of this gateway: files in its state folder, which others cannot open.

    Raises ``ConfigError`` if the folder's path is too long.
    """
    path = f"{state_folder(gateway)}/kv-{sha256(backend.encode()).hexdigest()[:12]}"
    if len(f"{path}-again".encode()) > _LONGEST:
        raise ConfigError(
            f"the path of a socket is too long: {path}",
            key="models.*.kv_events",
            remedy="name a shorter folder in ENGINEHOUSE_STATE_DIR",
        )
    return KvEventSettings(endpoint=f"ipc://{path}", replay=f"ipc://{path}-again")


def events_config(gateway: str, backend: str) -> str:
    """The ``--kv-events-config`` of vLLM and SGLang for these sockets."""
    events = launched_events(gateway, backend)
    config = {"enable_kv_cache_events": True, "publisher": "zmq"}
    return msgspec.json.encode({**config, "endpoint": events.endpoint, "replay_endpoint": events.replay}).decode()
