"""A request without a stream that is relayed as one, and whose prompt another engine may read."""

from __future__ import annotations

from enginehouse.relay.gathering.gathering_job import GatheringJob
from enginehouse.relay.hand_over_job import HandOverJob


class GatheringHandOverJob(HandOverJob, GatheringJob):
    """Both: the routes of a ``HandOverJob``, with the bodies of a ``GatheringJob``."""

    __slots__ = ()
