"""Batches: ``/v1/files`` and ``/v1/batches`` as OpenAI has them, whose lines run where nobody waits.

::

    service         runs batches beside the requests of people
    objects         files and batches, as clients get them, and the parameters
    input_file      reads the lines of a batch
    store           files, batches and results, in SQLite, in a thread of its own
    plan            which lines run now, and which make room
    runner          carries that out
    pages           /v1/files, /v1/batches and /api/batches
    commands        enginehouse batches
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_batches.service import Batches


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service, which runs if the configuration has its table."""
    register("batches", Batches)
