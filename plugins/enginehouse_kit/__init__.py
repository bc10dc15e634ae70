"""The kit for authors of plugins: what ``enginehouse.testing`` offers, and what only plugins use of ``enginehouse``.

::

    drivers/, schedulers/, limits/   base classes and bookkeeping
    offload                          chooses the requests that leave a full KV cache
    virtual_loop                     an event loop that jumps to the next event instead of waiting
    make, fake_*, played_server      test data, and fakes of what a plugin gets
    checks/, by_kind, expect         the conformance checks
    engines, gateway, process        simulated engines and gateways, as real processes
    scaffold, new, template/         the first files of a new plugin
"""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer ``enginehouse plugins new``."""
    register("plugins new", _new)


def _new() -> Any:
    from enginehouse_kit.new import new

    return new
