"""The instances that adaptive disaggregation reserves: one for prefill, one for decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from enginehouse import Role
from enginehouse.rescheduling import InstanceView


class Reservations(NamedTuple):
    """The ids of both instances; empty for none."""

    prefill: str = ""
    decode: str = ""

    def mark(self, instance: InstanceView) -> InstanceView:
        """The instance with its reservation."""
        role = {self.prefill: Role.PREFILL, self.decode: Role.DECODE}.get(instance.id)
        return msgspec.structs.replace(instance, reserved=role)


NONE_RESERVED = Reservations()


def reserve(instances: Sequence[InstanceView], before: Reservations) -> Reservations:
    """Keep the reservations of instances that still exist, and choose others for those that do not.

    For decode, the instance with the fewest tokens of prompts to compute; for prefill, of the others the one with the
    fewest decodes. As in Llumnix, only engines' own figures count, and one that fails keeps its reservation. Equal
    instances are in the order of their ids.
    """
    known = {each.id for each in instances}
    decode = before.decode if before.decode in known else ""
    prefill = before.prefill if before.prefill in known else ""
    if not decode:
        decode = min(((_prompts(each), each.id) for each in instances if each.id != prefill), default=(0, ""))[1]
    if not prefill:
        prefill = min(((_decodes(each), each.id) for each in instances if each.id != decode), default=(0, ""))[1]
    return Reservations(prefill, decode)


def _prompts(instance: InstanceView) -> int:
    status = instance.status
    return status.num_uncomputed_tokens_all_waiting_prefills + status.num_uncomputed_tokens_scheduler_running_prefills


def _decodes(instance: InstanceView) -> int:
    status = instance.status
    return (
        status.hybrid_scheduler_waiting_to_decode_requests_num
        + status.scheduler_waiting_to_decode_requests_num
        + status.scheduler_running_to_decode_requests_num
        + status.num_loading_requests
    )
