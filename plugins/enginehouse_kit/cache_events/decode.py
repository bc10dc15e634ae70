"""Decodes the messages of engines' prefix caches: vLLM's ``KVEventBatch``, which SGLang sends too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.engine_caches import BlocksRemoved, BlocksStored, CacheCleared, CacheEvent

_FIELDS: Mapping[str, Sequence[str]] = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}
"""The fields of each event, in the order in which engines send them as an array."""
_IN_GPU = (None, "GPU", "gpu")


class _Stored(msgspec.Struct):
    block_hashes: list[int | bytes]
    token_ids: list[int]
    block_size: int
    parent_block_hash: int | bytes | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    extra_keys: list[Sequence[Any] | None] | None = None
    group_idx: int | None = None


class _Removed(msgspec.Struct):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


def decode_batch(payload: bytes) -> list[CacheEvent]:
    """The events of one message. Those of unknown kinds, and of memory other than the GPU's, are left out.

    Raises ``ValueError`` for a message that is no batch.
    """
    try:
        _, events, *_ = msgspec.msgpack.decode(payload, type=list[Any])
        return [found for event in events for found in _read(event)]
    except (msgspec.MsgspecError, TypeError, AttributeError) as error:
        raise ValueError(f"no batch of cache events: {error}") from error


def _read(event: Any) -> Iterator[CacheEvent]:
    kind, fields = _taken_apart(event)
    if kind == "BlockStored":
        stored = msgspec.convert(fields, _Stored)
        if stored.medium in _IN_GPU:
            lora = stored.lora_name or (f"lora {stored.lora_id}" if stored.lora_id is not None else "")
            before = stored.parent_block_hash
            parent = None if before is None else _names([before], stored.group_idx)[0]
            hashes = _names(stored.block_hashes[: _of_text(stored)], stored.group_idx)
            yield BlocksStored(hashes, parent, stored.token_ids, stored.block_size, lora)
    elif kind == "BlockRemoved":
        removed = msgspec.convert(fields, _Removed)
        if removed.medium in _IN_GPU:
            yield BlocksRemoved(_names(removed.block_hashes, removed.group_idx))
    elif kind == "AllBlocksCleared":
        yield CacheCleared()


def _of_text(stored: _Stored) -> int:
    """How many blocks come before the first one that an image or a salt decides too."""
    for place, keys in enumerate(stored.extra_keys or ()):
        if any(key != stored.lora_name for key in keys or ()):
            return place
    return len(stored.block_hashes)


def _names(hashes: list[int | bytes], group: int | None) -> list[int | bytes]:
    """Names blocks of one group of layers: it may evict one while others keep theirs under the same hash."""
    return [b"%d/%a" % (group, each) for each in hashes] if group else hashes


def _taken_apart(event: Any) -> tuple[str, Mapping[str, Any]]:
    """An event's kind and its fields; engines send it as an array or as a map."""
    if isinstance(event, dict):
        return event["type"], event
    kind, *values = event
    return kind, dict(zip(_FIELDS.get(kind, ()), values, strict=False))
