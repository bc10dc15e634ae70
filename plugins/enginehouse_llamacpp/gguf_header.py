"""Reads the metadata at the beginning of a GGUF file.

The layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The reader of the ``gguf`` package makes an array
of every token, which takes seconds for a large vocabulary; this one steps over lists.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from enginehouse import ConfigError

_MAGIC = b"GGUF"
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_LONGEST_LIST = 1024
"""Lists of numbers up to this length are read: figures of each layer. Longer ones belong to the vocabulary."""


class GgufError(ConfigError):
    """The file is no GGUF file, or it is incomplete."""


def read_gguf_header(path: Path) -> dict[str, Any]:
    """The metadata of ``path``, by key. Long lists, and lists of texts, are ``None``. Raises ``GgufError``."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).metadata()
    except (OSError, ValueError, struct.error, UnicodeDecodeError, KeyError, IndexError) as error:
        raise GgufError(f"{path} cannot be read as a GGUF file: {error}") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        if self._data[:4] != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are known")
        self._number("<Q")  # tensors
        return dict(self._pair() for _ in range(self._number("<Q")))

    def _pair(self) -> tuple[str, Any]:
        return self._text(), self._value(self._number("<I"))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            return self._list(self._number("<I"), self._number("<Q"))
        return self._number(_SCALARS[kind])

    def _list(self, kind: int, length: int) -> Any:
        if kind in _SCALARS and length > _LONGEST_LIST:
            self._at += length * struct.calcsize(_SCALARS[kind])
        elif kind == _STRING:
            self._step_over_texts(length)
        else:
            return [self._value(kind) for _ in range(length)]
        return None

    def _step_over_texts(self, count: int) -> None:
        data, at, unpack = self._data, self._at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        self._at = at

    def _text(self) -> str:
        length = self._number("<Q")
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise ValueError("it ends within its metadata")
        return self._data[start : self._at].decode()

    def _number(self, form: str) -> Any:
        [value] = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value
