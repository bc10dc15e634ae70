"""A real DNS server: Knot DNS, which serves one zone."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

KNOT = shutil.which("knotd") or shutil.which("knotd", path="/usr/sbin:/usr/local/sbin")
_PATIENCE_S = 30
_CONFIG = """
server:
    rundir: "{folder}"
    listen: "127.0.0.1@{port}"
database:
    storage: "{folder}"
zone:
  - domain: engines.test
    file: "{folder}/zone"
    zonefile-load: whole
log:
  - target: stderr
    any: info
"""
_ZONE = """
$TTL 60
@ SOA ns admin {serial} 60 60 600 60
@ NS ns
ns A 127.0.0.1
{records}
"""


class Knot:
    """Serves ``engines.test``. ``address``: of the server. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._serial = 0
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Knot:
        self._write()
        while not self.address:  # somebody else may take the port before Knot does
            self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def serve(self, *records: str) -> None:
        """Answer with these ``records`` from now on."""
        assert self.process is not None
        self._write(*records)
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _write(self, *records: str) -> None:
        self._serial += 1
        unfinished = self._folder / "zone.new"
        unfinished.write_text(_ZONE.format(serial=self._serial, records="\n".join(records)))
        unfinished.replace(self._folder / "zone")

    def _start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        config = self._folder / "knot.conf"
        config.write_text(_CONFIG.format(folder=self._folder, port=port))
        assert KNOT is not None
        with (self._folder / "log").open("wb") as log:
            self.process = subprocess.Popen([KNOT, "-c", str(config)], stdout=log, stderr=log)
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            text = (self._folder / "log").read_text()
            if "cannot bind" in text:
                break
            if "server started" in text:
                self.address = f"127.0.0.1:{port}"
                return
            time.sleep(0.01)
        else:
            raise RuntimeError((self._folder / "log").read_text())
        self.kill()
