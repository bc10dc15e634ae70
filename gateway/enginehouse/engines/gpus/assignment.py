"""Assigns GPUs of a host to an engine. Nothing here waits or has effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from enginehouse.domain.errors import ConfigError
from enginehouse.domain.gpu import Gpu

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def assign(
    wanted: int | Sequence[int] | None,
    allowed: Sequence[int] | None,
    gpus: Sequence[Gpu],
    taken: Iterable[Sequence[int]],
) -> Sequence[int] | None:
    """The numbers of the GPUs that an engine may see; ``None`` if it may see all of them.

    ``wanted`` is their number or a list of them; ``None`` for all that are ``allowed`` on the host, which is ``None``
    for every one. ``gpus`` are the known ones, ``taken`` those of each running engine. Of several, those with the
    fewest engines come first, then those with the most free memory. Raises ``ConfigError`` if there are not enough.
    """
    if wanted is None:
        return allowed
    if not isinstance(wanted, int):
        return wanted
    known = {gpu.index: gpu for gpu in gpus}
    choice = allowed if allowed is not None else sorted(known)
    if wanted > len(choice):
        raise ConfigError(
            f"{wanted} GPUs are wanted, and the host has {len(choice)}",
            remedy="lower models.*.gpus, or list the GPUs in hosts.*.gpus"
            + ("" if known else "; to find them by itself, the gateway needs `pip install enginehouse[gpu]`"),
        )
    engines = _engines(taken)
    ranked = sorted(choice, key=lambda each: (engines.get(each, 0), -(known[each].free if each in known else 0), each))
    return sorted(ranked[:wanted])


def _engines(taken: Iterable[Sequence[int]]) -> Mapping[int, int]:
    """The number of engines on each GPU."""
    counts: dict[int, int] = {}
    for gpus in taken:
        for gpu in gpus:
            counts[gpu] = counts.get(gpu, 0) + 1
    return counts


def visible(gpus: Sequence[int]) -> str:
    """The value of ``CUDA_VISIBLE_DEVICES`` with which a process sees only ``gpus``."""
    return ",".join(map(str, gpus))
