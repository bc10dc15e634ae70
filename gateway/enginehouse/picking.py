"""Picking a backend for another proxy, which then carries the request itself."""

from __future__ import annotations

from enginehouse.app.picker import Picker as Picker
from enginehouse.relay.pick import Pick as Pick
from enginehouse.relay.pick import PickClient as PickClient
from enginehouse.relay.pick import Picked as Picked
