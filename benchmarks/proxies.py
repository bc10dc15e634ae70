"""Proxies that know nothing of models, before one engine: what passing bytes on costs at least."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

_HAPROXY = """
global
  nbthread 1
  maxconn 5000
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  server engine 127.0.0.1:{engine}
"""
_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log /dev/null;
events {{ worker_connections 10000; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 1h;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream engines {{ server 127.0.0.1:{engine}; keepalive 256; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header connection ""; proxy_buffering off;
    }}
  }}
}}
"""

Started = Callable[[list[str], str], AbstractContextManager[int]]
"""Starts a command and waits for a page. Yields the process id."""
Proxy = Callable[[str, str, int, Started], AbstractContextManager[int]]
"""Starts a proxy: the engine's address, the program, the port that it gets, and what starts it."""


@contextmanager
def haproxy(engine: str, program: str, port: int, started: Started) -> Iterator[int]:
    """HAProxy with one thread."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "haproxy.cfg"
        config.write_text(_HAPROXY.format(port=port, engine=urlsplit(engine).port))
        with started([program, "-db", "-f", str(config)], f"http://127.0.0.1:{port}/v1/models") as pid:
            yield pid


@contextmanager
def nginx(engine: str, program: str, port: int, started: Started) -> Iterator[int]:
    """nginx with one process, which keeps connections to the engine."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(_NGINX.format(folder=folder, port=port, engine=urlsplit(engine).port))
        with started([program, "-p", folder, "-c", str(config)], f"http://127.0.0.1:{port}/v1/models") as pid:
            yield pid


@contextmanager
def envoy(engine: str, program: str, port: int, started: Started) -> Iterator[int]:
    """Envoy with one thread."""
    text = (Path(__file__).parent / "envoy_alone.yaml").read_text()
    text = text.replace("port_value: 8000", f"port_value: {urlsplit(engine).port}")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "envoy.yaml"
        config.write_text(text.replace("port_value: 0}", f"port_value: {port}}}"))
        command = [program, "-c", str(config), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
        with started(command, f"http://127.0.0.1:{port}/v1/models") as pid:
            yield pid


PROXIES: Mapping[str, Proxy] = {"haproxy": haproxy, "nginx": nginx, "envoy": envoy}
