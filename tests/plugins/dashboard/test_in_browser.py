"""The page in a real browser: pictures, accessibility, every button, and what it costs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway

BROWSER = Path(__file__).parent / "browser"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
NODE = shutil.which("node") or ""
PICTURES = Path("build/pictures")
CONFIG = """
[scheduling]
swapper = "memory"
[hosts.local]
memory = "24GiB"
[models.small-a]
driver = "sim"
memory = "6GiB"
preload = true
[models.small-b]
driver = "sim"
memory = "8GiB"
[models.broken]
command = "false ${port}"
[services.batches]
[backends.away]
url = "http://127.0.0.1:9"
models = ["remote"]
"""
KEYS = """
[auth]
keys = [
  { name = "boss", key = "k-boss", admin = true },
  { name = "caller", key = "k-caller", requests_per_minute = 60 },
]
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not CHROMIUM or not NODE, reason="needs Chromium and Node.js"),
    pytest.mark.skipif(
        not (BROWSER / "node_modules" / "playwright-core").exists(), reason=f"needs: npm install --prefix {BROWSER}"
    ),
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with RunningGateway(CONFIG) as running:
        running.until(lambda status: "ready" in [each["state"] for each in status["replicas"]])
        httpx.post(f"{running.url}/api/models/broken/load", timeout=60)
        for number in range(12):
            body = {"model": "small-a", "messages": [{"role": "user", "content": "Hello"}], "stream": number % 2 == 1}
            httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=60).raise_for_status()
        batch(running.url)
        yield running


def batch(url: str) -> None:
    """Run a batch of two lines."""
    chat = {"model": "small-a", "messages": [{"role": "user", "content": "Hello"}]}
    line = {"method": "POST", "url": "/v1/chat/completions", "body": chat}
    lines = "\n".join(json.dumps({"custom_id": f"line-{number}", **line}) for number in range(2))
    with httpx.Client(base_url=url) as client:
        files = {"file": ("lines.jsonl", lines)}
        made = client.post("/v1/files", data={"purpose": "batch"}, files=files).raise_for_status().json()
        body = {"input_file_id": made["id"], "endpoint": line["url"], "completion_window": "24h"}
        client.post("/v1/batches", json=body).raise_for_status()


def seen(scenario: str, gateway: RunningGateway) -> dict[str, Any]:
    """What ``scenario`` found. No script of the page may have failed."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    command = [NODE, "browser.mjs", CHROMIUM, scenario, gateway.url, str(PICTURES.absolute())]
    done = subprocess.run(command, cwd=BROWSER, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("errors") == []
    return found


def test_every_view_is_accessible_and_fits_the_screen(gateway: RunningGateway) -> None:
    assert seen("views", gateway) == {"violations": {}, "wide": [], "long": []}


def test_charts_share_a_cursor_and_show_events_and_parts(gateway: RunningGateway) -> None:
    said = seen("charts", gateway)["said"]
    assert said["marks"]
    assert said["cursors"] == [True]
    assert "✕" in said["part"]
    assert said["whole"]
    assert "The gateway started" in said["events"]


def test_a_day_is_read_at_a_glance(gateway: RunningGateway) -> None:
    assert seen("day", gateway) == {"violations": []}


def test_operators_see_the_batches_of_all_callers(gateway: RunningGateway) -> None:
    found = seen("batches", gateway)
    assert found["rows"] == 1
    assert "completed2 of 2" in found["text"]


def test_buttons_tell_what_they_do_and_keep_the_focus(gateway: RunningGateway) -> None:
    said = seen("operate", gateway)["said"]
    assert (said["before"], said["loaded"], said["unloaded"]) == ("stopped", "ready", "stopped")
    assert said["plan"] == "small-b needs 8 GiB: nothing stops"
    assert said["asked"]
    assert said["kept"] == "ready"
    assert said["focus"] == said["focusLater"] == "Unload small-b"
    assert said["swap"].endswith("small-b would run.")


def test_a_chat_shows_who_answered_and_how_fast(gateway: RunningGateway) -> None:
    said = seen("chat", gateway)["said"]
    assert said["who"] == "small-a at small-a (match)"
    assert "first token after" in said["figures"]
    assert "Where it would go now" in said["drawer"]
    assert "Only small-a can serve it" in said["drawer"]
    assert "no engine has had more of it" in said["ended"]
    assert "The client has left" in said["ended"]
    assert "small-a" in said["code"]
    assert all("is ready" in line for line in said["lines"].splitlines())


def test_chats_are_kept_and_models_compared(gateway: RunningGateway) -> None:
    assert seen("compare", gateway) == {"before": 2, "same": True, "left": "[]"}


def test_a_callers_key_may_chat_and_an_operator_makes_others() -> None:
    with RunningGateway(CONFIG + KEYS, key="k-boss") as running:
        running.until(lambda status: "ready" in [each["state"] for each in status["replicas"]])
        assert seen("caller", running) == {
            "tabs": ["Try it", "Usage"],
            "parts": ["Usage", "What is left"],
            "left": "requests per minute",
            "bars": True,
        }
        assert seen("keys", running) == {"secrets": ["eh", "eh"], "left": "60 of 60 left"}


def test_the_palette_needs_no_mouse(gateway: RunningGateway) -> None:
    httpx.post(f"{gateway.url}/api/models/small-b/unload", timeout=60)
    said = seen("palette", gateway)["said"]
    assert said == {
        "violations": [],
        "asks": "Unload small-b: Enter again to do it",
        "closed": True,
        "nothing": "Nothing is called so",
    }


@pytest.mark.parametrize("crowd", ["some", "many"])
def test_a_crowd_stays_small(gateway: RunningGateway, crowd: str) -> None:
    """The page shows a part of 500 backends and 2,000 live requests. Its share of a core is printed."""
    figures = seen(crowd, gateway)["figures"]
    print(json.dumps(figures))
    assert {view: each["nodes"] for view, each in figures.items() if each["nodes"] > 4000} == {}
