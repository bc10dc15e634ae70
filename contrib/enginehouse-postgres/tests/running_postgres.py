"""A PostgreSQL server of its own for the tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psycopg

_PLACES = os.pathsep.join([os.environ.get("PATH", ""), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))])
SERVER = shutil.which("postgres", path=_PLACES)
INITDB = shutil.which("initdb", path=_PLACES)
_ACCOUNT = "postgres"


class RunningPostgres:
    """Use it as a context manager. It does not run as root, so there it runs as the account of the package."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._account = {"user": _ACCOUNT, "group": _ACCOUNT, "extra_groups": []} if os.geteuid() == 0 else {}

    def __enter__(self) -> RunningPostgres:
        assert INITDB is not None
        self._folder.mkdir(parents=True)
        if self._account:
            shutil.chown(self._folder, _ACCOUNT)
        made = [INITDB, "-D", str(self._folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd="/", **self._account)  # type: ignore[call-overload]
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        assert SERVER is not None
        options = ["-p", str(self.port), "-k", "", "-h", "127.0.0.1", "-F"]
        command = [SERVER, "-D", str(self._folder / "data"), *options]
        self._process = subprocess.Popen(  # type: ignore[call-overload]
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self._account
        )
        end = time.monotonic() + 60
        while not self._listens():
            assert time.monotonic() < end, "PostgreSQL never listened"
            time.sleep(0.02)

    def _listens(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """End it at once; what was added stays."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
