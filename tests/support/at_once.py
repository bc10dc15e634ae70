"""Writes that wait for no others."""

from __future__ import annotations

from enginehouse.aio.write_batch import WriteBatch

AT_ONCE = WriteBatch(lambda callback: callback())
"""Each write is a turn of its own."""
