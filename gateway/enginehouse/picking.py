"""Picking a backend for another proxy, which then carries the request itself."""

from __future__ import annotations

from enginehouse.app.picker import Picker
from enginehouse.relay.pick import Pick, PickClient, Picked

__all__ = [
    "Pick",
    "PickClient",
    "Picked",
    "Picker",
]
