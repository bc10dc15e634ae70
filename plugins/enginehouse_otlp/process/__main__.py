"""``python -m enginehouse_otlp.process``: the gateway starts it and writes messages to its standard input."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress

import msgspec

from enginehouse_otlp.framing import read_frame
from enginehouse_otlp.messages import ExportSettings, Report

_NICER = 13
_PAUSE_S = 1.0


def main() -> None:
    """Export until the end of standard input. It ends the process ``flush_timeout`` after SIGTERM or that end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the gateway too, which then closes the pipe
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    settings = read_frame(sys.stdin.buffer)
    if not isinstance(settings, ExportSettings):
        return
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.signal(signal.SIGTERM, lambda *_: _leave_within(settings.flush_timeout))
    from enginehouse_otlp.process.collector_state import LastWords
    from enginehouse_otlp.process.core_sharing import CoreSharing
    from enginehouse_otlp.process.export_loop import ExportLoop

    with suppress(OSError):
        os.nice(_NICER)  # it shares the gateway's CPUs; not before, so that traces are soon back after a restart
    words = LastWords()
    words.listen()
    gateway = os.getppid()
    ExportLoop(settings, _report, CoreSharing().yield_core, words, lambda: _pause(gateway)).run(sys.stdin.buffer)


def _pause(gateway: int) -> bool:
    """Wait for the collector; whether the gateway, which has this process id, is still there."""
    time.sleep(_PAUSE_S)
    return os.getppid() == gateway


def _leave_within(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))


def _report(report: Report) -> None:
    with suppress(BrokenPipeError):  # the gateway is gone
        os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    main()
