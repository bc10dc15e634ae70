"""GGUF files that are nothing but a header: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def gguf_text(text: str) -> bytes:
    """A text with its length in front."""
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: Any) -> bytes:
    """A value with its type (docs/gguf.md of ggml): 4 uint32, 6 float32, 7 bool, 8 string, 9 array."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    items = [_value(item) for item in value]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def write_gguf(path: Path, size: int = 0, **metadata: Any) -> Path:
    """A GGUF file of at least ``size`` bytes; a key's ``__`` is a dot."""
    pairs = [(key.replace("__", "."), value) for key, value in metadata.items()]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    path.write_bytes((head + b"".join(gguf_text(key) + _value(value) for key, value in pairs)).ljust(size, b"\0"))
    return path
