"""The store's side of leases: the rules of ``LeasedLimitStore.lease`` in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginehouse_kit.limits.leased_limits import Lease, LeaseAsk, Leases, lease_of
from enginehouse_kit.limits.local_limit import LocalLimit, PassingLimits

_SLOTS_S = 3.0
"""For so long after its last ask, a gateway holds what it was granted of limits ``at_once``."""
_MOST = 100_000
"""The most limits that are kept, the last used ones."""
_GATEWAY_S = 5.0
"""For so long after its last ask, a gateway counts as one of those that share."""


class LeaseBook:
    """Grants leases to gateways. One process keeps it for all of them. ``now`` and ``epoch`` tell the seconds."""

    def __init__(self, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self._now = now
        self._epoch = epoch
        self._limits: PassingLimits[LocalLimit] = PassingLimits(_MOST)
        self._holders: dict[str, dict[str, tuple[float, float]]] = {}
        self._seen: dict[str, float] = {}

    def lease(self, gateway: str, asks: Sequence[LeaseAsk]) -> Leases:
        """The leases of ``gateway`` for its ``asks``."""
        now = self._now()
        self._seen[gateway] = now
        self._seen = {name: at for name, at in self._seen.items() if at > now - _GATEWAY_S}
        leases = [self._at_once(gateway, ask, now) if ask.rule.per == "at_once" else self._taken(ask) for ask in asks]
        return Leases(leases, len(self._seen))

    def _at_once(self, gateway: str, ask: LeaseAsk, now: float) -> Lease:
        holders = self._holders.setdefault(ask.name, {})
        for name in [name for name, (_, until) in holders.items() if until <= now]:
            del holders[name]
        others = sum(held for name, (held, _) in holders.items() if name != gateway)
        granted = max(0.0, min(ask.want, ask.rule.amount - others))
        if granted:
            holders[gateway] = granted, now + _SLOTS_S
        else:
            holders.pop(gateway, None)
            if not holders:
                del self._holders[ask.name]
        return Lease(granted, left=max(0.0, ask.rule.amount - others - granted))

    def _taken(self, ask: LeaseAsk) -> Lease:
        limit = self._limits.get(ask.name)
        if limit is None:
            limit = LocalLimit(ask.rule, self._now, self._epoch)
            self._limits.add(ask.name, limit)
        limit.set_rule(ask.rule)
        return lease_of(limit, ask)
