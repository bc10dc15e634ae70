"""Trace formats. The fields of a file, and their units, tell its format."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.replay.traces.formats.azure import Azure
from enginehouse_sim.simulator.replay.traces.formats.bailian import Bailian
from enginehouse_sim.simulator.replay.traces.formats.mooncake import Mooncake
from enginehouse_sim.simulator.replay.traces.formats.plain import Plain
from enginehouse_sim.simulator.replay.traces.formats.row import Format, Row
from enginehouse_sim.simulator.replay.traces.trace import TraceError

FORMATS: Sequence[Format] = (Azure(), Bailian(), Mooncake(), Plain())


def format_of(rows: Sequence[Row], name: str = "") -> Format:
    """The format called ``name``, by default the one that fits ``rows``, the first rows of a trace.

    Raises ``TraceError`` if no format fits, if several do, or if the units are in doubt.
    """
    if name:
        return next(each for each in FORMATS if each.name == name)
    fitting = [each for each in FORMATS if each.fits(rows[0])]
    if not fitting:
        wanted = "; ".join(f"{each.name}: {each.wants}" for each in FORMATS)
        raise TraceError(f"the fields are {', '.join(rows[0])}, and no format has those. {wanted}")
    if len(fitting) > 1:
        names = " and ".join(each.name for each in fitting)
        raise TraceError(f"the fields are those of {names}: say which with --format")
    if doubt := fitting[0].doubt(rows):
        raise TraceError(
            f"the fields are those of {fitting[0].name} ({fitting[0].units}), but {doubt}. "
            f"Say --format {fitting[0].name} if it is one, or rename the fields to {Plain.wants}"
        )
    return fitting[0]
