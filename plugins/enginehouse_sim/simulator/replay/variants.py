"""Replays of one trace under several configurations, side by side, on all cores."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import product
from multiprocessing.sharedctypes import SynchronizedArray

import msgspec

from enginehouse import ConfigError, EnginehouseError
from enginehouse_sim.simulator.replay.figures.plot import Curves, curves_of
from enginehouse_sim.simulator.replay.figures.report import VariantReport, report
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.traffic import Traffic

_REPORT_EVERY_S = 0.2


class Variant(msgspec.Struct, frozen=True):
    """One configuration to replay, and its traffic."""

    name: str
    setting: Setting
    traffic: Traffic


class Outcome(msgspec.Struct, frozen=True):
    """The result of one variant: its figures and its curves."""

    figures: VariantReport
    curves: Curves


def choice_of(text: str) -> tuple[str, list[str]]:
    """Read ``routing.strategy=smart,random`` as a key and its values.

    Commas in brackets or quotes do not separate values.

    Raises ``ConfigError``.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values:
        raise ConfigError(
            f"{text!r} is not a choice", key="--set", remedy="write KEY=A,B: routing.strategy=smart,random"
        )
    found, depth, quoted = [""], 0, ""
    for character in values:
        if character in "\"'" and quoted in ("", character):
            quoted = "" if quoted else character
        elif not quoted:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += character
    return key.strip(), [value.strip() for value in found]


def variants_of(traffic: Traffic, setting: Setting, choices: Sequence[tuple[str, Sequence[str]]]) -> list[Variant]:
    """The product of all ``choices``: keys of the configuration, each with the values to try."""
    keys = [key for key, _ in choices]
    made = []
    for values in product(*(values for _, values in choices)):
        pairs = tuple(zip(keys, values, strict=True))
        gateway = msgspec.structs.replace(setting.gateway, values=pairs)
        name = ", ".join(f"{key}={value}" for key, value in pairs) or "as configured"
        made.append(Variant(name, msgspec.structs.replace(setting, gateway=gateway), traffic))
    return made


def run_variants(
    variants: Sequence[Variant], on_progress: Callable[[float], None], jobs: int | None = None
) -> list[Outcome]:
    """Replay every variant, each in a process of its own if there are several and ``jobs`` is not 1.

    ``on_progress`` gets the share of the work that is done, 0 to 1. ``jobs``: the most processes at once, by default
    one for each core. Raises ``EnginehouseError``.
    """
    for variant in variants:
        variant.setting.gateway.load()  # so that an error is reported before the first replay
    if len(variants) == 1 or jobs == 1:
        return _replay_in_turn(variants, on_progress)
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", len(variants))
    workers = min(len(variants), jobs or os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, context, _share_progress, (shares,)) as pool:
        submitted = [pool.submit(_replay_apart, variant, number) for number, variant in enumerate(variants)]
        waiting = set(submitted)
        while waiting:
            _, waiting = wait(waiting, _REPORT_EVERY_S)
            on_progress(sum(shares[:]) / len(variants))
        return [_outcome(job.result()) for job in submitted]


def _replay_in_turn(variants: Sequence[Variant], on_progress: Callable[[float], None]) -> list[Outcome]:
    def note_of(number: int) -> Callable[[float], None]:
        return lambda share: on_progress((number + share) / len(variants))

    return [_replay(variant, note_of(number)) for number, variant in enumerate(variants)]


_shares: SynchronizedArray[float] | None = None


def _share_progress(shares: SynchronizedArray[float]) -> None:
    global _shares
    _shares = shares


def _outcome(result: Outcome | str) -> Outcome:
    if isinstance(result, str):
        raise EnginehouseError(result)
    return result


def _replay_apart(variant: Variant, number: int) -> Outcome | str:
    """Replay in a worker process. An error comes back as its message, because not every error can be pickled."""
    assert _shares is not None
    shares = _shares

    def note(share: float) -> None:
        shares[number] = share

    try:
        return _replay(variant, note)
    except EnginehouseError as error:
        return str(error)


def _replay(variant: Variant, on_progress: Callable[[float], None]) -> Outcome:
    with _no_log():
        record = GatewayReplay(variant.traffic.requests(on_progress), variant.setting).run()
    figures = VariantReport(name=variant.name, **msgspec.structs.asdict(report(record)))
    return Outcome(figures, curves_of(record))


@contextmanager
def _no_log() -> Iterator[None]:
    """Keep the warnings of a replay's gateway off standard error, unless logging is set up: the report counts them."""
    log, handler = logging.getLogger("enginehouse"), logging.NullHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
