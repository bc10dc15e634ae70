"""Callers whom an identity provider names, at a gateway with two workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx
from tests.support.operated_gateway import ADMIN_KEY, OperatedGateway, ServeAlone
from tests.support.played_hub import send_json

KEY = ec.generate_private_key(ec.SECP256R1())
ALLOWED = 10


@contextmanager
def key_server() -> Iterator[str]:
    """The address of the issuer's public keys."""
    keys = {"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "ec", "alg": "ES256"}]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            send_json(self, keys)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    finally:
        server.shutdown()
        server.server_close()


def token(name: str) -> str:
    claims = {"iss": "https://login.example.org", "aud": "house", "sub": name, "exp": time.time() + 600}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "ec"})


def ask(gateway: OperatedGateway, shown: str) -> httpx.Response:
    """Ask on a connection of its own, which either worker may accept."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    with plain_httpx.Client(base_url=gateway.process.url) as client:
        answer: httpx.Response = client.post(
            "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {shown}"}
        )
        return answer


def test_limits_and_usage_of_tokens_add_up_over_workers(serve_alone: ServeAlone, pool: ThreadPoolExecutor) -> None:
    with SimEngine("m", speedup=0) as engine, key_server() as keys:
        gateway = serve_alone(
            f"""
            [server]
            workers = 2
            [[auth.keys]]
            name = "admin"
            key = "{ADMIN_KEY}"
            admin = true
            [auth.jwt]
            issuer = "https://login.example.org"
            audience = "house"
            jwks_url = "{keys}"
            requests_per_minute = {ALLOWED}
            [backends.a]
            driver = "sim"
            url = "{engine.url}"
            """
        )
        gateway.until_health(a="healthy")
        # each worker fetches the keys by itself
        gateway.until(lambda _: all(ask(gateway, token("early")).status_code != 401 for _ in range(8)))
        began = time.monotonic()
        answers = list(pool.map(lambda _: ask(gateway, token("ann")), range(40)))
        filled = (time.monotonic() - began) * ALLOWED / 60
        served = [answer.json()["usage"] for answer in answers if answer.status_code == 200]
        assert ALLOWED <= len(served) <= ALLOWED + filled
        assert {answer.status_code for answer in answers} == {200, 429}

        def row() -> dict[str, int]:
            rows = gateway.http.get("/api/usage?by=key").json()["rows"]
            found: dict[str, int] = next(
                (each for each in rows if each["key"] == "jwt/https://login.example.org/ann"), {}
            )
            return found

        gateway.until(lambda _: row().get("requests") == len(answers))
        assert row()["failed"] == len(answers) - len(served)
        assert row()["tokens_in"] == sum(usage["prompt_tokens"] for usage in served)
        assert row()["tokens_out"] == sum(usage["completion_tokens"] for usage in served)
