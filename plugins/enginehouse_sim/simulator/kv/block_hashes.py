"""Content hashes of KV blocks: equal in every process, and equal only for equal prefixes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from enginehouse_sim.simulator.domain.constants import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState

_HASH_BYTES = 8
_TOKEN_BYTES = 8
_62_BITS: Final = (1 << 62) - 1


class BlockHasher:
    """Hashes each full block of ``block_size`` tokens to 64 bits.

    A hash covers the block's tokens, the hash of the previous block and, where they matter, the LoRA adapter, the cache
    salt and the multimodal inputs, as vLLM's extra keys do. Equal hashes therefore mean equal keys and values.
    ``is_local``: requests have tokens alone, and no other process needs the hashes, which take a tenth of the time.
    """

    def __init__(self, block_size: int, *, is_local: bool = False) -> None:
        self.block_size = block_size
        self._is_local = is_local

    def extend(self, request: RequestState) -> list[int]:
        """The hashes of all full blocks of ``request``. Appends missing hashes to its ``block_hashes``.

        Tokens are signed 64-bit numbers.
        """
        hashes, token_ids, size = request.block_hashes, request.all_token_ids, self.block_size
        first, end = len(hashes), len(token_ids) // size
        if first >= end:
            return hashes
        if self._is_local:
            for index in range(first, end):
                block = tuple(token_ids[index * size : (index + 1) * size])
                hashes.append(hash((hashes[-1] if hashes else 0, block)) & _62_BITS)
            return hashes
        tokens = token_ids[first * size : end * size]
        data = struct.pack(f"<{len(tokens)}q", *tokens)
        # The hash input before the next block: the previous hash, or the keys that separate equal prompts.
        parent = hashes[-1].to_bytes(_HASH_BYTES, "little") if hashes else _written(request.lora, request.cache_salt)
        for index in range(first, end):
            at = (index - first) * size * _TOKEN_BYTES
            content = parent + data[at : at + size * _TOKEN_BYTES]
            if request.mm_inputs:
                content += _inputs_within(request.mm_inputs, index * size, size)
            parent = blake2b(content, digest_size=_HASH_BYTES).digest()
            hashes.append(int.from_bytes(parent, "little"))
        return hashes


def _inputs_within(mm_inputs: Sequence[MultiModalInput], begin: int, size: int) -> bytes:
    return b"".join(
        _written(mm.identifier, str(mm.offset - begin))
        for mm in mm_inputs
        if mm.offset < begin + size and mm.offset + mm.length > begin
    )


def _written(*parts: str | None) -> bytes:
    """An unambiguous encoding: different lists of parts never have the same bytes."""
    texts = [None if part is None else part.encode(errors="surrogatepass") for part in parts]
    return b"".join(b"-" if text is None else b"%d:%b" % (len(text), text) for text in texts)
