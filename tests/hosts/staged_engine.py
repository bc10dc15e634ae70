"""A simulated engine that loads when its test lets it: ``python staged_engine.py FOLDER FLAGS...``.

It waits until FOLDER has a file ``open``. Where FOLDER has a file ``room`` with a number in it, so many engines can be
loaded at once, for as long as their processes live; one more finds no memory. ``FLAGS`` are those of the engine.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path


def take_place(folder: Path, number: int) -> bool:
    place = os.open(folder / f"place-{number}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(place)
        return False
    os.set_inheritable(place, True)
    return True


def main(folder: Path, *flags: str) -> None:
    while not (folder / "open").exists():
        time.sleep(0.01)
    room = folder / "room"
    if room.exists() and not any(take_place(folder, number) for number in range(int(room.read_text()))):
        sys.exit("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory")
    os.execv(sys.executable, [sys.executable, "-m", "enginehouse_sim", *flags])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
