"""Reads the metadata at the beginning of a GGUF file.

The layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The reader of the ``gguf`` package makes an array
of every token, which takes seconds for a large vocabulary; this one steps over lists.
"""

from __future__ import annotations

import mmap
import os
import struct
from math import prod
from pathlib import Path
from typing import Any

from enginehouse import ConfigError

_MAGIC = b"GGUF"
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_LONGEST_LIST = 1024
"""Lists of numbers up to this length are read: figures of each layer. Longer ones belong to the vocabulary."""
_LARGEST, _MOST = 64 << 20, 4_000_000
"""Bytes and items of a header. The largest vocabularies take a quarter of that; a file may be anything."""
_DEEPEST = 2
"""Lists within lists."""
_MOST_DIMENSIONS = 4
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    30: (1, 2),
}
"""The frequent types of tensors: the numbers in a block, and its bytes."""


class GgufError(ConfigError):
    """The file is no GGUF file, or it is incomplete."""


def read_gguf_header(path: Path) -> dict[str, Any]:
    """The metadata of ``path``, by key. Long lists, and lists of texts, are ``None``.

    Raises ``GgufError``, also for a file that ends before its last tensor.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            with mmap.mmap(file.fileno(), min(size, _LARGEST), access=mmap.ACCESS_READ) as data:
                reader = _Reader(data)
                metadata = reader.metadata()
                needed = reader.tensors_end(metadata.get("general.alignment"))
    except (struct.error, IndexError):
        problem = f"{path} is cut short or damaged: it ends within its header"
        raise GgufError(problem, remedy="download it again") from None
    except (OSError, ValueError, OverflowError, TypeError, KeyError) as error:
        raise GgufError(f"{path} cannot be read as a GGUF file: {error}") from None
    if size < needed:
        problem = f"{path} is cut short: it has {size:,} bytes, and its tensors need {needed:,} at least"
        raise GgufError(problem, remedy="download it again")
    return metadata


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = self._items = self._tensors = 0

    def metadata(self) -> dict[str, Any]:
        if self._data[:4] != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are known")
        self._tensors = self._number("<Q")
        return dict(self._pair() for _ in self._times(self._number("<Q")))

    def tensors_end(self, alignment: object) -> int:
        """The least size of the file, by what follows its metadata; 0 without tensors."""
        if not self._tensors:
            return 0
        end = 0
        for _ in self._times(self._tensors):
            self._text()
            dimensions = self._number("<I")
            if dimensions > _MOST_DIMENSIONS:
                raise ValueError(f"it has a tensor of {dimensions} dimensions")
            numbers = prod(self._number("<Q") for _ in range(dimensions))
            block, size = _BLOCKS.get(self._number("<I"), (1, 0))
            end = max(end, self._number("<Q") + numbers // block * size)
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        return -(-self._at // step) * step + end

    def _times(self, count: int) -> range:
        """``range(count)``, if the header has not too many items by then."""
        self._items += count
        if self._items > _MOST:
            raise ValueError(f"its header has more than {_MOST:,} items")
        return range(count)

    def _pair(self) -> tuple[str, Any]:
        return self._text(), self._value(self._number("<I"))

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            if depth == _DEEPEST:
                raise ValueError("it has lists within lists within lists")
            return self._list(self._number("<I"), self._number("<Q"), depth + 1)
        return self._number(_SCALARS[kind])

    def _list(self, kind: int, length: int, depth: int) -> Any:
        if kind in _SCALARS and length > _LONGEST_LIST:
            self._at += length * struct.calcsize(_SCALARS[kind])
            self._check_end()
        elif kind == _STRING:
            self._step_over_texts(length)
        else:
            return [self._value(kind, depth) for _ in self._times(length)]
        return None

    def _step_over_texts(self, count: int) -> None:
        data, at, unpack = self._data, self._at, struct.Struct("<Q").unpack_from
        for _ in self._times(count):
            at += 8 + unpack(data, at)[0]
        self._at = at
        self._check_end()

    def _check_end(self) -> None:
        if self._at > len(self._data):
            raise ValueError("it ends within its metadata")

    def _text(self) -> str:
        length = self._number("<Q")
        start, self._at = self._at, self._at + length
        self._check_end()
        return self._data[start : self._at].decode()

    def _number(self, form: str) -> Any:
        [value] = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value
