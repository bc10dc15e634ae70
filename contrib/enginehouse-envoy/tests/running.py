"""Real processes: Envoy and the picker."""

from __future__ import annotations

import http.client
import json
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_LISTENS = re.compile(r"ext_authz [\d.]+:(\d+), ext_proc [\d.]+:(\d+), health [\d.]+:(\d+), pages [\d.]+:(\d+)")
ENVOY = shutil.which("envoy") or shutil.which("envoy", path=str(Path(sys.executable).parent))
BODY = {"model": "sim", "max_tokens": 3, "messages": [{"role": "user", "content": "hello"}]}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(json.loads(self.body)["error"]["code"])


def ask(
    port: int,
    body: object = BODY,
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> Answer:
    """The answer to one request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Ask until it ``holds``."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


class RunningPicker:
    """``enginehouse envoy serve``. ``authz``, ``ext_proc``, ``health``: its ports. ``pages``: of ``--port``."""

    def __init__(self, process: subprocess.Popen[bytes], ports: Iterable[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.authz, self.ext_proc, self.health, self.pages = map(int, ports)

    def status(self) -> Any:
        """``GET /api/status``."""
        return json.loads(ask(self.pages, None, method="GET", path="/api/status").body)

    def history(self) -> list[Any]:
        """The requests that have ended."""
        answer = ask(self.pages, None, method="GET", path="/api/history")
        return list(json.loads(answer.body)["requests"])

    def live(self) -> list[Any]:
        """The requests that have not ended."""
        return list(json.loads(ask(self.pages, None, method="GET", path="/api/requests").body)["requests"])


@contextmanager
def running_picker(
    config: str, folder: Path, *options: str, ports: tuple[int, int] = (0, 0)
) -> Iterator[RunningPicker]:
    """The picker as a process."""
    file = folder / "enginehouse.toml"
    file.write_text(config)
    command = [sys.executable, "-m", "enginehouse", "envoy", "serve", "--config", str(file)]
    command += ["--port", "0", "--health-port", "0", "--http-port", str(ports[0]), "--grpc-port", str(ports[1])]
    log = (folder / "picker.log").open("wb")
    environment = {"ENGINEHOUSE_STATE_DIR": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=log, env=environment)
    try:
        found = _LISTENS.search(_first_line(process))
        assert found, (folder / "picker.log").read_text()
        yield RunningPicker(process, found.groups(), folder)
    finally:
        end(process)
        log.close()


class RunningEnvoy(NamedTuple):
    """Envoy's ports: the one that asks by ext_authz, and the one that asks by ext_proc."""

    by_authz: int
    by_ext_proc: int
    process: subprocess.Popen[bytes]


@contextmanager
def running_envoy(
    authz: int, ext_proc: int, folder: Path, change: Callable[[str], str] = lambda text: text, *more: str
) -> Iterator[RunningEnvoy]:
    """Envoy with the configuration that ``enginehouse envoy config`` prints, after ``change``.

    ``more``: further options of that command.
    """
    options = {"listen": 0, "listen-ext-proc": 0, "http-port": authz, "grpc-port": ext_proc}
    command = [sys.executable, "-m", "enginehouse", "envoy", "config"]
    for name, port in options.items():
        command += [f"--{name}", str(port)]
    text = change(subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout)
    with envoy_process(text, folder) as (process, ports):
        yield RunningEnvoy(ports["by_ext_authz"], ports["by_ext_proc"], process)


@contextmanager
def envoy_process(text: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """Envoy with the configuration ``text``, and the port of each of its listeners, by name."""
    assert ENVOY is not None
    file, admin = folder / "envoy.yaml", folder / "admin"
    file.write_text(f"admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}\n{text}")
    command = [ENVOY, "-c", str(file), "--admin-address-path", str(admin), "--concurrency", "1"]
    with (folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen([*command, "--disable-hot-restart", "-l", "warning"], stdout=log, stderr=log)
        try:
            until(lambda: _listeners(admin) or process.poll() is not None, "Envoy listens")
            assert process.poll() is None, (folder / "envoy.log").read_text()
            yield process, _listeners(admin)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _listeners(admin: Path) -> dict[str, int]:
    """The port of each listener, once they listen. The address of Envoy's pages comes into the file ``admin``."""
    _, _, port = (admin.read_text() if admin.exists() else "").partition(":")
    if not port or ask(int(port), None, method="GET", path="/ready").status != 200:
        return {}
    found = json.loads(ask(int(port), None, method="GET", path="/listeners?format=json").body)
    rows = found.get("listener_statuses", ())
    return {each["name"]: each["local_address"]["socket_address"]["port_value"] for each in rows}


def _first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], 60)
    return process.stdout.readline().decode() if readable else ""
